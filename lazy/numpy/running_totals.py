"""Running totals along an axis: sums, products, extrema, logarithms of sums of exponentials.

`cumsum` and `cumprod` are inclusive unless asked for `exclusive`, what comes before an element, or `include_initial`,
the array API's: one element more, which stands before all others. Sums of bools and integers are 64-bit, as in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.complex_numbers.table import computed
from loopgrad.graph.errors import explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import bool_, int8
from loopgrad.lazy.loops.associative_scan import associative_scan
from loopgrad.lazy.numpy.movement import ravel
from loopgrad.lazy.numpy.reduction import summed_dtype
from loopgrad.lazy.numpy.smooth_functions import logaddexp
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast_value, wrap
from loopgrad.lazy.tensor.operands import as_float, dtype_refused, normal_axis
from loopgrad.lazy.tensor.outputs import Out, delivered
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "cummax cummin cumprod cumulative_prod=cumprod cumsum cumulative_sum=cumsum logcumsumexp"

_TOTAL = """{what} along an axis (None: of x raveled); `reverse` begins at the end.

Bools and integers become 64-bit, floats keep their dtype, unless `dtype` is given (bool: {truth}).
`include_initial` puts {initial} in front (behind, where `reverse`); `exclusive` gives what comes before each element,
without itself. Raises ShapeError for an axis that x hasn't, ValueError for both of them.

>>> lg.{name}(lg.asarray([3, 1, 2]))
Tensor({result}, dtype=int64)
>>> lg.{name}(lg.asarray([3, 1, 2]), exclusive=True)
Tensor({before}, dtype=int64)
"""

_EXTREMUM = """{what} along an axis (None: of x raveled); `reverse` begins at the end.

The dtype stays, and NaN is larger and smaller than any number.
Raises ShapeError for an axis that x hasn't, DTypeError for bools, ValueError for `include_initial` and `exclusive`.

>>> lg.{name}(lg.asarray([3, 1, 2]))
Tensor({result}, dtype=int64)
"""


def _raveled(op: str, x: ArrayLike, axis: int | None) -> tuple[Tensor, int]:
    t = as_tensor(x)
    return (ravel(t), 0) if axis is None else (t, normal_axis(op, axis, len(t._value.shape)))


def _total(op: str, initial: int, of_bools: str, **text: str) -> Callable[..., Tensor]:
    def function(
        x: ArrayLike, /, axis: int | None = None, dtype: Any = None, out: Out = None, *, reverse: bool = False,
        include_initial: bool = False, exclusive: bool = False,
    ) -> Tensor:  # fmt: skip
        t, d = _raveled(op, x, axis)
        value = cast_value(t._value, summed_dtype(t._value, dtype))
        if include_initial and exclusive:
            fix = "include_initial alone, whose last element is the total"
            raise ValueError(explained(op, "include_initial or exclusive", "both", fix))
        if include_initial or exclusive:
            value = _moved_on(value, d, reverse, initial, drop=exclusive)
        if value.dtype is bool_:  # asked for as dtype
            found = emit(of_bools, (cast_value(value, int8),), {"axis": d, "reverse": bool(reverse)})[0]
            return delivered(op, wrap(cast_value(found, bool_)), out)
        return delivered(op, wrap(computed(op, value, axis=d, reverse=bool(reverse))), out)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = _TOTAL.format(name=op, initial=initial, **text)
    return repeated(function)


def _moved_on(v: Value, axis: int, reverse: bool, initial: int, drop: bool) -> Value:
    """`initial` before all elements, the last of which is dropped or stays."""
    start, stop, edge, none = ([0] * len(v.shape) for _ in range(4))
    stop[:], edge[axis] = v.shape, 1
    if drop:
        if not v.shape[axis]:
            return v
        if reverse:
            start[axis] = 1
        else:
            stop[axis] -= 1
        v = ops.slice(v, start, stop)
    return ops.pad(v, none, edge, initial) if reverse else ops.pad(v, edge, none, initial)


def _extremum(op: str, **text: str) -> Callable[..., Tensor]:
    def function(
        x: ArrayLike, /, axis: int | None = None, dtype: Any = None, out: Out = None, *, reverse: bool = False,
        include_initial: bool = False, exclusive: bool = False,
    ) -> Tensor:  # fmt: skip
        t, d = _raveled(op, x, axis)
        if t._value.dtype is bool_:
            raise dtype_refused(op, "iuf", bool_)
        for name, given in (("include_initial", include_initial), ("exclusive", exclusive)):
            if given:
                fix = "prepend an element with lg.concat"
                raise ValueError(explained(op, f"{name} of cumsum and cumprod only", True, fix))
        return delivered(op, wrap(emit(op, (t._value,), {"axis": d, "reverse": bool(reverse)})[0]), out)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = _EXTREMUM.format(name=op, **text)
    return repeated(function)


cumsum = _total(
    "cumsum", 0, "cummax", truth="whether any was true", what="The running sum", result="[3, 4, 6]", before="[0, 3, 4]"
)
cumprod = _total(
    "cumprod", 1, "cummin", truth="whether all were", what="The running product", result="[3, 3, 6]", before="[1, 3, 3]"
)
cummax = _extremum("cummax", what="The largest so far", result="[3, 3, 3]")
cummin = _extremum("cummin", what="The smallest so far", result="[3, 1, 1]")


@repeated
def logcumsumexp(x: ArrayLike, /, axis: int | None = None, *, reverse: bool = False) -> Tensor:
    """log(cumsum(exp(x))) along an axis (None: of x raveled) without overflow; `reverse` begins at the end.

    Integers give the default float. Minus infinity is the logarithm of nothing and changes no total; NaN and infinity
    stay. It is one running total, as `cumsum` is, of sums of exponentials that are scaled by one of their terms and
    keep what additions lose: the error doesn't grow with the number of elements. Complex numbers meet in pairs of pairs
    (`associative_scan` of `logaddexp`). Raises ShapeError for an axis that x hasn't.

    >>> lg.logcumsumexp(lg.asarray([1000.0, 1000.0, -lg.inf]))
    Tensor([1000.        , 1000.69314718, 1000.69314718], dtype=float64)
    """
    t, d = _raveled("logcumsumexp", x, axis)
    t = as_float(t)
    if t._value.dtype.kind == "c":
        return associative_scan(logaddexp, t, reverse, d)  # type: ignore[no-any-return]
    return wrap(ops.logcumsumexp(t._value, d, bool(reverse)))
