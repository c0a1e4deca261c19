"""Numbers between two ends, at equal distances or in equal ratios."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph import ops
from loopgrad.graph.errors import explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import DType
from loopgrad.lazy.numpy.complex_functions import imag, real
from loopgrad.lazy.numpy.elementwise import add, divide, floor, multiply, power, subtract
from loopgrad.lazy.numpy.movement import broadcast_to, moveaxis
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.tensor.config import current
from loopgrad.lazy.tensor.core import (
    ArrayLike,
    as_tensor,
    cast,
    is_scalar,
    requested_dtype,
    wrap,
)
from loopgrad.lazy.tensor.evaluation import to_device
from loopgrad.lazy.tensor.operands import joined_shape, normal_shape, positions
from loopgrad.lazy.tensor.promotion import as_dtype, float_dtype, promote_all
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "geomspace linspace logspace"


def _work_dtype(start: ArrayLike, stop: ArrayLike, dtype: Any) -> DType:
    """What numbers between these ends are computed in."""
    wanted = requested_dtype(dtype)
    if wanted is not None and wanted.differentiable:
        return wanted
    ends = [as_tensor(end) for end in (start, stop)]
    joined = promote_all(*[(t._value.dtype, t._weak) for t in ends])[0]
    return current().dtype if joined.kind in "biu" else float_dtype(joined)


@repeated
def linspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
    axis: int = 0, *, device: str | None = None,
) -> Any:  # fmt: skip
    """`num` evenly spaced numbers from `start` to `stop`, the end included unless `endpoint` is False; a vector.

    Of the ends' float dtype (the default one for Python numbers and integers) unless given; rounded down for an integer
    dtype. Ends may be tensors: they broadcast, and the numbers are a new axis of the result, at `axis`. With `retstep`
    a tuple: then also the distance of neighbours.

    >>> lg.linspace(0.0, 1.0, 5)
    Tensor([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float64)
    """
    (num,) = normal_shape("linspace", num)
    gaps, work = num - 1 if endpoint else num, _work_dtype(start, stop, dtype)
    wanted = requested_dtype(dtype) or work
    first, last = (as_tensor(end, work) for end in (start, stop))
    shape = joined_shape("linspace", [first._value.shape, last._value.shape])
    at = positions((num, *shape), 0)
    if work.kind == "c":
        lines = [_line(part(first), part(last), at, gaps, endpoint) for part in (real, imag)]
        line = wrap(ops.join(*[part._value for part in lines]))
    else:
        line = _line(first, last, at, gaps, endpoint)
    result = _placed(cast(floor(line) if wanted.is_integer else line, wanted), axis, device)
    if not retstep:
        return result
    return result, divide(subtract(last, first), gaps) if gaps > 0 else as_tensor(math.nan)


def _line(first: Tensor, last: Tensor, at: Value, gaps: int, endpoint: bool) -> Tensor:
    step = divide(subtract(last, first), max(gaps, 1))
    line = add(multiply(cast(wrap(at), step._value.dtype), step), first)
    if endpoint and at.shape[0] > 1:  # the end exactly, whatever rounding did to the step
        return where(wrap(ops.eq(at, gaps)), last, line)
    return line


def _placed(t: Tensor, axis: int, device: str | None) -> Tensor:
    moved = t if axis == 0 else moveaxis(t, 0, axis).copy()
    return moved if device is None else to_device(moved, device)


@repeated
def logspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True, base: ArrayLike = 10.0, dtype: Any = None,
    axis: int = 0, *, device: str | None = None,
) -> Tensor:  # fmt: skip
    """`base` to the powers `linspace(start, stop, num)`, with its shapes and dtypes; `base` may be a tensor, too.

    >>> lg.logspace(0.0, 2.0, 3)
    Tensor([  1.,  10., 100.], dtype=float64)
    """
    shapes = [as_tensor(x)._value.shape for x in (start, stop, base)]
    shape = joined_shape("logspace", shapes)
    work = _work_dtype(start, stop, None)
    powers = linspace(broadcast_to(as_tensor(start, work), shape), stop, num, endpoint)
    result = _placed(power(base, powers), axis, device)
    return result if dtype is None else cast(result, as_dtype(dtype))


@repeated
def geomspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0, *,
    device: str | None = None,
) -> Tensor:  # fmt: skip
    """`num` numbers from `start` to `stop` with one ratio between neighbours: shapes and dtypes as of `linspace`.

    Raises ValueError for Python numbers of different signs, or 0; with tensors such ends give NaN.

    >>> lg.geomspace(1.0, 8.0, 4)
    Tensor([1., 2., 4., 8.], dtype=float64)
    """
    if not is_scalar(start) or not is_scalar(stop) or isinstance(start, complex) or isinstance(stop, complex):
        work = _work_dtype(start, stop, None)
        first, last = as_tensor(start, work), as_tensor(stop, work)
        ratio = divide(last, first)  # signs aren't known before it is computed: NaN where they differ
        parts = linspace(0.0, 1.0, num, endpoint, dtype=work)
        parts = parts.reshape((-1, *(1,) * len(ratio._value.shape))) if num else parts
        result = _placed(multiply(first, power(ratio, parts)), axis, device)
        return result if dtype is None else cast(result, as_dtype(dtype))
    low, high = float(start), float(stop)  # type: ignore[arg-type]
    if not low * high > 0:
        fix = "the ratio between neighbours would not exist"
        raise ValueError(explained("geomspace", "two ends of one sign", f"{start} and {stop}", fix))
    powers = linspace(math.log10(abs(low)), math.log10(abs(high)), num, endpoint)
    result = multiply(1.0 if low > 0 else -1.0, power(10.0, powers))
    at = positions((int(num),), 0)
    result = where(wrap(ops.eq(at, 0)), start, result)
    if endpoint and num > 1:  # the ends exactly, as in linspace
        result = where(wrap(ops.eq(at, num - 1)), stop, result)
    result = _placed(result, axis, device)
    return result if dtype is None else cast(result, as_dtype(dtype))
