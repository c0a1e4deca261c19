"""Functions that are given by their values at points: interpolation, integrals, slopes, jumps of angles."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.types import int64
from loopgrad.lazy.numpy.creation import ones_like
from loopgrad.lazy.numpy.elementwise import (
    absolute,
    add,
    divide,
    equal,
    greater,
    less,
    less_equal,
    logical_and,
    multiply,
    negative,
    remainder,
    subtract,
)
from loopgrad.lazy.numpy.movement import broadcast_to, concat, moveaxis, reshape
from loopgrad.lazy.numpy.reduction import diff, sum
from loopgrad.lazy.numpy.running_totals import cumsum
from loopgrad.lazy.numpy.sorting import argsort, searchsorted
from loopgrad.lazy.numpy.special_values import clip, where
from loopgrad.lazy.numpy.taking import take
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, as_tensor, cast, copied
from loopgrad.lazy.tensor.operands import as_float, normal_axis, vector_operand, whole_number
from loopgrad.lazy.tensor.promotion import promote
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

_MOST_POWERS: Final = 1 << 16  # each is an operation of its own
PUBLIC: Final = "gradient interp trapezoid unwrap vander"


@repeated
def interp(
    x: ArrayLike, xp: ArrayLike, fp: ArrayLike, left: ArrayLike | None = None, right: ArrayLike | None = None,
    period: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """The function with values `fp` at the increasing points `xp`, at x: linear between them, constant outside (`left`,
    `right`). Derivatives flow to x and `fp`, and at a point are those of the piece on its right.

    With a `period` points and x are taken modulo it, in any order, and there is no outside. `xp` and `fp` are vectors;
    the result has x's shape and a float dtype. Raises ShapeError unless there are as many points as values, at least
    one.

    >>> lg.interp([0.5, 9.0], [0.0, 1.0, 2.0], [0.0, 10.0, 20.0])
    Tensor([ 5., 20.], dtype=float64)
    """
    points, values = vector_operand("interp", xp), vector_operand("interp", fp)
    if points._value.shape != values._value.shape:
        got = f"{points._value.shape} and {values._value.shape}"
        raise ShapeError(explained("interp", "as many points as values", got, "make them equally long"))
    t = as_tensor(x)
    t, points, values = (as_float(p) for p in (t, points, values))
    if period is not None:
        t, points, values = _periodic(t, points, values, absolute(period))
        left = right = None
    count = points._value.shape[0]
    piece = clip(subtract(searchsorted(points, t, side="right"), 1), 0, max(count - 2, 0))
    after = clip(add(piece, 1), 0, count - 1)
    start, end = take(points, piece), take(points, after)
    low, high = take(values, piece), take(values, after)
    width = subtract(end, start)
    flat = equal(width, 0)
    slope = divide(subtract(high, low), where(flat, 1.0, width))
    inside = add(low, where(flat, 0.0, multiply(slope, subtract(t, start))))
    inside = where(less(t, points[0]), values[0] if left is None else left, inside)
    beyond = where(equal(t, points[-1]), values[-1], values[-1] if right is None else right)
    return where(less_equal(points[-1], t), beyond, inside)


def _periodic(t: Tensor, points: Tensor, values: Tensor, period: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Within one period, where one more point stands on either side."""
    points = remainder(points, period)
    order = argsort(points)
    points, values = take(points, order), take(values, order)
    points = concat([subtract(points[-1:], period), points, add(points[:1], period)])
    return remainder(t, period), points, concat([values[-1:], values, values[:1]])


@repeated
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1) -> Tensor:
    """The integral of y along an axis by the trapezoidal rule, at points x or `dx` apart.

    The result lacks the axis; integers give the default float. x is a vector along the axis, or broadcasts with y.

    >>> lg.trapezoid([0.0, 1.0, 4.0])
    Tensor(3., dtype=float64)
    """
    t = as_tensor(y)
    d = normal_axis("trapezoid", axis, len(t._value.shape))
    width: Any = dx  # of any shape, for the axes as they are
    if x is not None:
        points = as_tensor(x)
        along = (1,) * d + (-1,) + (1,) * (len(t._value.shape) - d - 1)
        width = reshape(diff(points), along) if len(points._value.shape) == 1 else diff(points, axis=axis)
    after, before = (t[(slice(None),) * d + (part,)] for part in (slice(1, None), slice(None, -1)))
    return sum(divide(multiply(width, add(after, before)), 2.0), axis=axis)


@repeated
def gradient(x: ArrayLike, /, *spacing: ArrayLike, axis: Any = None, edge_order: int = 1) -> Any:
    """Slopes of samples along axes (None: each): second-order differences inside, at the ends of order `edge_order`.

    `spacing` is nothing (1), the distance along all axes, or for each axis its distance or the samples' places, a
    vector. Of several axes a tuple of results. This is NumPy's function of that name; derivatives of functions are
    `lg.grad` and `lg.gradients`.

    Shapes stay, integers give the default float. Raises ShapeError for too few elements along an axis and for places
    that don't fit, ValueError for another order.

    >>> lg.gradient(lg.asarray([0.0, 1.0, 4.0, 9.0]))
    Tensor([1., 2., 4., 5.], dtype=float64)
    """
    if edge_order not in (1, 2):
        raise ValueError(explained("gradient", "edge_order 1 or 2", edge_order, "pass one of them"))
    t = as_tensor(x)
    t = as_float(t)
    rank = len(t._value.shape)
    given = tuple(range(rank)) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    axes = [normal_axis("gradient", a, rank) for a in given]
    gaps = spacing or (1.0,)
    gaps = gaps * len(axes) if len(gaps) == 1 and not as_tensor(gaps[0])._value.shape else gaps
    if len(gaps) != len(axes):
        got = f"{len(spacing)} for {len(axes)} axes"
        raise ShapeError(explained("gradient", "one spacing, or one for each axis", got, "pass as many"))
    results = [_slope(t, d, as_tensor(gap), edge_order) for d, gap in zip(axes, gaps, strict=True)]
    return results[0] if len(results) == 1 else tuple(results)


