"""Statistics: order statistics, sums that skip NaN, averages."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from math import isinf
from math import prod as product_of
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.types import DType
from loopgrad.lazy.numpy.complex_functions import conjugated, real
from loopgrad.lazy.numpy.creation import full_like
from loopgrad.lazy.numpy.elementwise import (
    add,
    divide,
    greater,
    logical_and,
    logical_not,
    maximum,
    multiply,
    sqrt,
    stop_gradient,
    subtract,
)
from loopgrad.lazy.numpy.joining import atleast_2d
from loopgrad.lazy.numpy.matrix_products import diagonal, matmul
from loopgrad.lazy.numpy.movement import broadcast_to, concat, expand_dims, permute_dims, reshape
from loopgrad.lazy.numpy.reduction import (
    argmax,
    argmin,
    degrees_taken,
    max,
    mean,
    min,
    prod,
    sum,
    var,
)
from loopgrad.lazy.numpy.running_totals import cumprod, cumsum
from loopgrad.lazy.numpy.smooth_functions import root_of_squares
from loopgrad.lazy.numpy.special_values import clip, isnan, where
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast
from loopgrad.lazy.tensor.operands import as_float, as_mask, normal_axes, normal_axis
from loopgrad.lazy.tensor.outputs import Out, delivered
from loopgrad.lazy.tensor.promotion import as_dtype, float_dtype, promote
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

choose: Final = where  # beside arguments of that name
PUBLIC: Final = (
    "average corrcoef cov nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod nanstd nansum nanvar "
    "ptp"
)


# ---- sums that skip NaN


def _with(number: float, t: Tensor) -> Tensor:
    """t with a number in place of NaN; complex numbers are NaN where a part is, and the limits of an order have two."""
    limit = complex(number, number) if t._value.dtype.kind == "c" and isinf(number) else number
    return choose(isnan(t), limit, t)


_SKIPPING = """`{plain}` of the elements that aren't NaN, with its options, shapes, dtypes and errors{all_nan}.

