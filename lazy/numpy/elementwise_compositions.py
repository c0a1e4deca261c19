"""Elementwise functions of NumPy's that are compositions of others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from loopgrad.graph import ops
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import DTYPES, DType, bool_, complex128, float32, float64, int64, uint8, uint64
from loopgrad.lazy.loops.while_loop import while_loop
from loopgrad.lazy.numpy.elementwise import (
    absolute,
    add,
    divide,
    equal,
    exp2,
    floor_divide,
    greater,
    less,
    less_equal,
    log1p,
    logical_and,
    logical_or,
    maximum,
    minimum,
    multiply,
    negative,
    not_equal,
    power,
    remainder,
    round,
    sin,
    subtract,
    trunc,
)
from loopgrad.lazy.numpy.reduction import all
from loopgrad.lazy.numpy.smooth_functions import log_of_sum, logaddexp
from loopgrad.lazy.numpy.sorting import searchsorted, sort
from loopgrad.lazy.numpy.special_values import clip, isfinite, isinf, isnan, signbit, where
from loopgrad.lazy.numpy.taking import take
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, as_tensor, cast, cast_value, wrap
from loopgrad.lazy.tensor.operands import dtype_refused, meet, meet_arrays
from loopgrad.lazy.tensor.outputs import binary, unary
from loopgrad.lazy.tensor.promotion import float_dtype
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = (
    "allclose array_equal bitwise_count deg2rad degrees divmod fabs float_power fmax fmin gcd heaviside isclose isin "
    "isneginf isposinf lcm ldexp logaddexp2 modf rad2deg radians rint select sinc"
)

# the smallest normal power of two, a step towards it after which the digits of a number still count, the largest (of
# float32 one less: NumPy's exp2 of 127 is off by an ulp, and so is the interpreter's)
_POWERS_OF_TWO: Final[dict[DType, tuple[int, int, int]]] = {float32: (-126, -102, 126), float64: (-1022, -969, 1023)}


def _as_float(x: ArrayLike) -> Tensor:
    """`x`, integers as the default float; a quotient of complex numbers would mix their parts, one infinite or NaN."""
    t = as_tensor(x)
    dtype = t._value.dtype
    return t if dtype.differentiable else wrap(cast_value(t._value, float_dtype(dtype)), t._weak)


def _as_real(op: str, x: ArrayLike) -> Tensor:
    """As above, without complex numbers."""
    t = _as_float(x)
    if not t._value.dtype.is_float:
        raise dtype_refused(op, "biuf", t._value.dtype)
    return t


@repeated
def divmod(x: ArrayLike, y: ArrayLike, /) -> tuple[Tensor, Tensor]:
    """`floor_divide(x, y)` and `remainder(x, y)`: shapes and dtypes are theirs.

    >>> lg.divmod([7, -7], 2)
    (Tensor([ 3, -4], dtype=int64), Tensor([1, 1], dtype=int64))
    """
    return floor_divide(x, y), remainder(x, y)


@binary
def float_power(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """x to the power y in float64 or complex128, whatever the operands' dtypes: integers may have negative powers.
    Shapes broadcast.

    >>> lg.float_power([2, 4], -1)
    Tensor([0.5 , 0.25], dtype=float64)
    """
    base, exponent = as_tensor(x), as_tensor(y)
    wide = complex128 if "c" in (base._value.dtype.kind, exponent._value.dtype.kind) else float64
    return power(cast(base, wide), cast(exponent, wide))


@binary
def fmax(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The larger of x and y; where one is NaN, the other. Shapes and dtypes are those of `maximum`.

    >>> lg.fmax([1.0, np.nan], [0.0, 2.0])
    Tensor([1., 2.], dtype=float64)
    """
    return where(isnan(x), y, where(isnan(y), x, maximum(x, y)))