def _slope(t: Tensor, axis: int, spacing: Tensor, edge_order: int) -> Tensor:
    count = t._value.shape[axis]
    if count < edge_order + 1:
        expected = f"at least {edge_order + 1} elements along axis {axis}"
        raise ShapeError(explained("gradient", expected, t._value.type, "add samples"))
    rows = moveaxis(t, axis, 0)
    if spacing._value.shape not in ((), (count,)):
        expected = f"a distance, or {count} places"
        raise ShapeError(explained("gradient", expected, spacing._value.type, "pass one place per sample"))
    uneven = bool(spacing._value.shape)
    gap = diff(spacing) if uneven else broadcast_to(spacing, (count - 1,))
    gap = reshape(cast(gap, t._value.dtype), (-1, *(1,) * (len(t._value.shape) - 1)))
    if uneven and count > 2:
        before, after = gap[:-1], gap[1:]
        both = add(before, after)
        inner = add(
            subtract(
                multiply(divide(subtract(after, before), multiply(before, after)), rows[1:-1]),
                multiply(divide(after, multiply(before, both)), rows[:-2]),
            ),
            multiply(divide(before, multiply(after, both)), rows[2:]),
        )
    else:
        inner = divide(subtract(rows[2:], rows[:-2]), multiply(2.0, gap[1:]))
    if edge_order == 1:
        first, last = divide(subtract(rows[1:2], rows[:1]), gap[:1]), divide(subtract(rows[-1:], rows[-2:-1]), gap[-1:])
    else:
        first = _parabola(rows[:1], rows[1:2], rows[2:3], gap[:1], gap[1:2])
        last = negative(_parabola(rows[-1:], rows[-2:-1], rows[-3:-2], gap[-1:], gap[-2:-1]))
    return copied(moveaxis(concat([first, inner, last], axis=0), 0, axis))


def _parabola(end: Tensor, second: Tensor, third: Tensor, near: Tensor, far: Tensor) -> Tensor:
    """The slope at the first of three samples, of the parabola through them."""
    both = add(near, far)
    own = multiply(divide(add(multiply(2.0, near), far), multiply(near, both)), end)
    others = subtract(
        multiply(divide(both, multiply(near, far)), second), multiply(divide(near, multiply(far, both)), third)
    )
    return subtract(others, own)


@repeated
def unwrap(x: ArrayLike, /, discont: float | None = None, axis: int = -1, *, period: float = 2.0 * math.pi) -> Tensor:
    """Angles along an axis, to which multiples of `period` are added so that neighbours differ by half of it at most.

    Only jumps larger than `discont` (half a period at least) are mended. The shape stays; integers with a whole period
    stay integers, others give the default float.

    >>> lg.unwrap([0.0, 3.0, 6.0, 9.0 - 2.0 * lg.pi])
    Tensor([0., 3., 6., 9.], dtype=float64)
    """
    t = as_tensor(x)
    if isinstance(period, np.generic | np.ndarray) and period.ndim == 0:
        period = period.item()
    whole = as_tensor(period)._value.dtype.is_integer
    if whole and isinstance(period, TensorCore):
        period = cast(period, int64)  # one without a sign has no negative
    whole = whole and t._value.dtype.is_integer
    t = t if whole else as_float(t)
    d = normal_axis("unwrap", axis, len(t._value.shape))
    if not t._value.shape[d]:
        return copied(t)
    jumps = diff(t, axis=d)
    low = -(period // 2) if whole else -period / 2
    odd = bool(whole and period % 2)
    folded = add(remainder(subtract(jumps, low), period), low)
    if not odd:  # exactly half a period upwards stays upwards
        folded = where(logical_and(equal(folded, low), greater(jumps, 0)), -low, folded)
    mended = subtract(folded, jumps)
    least = period / 2 if discont is None else discont
    mended = where(less(absolute(jumps), least), cast(as_tensor(0), mended._value.dtype), mended)
    first = t[(slice(None),) * d + (slice(0, 1),)]
    rest = t[(slice(None),) * d + (slice(1, None),)]
    return concat([first, add(rest, cast(cumsum(mended, axis=d), t._value.dtype))], axis=d)


@repeated
def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Tensor:
    """The matrix whose columns are the powers of a vector, from N - 1 down to 0 unless `increasing`: shape (len(x), N).

    N is the vector's length unless given. Raises ShapeError for what isn't a vector, and an N below 0 or above 65,536.

    >>> lg.vander(lg.asarray([2.0, 3.0]), 3)
    Tensor([[4., 2., 1.],
            [9., 3., 1.]], dtype=float64)
    """
    t = vector_operand("vander", x, empty=True)
    t = cast(t, promote(t._value.dtype, int64))  # as NumPy, so that powers of small integers don't wrap
    count = t._value.shape[0] if N is None else whole_number("vander", "an integer N", N)
    if not 0 <= count <= _MOST_POWERS:
        fix = "use x[:, None] ** lg.arange(N)"
        raise ShapeError(explained("vander", f"from 0 to {_MOST_POWERS} columns", count, fix))
    columns = [ones_like(t)[:, None]]
    for _ in range(count - 1):
        columns.append(multiply(columns[-1], t[:, None]))
    if not count:
        return columns[0][:, :0]
    return concat(columns if increasing else columns[::-1], axis=1)
