"""Choosing among elements, and what is done with NaN, infinities and signs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, overload

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.errors import explained
from loopgrad.graph.python_numbers import stands_for_number
from loopgrad.graph.ranges import limits
from loopgrad.graph.types import TensorType, bool_
from loopgrad.lazy.numpy.elementwise import (
    absolute,
    greater,
    less,
    logical_not,
    logical_or,
    maximum,
    minimum,
    named,
    negative,
    unary_operand,
)
from loopgrad.lazy.numpy.found_positions import nonzero
from loopgrad.lazy.numpy.shapes_and_dtypes import finfo
from loopgrad.lazy.tensor.core import (
    ArrayLike,
    TensorCore,
    as_tensor,
    broadcast_value,
    cast,
    constant,
    copied,
    wrap,
)
from loopgrad.lazy.tensor.operands import as_bool, dtype_refused, joined_shape, meet
from loopgrad.lazy.tensor.outputs import Out, Unary, binary, delivered, unary
from loopgrad.lazy.tensor.promotion import promote_all
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "clip copysign isfinite isinf isnan nan_to_num signbit where"


@overload
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike, /) -> Tensor: ...
@overload
def where(condition: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> tuple[Tensor, ...]: ...
@repeated
def where(
    condition: ArrayLike, x: ArrayLike | None = None, y: ArrayLike | None = None, /, *, size: int | None = None,
    fill_value: Any = None,
) -> Any:  # fmt: skip
    """x where the condition holds, y elsewhere; without them `nonzero(condition)`, with its options.

    All three broadcast; x and y are promoted to one dtype, the result's. Both are computed: for derivatives guard the
    argument of what may be infinite, not its result. Raises TypeError for one of x and y alone, ShapeError where shapes
    don't broadcast.

    >>> lg.where([True, False], [1.0, 2.0], 0.0)
    Tensor([1., 0.], dtype=float64)
    """
    if x is None or y is None:
        if x is not None or y is not None:
            raise TypeError(explained("where", "both x and y, or neither", "one of them", "pass the other"))
        return nonzero(condition, size=size, fill_value=fill_value)
    predicate = as_bool(condition)
    (a, b), weak = meet("where", (x, y))
    shape = joined_shape("where", (predicate._value.shape, a.shape))
    chosen = [broadcast_value(v, shape) for v in (predicate._value, a, b)]
    return wrap(emit("select", chosen)[0], weak)


@repeated
def clip(
    x: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None, out: Out = None, *,
    a_min: ArrayLike | None = None, a_max: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """x kept between `min` and `max` (also called `a_min` and `a_max`); None leaves that side open. With `out` written
    to that, and returned.

    All broadcast and are promoted to one dtype, the result's. NaN stays. At a limit half the derivative goes to each.

    >>> lg.clip([-2.0, 0.5, 9.0], 0.0, 1.0)
    Tensor([0. , 0.5, 1. ], dtype=float64)
    """
    min, max = a_min if min is None else min, a_max if max is None else max
    result = copied(unary_operand(x))
    if result._value.dtype.is_integer:  # a Python int beyond the end that is open anyway leaves it open
        low, high = limits(result._value.dtype)
        if isinstance(min, TensorCore) and stands_for_number(min._value):
            min = wrap(maximum(min, low)._value, True)
        if isinstance(max, TensorCore) and stands_for_number(max._value):
            max = wrap(minimum(max, high)._value, True)
        min = None if type(min) is int and min < low else min
        max = None if type(max) is int and max > high else max
    if min is not None and max is not None:  # one dtype of all three: step by step a bool would be an int64 beside 0
        result = _in_dtype_of_all(result, min, max)
    if min is not None:
        result = maximum(result, min)
    return delivered("clip", result if max is None else minimum(result, max), out)


def _in_dtype_of_all(t: Tensor, *others: ArrayLike) -> Tensor:
    operands = [t, *[as_tensor(other) for other in others]]
    dtype, weak = promote_all(*[(operand._value.dtype, operand._weak) for operand in operands])
    return t if weak else cast(t, dtype)


# ---- tests for special values


def _special(op: str, text: str, call: str, result: str) -> Unary:
    def function(x: ArrayLike, /) -> Tensor:
        value = as_tensor(x)._value
        if value.dtype.kind not in "fc":
            return wrap(constant(False, TensorType(value.shape, bool_)))
        return wrap(emit(op, (value,))[0])

    rule = "The shape stays, the result is bool; False for bools and integers."
    return unary(named(function, op.replace("_", ""), text, rule, call, f"{result}, dtype=bool"))


isnan = _special("is_nan", "Whether x is NaN.", "[1.0, np.nan]", "[False,  True]")
isinf = _special("is_inf", "Whether x is infinite.", "[1.0, np.inf]", "[False,  True]")


@unary
def isfinite(x: ArrayLike, /) -> Tensor:
    """Whether x is neither infinite nor NaN; the shape stays, the result is bool.

    >>> lg.isfinite([1.0, np.inf, np.nan])
    Tensor([ True, False, False], dtype=bool)
    """
    return logical_not(logical_or(isnan(x), isinf(x)))


@unary
def signbit(x: ArrayLike, /) -> Tensor:
    """Whether the sign bit is set (True for -0.0, and for NaN with that bit); the shape stays, the result is bool.

    >>> lg.signbit([1.0, -0.0])
    Tensor([False,  True], dtype=bool)
    """
    t = as_tensor(x)
    if t._value.dtype.kind == "c":
        raise dtype_refused("signbit", "biuf", t._value.dtype)
    return wrap(ops.signbit(t._value)) if t._value.dtype.kind == "f" else less(t, 0)


@binary
def copysign(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The magnitude of x with the sign of y; operands broadcast, and integers give the default float.

    >>> lg.copysign([1.0, 2.0], -0.0)
    Tensor([-1., -2.], dtype=float64)
    """
    (a, b), weak = meet("copysign", (x, y), floating=True)
    if a.dtype.kind == "c":
        raise dtype_refused("copysign", "biuf", a.dtype)
    size = absolute(wrap(a, weak))
    return where(signbit(wrap(b)), negative(size), size)


@repeated
def nan_to_num(
    x: ArrayLike, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """x with NaN and infinities replaced, by the largest finite numbers of the dtype unless told.

    Shape and dtype stay; bools and integers are copied. With `copy=False` x, a tensor, is written to and returned. The
    derivative is 0 where something was replaced.

    >>> lg.nan_to_num([1.0, np.nan, np.inf], posinf=9.0)
    Tensor([1., 0., 9.], dtype=float64)
    """
    if not copy and isinstance(x, TensorCore):
        return delivered("nan_to_num", nan_to_num(x, True, nan, posinf, neginf), x)
    t = as_tensor(x)
    if t._value.dtype.kind == "c":
        parts = wrap(ops.real(t._value)), wrap(ops.imag(t._value))
        re, im = [nan_to_num(part, nan=nan, posinf=posinf, neginf=neginf)._value for part in parts]
        return wrap(ops.join(re, im))
    if t._value.dtype.kind != "f":
        return copied(t)
    dtype, largest = t._value.dtype, finfo(t._value.dtype).max
    given = nan, largest if posinf is None else posinf, -largest if neginf is None else neginf
    missing, high, low = [as_tensor(v, dtype) for v in given]
    infinite = where(isinf(t), where(greater(t, 0.0), high, low), t)
    return where(isnan(t), missing, infinite)