>>> lg.{name}([1.0, np.nan, 3.0])
Tensor({result})
"""


def _skipping(reduce: Callable[..., Tensor], name: str, identity: float, result: str) -> Callable[..., Tensor]:
    def function(x: ArrayLike, /, *args: Any, **how: Any) -> Tensor:
        t = as_tensor(x)
        return reduce(_with(identity, t) if t._value.dtype.differentiable else t, *args, **how)

    function.__name__ = function.__qualname__ = name
    function.__signature__ = signature(reduce)  # type: ignore[attr-defined]
    function.__doc__ = _SKIPPING.format(plain=name[3:], name=name, result=result, all_nan="")
    return function


nansum = _skipping(sum, "nansum", 0.0, "4., dtype=float64")
nanprod = _skipping(prod, "nanprod", 1.0, "3., dtype=float64")
nancumsum = _skipping(cumsum, "nancumsum", 0.0, "[1., 1., 4.], dtype=float64")
nancumprod = _skipping(cumprod, "nancumprod", 1.0, "[1., 1., 3.], dtype=float64")
nanargmax = _skipping(argmax, "nanargmax", float("-inf"), "2, dtype=int64")
nanargmin = _skipping(argmin, "nanargmin", float("inf"), "0, dtype=int64")


def _nan_extremum(reduce: Callable[..., Tensor], name: str, limit: float, result: str) -> Callable[..., Tensor]:
    def function(
        x: ArrayLike, /, axis: Any = None, out: Out = None, keepdims: bool = False, initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Tensor:  # fmt: skip
        t = as_tensor(x)
        if not t._value.dtype.differentiable:
            return reduce(t, axis=axis, out=out, keepdims=keepdims, initial=initial, where=where)
        found = reduce(_with(limit, t), axis=axis, keepdims=keepdims, initial=initial, where=where)
        if initial is None:
            found = choose(isnan(t).all(axis=axis, keepdims=keepdims), float("nan"), found)
        return delivered(name, found, out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _SKIPPING.format(plain=name[3:], name=name, result=result, all_nan="; NaN where all are")
    return function


nanmax = _nan_extremum(max, "nanmax", float("-inf"), "3., dtype=float64")
nanmin = _nan_extremum(min, "nanmin", float("inf"), "1., dtype=float64")


@repeated
def nanmean(
    x: ArrayLike, /, axis: Any = None, dtype: Any = None, out: Out = None, keepdims: bool = False, *,
    where: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """The mean over `axis` of the elements that aren't NaN, with `mean`'s options and dtypes; NaN where all are.

    Raises DTypeError for floats and a `dtype` of integers, which has no NaN.

    >>> lg.nanmean([1.0, np.nan, 3.0])
    Tensor(2., dtype=float64)
    """
    t, there = _there("nanmean", x, where)
    if dtype is not None and not as_tensor(x)._value.dtype.is_integer:
        _require_floats("nanmean", as_dtype(dtype))
    return mean(choose(there, t, 0.0), axis, dtype, out, keepdims, where=there)


def _require_floats(op: str, dtype: DType) -> None:
    if dtype.kind not in "fc":
        fix = "leave dtype out, and convert the result with .astype"
        raise DTypeError(explained(op, "a float or complex dtype to compute in", dtype, fix))


def _there(op: str, x: ArrayLike, where: ArrayLike | None) -> tuple[Tensor, Tensor]:
    """x as floats, and which elements count."""
    t = as_float(x)
    there = logical_not(isnan(t))
    return t, there if where is None else logical_and(there, as_mask(op, where))


@repeated
def nanvar(
    x: ArrayLike, /, axis: Any = None, dtype: Any = None, out: Out = None, ddof: float | None = None,
    keepdims: bool = False, *, where: ArrayLike | None = None, mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Tensor:  # fmt: skip
    """The variance over `axis` of the elements that aren't NaN, with `var`'s options, shapes and dtypes.

    >>> lg.nanvar([1.0, np.nan, 3.0])
    Tensor(1., dtype=float64)
    """
    t, there = _there("nanvar", x, where)
    taken = degrees_taken("nanvar", ddof, correction)
    how: dict[str, Any] = {"ddof": taken, "keepdims": keepdims, "where": there, "mean": mean}
    found = var(choose(there, t, 0.0), axis, dtype, **how)
    enough = greater(sum(there, axis=axis, keepdims=keepdims), taken)
    return delivered("nanvar", choose(enough, found, float("nan")), out)


@repeated
def nanstd(
    x: ArrayLike, /, axis: Any = None, dtype: Any = None, out: Out = None, ddof: float | None = None,
    keepdims: bool = False, *, where: ArrayLike | None = None, mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Tensor:  # fmt: skip
    """The standard deviation over `axis` of the elements that aren't NaN, with `std`'s options, shapes and dtypes.

    >>> lg.nanstd([1.0, np.nan, 3.0])
    Tensor(1., dtype=float64)
    """
    how: dict[str, Any] = {"correction": correction, "keepdims": keepdims, "where": where, "mean": mean}
    return delivered("nanstd", root_of_squares(nanvar(x, axis, dtype, ddof=ddof, **how)), out)


# ---- order


@repeated
def ptp(x: ArrayLike, /, axis: Any = None, out: Out = None, keepdims: bool = False) -> Tensor:
    """The largest element over `axis` less the smallest; the dtype stays. Raises ShapeError for no elements.

    >>> lg.ptp([3, 1, 5])
    Tensor(4, dtype=int64)
    """
    spread = subtract(max(x, axis=axis, keepdims=keepdims), min(x, axis=axis, keepdims=keepdims))
    return delivered("ptp", spread, out)


# ---- averages


@repeated
def average(
    x: ArrayLike, /, axis: Any = None, weights: ArrayLike | None = None, returned: bool = False, *,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """The mean over `axis`, or with weights (of x's shape, or of the axes' extents) sum(w * x) / sum(w).

    With `returned` a tuple: then also the sum of the weights. Dtypes are promoted to a float one, integers as by
    themselves. Raises ShapeError for other weights.

    >>> lg.average([1.0, 2.0, 3.0], weights=[0.0, 1.0, 1.0])
    Tensor(2.5, dtype=float64)
    """
    t = as_tensor(x)
    shape = t._value.shape
    if weights is None:
        result = mean(t, axis=axis, keepdims=keepdims)
        count = product_of(shape) // (product_of(result._value.shape) or 1)
        return (result, full_like(result, count)) if returned else result
    w, axes = as_tensor(weights), normal_axes("average", axis, len(shape))
    if w._value.shape != shape:
        given = axis if isinstance(axis, tuple | list) else (axis,)
        order = None if axis is None else [normal_axis("average", a, len(shape)) for a in given]
        if order is None or w._value.shape != tuple([shape[d] for d in order]):
            fix = "give weights the array's shape, or one per element along the axis"
            raise ShapeError(explained("average", f"weights that fit {shape} along axis {axis}", w._value.shape, fix))
        w = permute_dims(w, [order.index(d) for d in axes])
        w = broadcast_to(reshape(w, tuple([n if d in axes else 1 for d, n in enumerate(shape)])), shape)
    work = float_dtype(promote(float_dtype(t._value.dtype), w._value.dtype))
    t, w = cast(t, work), cast(w, work)
    total = sum(w, axis=axis, keepdims=keepdims)
    result = divide(sum(multiply(t, w), axis=axis, keepdims=keepdims), total)
    return (result, total) if returned else result


def _vectors(op: str, x: ArrayLike, y: ArrayLike | None, rowvar: bool) -> Tensor:
    """Variables as rows."""
    t = as_float(x)
    if len(t._value.shape) > 2:
        raise ShapeError(explained(op, "one or two dimensions", t._value.type, "reshape it"))
    rows: Tensor = atleast_2d(t)
    rows = rows if rowvar or len(t._value.shape) < 2 else rows.T
    if y is None:
        return rows
    return concat([rows, _vectors(op, y, None, rowvar)])


@repeated
def cov(
    x: ArrayLike, /, y: ArrayLike | None = None, rowvar: bool = True, bias: bool = False, ddof: float | None = None,
    fweights: ArrayLike | None = None, aweights: ArrayLike | None = None, *, dtype: Any = None,
) -> Tensor:  # fmt: skip
    """The covariance matrix of the rows of x, and of y (the columns unless `rowvar`), by the count less `ddof`: 1, or 0
    where `bias`.

    `fweights` says how often each observation was made, `aweights` how much it counts. Shape (n, n) for n rows, () for
    a vector; `dtype`, else a float, else the default float. Raises ShapeError for more than two axes, and for weights
    that aren't a vector of one for each observation; DTypeError for a `dtype` of integers.

    >>> lg.cov(lg.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Tensor([[ 1., -1.],
            [-1.,  1.]], dtype=float64)
    """
    rows = _vectors("cov", x, y, rowvar)
    if dtype is not None:
        _require_floats("cov", as_dtype(dtype))
        rows = cast(rows, as_dtype(dtype))
    count, work = rows._value.shape[1], rows._value.dtype.part
    less_by = (0.0 if bias else 1.0) if ddof is None else ddof
    often, much = (None if w is None else _weights_of(w, count, work) for w in (fweights, aweights))
    weights = much if often is None else often if much is None else multiply(often, much)
    if weights is None:
        gap = subtract(rows, mean(rows, axis=1, keepdims=True))
        factor: Any = count - less_by if count > less_by else 0.0
        scaled = gap
    else:
        whole = sum(weights)
        gap = subtract(rows, divide(sum(multiply(rows, weights), axis=1, keepdims=True), whole))
        scaled = multiply(gap, weights)
        if much is None or not less_by:
            factor = subtract(whole, less_by)
        else:
            factor = subtract(whole, divide(multiply(less_by, sum(multiply(weights, much))), whole))
        factor = maximum(factor, 0.0)
    result = divide(matmul(gap, conjugated(scaled).T), factor)
    return reshape(result, ()) if result._value.shape == (1, 1) else result


def _weights_of(weights: ArrayLike, count: int, dtype: DType) -> Tensor:
    w = as_tensor(weights)
    if w._value.shape != (count,):
        raise ShapeError(explained("cov", f"a vector of {count} weights", w._value.type, "pass one per observation"))
    return cast(w, dtype)


@repeated
def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, *, dtype: Any = None) -> Tensor:
    """The matrix of Pearson's correlation coefficients of the rows of x, and of y (the columns unless `rowvar`).

    Shapes, dtypes and errors are those of `cov`.

    >>> lg.corrcoef(lg.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Tensor([[ 1., -1.],
            [-1.,  1.]], dtype=float64)
    """
    spread = cov(x, y, rowvar, dtype=dtype)
    if not spread._value.shape:
        return divide(spread, spread)
    deviation = sqrt(real(diagonal(spread)))
    result = divide(divide(spread, expand_dims(deviation, 1)), expand_dims(deviation, 0))
    if result._value.dtype.kind == "c":
        return result
    # what rounding put beyond the limits is cut off from the value alone: at 1 the function goes on being smooth
    return add(result, stop_gradient(subtract(clip(result, -1.0, 1.0), result)))
