"""Quantiles: elements below which a part of the others lies, by one sort of each row.

Between elements there are as many conventions as textbooks; `method` has NumPy's names of them (Hyndman and Fan, Sample
Quantiles in Statistical Packages, 1996). `overwrite_input`, which allows NumPy to sort in place, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod as product_of
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.types import DType, TensorType, float32, float64, int64
from loopgrad.lazy.numpy.elementwise import (
    add,
    ceil,
    divide,
    equal,
    floor,
    less,
    logical_and,
    logical_or,
    maximum,
    minimum,
    multiply,
    remainder,
    round,
    subtract,
)
from loopgrad.lazy.numpy.movement import broadcast_to, expand_dims, moveaxis, reshape
from loopgrad.lazy.numpy.reduction import count_nonzero, sum
from loopgrad.lazy.numpy.running_totals import cumsum
from loopgrad.lazy.numpy.sorting import argsort, sort
from loopgrad.lazy.numpy.special_values import clip, isinf, isnan, where
from loopgrad.lazy.numpy.taking import take_along_axis
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, as_tensor, cast, wrap
from loopgrad.lazy.tensor.operands import as_float, normal_axes
from loopgrad.lazy.tensor.outputs import Out, delivered
from loopgrad.lazy.tensor.promotion import float_dtype, promote
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "median nanmedian nanpercentile nanquantile percentile quantile"
_PLACES_OF_FLOAT32: Final = 1 << 20
# where the quantiles of continuous methods lie: Hyndman and Fan's alpha and beta
_CONTINUOUS: Final = {
    "interpolated_inverted_cdf": (0.0, 1.0), "hazen": (0.5, 0.5), "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3), "normal_unbiased": (3 / 8, 3 / 8),
}  # fmt: skip
_ELEMENTS: Final = ("lower", "higher", "nearest", "inverted_cdf", "closest_observation")  # nothing between two
_METHODS: Final = ("linear", "midpoint", "averaged_inverted_cdf", *_ELEMENTS, *_CONTINUOUS)


def _rows(x: ArrayLike, axis: Any) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
    """The reduced axes as the last one, the axes, and the shape with them kept. Integers stay: as floats they would be
    in the same order, and sorts of them take longer."""
    t = as_tensor(x) if as_tensor(x)._value.dtype.is_integer else as_float(x)
    shape = t._value.shape
    axes = normal_axes("quantile", axis, len(shape))
    moved = moveaxis(t, axes, tuple(range(-len(axes), 0)))
    rest = moved._value.shape[: len(shape) - len(axes)]
    count = product_of(shape[d] for d in axes)
    if not count:
        raise ShapeError(explained("quantile", "at least one element", t._value.type, "check the axis"))
    return reshape(moved, (*rest, count)), axes, tuple([1 if d in axes else n for d, n in enumerate(shape)])


def _parts(op: str, q: ArrayLike, whole: float = 1.0) -> ArrayLike:
    """Parts of 1 of `q`, which are parts of `whole`: ValueError for one of Python's or NumPy's that is out of range,
    NaN for a tensor's, whose elements aren't looked at."""
    if isinstance(q, TensorCore) or (isinstance(q, list | tuple) and any(isinstance(p, TensorCore) for p in q)):
        t = as_float(q)
        t = cast(t, promote(t._value.dtype, float32))  # percents of 16 bits would lose digits as parts
        t = where(logical_or(less(t, 0.0), less(whole, t)), float("nan"), t)
        return t if whole == 1.0 else divide(t, whole)
    given = as_tensor(q)
    if given._value.dtype.kind == "c":
        raise DTypeError(explained(op, "real quantiles", given._value.type, "take the real part"))
    numbers = np.asarray(q)
    if not ((numbers >= 0) & (numbers <= whole)).all():
        unit = "divide percents by 100" if whole == 1.0 else "multiply parts of 1 by 100"
        raise ValueError(explained(op, f"quantiles from 0 to {whole:g}", q, unit))
    return q if whole == 1.0 else numbers.astype(np.float64) / whole


def _quantile(
    x: ArrayLike, q: ArrayLike, axis: Any, keepdims: bool, skip_nan: bool, method: str = "linear",
    weights: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """The elements of sorted rows at the places that q means by a method, or what lies between two."""
    if method not in (*_METHODS, "middle"):
        raise ValueError(explained("quantile", f"a method among {', '.join(_METHODS)}", repr(method), "pass one"))
    given = as_tensor(x)._value
    if method != "middle" and given.dtype.part is not given.dtype:
        raise DTypeError(explained("quantile", "real numbers", given.type, "take the real part, or the median"))
    if (skip_nan or method == "middle") and 0 in as_tensor(x)._value.shape:
        return _of_nothing(as_float(x), axis, keepdims)
    rows, axes, kept = _rows(x, axis)
    at = cast(as_tensor(q), _place_dtype(float_dtype(rows._value.dtype).part, rows._value.shape[-1]))
    if weights is not None:
        result = _weighted(rows, at, _weight_rows(x, weights, axes), method, skip_nan)
    else:
        result = _of_sorted(rows, at, method, skip_nan)
    target = kept if keepdims else rows._value.shape[:-1]
    return wrap(ops.reshape(result._value, (*at._value.shape, *target)))


def _of_nothing(t: Tensor, axis: Any, keepdims: bool) -> Tensor:
    """NaN, as NumPy's medians, and its quantiles that skip NaN, of an array without elements: one for all quantiles."""
    shape = t._value.shape
    axes = normal_axes("quantile", axis, len(shape))
    rest = [1 if d in axes else n for d, n in enumerate(shape) if keepdims or d not in axes]
    return wrap(ops.full(float("nan"), TensorType(tuple(rest), t._value.dtype)))


