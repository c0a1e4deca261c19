"""Polynomials as vectors of coefficients, the highest power first.

NumPy's functions drop leading zeros of what they are given and give; whether there are some depends on data, so these
keep them: a product of n and m coefficients has n + m - 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.types import int64
from loopgrad.lazy.numpy.convolution import convolve
from loopgrad.lazy.numpy.creation import arange, zeros, zeros_like
from loopgrad.lazy.numpy.elementwise import add, divide, multiply, subtract
from loopgrad.lazy.numpy.movement import concat, ravel, reshape
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast, copied
from loopgrad.lazy.tensor.operands import as_float, meet_arrays, vector_operand, whole_number
from loopgrad.lazy.tensor.promotion import promote
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

MOST_INTEGRATIONS: Final = 1000  # each makes a longer polynomial
PUBLIC: Final = "polyadd polyder polydiv polyint polymul polysub polyval"


def _coefficients(op: str, x: ArrayLike, empty: bool = True) -> Tensor:
    """A vector; without coefficients it is the polynomial 0."""
    t = as_tensor(x)
    return vector_operand(op, t if t._value.shape else reshape(t, (1,)), empty)


def _pair(op: str, x: ArrayLike, y: ArrayLike, empty: bool = True) -> tuple[Tensor, Tensor]:
    a, b = meet_arrays(_coefficients(op, x, empty), _coefficients(op, y, empty))
    return a, b


def _padded(t: Tensor, count: int) -> Tensor:
    """With zeros in front, to that many coefficients."""
    missing = count - t._value.shape[0]
    return concat([zeros((missing,), dtype=t._value.dtype), t]) if missing > 0 else t


@repeated
def polyval(coefficients: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The polynomial with these coefficients (a vector), the highest power first, at x (Horner's scheme).

    The result has x's shape and the dtype to which both are promoted.

    >>> lg.polyval([1.0, 0.0, -2.0], lg.asarray([2.0, 3.0]))
    Tensor([2., 7.], dtype=float64)
    """
    table = _coefficients("polyval", coefficients)
    t = as_tensor(x)
    result = zeros_like(t)
    for i in range(table._value.shape[0]):
        result = add(multiply(result, t), table[i])
    return result


@repeated
def polyadd(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The sum of two polynomials, as long as the longer one; dtypes are promoted to one.

    >>> lg.polyadd([1, 2], [5, 0, 4])
    Tensor([5, 1, 6], dtype=int64)
    """
    a, b = _pair("polyadd", x, y)
    count = max(a._value.shape[0], b._value.shape[0])
    return add(_padded(a, count), _padded(b, count))


@repeated
def polysub(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The difference of two polynomials, as long as the longer one; dtypes are promoted to one.

    >>> lg.polysub([1, 2], [5, 0, 4])
    Tensor([-5,  1, -2], dtype=int64)
    """
    a, b = _pair("polysub", x, y)
    count = max(a._value.shape[0], b._value.shape[0])
    return subtract(_padded(a, count), _padded(b, count))


@repeated
def polymul(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The product of two polynomials of n and m coefficients, of n + m - 1; dtypes are promoted to one.

    >>> lg.polymul([1, 2], [1, -2])
    Tensor([ 1,  0, -4], dtype=int64)
    """
    a, b = _pair("polymul", x, y)
    return convolve(_padded(a, 1), _padded(b, 1))


@repeated
def polydiv(x: ArrayLike, y: ArrayLike, /) -> tuple[Tensor, Tensor]:
    """(quotient, remainder) of two polynomials of n and m coefficients: of n - m + 1 and m - 1, at least one each.

    Of a float dtype, integers give the default float. y's first coefficient must not be 0: it divides. Raises
    ShapeError where there are no coefficients.

    >>> lg.polydiv([3.0, 5.0, 2.0], [2.0, 1.0])
    (Tensor([1.5 , 1.75], dtype=float64), Tensor([0.25], dtype=float64))
    """
    a, b = map(as_float, _pair("polydiv", x, y, empty=False))
    n, m = a._value.shape[0], b._value.shape[0]
    if n < m:
        return zeros((1,), dtype=a._value.dtype), copied(a)
    lead, rest, found = b[0], a, []
    for _ in range(n - m + 1):
        factor = divide(rest[0], lead)
        found.append(reshape(factor, (1,)))
        rest = concat([subtract(rest[1:m], multiply(factor, b[1:])), rest[m:]])
    return concat(found), rest if rest._value.shape[0] else zeros((1,), dtype=a._value.dtype)


@repeated
def polyder(x: ArrayLike, /, m: int = 1) -> Tensor:
    """The m-th derivative of a polynomial, m coefficients shorter; the dtype stays, small integers become 64-bit.

    Raises ValueError for a negative m.

    >>> lg.polyder([1, 1, 1])
    Tensor([2, 1], dtype=int64)
    """
    m = whole_number("polyder", "a number of derivatives", m)
    if m < 0:
        raise ValueError(explained("polyder", "a number of derivatives of at least 0", m, "use lg.polyint"))
    t = _coefficients("polyder", x)
    for _ in range(min(m, t._value.shape[0] + 1)):  # nothing is left then
        count = t._value.shape[0]
        powers = arange(count - 1, 0, -1)
        if not t._value.dtype.is_float:
            t = cast(t, promote(t._value.dtype, int64))
        t = multiply(t[:-1], cast(powers, t._value.dtype)) if count else t
    return t if m else copied(t)


@repeated
def polyint(x: ArrayLike, /, m: int = 1, k: ArrayLike | None = None) -> Tensor:
    """The m-th antiderivative of a polynomial, m coefficients longer, with constants `k` (one, or m of them; zeros).

    Of a float dtype, integers give the default float. Raises ValueError for an m below 0 or above 1,000, ShapeError for
    other `k`.

    >>> lg.polyint([2.0, 1.0])
    Tensor([1., 1., 0.], dtype=float64)
    """
    m = whole_number("polyint", "a number of integrations", m)
    if not 0 <= m <= MOST_INTEGRATIONS:
        expected = f"a number of integrations from 0 to {MOST_INTEGRATIONS}"
        raise ValueError(explained("polyint", expected, m, "use lg.polyder" if m < 0 else "integrate less often"))
    t = _coefficients("polyint", x)
    t = as_float(t)
    constants = ravel(0.0 if k is None else k)
    if constants._value.shape[0] not in (1, m):
        raise ShapeError(explained("polyint", f"one constant, or {m}", constants._value.type, "pass one of each"))
    for i in range(m):
        powers = cast(arange(t._value.shape[0], 0, -1), t._value.dtype)
        constant = constants[i : i + 1] if constants._value.shape[0] == m else constants
        t = concat([divide(t, powers), cast(constant, t._value.dtype)])
    return t if m else copied(t)
