"""A line search for the strong Wolfe conditions: the function falls enough, and its slope gets flat enough.

Nocedal and Wright, Numerical Optimization (2006), algorithms 3.5 and 3.6, as one loop: trial steps grow until an
interval must hold a good one, which then shrinks around the minimum of the cubic through its ends. `low` is the best
step so far; the slope there points into the interval. A fall is measured up to the rounding of the function's values,
so that the search also ends where they are all the same. Steps whose value isn't finite are too long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from loopgrad.lazy.loops.while_loop import while_loop
from loopgrad.lazy.numpy.elementwise import absolute, sign, sqrt
from loopgrad.lazy.numpy.reduction import sum as total
from loopgrad.lazy.numpy.shapes_and_dtypes import finfo
from loopgrad.lazy.numpy.special_values import isfinite, where
from loopgrad.lazy.tensor.core import as_tensor

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

FALL: Final = 1e-4  # of what the slope at the start promises
FLAT: Final = 0.9  # of that slope, at most
GROWTH: Final = 4.0
EDGE: Final = 0.1  # of the interval, which a trial stays away from its ends


class LineSearch(NamedTuple):
    """A trial step, and the ends of the interval with values, slopes, and (of `low`) the gradient."""

    trial: Tensor
    low: Tensor
    low_value: Tensor
    low_slope: Tensor
    low_gradient: Tensor
    high: Tensor
    high_value: Tensor
    high_slope: Tensor
    bracketed: Tensor
    found: Tensor
    trips: Tensor


def search(
    value_and_gradient: Callable[[Tensor], tuple[Tensor, Tensor]], x: Tensor, value: Tensor, gradient: Tensor,
    direction: Tensor, first: Tensor, max_steps: int,
) -> LineSearch:  # fmt: skip
    """From `x` along a direction in which the function falls. What was found is `low`: 0 where nothing was."""
    start = total(gradient * direction)
    rounding = 8.0 * finfo(x).eps * absolute(value)
    zero, no = 0.0 * value, as_tensor(False)

    def trip(s: LineSearch) -> LineSearch:
        f, g = value_and_gradient(x + s.trial * direction)
        slope = total(g * direction)
        fallen = f <= value + FALL * s.trial * start + rounding
        found = fallen & (absolute(slope) <= -FLAT * start)
        worse = ~fallen | ~isfinite(f) | ((f > s.low_value + rounding) & ~found)
        turned = ~worse & (slope * where(s.bracketed, s.high - s.low, 1.0) >= 0.0)
        bracketed = s.bracketed | worse | turned

        def chosen(is_worse: Any, is_turned: Any, otherwise: Any) -> Tensor:
            return where(worse, is_worse, where(turned, is_turned, otherwise))

        ends = s._replace(
            low=where(worse, s.low, s.trial),
            low_value=where(worse, s.low_value, f),
            low_slope=where(worse, s.low_slope, slope),
            low_gradient=where(worse, s.low_gradient, g),
            high=chosen(s.trial, s.low, s.high),
            high_value=chosen(f, s.low_value, s.high_value),
            high_slope=chosen(slope, s.low_slope, s.high_slope),
            bracketed=bracketed,
            found=found,
            trips=s.trips + 1,
        )
        return ends._replace(trial=where(bracketed, _within(ends), GROWTH * s.trial))

    begin = LineSearch(first, zero, value, start, gradient, zero, value, start, no, no, as_tensor(0))
    return while_loop(lambda s: ~s.found & (s.trips < max_steps), trip, begin, name="line search")  # type: ignore[no-any-return]


def _within(s: LineSearch) -> Tensor:
    """The minimum of the cubic through the ends where that is well inside, else the middle."""
    width = s.high - s.low
    d = s.low_slope + s.high_slope - 3.0 * (s.high_value - s.low_value) / where(width == 0.0, 1.0, width)
    radicand = d * d - s.low_slope * s.high_slope
    root = sign(width) * sqrt(where(radicand > 0.0, radicand, 0.0))
    bottom = s.high_slope - s.low_slope + 2.0 * root
    share = 1.0 - (s.high_slope + root - d) / where(bottom == 0.0, 1.0, bottom)  # of the interval, from low
    good = (radicand > 0.0) & (bottom != 0.0) & (share >= EDGE) & (share <= 1.0 - EDGE)
    return s.low + width * where(good, share, 0.5)