def _of_sorted(rows: Tensor, at: Tensor, method: str, skip_nan: bool) -> Tensor:
    ordered = sort(rows)
    missing = count_nonzero(isnan(rows), axis=-1, keepdims=True)
    present = subtract(rows._value.shape[-1], missing) if skip_nan else rows._value.shape[-1]
    dtype = rows._value.dtype if method in _ELEMENTS else float_dtype(rows._value.dtype)
    count = cast(as_tensor(present), at._value.dtype)
    part = reshape(at, (-1, *(1,) * len(rows._value.shape)))
    place, share = _place(method, count, part)
    last = subtract(count, 1)
    below = cast(_elements(ordered, clip(floor(place), 0.0, last)), dtype)
    if share is None:
        result = below
    else:
        above = cast(_elements(ordered, clip(add(floor(place), 1.0), 0.0, last)), dtype)
        both = _mean_of_two if method == "middle" else _between
        share = where(less(place, 0.0), 0.0, share)
        result = both(below, above, cast(share, dtype))
    if not rows._value.dtype.differentiable:
        return result
    empty = less(present, 1) if skip_nan else less(0, missing)
    return where(empty, float("nan"), result)


def _place(method: str, count: Tensor, q: Tensor) -> tuple[Tensor, Tensor | None]:
    """Where the quantile lies among sorted elements, and its way from the one below to the one above."""
    if method in ("linear", "middle", "lower", "higher", "midpoint", "nearest"):
        place = multiply(q, subtract(count, 1))
        share = subtract(place, floor(place))
        if method == "midpoint":
            return place, where(equal(share, 0.0), 0.0, 0.5)
        if method == "middle":  # of an odd count that element itself, twice
            return place, share
        ways: dict[str, Callable[[Any], Tensor]] = {"lower": floor, "higher": ceil, "nearest": round}
        whole = ways.get(method)
        return (place, share) if whole is None else (whole(place), None)
    if method in _CONTINUOUS:
        alpha, beta = _CONTINUOUS[method]
        place = subtract(add(multiply(count, q), add(alpha, multiply(q, 1 - alpha - beta))), 1)
        return place, subtract(place, floor(place))
    place = subtract(multiply(count, q), 1.5 if method == "closest_observation" else 1.0)
    low = floor(place)
    exact = equal(place, low)
    if method == "averaged_inverted_cdf":
        return place, where(exact, 0.5, 1.0)
    if method == "closest_observation":  # of two that are as close the one with an even number, counted from 1
        exact = logical_and(exact, equal(remainder(low, 2.0), 1.0))
    return maximum(where(exact, low, add(low, 1.0)), 0.0), None


