"""What a row of the primitive tables is, and how rows refuse operands.

`infer(operands, attrs, regions)` returns the result types or raises ShapeError or DTypeError.
`reference(attrs, *arrays)` returns the results in plain NumPy; None where the interpreter runs the
primitive itself (regions and stacks).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.types import DType, StackType, TensorType, bool_

Attrs = Mapping[str, Any]
Types = tuple[TensorType | StackType, ...]
Array = np.ndarray[Any, Any]
Infer = Callable[[tuple[Value, ...], Attrs, tuple[Graph, ...]], Types]
Reference = Callable[..., tuple[Array, ...]]

KIND_NAMES: Final = {"b": "bool", "i": "signed integer", "u": "unsigned integer", "f": "float", "c": "complex"}
LARGEST: Final = 2**63 - 1


class Primitive(NamedTuple):
    """One row."""

    infer: Infer
    reference: Reference | None


def kinds_text(kinds: str) -> str:
    return " or ".join(KIND_NAMES[k] for k in kinds)


def types_text(values: Sequence[Value]) -> str:
    return ", ".join(str(v.type) for v in values) or "nothing"


def shape_error(op: str, expected: object, got: object, fix: str) -> ShapeError:
    return ShapeError(explained(op, expected, got, fix))


def dtype_error(op: str, expected: object, got: object, fix: str) -> DTypeError:
    return DTypeError(explained(op, expected, got, fix))


@lru_cache(maxsize=4096)
def bool_type(shape: tuple[int, ...]) -> TensorType:
    return TensorType(shape, bool_)


def tensor_type(op: str, value: Value) -> TensorType:
    """The operand's type; refuses a stack."""
    if not isinstance(value.type, TensorType):
        raise dtype_error(op, "a tensor", value.type, "a stack can only be pushed to and popped from")
    return value.type


def require_kinds(op: str, type: TensorType, kinds: str) -> None:
    if type.dtype.kind not in kinds:
        raise dtype_error(op, f"{kinds_text(kinds)} elements", type, "cast the operand first")


def sized(op: str, shape: Sequence[int], dtype: DType) -> TensorType:
    """The type of a result whose size is new; refuses what 63 bits can't count in bytes."""
    size = dtype.itemsize
    for extent in shape:
        if extent < 0:
            raise shape_error(op, "extents of at least 0", tuple(shape), "check the sizes")
        size *= extent or 1  # an empty array of absurd extents is refused too, as in NumPy
    if size > LARGEST:
        raise shape_error(op, "fewer than 2**63 bytes", f"{dtype}[{','.join(map(str, shape))}]", "check the sizes")
    return TensorType(tuple(shape), dtype)


def axis_in_range(op: str, axis: int, rank: int) -> None:
    if not 0 <= axis < rank:
        raise shape_error(op, f"an axis in 0..{rank - 1}", axis, f"the operand has {rank} dimensions")


def axes_in_range(op: str, axes: Sequence[int], rank: int) -> None:
    for axis in axes:
        axis_in_range(op, axis, rank)
    if len(set(axes)) != len(axes):
        raise shape_error(op, "each axis once", tuple(axes), "remove the repeated axis")


def added_in(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What elements of a NumPy dtype are added up in: floats in more digits than they have, as far as NumPy has them
    (a longdouble has 64 bits of mantissa on x86; elsewhere it may be a float64)."""
    if dtype.kind not in "fV":  # bfloat16 is V
        return dtype
    return np.dtype(np.longdouble if dtype == np.float64 else np.float64)
