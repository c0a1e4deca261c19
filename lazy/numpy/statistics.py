"""Statistics: order statistics, sums that skip NaN, averages."""

from __future__ import annotations

from collections.abc import Callable
from math import prod as product_of
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph import ops
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.types import DType, float32, float64, int64
from loopgrad.lazy.numpy.complex_functions import conj
from loopgrad.lazy.numpy.elementwise import (
    add,
    ceil,
    divide,
    equal,
    floor,
    greater,
    less,
    logical_and,
    logical_not,
    maximum,
    minimum,
    multiply,
    sqrt,
    stop_gradient,
    subtract,
)
from loopgrad.lazy.numpy.indexing import take_along_axis
from loopgrad.lazy.numpy.matrix_products import diagonal, matmul
from loopgrad.lazy.numpy.movement import broadcast_to, expand_dims, moveaxis, reshape
from loopgrad.lazy.numpy.reduction import (
    argmax,
    argmin,
    count_nonzero,
    max,
    mean,
    min,
    prod,
    sum,
    var,
)
from loopgrad.lazy.numpy.running_totals import cumprod, cumsum
from loopgrad.lazy.numpy.smooth_functions import root_of_squares
from loopgrad.lazy.numpy.sorting import sort
from loopgrad.lazy.numpy.special_values import clip, isinf, isnan, where
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast, wrap
from loopgrad.lazy.tensor.operands import normal_axes
from loopgrad.lazy.tensor.promotion import float_dtype, promote

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = (
    "average corrcoef cov median nanargmax nanargmin nancumprod nancumsum nanmax nanmean "
    "nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar percentile ptp quantile"
)


_PLACES_OF_FLOAT32: Final = 1 << 20


def _as_float(x: ArrayLike) -> Tensor:
    t = as_tensor(x)
    return cast(t, float_dtype(t._value.dtype))


# ---- sums that skip NaN


_SKIPPING = """`{plain}` of the elements that aren't NaN, with its options, shapes, dtypes and errors{all_nan}.

>>> lg.{name}([1.0, np.nan, 3.0])
Tensor({result})
"""


def _skipping(reduce: Callable[..., Tensor], name: str, identity: float, result: str) -> Callable[..., Tensor]:
    def function(x: ArrayLike, /, axis: Any = None, **how: Any) -> Tensor:
        t = as_tensor(x)
        return reduce(where(isnan(t), identity, t) if t._value.dtype.is_float else t, axis=axis, **how)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _SKIPPING.format(plain=name[3:], name=name, result=result, all_nan="")
    return function


nansum = _skipping(sum, "nansum", 0.0, "4., dtype=float64")
nanprod = _skipping(prod, "nanprod", 1.0, "3., dtype=float64")
nancumsum = _skipping(cumsum, "nancumsum", 0.0, "[1., 1., 4.], dtype=float64")
nancumprod = _skipping(cumprod, "nancumprod", 1.0, "[1., 1., 3.], dtype=float64")
nanargmax = _skipping(argmax, "nanargmax", float("-inf"), "2, dtype=int64")
nanargmin = _skipping(argmin, "nanargmin", float("inf"), "0, dtype=int64")


