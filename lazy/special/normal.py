"""Of the normal distribution: its distribution function, the error function scaled, and their inverses.

Inverses are Chebyshev series in w = -log(1 - erf(x)**2) for small w and in its root further out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from loopgrad.lazy.numpy.elementwise import absolute, digamma, erf, erfc, lgamma, log, log1p, logical_and, sqrt
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.special.coefficients import ERFCINV_BEYOND, ERFCINV_MIDDLE, ERFCX, ERFINV
from loopgrad.lazy.special.operands import chebyshev, exp_of_square, of_domain, overflowing
from loopgrad.lazy.tensor.core import ArrayLike
from loopgrad.lazy.tensor.repeated_calls import repeated_formula
from loopgrad.lazy.transforms.own_rules import custom_jvp

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_SPECIAL: Final = "digamma psi=digamma erf erfc erfcinv erfcx erfinv gammaln=lgamma log_ndtr ndtr ndtri"
__all__ = ["digamma", "erf", "erfc", "lgamma"]
ROOT_2: Final = math.sqrt(2.0)
BORDER, FURTHER, END = 6.0, 6.5, 28.0  # of w, then of its root


@repeated_formula
def erfcx(x: ArrayLike, /) -> Tensor:
    """exp(x * x) * erfc(x), which falls slowly; the shape stays, integers give the default float.

    By a Chebyshev series (M. Shepherd and J. Laframboise, 1981).

    >>> lg.special.erfcx([0.0, 1e10])
    Tensor([1.00000000e+00, 5.64189584e-11], dtype=float64)
    """
    return of_domain("erfcx", _erfcx, x)


def _erfcx(x: Tensor) -> Tensor:
    below = x < 0.0
    size = where(below, -x, x)
    right = _times_size(size) / (1.0 + 2.0 * size)
    left = 2.0 * exp_of_square(where(below, x, 0.0), 1.0) - right
    return where(below, overflowing(left, x * x), right)


def _times_size(size: Tensor) -> Tensor:
    """(1 + 2 x) * erfcx(x) from x = 0 on."""
    return chebyshev(ERFCX, 1.0 - 7.5 / (size + 3.75))


@repeated_formula
def ndtr(x: ArrayLike, /) -> Tensor:
    """The distribution function of the standard normal distribution; the shape stays, integers give the default float.

    >>> lg.special.ndtr([0.0, -10.0])
    Tensor([5.00000000e-01, 7.61985302e-24], dtype=float64)
    """
    return of_domain("ndtr", _ndtr, x)


def _ndtr(x: Tensor) -> Tensor:
    low = x < -1.0
    tail = where(low, x, -1.0)
    far = 0.5 * _erfcx(tail / -ROOT_2) * exp_of_square(tail, -0.5)
    return where(low, far, 0.5 * erfc(where(low, -1.0, x) / -ROOT_2))


@repeated_formula
def log_ndtr(x: ArrayLike, /) -> Tensor:
    """The logarithm of `ndtr`, where that underflows too; the shape stays, integers give the default float.

    >>> lg.special.log_ndtr([0.0, -100.0])
    Tensor([-6.93147181e-01, -5.00552421e+03], dtype=float64)
    """
    return of_domain("log_ndtr", _log_ndtr, x)


def _log_ndtr(x: Tensor) -> Tensor:
    low = x < -1.0
    tail = where(low, x, -1.0)
    size = tail / -ROOT_2
    far = log(0.5 * _times_size(size)) - log1p(2.0 * size) - 0.5 * (tail * tail)
    return where(low, far, log1p(-_ndtr(-where(low, -1.0, x))))


def _outer(w: Tensor) -> Tensor:
    """The x of a w beyond the border."""
    finite = where(logical_and(w > BORDER, w < END * END), w, BORDER)
    s = sqrt(finite)
    middle = s < FURTHER
    inner = where(middle, s, FURTHER)
    first = math.sqrt(BORDER)
    near = chebyshev(ERFCINV_MIDDLE, (2.0 * inner - (FURTHER + first)) / (FURTHER - first))
    far = chebyshev(ERFCINV_BEYOND, (2.0 * where(middle, FURTHER, s) - (END + FURTHER)) / (END - FURTHER))
    return where(w > END * END, float("inf"), s * where(middle, near, far))


def _inner(x: Tensor, w: Tensor) -> Tensor:
    return x * chebyshev(ERFINV, where(w <= BORDER, w, 0.0) * (2.0 / BORDER) - 1.0)


@repeated_formula
def erfinv(x: ArrayLike, /) -> Tensor:
    """The inverse of `erf`, from -1 to 1, where it is infinite; NaN beyond. The shape stays, integers give the default
    float.

    >>> lg.special.erfinv([0.0, 0.5, 1.0])
    Tensor([0.        , 0.47693628,        inf], dtype=float64)
    """
    return of_domain("erfinv", _erfinv, x)


def _erfinv(x: Tensor) -> Tensor:
    w = -(log1p(-x) + log1p(x))
    far = _outer(w)
    return where(w > BORDER, where(x < 0.0, -far, far), _inner(x, w)) + _steep(1.0 - absolute(x), x)


def _steep(room: Tensor, x: Tensor) -> Tensor:
    """What has derivatives to add: 0 within the domain, infinite at its border and NaN beyond, as the value is."""
    return where(room > 0.0, 0.0, where(room == 0.0, float("inf"), float("nan"))) * (x * absolute(x))


@repeated_formula
def erfcinv(y: ArrayLike, /) -> Tensor:
    """The inverse of `erfc`, from 0 to 2, where it is infinite; NaN beyond. The shape stays, integers give the default
    float.

    >>> lg.special.erfcinv([1.0, 1e-300])
    Tensor([ 0.        , 26.20946996], dtype=float64)
    """
    return of_domain("erfcinv", _erfcinv, y)


@custom_jvp
def _erfcinv(y: Tensor) -> Tensor:
    """With a rule, for what its pieces are made of has slopes that overflow before its own does."""
    above = y > 1.0
    small = where(above, 2.0 - y, y)
    w = -(log(small) + log1p(1.0 - small))
    far = _outer(w)
    return where(w > BORDER, where(above, -far, far), _inner(1.0 - y, w)) + _steep(small, 1.0 - y)


@_erfcinv.defjvp
def _erfcinv_slope(primals: tuple[Tensor], tangents: tuple[Tensor]) -> tuple[Tensor, Tensor]:
    """With exp(x * x) as erfcx(x) / y, which doesn't make the errors of x larger."""
    (y,) = primals
    x, above = _erfcinv(y), y > 1.0
    room = where(above, 2.0 - y, y)
    border = room == 0.0
    steepness = _erfcx(where(border, 0.0, where(above, -x, x))) / where(border, 1.0, room)
    return x, (-0.5 * math.sqrt(math.pi)) * where(border, float("inf") * (1.0 - room), steepness) * tangents[0]


@repeated_formula
def ndtri(p: ArrayLike, /) -> Tensor:
    """The inverse of `ndtr`: quantiles of the standard normal distribution; infinite at 0 and 1, NaN beyond. The shape
    stays, integers give the default float.

    >>> lg.special.ndtri([0.25, 0.975])
    Tensor([-0.67448975,  1.95996398], dtype=float64)
    """
    return of_domain("ndtri", lambda p: -ROOT_2 * _erfcinv(2.0 * p), p)
