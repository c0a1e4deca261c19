"""Making operands meet: one dtype, one shape.

Every array function of several operands passes through `meet`; primitives are strict and would refuse
operands that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import index
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph import ops
from loopgrad.graph.errors import AxisError, DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Value, attrs_of_const
from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.graph.primitives.primitive import kinds_text
from loopgrad.graph.python_numbers import stands_for_number
from loopgrad.graph.ranges import limits
from loopgrad.graph.types import DType, TensorType, bool_, int64, uint64
from loopgrad.lazy.tensor.core import (
    ArrayLike,
    TensorCore,
    as_tensor,
    broadcast_value,
    cast,
    cast_operand,
    constant,
    is_scalar,
    wrap,
)
from loopgrad.lazy.tensor.errors import traced_value_error
from loopgrad.lazy.tensor.promotion import float_dtype, promote_all, promote_arrays, scalar_dtype

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

Shape = tuple[int, ...]
_LARGEST: Final = limits(int64)[1]


def public_name(op: str) -> str:
    """What the user calls a primitive or function."""
    return (PRIMITIVES[op].public if op in PRIMITIVES else None) or op


@lru_cache(maxsize=4096)
def _joined(shapes: tuple[Shape, ...]) -> Shape | None:
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        for d, extent in enumerate(shape, rank - len(shape)):
            if result[d] == 1:
                result[d] = extent
            elif extent not in (1, result[d]):
                return None
    return tuple(result)


def joined_shape(op: str, shapes: Iterable[Shape]) -> Shape:
    """The shape to which all of `shapes` broadcast."""
    given = tuple(shapes)
    result = _joined(given) if given else ()
    if result is None:
        text = " and ".join(map(str, given))
        fix = "reshape one of them or add axes"
        raise ShapeError(explained(public_name(op), "shapes that broadcast together", text, fix))
    return result


def meet(
    op: str, xs: Sequence[Any], *, floating: bool = False, kinds: str | None = None, dtype: DType | None = None
) -> tuple[list[Value], bool]:
    """The operands as values of one dtype and shape, and whether the result is weak (of Python ints alone, or what
    stands for them, it isn't: what is computed of them is an int64, which needn't fit where they would).

    `floating`: integers become the default float. `kinds`: the dtype kinds the operation is defined
    for. `dtype`: the dtype, already chosen.
    """
    parts = [x if is_scalar(x) else as_tensor(x) for x in xs]
    weak = False
    if dtype is None:
        dtype, weak = promote_all(*[_dtype_of(p) for p in parts])
        weak = weak and (not dtype.is_integer or any(_is_open(p) for p in parts))
        if floating and dtype.kind not in "fc":
            dtype = float_dtype(dtype)
    if kinds is not None and dtype.kind not in kinds:
        raise dtype_refused(op, kinds, dtype)
    shape = joined_shape(op, [p._value.shape for p in parts if isinstance(p, TensorCore)])
    type = TensorType(shape, dtype)
    values = [
        broadcast_value(cast_operand(p, dtype), shape) if isinstance(p, TensorCore) else constant(p, type)
        for p in parts
    ]
    return values, weak


def meet_arrays(*xs: Any) -> list[Tensor]:
    """The operands of a function that makes arrays of Python numbers, in one dtype (see `promote_arrays`). An int that
    int64 hasn't is a uint64, as in NumPy."""
    tensors = [as_tensor(x, uint64 if type(x) is int and x > _LARGEST else None) for x in xs]
    dtype = promote_arrays(*[_dtype_of(t) for t in tensors])
    return [wrap(cast_operand(t, dtype)) for t in tensors]


def dtype_refused(op: str, kinds: str, got: DType) -> DTypeError:
    """The error of an operation that isn't defined for a dtype."""
    return DTypeError(explained(public_name(op), f"{kinds_text(kinds)} elements", got, "convert with .astype first"))


def _is_open(part: Any) -> bool:
    """Whether a weak operand is a tensor, as loops carry them, that stands for no number of Python's."""
    if not isinstance(part, TensorCore):
        return False
    return attrs_of_const(part._value) is None and not stands_for_number(part._value)


