"""How many elements there are of each kind: of integers, and between edges."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod as product_of
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.types import DType, float64, int32, int64
from loopgrad.lazy.numpy.creation import zeros
from loopgrad.lazy.numpy.elementwise import (
    add,
    divide,
    equal,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_or,
    maximum,
    minimum,
    multiply,
    not_equal,
    subtract,
)
from loopgrad.lazy.numpy.movement import flip, ravel, reshape
from loopgrad.lazy.numpy.reduction import all as every
from loopgrad.lazy.numpy.reduction import diff, max, min, sum
from loopgrad.lazy.numpy.sorting import searchsorted
from loopgrad.lazy.numpy.spaced_numbers import linspace
from loopgrad.lazy.numpy.special_values import isfinite, isnan, where
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast, wrap
from loopgrad.lazy.tensor.evaluation import to_numpy
from loopgrad.lazy.tensor.operands import as_float, vector_operand, whole_number
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "bincount digitize histogram histogram2d histogram_bin_edges histogramdd"


@repeated
def bincount(
    x: ArrayLike, /, weights: ArrayLike | None = None, minlength: int = 0, *, length: int | None = None
) -> Tensor:
    """How often each of 0, 1, ... occurs in a vector of integers, or the sum of the weights of each.

    The result has max(largest + 1, minlength) elements, which evaluates x. While a function is traced `length` must say
    how many; as in JAX numbers from that on aren't counted then, and negative ones count as 0.

    Counts are int64, sums of weights floats. Raises DTypeError for what isn't a vector of integers, or of bools, and
    without `length` while tracing; ValueError for negative numbers without it.

    >>> lg.bincount(lg.asarray([0, 2, 2])), lg.bincount(lg.asarray([0, 2, 2]), weights=[0.5, 1.0, 1.0])
    (Tensor([1, 0, 2], dtype=int64), Tensor([0.5, 0. , 2. ], dtype=float64))
    """
    t = as_tensor(x)
    if t._value.dtype.kind not in "biu" or len(t._value.shape) != 1:
        raise DTypeError(explained("bincount", "a vector of integers", t._value.type, "ravel or convert it"))
    if length is None:
        if t._value.scope is not None:
            fix = "pass length=, the number of bins"
            raise DTypeError(explained("bincount", "a known number of bins", "a vector that is being traced", fix))
        numbers = to_numpy(t)
        if numbers.size and numbers.min() < 0:
            raise ValueError(explained("bincount", "numbers of at least 0", int(numbers.min()), "shift them first"))
        length = int(numbers.max()) + 1 if numbers.size else 0
    least = whole_number("bincount", "a number of bins as minlength", minlength)
    bins = int(length) if int(length) > least else least
    return _counted(maximum(cast(t, int64) if t._value.dtype.bits < 64 else t, 0), weights, bins)


@repeated
def _counted(places: Tensor, weights: ArrayLike | None, bins: int) -> Tensor:
    """How often each of 0 .. bins - 1 occurs; what is outside isn't counted."""
    target = where(less(places, 0), bins, places)  # behind the last: dropped
    if weights is None:
        return zeros((bins,), dtype=int64).at[target].add(1)
    w = as_float(weights)
    return zeros((bins,), dtype=w._value.dtype).at[target].add(w)


@repeated
def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False, *, method: str | None = None) -> Tensor:
    """The number of the bin of each element, by edges that increase or decrease; `right` puts an edge into the bin
    below it, towards the smaller numbers. `method`, JAX's, changes nothing.

    int64, of x's shape. Raises ShapeError unless the edges are a vector, ValueError for known ones that neither
    increase nor decrease.

    >>> lg.digitize([0.5, 1.0, 9.0], [0.0, 1.0, 2.0])
    Tensor([1, 2, 3], dtype=int64)
    """
    edges = as_tensor(bins)
    if len(edges._value.shape) != 1:
        raise ShapeError(explained("digitize", "a vector of edges", edges._value.type, "ravel them"))
    _require_order("digitize", edges, ("increase", "decrease"))
    return _digitized(edges, as_tensor(x), right)