@binary
def fmin(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The smaller of x and y; where one is NaN, the other. Shapes and dtypes are those of `minimum`.

    >>> lg.fmin([1.0, np.nan], [0.0, 2.0])
    Tensor([0., 2.], dtype=float64)
    """
    return where(isnan(x), y, where(isnan(y), x, minimum(x, y)))


@unary
def fabs(x: ArrayLike, /) -> Tensor:
    """The absolute value as a float: integers give the default float, the shape stays.

    >>> lg.fabs([-1, 2])
    Tensor([1., 2.], dtype=float64)
    """
    return absolute(_as_real("fabs", x))


@unary
def deg2rad(x: ArrayLike, /) -> Tensor:
    """Degrees to radians; the shape stays, integers give the default float.

    >>> lg.deg2rad([0.0, 180.0])
    Tensor([0.        , 3.14159265], dtype=float64)
    """
    return multiply(_as_real("deg2rad", x), math.pi / 180.0)


@unary
def rad2deg(x: ArrayLike, /) -> Tensor:
    """Radians to degrees; the shape stays, integers give the default float.

    >>> lg.rad2deg([0.0, lg.pi])
    Tensor([  0., 180.], dtype=float64)
    """
    return multiply(_as_real("rad2deg", x), 180.0 / math.pi)


@unary
def rint(x: ArrayLike, /) -> Tensor:
    """The nearest whole number as a float, half to even; the shape stays, integers give the default float.

    >>> lg.rint([0.5, 1.5, 2.4])
    Tensor([0., 2., 2.], dtype=float64)
    """
    return round(_as_float(x))


@repeated
def modf(x: ArrayLike, /) -> tuple[Tensor, Tensor]:
    """The fraction and the whole part of x, both with x's sign and shape; integers give the default float.

    >>> lg.modf([2.5, -0.25])
    (Tensor([ 0.5 , -0.25], dtype=float64), Tensor([ 2., -0.], dtype=float64))
    """
    t = _as_float(x)
    whole, below = trunc(t), signbit(t)
    # taken from the larger one, so that no abs is needed, which has no slope where nothing is left
    size = where(isinf(t), 0.0, where(below, subtract(whole, t), subtract(t, whole)))
    return where(below, negative(size), size), whole


@binary
def ldexp(x: ArrayLike, exponent: ArrayLike, /) -> Tensor:
    """x * 2**exponent, rounded once; shapes broadcast, the dtype is x's (of integers the default float).

    Raises DTypeError for an exponent that isn't an integer.

    >>> lg.ldexp([0.75, 1.0], [2, -1])
    Tensor([3. , 0.5], dtype=float64)
    """
    t, e = _as_float(x), as_tensor(exponent)
    if t._value.dtype.kind == "c":
        fix = "use x * 2.0**exponent"
        raise DTypeError(explained("ldexp", "real numbers", t._value.type, fix))
    if not e._value.dtype.is_integer:
        raise DTypeError(explained("ldexp", "an integer exponent", e._value.type, "use x * lg.exp2(exponent)"))
    if t._value.dtype.bits == 16:  # float32 has room for every result
        return cast(ldexp(cast(t, float32), e), t._value.dtype)
    lowest, step, highest = _POWERS_OF_TWO[t._value.dtype]
    rest = cast(minimum(e, 4 * highest) if e._value.dtype is uint64 else e, int64)
    for _ in range(2):  # what a step makes subnormal, and so rounds, becomes 0 in the end
        part = where(less(rest, lowest), step, where(greater(rest, highest), highest, 0))
        t, rest = multiply(t, exp2(cast(part, t._value.dtype))), subtract(rest, part)
    return multiply(t, exp2(cast(clip(rest, lowest, highest), t._value.dtype)))


@binary
def logaddexp2(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """log2(2**x + 2**y) without overflow; operands broadcast, and integers give the default float.

    >>> lg.logaddexp2(2000.0, 2000.0)
    Tensor(2001., dtype=float64)
    """
    (a, b), weak = meet("logaddexp2", (x, y), floating=True)
    p, q, scale = wrap(a, weak), wrap(b, weak), math.log(2.0)
    if a.dtype.kind == "f":
        return log_of_sum(p, q, lambda gap: divide(log1p(exp2(gap)), scale))
    return divide(logaddexp(multiply(p, scale), multiply(q, scale)), scale)


# The series of sin(a) / a in a * a. Derivatives of the quotient lose all digits near 0; below 1 the series has them
# all, up to the fourth derivative.
_SINC: Final = tuple([(-1) ** k / math.factorial(2 * k + 1) for k in range(12)])


@repeated
def sinc(x: ArrayLike) -> Tensor:
    """sin(pi x) / (pi x), and 1 at 0; the shape stays, integers give the default float.

    >>> lg.sinc([0.0, 0.5])
    Tensor([1.        , 0.63661977], dtype=float64)
    """
    t = _as_float(x)
    angle = multiply(t, math.pi)
    near = less(absolute(angle), 1.0)
    square = multiply(angle, angle)
    series: Tensor = as_tensor(_SINC[-1])
    for coefficient in _SINC[-2::-1]:
        series = add(multiply(series, square), coefficient)
    return where(near, series, divide(sin(angle), where(near, 1.0, angle)))


@binary
def heaviside(x: ArrayLike, at_zero: ArrayLike, /) -> Tensor:
    """0 where x is negative, 1 where it is positive, `at_zero` where it is 0; NaN stays.

    Operands broadcast, and integers give the default float.

    >>> lg.heaviside([-1.0, 0.0, 2.0], 0.5)
    Tensor([0. , 0.5, 1. ], dtype=float64)
    """
    (a, b), weak = meet("heaviside", (x, at_zero), floating=True)
    if a.dtype.kind == "c":
        raise dtype_refused("heaviside", "biuf", a.dtype)
    t = wrap(a, weak)
    step = where(equal(t, 0), wrap(b, weak), where(less(t, 0), 0.0, 1.0))
    return where(isnan(t), t, step)


def _infinity_of(op: str, side: Callable[..., Tensor], x: ArrayLike) -> Tensor:
    t = as_tensor(x)
    if t._value.dtype.kind == "c":
        raise dtype_refused(op, "biuf", t._value.dtype)
    return logical_and(isinf(t), side(t, 0))


@unary
def isposinf(x: ArrayLike) -> Tensor:
    """Whether x is positive infinity; the shape stays, the result is bool. Raises DTypeError for complex numbers.

    >>> lg.isposinf([np.inf, -np.inf])
    Tensor([ True, False], dtype=bool)
    """
    return _infinity_of("isposinf", greater, x)


@unary
def isneginf(x: ArrayLike) -> Tensor:
    """Whether x is negative infinity; the shape stays, the result is bool. Raises DTypeError for complex numbers.

    >>> lg.isneginf([np.inf, -np.inf])
    Tensor([False,  True], dtype=bool)
    """
    return _infinity_of("isneginf", less, x)


@repeated
def isclose(x: ArrayLike, y: ArrayLike, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """|x - y| <= atol + rtol * |y|; infinities equal themselves, NaN only where `equal_nan`.

    Operands broadcast; the result is bool.

    >>> lg.isclose([1.0, 1.0], [1.0 + 1e-9, 1.1])
    Tensor([ True, False], dtype=bool)
    """
    (a, b), _ = meet("isclose", (x, y), floating=True)
    s, t = wrap(a), wrap(b)
    near = logical_and(less_equal(absolute(subtract(s, t)), add(atol, multiply(rtol, absolute(t)))), isfinite(t))
    result = logical_or(near, equal(s, t))
    return logical_or(result, logical_and(isnan(s), isnan(t))) if equal_nan else result


@repeated
def allclose(x: ArrayLike, y: ArrayLike, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Whether `isclose` holds everywhere, as a bool tensor of shape ().

    >>> lg.allclose([1.0, 2.0], [1.0, 2.0 + 1e-9])
    Tensor(True, dtype=bool)
    """
    return all(isclose(x, y, rtol, atol, equal_nan))


@repeated
def array_equal(x: ArrayLike, y: ArrayLike, /, equal_nan: bool = False) -> Tensor:
    """Whether the shapes agree and all elements do, as a bool tensor of shape (); NaN equals NaN only where
    `equal_nan`.

    >>> lg.array_equal([1, 2], [1.0, 2.0]), lg.array_equal([1, 2], [1])
    (Tensor(True, dtype=bool), Tensor(False, dtype=bool))
    """
    a, b = as_tensor(x), as_tensor(y)
    if a._value.shape != b._value.shape:
        return as_tensor(False)
    same = equal(a, b)
    return all(logical_or(same, logical_and(isnan(a), isnan(b))) if equal_nan else same)


_COMPARED: Final = 32  # elements that are compared with all others


@repeated
def isin(
    x: ArrayLike,
    /,
    test_elements: ArrayLike,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    kind: str | None = None,
    method: str = "auto",
) -> Tensor:
    """Whether each element of x occurs among those of `test_elements`: bools of x's shape.

    Few are compared with all, many are sorted and searched by halves; `assume_unique`, `kind` and `method`, which tell
    NumPy and JAX how to search, change nothing.

    >>> lg.isin([1, 2, 3], [3, 1])
    Tensor([ True, False,  True], dtype=bool)
    """
    t, table = meet_arrays(x, test_elements)
    table = table.ravel()
    count = table._value.shape[0]
    if count <= _COMPARED or table._value.dtype.kind not in "iuf":
        found = equal(t[..., None], table).any(axis=-1)
    else:
        ordered = sort(table)
        found = equal(take(ordered, minimum(searchsorted(ordered, t), count - 1)), t)
    return not_equal(found, True) if invert else found


@repeated
def select(condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: ArrayLike = 0) -> Tensor:
    """For each element the choice of the first condition that holds, `default` where none does.

    All broadcast; choices and default are promoted to one dtype. Raises ShapeError unless there are as many conditions
    as choices, and at least one, and for three arrays of one shape (JAX's `lax.select`), which `lg.where` takes;
    DTypeError for conditions that aren't bools.

    >>> x = lg.asarray([-1.0, 0.5, 3.0])
    >>> lg.select([x < 0, x < 1], [0.0, x], 1.0)
    Tensor([0. , 0.5, 1. ], dtype=float64)
    """
    alike = [x._value.shape for x in (condlist, choicelist, default) if isinstance(x, TensorCore) and x._value.shape]
    if len(alike) == 3 and len(set(alike)) == 1:
        fix = "choose element by element with lg.where(condition, x, y)"
        raise ShapeError(explained("select", "lists of conditions and of choices", "three arrays of one shape", fix))
    if len(condlist) != len(choicelist) or not len(choicelist):
        got = f"{len(condlist)} conditions and {len(choicelist)} choices"
        raise ShapeError(explained("select", "as many conditions as choices, at least one", got, "pair them up"))
    for condition in condlist:
        given = as_tensor(condition)._value
        if given.dtype is not bool_:
            raise DTypeError(explained("select", "conditions of bools", given.type, "compare: condition != 0"))
    (result, *values), weak = meet("select", (default, *choicelist))
    for condition, value in reversed(list(zip(condlist, values, strict=True))):
        result = where(condition, wrap(value), wrap(result))._value
    return wrap(result, weak)


# ---- integers


@binary
def gcd(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The greatest common divisor, by Euclid's algorithm, each element in a loop of its own.

    Operands broadcast and are promoted to one integer dtype, the result's. Raises DTypeError for others.

    >>> lg.gcd([12, 18], 30)
    Tensor([6, 6], dtype=int64)
    """
    values, _ = meet("gcd", (x, y))
    if not values[0].dtype.is_integer:
        raise dtype_refused("gcd", "iu", values[0].dtype)
    return cast(_unsigned_gcd(*map(_unsigned_size, values)), values[0].dtype)


def _unsigned_size(value: Value) -> Tensor:
    """The absolute value of an integer; unsigned, since that of the smallest number is no signed one."""
    return cast(absolute(wrap(value)), DTYPES[f"uint{value.dtype.bits}"])


def _unsigned_gcd(x: Tensor, y: Tensor) -> Tensor:
    found: tuple[Tensor, Tensor] = while_loop(
        lambda c: not_equal(c[1], 0), lambda c: (c[1], remainder(c[0], c[1])), (x, y), name="gcd"
    )
    return found[0]


@binary
def lcm(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The least common multiple; 0 where one is 0. Shapes, dtypes and errors are those of `gcd`; it may wrap.

    >>> lg.lcm([4, 6], 10)
    Tensor([20, 30], dtype=int64)
    """
    values, _ = meet("lcm", (x, y))
    if not values[0].dtype.is_integer:
        raise dtype_refused("lcm", "iu", values[0].dtype)
    a, b = map(_unsigned_size, values)
    return cast(multiply(floor_divide(a, _unsigned_gcd(a, b)), b), values[0].dtype)  # x // 0 is 0


@unary
def bitwise_count(x: ArrayLike, /) -> Tensor:
    """How many bits of |x| are set, as uint8; the shape stays. Raises DTypeError for floats.

    >>> lg.bitwise_count([7, -8])
    Tensor([3, 1], dtype=uint8)
    """
    t = as_tensor(x)
    if t._value.dtype is bool_:
        return cast(t, uint8)
    if not t._value.dtype.is_integer:
        raise dtype_refused("bitwise_count", "iu", t._value.dtype)
    return cast(wrap(ops.bit_count(_unsigned_size(t._value)._value)), uint8)


degrees, radians = rad2deg, deg2rad
