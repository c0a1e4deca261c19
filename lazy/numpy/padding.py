"""Arrays with elements around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.elementwise import multiply, round, subtract
from loopgrad.lazy.numpy.movement import broadcast_to, concat, flip
from loopgrad.lazy.numpy.quantiles import median
from loopgrad.lazy.numpy.reduction import max, mean, min
from loopgrad.lazy.numpy.spaced_numbers import linspace
from loopgrad.lazy.numpy.taking import take
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast, copied, wrap
from loopgrad.lazy.tensor.operands import whole_number
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "pad"
_REPEATED: Final = ("edge", "reflect", "symmetric", "wrap")
_STATISTICS: Final[dict[str, Callable[..., Any]]] = {"maximum": max, "minimum": min, "mean": mean, "median": median}
_MODES: Final = ("constant", "empty", "linear_ramp", *_REPEATED, *_STATISTICS)


@repeated
def pad(
    x: ArrayLike, /, pad_width: Any, mode: str | Callable[..., None] = "constant", *, constant_values: Any = 0,
    end_values: Any = 0, stat_length: Any = None, reflect_type: str = "even",
) -> Tensor:  # fmt: skip
    """Add elements around: `pad_width` is an int, (low, high), one such pair per axis, or a dict of those by axis.

    They are `constant_values` (zeros for "empty"), repeat x: its `edge`, its mirror image (`reflect`, `symmetric` with
    the edge doubled, by `reflect_type` "odd" turned around the edge's value) or x from the other side (`wrap`), go
    straight to `end_values` ("linear_ramp"), or are the `maximum`, `minimum`, `mean` or `median` of the `stat_length`
    nearest (of all). Values and lengths are numbers or pairs as widths are.

    The dtype stays. Raises ShapeError for negative widths, or not one pair per axis, DTypeError for widths that aren't
    integers, ValueError for another mode.

    >>> lg.pad(lg.asarray([1, 2]), (1, 2))
    Tensor([0, 1, 2, 0, 0], dtype=int64)
    """
    t = as_tensor(x)
    rank = len(t._value.shape)
    widths = _pairs(_by_axis(pad_width, rank), rank, partial(whole_number, "pad", "integers as widths"))
    if any(n < 0 for pair in widths for n in pair):
        raise ShapeError(explained("pad", "widths of at least 0", pad_width, "slice to shrink"))
    if mode not in _MODES:
        raise ValueError(explained("pad", f"a mode among {', '.join(_MODES)}", repr(mode), "pass one of them"))
    if mode in ("constant", "empty"):
        return _constant(t, widths, 0 if mode == "empty" else constant_values)
    t = copied(t)
    if mode in _REPEATED and reflect_type == "even":
        return _repeated_around(t, widths, str(mode))
    made = _pairs(end_values if mode == "linear_ramp" else stat_length, rank, _same)
    for d, (width, values) in enumerate(zip(widths, made, strict=True)):
        if not any(width):
            continue
        if not t._value.shape[d]:
            raise ShapeError(explained("pad", f"elements along axis {d}", t._value.type, "use 'constant'"))
        if mode == "linear_ramp":
            t = _ramps(t, d, width, values)
        elif mode in _STATISTICS:
            t = _statistics(t, d, width, values, _STATISTICS[str(mode)])
        else:
            t = _turned_around(t, d, width, str(mode))
    return t


def _same(x: Any) -> Any:
    return x


def _by_axis(width: Any, rank: int) -> Any:
    if not isinstance(width, dict):
        return width
    pairs: list[Any] = [(0, 0)] * rank
    for axis, pair in width.items():
        pairs[axis] = pair if isinstance(pair, tuple | list) else (pair, pair)
    return pairs


def _pairs(given: Any, rank: int, number: Callable[[Any], Any]) -> list[tuple[Any, Any]]:
    """(low, high) for each axis, from a number, a pair, or one pair for each."""
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if not isinstance(given, tuple | list):
        return [(number(given), number(given))] * rank
    if len(given) == 2 and not any(isinstance(w, tuple | list) for w in given):
        return [(number(given[0]), number(given[1]))] * rank
    if len(given) == 1 and not isinstance(given[0], tuple | list):
        return [(number(given[0]), number(given[0]))] * rank
    pairs = [(number(w[0]), number(w[-1])) for w in given if len(w) in (1, 2)]
    pairs = pairs * rank if len(given) == len(pairs) == 1 else pairs
    if len(given) not in (1, rank) or len(pairs) != rank:
        raise ShapeError(explained("pad", f"one (low, high) per axis ({rank})", given, "name every axis"))
    return pairs


def _constant(t: Tensor, widths: Sequence[tuple[int, int]], values: Any) -> Tensor:
    if not isinstance(values, tuple | list):
        value = as_tensor(values, t._value.dtype)._value
        low, high = [w[0] for w in widths], [w[1] for w in widths]
        return wrap(ops.pad(t._value, low, high, ops.reshape(value, ())), t._weak)
    for d, (width, ends) in enumerate(zip(widths, _pairs(values, len(widths), _same), strict=True)):
        blocks = [_block(t, d, n, as_tensor(v, t._value.dtype)) for n, v in zip(width, ends, strict=True)]
        t = concat([blocks[0], t, blocks[1]], axis=d)
    return t


def _block(t: Tensor, axis: int, count: int, value: ArrayLike) -> Tensor:
    """`count` slices along an axis of a value that stretches."""
    shape = t._value.shape
    return broadcast_to(cast(as_tensor(value), t._value.dtype), (*shape[:axis], count, *shape[axis + 1 :]))


def _repeated_around(t: Tensor, widths: Sequence[tuple[int, int]], mode: str) -> Tensor:
    """Every axis with what lies at positions that run over its ends."""
    for d, width in enumerate(widths):
        extent = t._value.shape[d]
        if not any(width):
            continue
        if not extent:
            raise ShapeError(explained("pad", f"elements along axis {d} to repeat", t._value.type, "use 'constant'"))
        places = np.pad(np.arange(extent), width, mode=mode)  # type: ignore[call-overload]
        before, after = (_there(t, d, p) for p in (places[: width[0]], places[width[0] + extent :]))
        t = concat([*before, t, *after], axis=d)
    return t


def _there(t: Tensor, axis: int, places: np.ndarray[Any, Any]) -> list[Tensor]:
    """The slices at these positions, none if there are none. Those that lie in a row aren't looked up: their
    derivatives are then sums of slices."""
    if not places.size:
        return []
    first, last, steps = int(places[0]), int(places[-1]), set(np.diff(places).tolist())
    front = (slice(None),) * axis
    if steps <= {0}:
        return [_block(t, axis, places.size, t[(*front, slice(first, first + 1))])]
    if steps == {1}:
        return [t[(*front, slice(first, last + 1))]]
    if steps == {-1}:
        return [flip(t[(*front, slice(last, first + 1))], axis=axis)]
    return [take(t, places, axis=axis)]


def _edges(t: Tensor, axis: int, first: int, last: int) -> tuple[Tensor, Tensor]:
    """The first and the last so many slices along an axis."""
    extent, front = t._value.shape[axis], (slice(None),) * axis
    return t[(*front, slice(0, first))], t[(*front, slice(extent - last, extent))]


def _converted(t: Tensor, like: Tensor) -> Tensor:
    """What was computed of integers as integers, rounded to the nearest."""
    dtype = like._value.dtype
    return cast(round(t) if dtype.is_integer and t._value.dtype.is_float else t, dtype)


def _ramps(t: Tensor, axis: int, width: tuple[int, int], ends: tuple[Any, Any]) -> Tensor:
    low, high = _edges(t, axis, 1, 1)
    sides = []
    for edge, count, end in ((low, width[0], ends[0]), (high, width[1], ends[1])):
        steps = linspace(end, edge.squeeze(axis), count, endpoint=False, dtype=t._value.dtype, axis=axis)
        sides.append(cast(steps, t._value.dtype))
    return concat([sides[0], t, flip(sides[1], axis=axis)], axis=axis)


def _statistics(
    t: Tensor, axis: int, width: tuple[int, int], lengths: tuple[Any, Any], reduce: Callable[..., Any]
) -> Tensor:
    extent = t._value.shape[axis]
    counts = [extent if n is None or n > extent else int(n) for n in lengths]
    if not all(counts):
        raise ShapeError(explained("pad", "a stat_length of at least 1", lengths, "pass a positive number"))
    ends = _edges(t, axis, counts[0], counts[1])
    made = [_converted(reduce(end, axis=axis, keepdims=True), t) for end in ends]
    blocks = [_block(t, axis, n, v) for n, v in zip(width, made, strict=True)]
    return concat([blocks[0], t, blocks[1]], axis=axis)


def _along(t: Tensor, axis: int, width: tuple[int, int], mode: str) -> Tensor:
    return _repeated_around(t, [width if d == axis else (0, 0) for d in range(len(t._value.shape))], mode)


def _turned_around(t: Tensor, axis: int, width: tuple[int, int], mode: str) -> Tensor:
    """A mirror image turned around the edge's value, again and again until it is wide enough."""
    if mode not in ("reflect", "symmetric"):
        return _along(t, axis, width, mode)
    low, high = width
    doubled = mode == "symmetric"
    while low or high:
        extent = t._value.shape[axis]
        most = extent if doubled else extent - 1
        if not most:
            return _along(t, axis, (low, high), "edge")
        take_low, take_high = (n if n < most else most for n in (low, high))
        first, last = _edges(t, axis, 1, 1)
        skip = 0 if doubled else 1
        front = (slice(None),) * axis
        before = flip(t[(*front, slice(skip, skip + take_low))], axis=axis)
        after = flip(t[(*front, slice(extent - skip - take_high, extent - skip))], axis=axis)
        t = concat([subtract(multiply(2, first), before), t, subtract(multiply(2, last), after)], axis=axis)
        low, high = low - take_low, high - take_high
    return t