@repeated
def _digitized(edges: Tensor, x: Tensor, right: bool) -> Tensor:
    count = edges._value.shape[0]
    upwards = searchsorted(edges, x, side="left" if right else "right")
    if count < 2:
        return upwards
    downwards = subtract(count, searchsorted(flip(edges), x, side="left" if right else "right"))
    return where(less(edges[-1], edges[0]), downwards, upwards)


_RULES: Final = ("auto", "doane", "fd", "rice", "scott", "sqrt", "stone", "sturges")


@repeated
def histogram_bin_edges(
    x: ArrayLike, /, bins: int | str | ArrayLike = 10, range: tuple[ArrayLike, ArrayLike] | None = None,
    weights: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """The edges that `histogram` counts between: as they are given, or of equal bins over `range` (from the smallest to
    the largest element unless given).

    `bins` may be the name of a rule of NumPy's ("auto", "fd", "sturges", ...), which evaluates x, whose elements decide
    how many there are. Raises ShapeError for edges that aren't a vector of at least two, ValueError for less than one
    bin, another name, and ends that aren't finite; those of elements of a function that is being traced nobody knows,
    and edges are NaN then.

    >>> lg.histogram_bin_edges([0.0, 0.5, 2.0], bins=2)
    Tensor([0., 1., 2.], dtype=float64)
    """
    t = ravel(x)
    _require_weights("histogram", weights, t)
    ends = None if range is None else _ends(range)
    if isinstance(bins, str):
        if bins not in _RULES:
            raise ValueError(explained("histogram", f"a rule among {', '.join(_RULES)}", repr(bins), "pass one"))
        between = None if ends is None else (float(ends[0]), float(ends[1]))
        return as_tensor(np.histogram_bin_edges(to_numpy(t), bins, between))
    if not hasattr(bins, "__index__") or np.ndim(bins):
        edges = as_tensor(bins)
        if len(edges._value.shape) != 1 or edges._value.shape[0] < 2:
            raise ShapeError(explained("histogram", "a vector of at least two edges", edges._value.type, "add edges"))
        _require_order("histogram", edges, ("increase",))
        return edges
    count = operator.index(bins)
    if count < 1:
        raise ValueError(explained("histogram", "at least one bin", count, "pass a positive number"))
    work = as_float(t)
    if ends is None:
        ends = (min(work), max(work)) if work._value.shape[0] else (as_tensor(0.0), as_tensor(1.0))
    _require_finite(ends)
    return _equal_bins(*ends, count, work._value.dtype)


@repeated
def _equal_bins(first: Tensor, last: Tensor, count: int, dtype: DType) -> Tensor:
    """Edges of so many bins between two ends."""
    widened = where(equal(first, last), 0.5, 0.0)  # as NumPy: edges that are all equal would have nothing between them
    made: Tensor = linspace(subtract(first, widened), add(last, widened), count + 1, dtype=dtype)
    return made


def _ends(range: tuple[ArrayLike, ArrayLike]) -> tuple[Tensor, Tensor]:
    if len(range) != 2:
        raise ShapeError(explained("histogram", "a range of two ends", f"{len(range)}", "pass (low, high)"))
    return as_tensor(range[0]), as_tensor(range[1])


def _require_weights(op: str, weights: ArrayLike | None, t: Tensor) -> None:
    if weights is not None and product_of(as_tensor(weights)._value.shape) != product_of(t._value.shape):
        expected = f"a weight for each of {product_of(t._value.shape)} elements"
        raise ShapeError(explained(op, expected, as_tensor(weights)._value.type, "broadcast them with lg.broadcast_to"))


def _require_order(op: str, edges: Tensor, ways: Sequence[str]) -> None:
    """Edges that are known must have one of these orders, NaN above all numbers, as sorts have it; what a function that
    is being traced gets nobody knows."""
    if edges._value.scope is not None:
        return
    if not any(bool(to_numpy(_ordered(edges, way))) for way in ways):
        raise ValueError(explained(op, f"edges that {' or '.join(ways)}", "others", "sort them with lg.sort"))


@repeated
def _ordered(edges: Tensor, way: str) -> Tensor:
    """Whether edges `increase` or `decrease`."""
    later, earlier = edges[1:], edges[:-1]
    if way == "increase":
        return every(logical_or(greater_equal(later, earlier), isnan(later)))
    return every(logical_or(greater_equal(earlier, later), isnan(earlier)))


@repeated
def _both_finite(low: Tensor, high: Tensor) -> Tensor:
    return logical_and(isfinite(low), isfinite(high))


def _require_finite(ends: Sequence[Tensor]) -> None:
    if any(end._value.scope is not None for end in ends):
        return
    if not to_numpy(_both_finite(*ends)):
        fix = "pass range=, or leave out elements that are infinite or NaN"
        raise ValueError(explained("histogram", "a range with finite ends", "one without", fix))


@repeated
def _bin_of(t: Tensor, edges: Tensor) -> Tensor:
    """The bin of each element, of which the last includes its upper edge; -1, or one too many, for what has none."""
    count = edges._value.shape[0] - 1
    found = where(equal(t, edges[-1]), count - 1, subtract(searchsorted(edges, t, side="right"), 1))
    return where(isnan(t), -1, found)


@repeated
def _equal_bin_of(t: Tensor, edges: Tensor) -> Tensor:
    """As `_bin_of` where all bins are equally wide, by NumPy's way: the bin is computed, and what rounding made of it
    put right by its edges. A difference of halves is finite where that of two finite ends needn't be."""
    last = edges._value.shape[0] - 2
    x = cast(t, edges._value.dtype)
    low, high = edges[0], edges[-1]
    inside = logical_and(greater_equal(x, low), less_equal(x, high))
    part = divide(subtract(multiply(x, 0.5), multiply(low, 0.5)), subtract(multiply(high, 0.5), multiply(low, 0.5)))
    guess = cast(where(inside, multiply(part, last + 1), 0.0), int32)
    guess = maximum(minimum(guess, last), 0)
    guess = subtract(guess, cast(less(x, _at(edges, guess)), int32))
    higher = logical_and(greater_equal(x, _at(edges, add(guess, 1))), not_equal(guess, last))
    return where(inside, add(guess, cast(higher, int32)), -1)


def _at(edges: Tensor, place: Tensor) -> Tensor:
    return wrap(ops.gather(edges._value, place._value))


def _quickly_found(bins: Any, edges: Tensor) -> bool:
    """Whether one step from the computed bin is always enough: bins are equally wide, and not too many for the
    roundings of it to stay far below one."""
    equal_bins = hasattr(bins, "__index__") and not np.ndim(bins)
    most = {32: 1 << 19, 64: 1 << 30}.get(edges._value.dtype.bits, 0)
    return equal_bins and edges._value.shape[0] <= most


@repeated
def histogram(
    x: ArrayLike, /, bins: int | str | ArrayLike = 10, range: tuple[ArrayLike, ArrayLike] | None = None,
    density: bool = False, weights: ArrayLike | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The counts of elements (or the sums of their weights) between edges, and the edges.

    `bins` and `range` are those of `histogram_bin_edges`. `density` divides by the bins' widths and the whole, so that
    the integral is 1. Counts are int64, sums of weights and densities floats; there is one edge more. NaN and what lies
    outside isn't counted. Errors are those of `histogram_bin_edges`.

    >>> lg.histogram([0.0, 0.5, 2.0], bins=2)
    (Tensor([2, 1], dtype=int64), Tensor([0., 1., 2.], dtype=float64))
    """
    t = ravel(x)
    edges = histogram_bin_edges(t, bins, range, weights)
    w = None if weights is None else ravel(weights)
    found = (_equal_bin_of if _quickly_found(bins, edges) else _bin_of)(t, edges)
    counts = _counted(found, w, edges._value.shape[0] - 1)
    return (divide(divide(counts, diff(edges)), sum(counts)) if density else counts), edges


def _coordinates(x: ArrayLike | Sequence[ArrayLike]) -> list[Tensor]:
    """A vector for each axis; numbers alone are points of one axis, as in NumPy."""
    if isinstance(x, list | tuple) and not all(np.ndim(p) == 0 for p in x):
        return [ravel(p) for p in x]
    t = as_tensor(x)
    if len(t._value.shape) > 2:
        raise ShapeError(explained("histogramdd", "points as rows of a matrix", t._value.type, "reshape them"))
    return list(t.T) if len(t._value.shape) == 2 else [ravel(t)]


@repeated
def histogramdd(
    x: ArrayLike | Sequence[ArrayLike], /, bins: Any = 10, range: Sequence[Any] | None = None, density: bool = False,
    weights: ArrayLike | None = None,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """The counts of points (the rows of x, or a list of coordinates), or the sums of their weights, in boxes between
    edges, and the edges along each axis.

    A vector has points of one axis. `bins` is a number for all axes, or one, or edges, for each; `range` a pair of ends
    for each. `density` divides by the boxes' sizes and the whole. Of floats, as in NumPy. Raises ShapeError where bins
    don't fit the axes, for coordinates or weights that aren't as many as points, and for more than two axes.

    >>> lg.histogramdd(lg.asarray([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]]), bins=2)[0]
    Tensor([[1., 0.],
            [1., 1.]], dtype=float64)
    """
    points = _coordinates(x)
    axes = len(points)
    each = [bins] * axes if _is_count("histogramdd", bins) else list(bins)
    ends = [None] * axes if range is None else list(range)
    if len(each) != axes or len(ends) != axes:
        got = f"{len(each)} bins and {len(ends)} ranges"
        raise ShapeError(explained("histogramdd", f"bins, and ranges, for {axes} axes", got, "pass one for each"))
    if len({p._value.shape for p in points}) > 1:
        got = ", ".join([str(p._value.shape[0]) for p in points])
        raise ShapeError(explained("histogramdd", "as many coordinates along each axis", got, "pair them up"))
    edges = [histogram_bin_edges(p, b, r) for p, b, r in zip(points, each, ends, strict=True)]
    shape = tuple([e._value.shape[0] - 1 for e in edges])
    place: Tensor = as_tensor(0)
    outside: Tensor = as_tensor(False)
    for point, edge, count in zip(points, edges, shape, strict=True):
        found = _bin_of(point, edge)
        outside = logical_or(outside, logical_or(less(found, 0), greater_equal(found, count)))
        place = add(multiply(place, count), found)
    w = None if weights is None else ravel(weights)
    _require_weights("histogramdd", weights, place)
    counts = reshape(_counted(where(outside, -1, place), w, product_of(shape)), shape)
    counts = cast(counts, float64) if w is None else counts
    if density:
        total = sum(counts)
        for d, edge in enumerate(edges):
            counts = divide(counts, reshape(diff(edge), tuple([-1 if a == d else 1 for a in np.arange(axes)])))
        counts = divide(counts, total)
    return counts, edges


def _is_count(op: str, bins: Any) -> bool:
    """Whether that is a number of bins, and not a list or an array; arrays, too, have an `__index__`."""
    if hasattr(bins, "__index__") and not np.ndim(bins):
        return True
    if not hasattr(bins, "__len__"):
        raise DTypeError(explained(op, "a number of bins, or edges", repr(bins), "pass a Python int"))
    return False


@repeated
def histogram2d(
    x: ArrayLike, y: ArrayLike, bins: Any = 10, range: Sequence[Any] | None = None, density: bool = False,
    weights: ArrayLike | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`histogramdd` of points (x[i], y[i]): the counts, and the edges along both axes.

    `bins` is a number or edges for both axes, or a pair of one for each. Raises ShapeError for what aren't vectors of
    one length.

    >>> lg.histogram2d([0.0, 1.0, 1.0], [0.0, 1.0, 0.0], bins=2)[0]
    Tensor([[1., 0.],
            [1., 1.]], dtype=float64)
    """
    points = [vector_operand("histogram2d", coordinates, empty=True) for coordinates in (x, y)]
    if points[0]._value.shape != points[1]._value.shape:
        got = f"{points[0]._value.type} and {points[1]._value.type}"
        raise ShapeError(explained("histogram2d", "as many x as y", got, "make them equally long"))
    if not _is_count("histogram2d", bins) and len(bins) not in (1, 2):
        bins = [bins, bins]
    counts, edges = histogramdd(points, bins, range, density, weights)
    return counts, edges[0], edges[1]
