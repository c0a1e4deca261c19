"""What special functions do with their operands, and how they are put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.types import float32
from loopgrad.lazy.numpy.elementwise import exp, round, stop_gradient
from loopgrad.lazy.numpy.special_values import isinf, isnan, where
from loopgrad.lazy.special.coefficients import Series
from loopgrad.lazy.tensor.core import ArrayLike, cast, wrap
from loopgrad.lazy.tensor.operands import meet

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

NARROW: Final = 1e-9  # float32 hasn't terms below that beside the largest
STEPS: Final = 16.0
INFINITY, NAN = float("inf"), float("nan")


def of_floats(op: str, function: Callable[..., Tensor], *xs: ArrayLike) -> Tensor:
    """`function` of the operands, broadcast and as one float dtype, which is the result's."""
    values, weak = meet(op, xs, floating=True, kinds="f")
    dtype = values[0].dtype
    wide = [cast(wrap(v), float32) if dtype.bits == 16 else wrap(v) for v in values]
    return wrap(cast(function(*wide), dtype)._value, weak)


def of_domain(op: str, function: Callable[..., Tensor], *xs: ArrayLike) -> Tensor:
    """`of_floats` of a function that isn't defined everywhere: where it is NaN, so are its derivatives of every order.
    Those of the pieces it is made of are often 0 there, which would look like a minimum."""

    def defined(*operands: Tensor) -> Tensor:
        found = function(*operands)
        outside = isnan(found)
        lost: Any = 0.0
        for x in operands:
            lost = lost + NAN * where(outside, x, 0.0)
        return where(outside, exp(lost), found)  # of which all derivatives are NaN

    return of_floats(op, defined, *xs)


def is_double(x: Tensor) -> bool:
    """Whether x is float64, else float32."""
    return bool(x._value.dtype.bits == 64)


def chebyshev(terms: Series, t: Tensor) -> Tensor:
    """The sum of terms[k] * cos(k * arccos(t)) for t from -1 to 1, by Clenshaw's recurrence; in float32 as many of the
    terms as it has digits for."""
    if not is_double(t):
        least = NARROW * max(map(abs, terms))
        terms = terms[: max(k for k, term in enumerate(terms) if abs(term) > least) + 1]
    twice = t + t
    last: Any = terms[-1]
    before: Any = 0.0
    for term in terms[-2:0:-1]:
        last, before = (twice * last - before) + term, last
    total: Tensor = (t * last - before) + terms[0]
    return total


def polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """coefficients[k] * x**k, by Horner's rule."""
    total: Any = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    result: Tensor = total
    return result


def overflowing(found: Tensor, growth: Tensor) -> Tensor:
    """`found`, whose slopes are infinite where it is: there it is infinity times `growth`, a product of operands."""
    endless = isinf(found)
    return where(endless, INFINITY * where(endless, growth, 1.0), found)


def exp_or_zero(exponent: Tensor) -> Tensor:
    """exp(exponent), without derivatives where it underflows: however steep the exponent is, they vanish there."""
    gone = exponent < (-746.0 if is_double(exponent) else -104.0)
    return exp(where(gone, -INFINITY, exponent))


def exp_of_square(x: Tensor, factor: float) -> Tensor:
    """exp(factor * x * x) for |x| up to 60, beyond which it counts as 60: the square of a few digits is exact, and the
    rest of it small."""
    near = where(x < -60.0, -60.0, where(x > 60.0, 60.0, x))
    few = stop_gradient(round(near * STEPS) / STEPS)
    return exp(factor * (few * few)) * exp(factor * ((near - few) * (near + few)))