def _nan_extremum(reduce: Callable[..., Tensor], name: str, limit: float, result: str) -> Callable[..., Tensor]:
    def function(x: ArrayLike, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
        t = as_tensor(x)
        if not t._value.dtype.is_float:
            return reduce(t, axis=axis, keepdims=keepdims)
        found = reduce(where(isnan(t), limit, t), axis=axis, keepdims=keepdims)
        nothing = isnan(t).all(axis=axis, keepdims=keepdims)
        return where(nothing, float("nan"), found)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _SKIPPING.format(plain=name[3:], name=name, result=result, all_nan="; NaN where all are")
    return function


nanmax = _nan_extremum(max, "nanmax", float("-inf"), "3., dtype=float64")
nanmin = _nan_extremum(min, "nanmin", float("inf"), "1., dtype=float64")


def nanmean(x: ArrayLike, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """The mean over `axis` of the elements that aren't NaN, with `mean`'s shapes and dtypes; NaN where all are.

    >>> lg.nanmean([1.0, np.nan, 3.0])
    Tensor(2., dtype=float64)
    """
    t = _as_float(x)
    there = logical_not(isnan(t))
    return mean(where(there, t, 0.0), axis=axis, keepdims=keepdims, where=there)


def nanvar(x: ArrayLike, /, axis: Any = None, *, ddof: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance over `axis` of the elements that aren't NaN, with `var`'s shapes and dtypes.

    >>> lg.nanvar([1.0, np.nan, 3.0])
    Tensor(1., dtype=float64)
    """
    t = _as_float(x)
    there = logical_not(isnan(t))
    found = var(where(there, t, 0.0), axis=axis, ddof=ddof, keepdims=keepdims, where=there)
    return where(greater(sum(there, axis=axis, keepdims=keepdims), ddof), found, float("nan"))


def nanstd(x: ArrayLike, /, axis: Any = None, *, ddof: float = 0.0, keepdims: bool = False) -> Tensor:
    """The standard deviation over `axis` of the elements that aren't NaN, with `std`'s shapes and dtypes.

    >>> lg.nanstd([1.0, np.nan, 3.0])
    Tensor(1., dtype=float64)
    """
    return root_of_squares(nanvar(x, axis=axis, ddof=ddof, keepdims=keepdims))


# ---- order


def ptp(x: ArrayLike, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """The largest element over `axis` less the smallest; the dtype stays. Raises ShapeError for no elements.

    >>> lg.ptp([3, 1, 5])
    Tensor(4, dtype=int64)
    """
    return subtract(max(x, axis=axis, keepdims=keepdims), min(x, axis=axis, keepdims=keepdims))


def _rows(x: ArrayLike, axis: Any) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
    """The reduced axes as the last one, the axes, and the shape with them kept."""
    t = _as_float(x)
    shape = t._value.shape
    axes = normal_axes("quantile", axis, len(shape))
    moved = moveaxis(t, axes, tuple(range(-len(axes), 0)))
    rest = moved._value.shape[: len(shape) - len(axes)]
    count = product_of(shape[d] for d in axes)
    if not count:
        raise ShapeError(explained("quantile", "at least one element", t._value.type, "check the axis"))
    return reshape(moved, (*rest, count)), axes, tuple([1 if d in axes else n for d, n in enumerate(shape)])


def _quantile(x: ArrayLike, q: ArrayLike, axis: Any, keepdims: bool, skip_nan: bool, middle: bool = False) -> Tensor:
    """Linear interpolation between the sorted elements around position q * (count - 1); of the `middle` their mean."""
    rows, _, kept = _rows(x, axis)
    at = cast(as_tensor(q), rows._value.dtype)
    if len(at._value.shape) > 1:
        raise ShapeError(explained("quantile", "one quantile or a vector of them", at._value.type, "ravel it"))
    ordered = sort(rows)
    missing = count_nonzero(isnan(ordered), axis=-1, keepdims=True)
    present = subtract(rows._value.shape[-1], missing) if skip_nan else rows._value.shape[-1]
    places = _place_dtype(rows._value.dtype, rows._value.shape[-1])
    last = cast(as_tensor(subtract(present, 1)), places)
    rank = len(ordered._value.shape) - 1
    place = multiply(reshape(cast(at, places), (-1, *(1,) * (rank + 1))), last)
    below, above = _elements(ordered, floor(place)), _elements(ordered, minimum(ceil(place), last))
    part = cast(subtract(place, floor(place)), rows._value.dtype)
    result = _mean_of_two(below, above) if middle else _between(below, above, part)
    empty = less(present, 1) if skip_nan else less(0, missing)
    result = where(empty, float("nan"), result)
    target = kept if keepdims else ordered._value.shape[:-1]
    return wrap(ops.reshape(result._value, (*at._value.shape, *target)))


def _place_dtype(dtype: DType, count: int) -> DType:
    """The row's dtype or a wider one, which tells places among so many elements, and parts of them, apart."""
    if count >= _PLACES_OF_FLOAT32:
        return float64
    return float32 if dtype.bits == 16 else dtype


def _between(below: Tensor, above: Tensor, part: Tensor) -> Tensor:
    gap = subtract(above, below)
    near = add(below, multiply(gap, part))
    result = where(less(part, 0.5), near, subtract(above, multiply(gap, subtract(1.0, part))))
    # infinities have no gap; equal numbers have one, whose derivatives are those of numbers close by
    return where(logical_and(isinf(below), equal(below, above)), below, result)


def _mean_of_two(below: Tensor, above: Tensor) -> Tensor:
    return divide(add(below, above), 2.0)


def _elements(ordered: Tensor, place: Tensor) -> Tensor:
    """The elements of each row at places of shape (quantiles, rows..., 1)."""
    count = place._value.shape[0]
    shape = (count, *ordered._value.shape[:-1], 1)
    rows = broadcast_to(expand_dims(ordered, 0), (count, *ordered._value.shape))
    return take_along_axis(rows, cast(broadcast_to(maximum(place, 0.0), shape), int64), axis=-1)


def quantile(x: ArrayLike, q: ArrayLike, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """The elements below which a part q (0 to 1) lies, by linear interpolation; NaN where any is NaN.

    `q` is a number or a vector; a vector's axis comes first in the result.

    Integers give the default float. Raises ShapeError for no elements, and for `q` of more than one axis.

    >>> lg.quantile([1.0, 2.0, 3.0, 4.0], 0.5), lg.quantile([1.0, 2.0], [0.0, 0.25])
    (Tensor(2.5, dtype=float64), Tensor([1.  , 1.25], dtype=float64))
    """
    return _quantile(x, q, axis, keepdims, skip_nan=False)


def percentile(x: ArrayLike, q: ArrayLike, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """`quantile` of q / 100, with its shapes, dtypes and errors.

    >>> lg.percentile([1.0, 2.0, 3.0], 50)
    Tensor(2., dtype=float64)
    """
    return _quantile(x, divide(q, 100.0), axis, keepdims, skip_nan=False)


def nanquantile(x: ArrayLike, q: ArrayLike, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """`quantile` of the elements that aren't NaN, with its shapes, dtypes and errors; NaN where all are.

    >>> lg.nanquantile([1.0, np.nan, 3.0], 0.5)
    Tensor(2., dtype=float64)
    """
    return _quantile(x, q, axis, keepdims, skip_nan=True)


def nanpercentile(x: ArrayLike, q: ArrayLike, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """`percentile` of the elements that aren't NaN, with its shapes, dtypes and errors; NaN where all are.

    >>> lg.nanpercentile([1.0, np.nan, 3.0], 50)
    Tensor(2., dtype=float64)
    """
    return _quantile(x, divide(q, 100.0), axis, keepdims, skip_nan=True)


def median(x: ArrayLike, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """The middle element over `axis`, the mean of two where the count is even; NaN where any is NaN.

    Integers give the default float. Raises ShapeError for no elements.

    >>> lg.median([3.0, 1.0, 2.0]), lg.median([1, 2])
    (Tensor(2., dtype=float64), Tensor(1.5, dtype=float64))
    """
    return _quantile(x, 0.5, axis, keepdims, skip_nan=False, middle=True)


def nanmedian(x: ArrayLike, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """`median` of the elements that aren't NaN, with its shapes, dtypes and errors; NaN where all are.

    >>> lg.nanmedian([1.0, np.nan, 3.0])
    Tensor(2., dtype=float64)
    """
    return _quantile(x, 0.5, axis, keepdims, skip_nan=True, middle=True)


# ---- averages


def average(x: ArrayLike, /, axis: Any = None, weights: ArrayLike | None = None, *, keepdims: bool = False) -> Tensor:
    """The mean over `axis`, or with weights (of x's shape, or a vector along the one axis) sum(w * x) / sum(w).

    Dtypes are promoted to a float one. Raises ShapeError for other weights.

    >>> lg.average([1.0, 2.0, 3.0], weights=[0.0, 1.0, 1.0])
    Tensor(2.5, dtype=float64)
    """
    if weights is None:
        return mean(x, axis=axis, keepdims=keepdims)
    t, w = as_tensor(x), as_tensor(weights)
    shape = t._value.shape
    if w._value.shape != shape:
        axes = normal_axes("average", axis, len(shape))
        if len(axes) != 1 or axis is None or w._value.shape != (shape[axes[0]],):
            fix = "give weights the array's shape, or one per element along the axis"
            raise ShapeError(explained("average", f"weights that fit {shape} along axis {axis}", w._value.shape, fix))
        w = broadcast_to(reshape(w, tuple([n if d in axes else 1 for d, n in enumerate(shape)])), shape)
    work = float_dtype(promote(t._value.dtype, w._value.dtype))
    t, w = cast(t, work), cast(w, work)
    return divide(sum(multiply(t, w), axis=axis, keepdims=keepdims), sum(w, axis=axis, keepdims=keepdims))


def cov(x: ArrayLike, /, *, rowvar: bool = True, ddof: float = 1.0) -> Tensor:
    """The covariance matrix of the rows (the columns unless `rowvar`), by the count less `ddof`.

    Shape (n, n) for n rows, () for a vector; integers give the default float. Raises ShapeError for more than two axes.

    >>> lg.cov(lg.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Tensor([[ 1., -1.],
            [-1.,  1.]], dtype=float64)
    """
    t = _as_float(x)
    if len(t._value.shape) > 2:
        raise ShapeError(explained("cov", "one or two dimensions", t._value.type, "reshape it"))
    vector = len(t._value.shape) < 2
    rows = reshape(t, (1, -1)) if vector else t if rowvar else t.T
    gap = subtract(rows, mean(rows, axis=1, keepdims=True))
    count = float(rows._value.shape[1]) - ddof
    result = divide(matmul(gap, conj(gap).T), count if count > 0.0 else 0.0)
    return reshape(result, ()) if vector or result._value.shape == (1, 1) else result


def corrcoef(x: ArrayLike, /, *, rowvar: bool = True) -> Tensor:
    """The matrix of Pearson's correlation coefficients of the rows (the columns unless `rowvar`).

    Shapes, dtypes and errors are those of `cov`.

    >>> lg.corrcoef(lg.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Tensor([[ 1., -1.],
            [-1.,  1.]], dtype=float64)
    """
    spread = cov(x, rowvar=rowvar)
    if not spread._value.shape:
        return divide(spread, spread)
    deviation = sqrt(diagonal(spread))
    result = divide(divide(spread, expand_dims(deviation, 1)), expand_dims(deviation, 0))
    # what rounding put beyond the limits is cut off from the value alone: at 1 the function goes on being smooth
    return add(result, stop_gradient(subtract(clip(result, -1.0, 1.0), result)))
