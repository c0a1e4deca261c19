"""What factorisations are given: float or complex matrices, and the errors for anything else."""

from __future__ import annotations

from typing import Any

from loopgrad.graph import ops
from loopgrad.graph.errors import DTypeError, LinAlgError, explained
from loopgrad.graph.nodes import Value
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, broadcast_value, cast_operand
from loopgrad.lazy.tensor.operands import joined_shape
from loopgrad.lazy.tensor.promotion import float_dtype, promote_arrays


def float_values(op: str, *xs: ArrayLike) -> list[Value]:
    """The operands in one float or complex dtype; integers and bools become the default float."""
    tensors = [as_tensor(x) for x in xs]
    dtype = promote_arrays(*[(t._value.dtype, t._weak) for t in tensors])
    dtype = dtype if dtype.kind == "c" else float_dtype(dtype)
    if dtype.part.bits < 32:
        fix = "factorisations have no others: use .astype(lg.float32)"
        raise DTypeError(explained(op, "float32, float64 or complex elements", dtype, fix))
    return [cast_operand(t, dtype) for t in tensors]


def matrices(op: str, value: Value) -> Value:
    """Refuses what has no matrices."""
    if len(value.shape) < 2:
        raise LinAlgError(explained(op, "at least 2 dimensions", value.type, "a matrix has two axes"))
    return value


def square(op: str, value: Value) -> Value:
    """Refuses matrices that aren't square."""
    matrices(op, value)
    if value.shape[-1] != value.shape[-2]:
        fix = "the last two axes must have the same extent"
        raise LinAlgError(explained(op, "square matrices", value.type, fix))
    return value


def meeting(op: str, a: Value, b: Value) -> tuple[Value, Value]:
    """Matrices with their batches broadcast."""
    batch = joined_shape(op, (a.shape[:-2], b.shape[:-2]))
    return broadcast_value(a, (*batch, *a.shape[-2:])), broadcast_value(b, (*batch, *b.shape[-2:]))


def column(b: Value) -> Value:
    return ops.reshape(b, (*b.shape, 1))


def is_empty(*values: Value) -> bool:
    return any(0 in v.shape for v in values)


def option(op: str, name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Refuses a word that means nothing."""
    if value not in allowed:
        words = " or ".join(map(repr, allowed))
        raise ValueError(explained(op, f"{name} {words}", repr(value), "use one of these"))