def _weight_rows(x: ArrayLike, weights: ArrayLike, axes: tuple[int, ...]) -> Tensor:
    """Weights as they are, or along the one axis, in the rows that the elements have."""
    shape, w = as_tensor(x)._value.shape, as_tensor(weights)
    if w._value.shape != shape:
        if len(axes) != 1 or w._value.shape != (shape[axes[0]],):
            fix = "give weights the array's shape, or one per element along the axis"
            raise ShapeError(explained("quantile", f"weights that fit {shape}", w._value.type, fix))
        w = broadcast_to(reshape(w, tuple([n if d in axes else 1 for d, n in enumerate(shape)])), shape)
    moved = moveaxis(cast(w, float64), axes, tuple(range(-len(axes), 0)))
    rest = moved._value.shape[: len(shape) - len(axes)]
    return reshape(moved, (*rest, product_of(shape[d] for d in axes)))


def _weighted(rows: Tensor, at: Tensor, weights: Tensor, method: str, skip_nan: bool) -> Tensor:
    """The first element up to which there is a part q of all weights (those of NaN left out where it is skipped)."""
    if method != "inverted_cdf":
        fix = "pass method='inverted_cdf'"
        raise ValueError(explained("quantile", "method 'inverted_cdf' beside weights", repr(method), fix))
    order = argsort(rows)
    ordered, heavy = take_along_axis(rows, order, axis=-1), take_along_axis(weights, order, axis=-1)
    missing = isnan(ordered)
    heavy = where(missing, 0.0, heavy) if skip_nan else heavy
    so_far = cumsum(heavy, axis=-1)
    reached = cast(divide(so_far, so_far[..., -1:]), at._value.dtype)
    reached = where(equal(reached, 0.0), -1.0, reached)  # what has no weight is no quantile, not even the lowest
    q = reshape(at, (-1, *(1,) * len(rows._value.shape)))
    below = sum(less(expand_dims(reached, 0), q), axis=-1, keepdims=True)
    result = _elements(ordered, cast(minimum(below, rows._value.shape[-1] - 1), float64))
    return result if skip_nan or not rows._value.dtype.is_float else where(missing[..., -1:], float("nan"), result)


def _place_dtype(dtype: DType, count: int) -> DType:
    """The row's dtype or a wider one, which tells places among so many elements, and parts of them, apart: of 16 bits
    the part 0.9999 is 1."""
    if count >= _PLACES_OF_FLOAT32:
        return float64
    return float32 if dtype.bits == 16 else dtype


def _between(below: Tensor, above: Tensor, part: Tensor) -> Tensor:
    gap = subtract(above, below)
    near = add(below, multiply(gap, part))
    result = where(less(part, 0.5), near, subtract(above, multiply(gap, subtract(1.0, part))))
    # infinities have no gap; equal numbers have one, whose derivatives are those of numbers close by
    return where(logical_and(isinf(below), equal(below, above)), below, result)


def _mean_of_two(below: Tensor, above: Tensor, part: Tensor) -> Tensor:
    return divide(add(below, where(less(0.0, part), above, below)), 2.0)


def _elements(ordered: Tensor, place: Tensor) -> Tensor:
    """The elements of each row at places of shape (quantiles, rows..., 1)."""
    count = place._value.shape[0]
    shape = (count, *ordered._value.shape[:-1], 1)
    rows = broadcast_to(expand_dims(ordered, 0), (count, *ordered._value.shape))
    return take_along_axis(rows, cast(broadcast_to(maximum(place, 0.0), shape), int64), axis=-1)