def _dtype_of(part: Any) -> tuple[DType, bool]:
    return (part._value.dtype, part._weak) if isinstance(part, TensorCore) else (scalar_dtype(part), True)


def positions(shape: Shape, axis: int) -> Value:
    """Each element's int64 index along `axis`."""
    return ops.iota(TensorType(shape, int64), axis)


def whole_number(op: str, expected: str, given: Any) -> int:
    """A number that must be known, as an int."""
    try:
        return int(index(given))  # a bool, too, is one
    except TypeError:
        if isinstance(given, TensorCore):  # which has said what is wrong with it
            raise
        raise DTypeError(explained(public_name(op), expected, repr(given), "pass a Python int")) from None


def normal_axis(op: str, axis: Any, rank: int) -> int:
    """An axis counted from the front."""
    op = public_name(op)
    try:
        position = axis.__index__()
    except (AttributeError, TypeError):
        raise DTypeError(explained(op, "an integer axis", repr(axis), "pass an int")) from None
    if not -rank <= position < rank:
        hint = f"the tensor has {rank} dimension{'s' * (rank != 1)}"
        raise AxisError(explained(op, f"an axis from {-rank} to {rank - 1}" if rank else "no axis", position, hint))
    return int(position % rank)


def normal_axes(op: str, axis: Any, rank: int) -> tuple[int, ...]:
    """Sorted axes; None means all of them."""
    if axis is None:
        return tuple(range(rank))
    axes = [normal_axis(op, a, rank) for a in (axis if isinstance(axis, tuple | list) else (axis,))]
    if len(set(axes)) != len(axes):
        raise ShapeError(explained(public_name(op), "each axis once", axis, "remove the repeated axis"))
    return tuple(sorted(axes))


def normal_shape(op: str, shape: Any) -> Shape:
    """A shape from an int or a sequence of ints."""
    items = shape if isinstance(shape, tuple | list) else (shape,)
    for n in items:
        if isinstance(n, TensorCore) and n._value.scope is not None:
            raise traced_value_error(n._value, op, "shape")
    try:
        result = tuple([int(n.__index__()) for n in items])
    except (AttributeError, TypeError):
        message = explained(op, "a shape of ints", repr(shape), "pass Python ints")
        raise DTypeError(message) from None
    if any(n < 0 for n in result):
        raise ShapeError(explained(op, "extents of at least 0", result, "check the sizes"))
    return result


def as_bool(x: ArrayLike) -> Tensor:
    """`x != 0` as bool; a bool stays as it is."""
    t = as_tensor(x)
    return t if t._value.dtype is bool_ else cast(t, bool_)


def as_float(x: ArrayLike) -> Tensor:
    """`x` as floats: integers and bools in the default float dtype, floats and complex numbers as they are."""
    t = as_tensor(x)
    return cast(t, float_dtype(t._value.dtype))


def as_mask(op: str, where: ArrayLike) -> Tensor:
    """`where=` of a function: bools. Others raise DTypeError, as in NumPy: a mask of weights is a mistake."""
    t = as_tensor(where)
    if t._value.dtype is not bool_:
        raise DTypeError(explained(op, "bools as `where`", t._value.type, "compare, as in `where=w > 0`"))
    return t


def as_first(op: str, initial: ArrayLike) -> ArrayLike:
    """`initial=` of a reduction: one number for all results. Arrays raise ShapeError, as in NumPy."""
    if is_scalar(initial):
        return initial
    t = as_tensor(initial)
    if t._value.shape:
        fix = "combine the result with it: lg.add(lg.sum(x), initial)"
        raise ShapeError(explained(op, "a number as `initial`", t._value.type, fix))
    return t


def vector_operand(op: str, x: ArrayLike, empty: bool = False) -> Tensor:
    """`x` as a vector, that isn't empty unless this is allowed; raises ShapeError for anything else."""
    t = as_tensor(x)
    if len(t._value.shape) != 1 or not (empty or t._value.shape[0]):
        expected = "a vector" if empty else "a vector of at least one element"
        raise ShapeError(explained(op, expected, t._value.type, "ravel it"))
    return t