@repeated
def quantile(
    x: ArrayLike, /, q: ArrayLike, axis: Any = None, out: Out = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, weights: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """The elements below which a part q (0 to 1) lies; NaN where any is NaN.

    `q` is a number or an array; an array's axes come first in the result. `method`, one of NumPy's names, says what
    counts between two elements: "linear" interpolation unless given. `weights`, of x's shape or a vector along the one
    axis, go with "inverted_cdf". Integers give the default float, unless the method takes elements as they are. Raises
    ShapeError for no elements and for other weights, ValueError for another method and
    for a number `q` that isn't from 0 to 1 (of a tensor `q` such an element gives NaN), DTypeError for a complex `q`.

    >>> lg.quantile([1.0, 2.0, 3.0, 4.0], 0.5), lg.quantile([1.0, 2.0], [0.0, 0.25])
    (Tensor(2.5, dtype=float64), Tensor([1.  , 1.25], dtype=float64))
    >>> lg.quantile([1.0, 2.0, 3.0, 4.0], 0.4, method="lower")
    Tensor(2., dtype=float64)
    """
    parts = _parts("quantile", q)
    return delivered("quantile", _quantile(x, parts, axis, keepdims, False, method, weights), out)


@repeated
def percentile(
    x: ArrayLike, /, q: ArrayLike, axis: Any = None, out: Out = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, weights: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """`quantile` of q / 100, with its options, shapes, dtypes and errors.

    >>> lg.percentile([1.0, 2.0, 3.0], 50)
    Tensor(2., dtype=float64)
    """
    parts = _parts("percentile", q, 100.0)
    return delivered("percentile", _quantile(x, parts, axis, keepdims, False, method, weights), out)


@repeated
def nanquantile(
    x: ArrayLike, /, q: ArrayLike, axis: Any = None, out: Out = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, weights: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """`quantile` of the elements that aren't NaN, with its options, shapes, dtypes and errors; NaN where all are.
    Of an array without elements it is one NaN, however many quantiles are asked for, as in NumPy.

    >>> lg.nanquantile([1.0, np.nan, 3.0], 0.5)
    Tensor(2., dtype=float64)
    """
    parts = _parts("nanquantile", q)
    return delivered("nanquantile", _quantile(x, parts, axis, keepdims, True, method, weights), out)


@repeated
def nanpercentile(
    x: ArrayLike, /, q: ArrayLike, axis: Any = None, out: Out = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, weights: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """`percentile` of the elements that aren't NaN, with its options, shapes, dtypes and errors; NaN where all are.

    >>> lg.nanpercentile([1.0, np.nan, 3.0], 50)
    Tensor(2., dtype=float64)
    """
    parts = _parts("nanpercentile", q, 100.0)
    return delivered("nanpercentile", _quantile(x, parts, axis, keepdims, True, method, weights), out)


@repeated
def median(
    x: ArrayLike, /, axis: Any = None, out: Out = None, overwrite_input: bool = False, keepdims: bool = False
) -> Tensor:
    """The middle element over `axis`, the mean of two where the count is even; NaN where any is NaN.

    Integers give the default float, complex numbers are ordered as `sort` does; of no elements it is NaN.

    >>> lg.median([3.0, 1.0, 2.0]), lg.median([1, 2])
    (Tensor(2., dtype=float64), Tensor(1.5, dtype=float64))
    """
    t = as_tensor(x)
    if t._value.dtype.kind == "c" and 0 not in t._value.shape:
        return delivered("median", _median_of_complex(t, axis, keepdims), out)
    return delivered("median", _quantile(t, 0.5, axis, keepdims, False, "middle"), out)


def _median_of_complex(t: Tensor, axis: Any, keepdims: bool) -> Tensor:
    """Those with a NaN are sorted last, and the last of them is the result."""
    rows, _, kept = _rows(t, axis)
    ordered, count = sort(rows), rows._value.shape[-1]
    low, high, last = (ordered[..., k] for k in ((count - 1) // 2, count // 2, count - 1))
    result = where(isnan(last), last, low if count % 2 else divide(add(low, high), 2))
    return reshape(result, kept) if keepdims else result


@repeated
def nanmedian(
    x: ArrayLike, /, axis: Any = None, out: Out = None, overwrite_input: bool = False, keepdims: bool = False
) -> Tensor:
    """`median` of the elements that aren't NaN, with its shapes, dtypes and errors; NaN where all are.

    >>> lg.nanmedian([1.0, np.nan, 3.0])
    Tensor(2., dtype=float64)
    """
    return delivered("median", _quantile(x, 0.5, axis, keepdims, True, "middle"), out)
