"""Complex numbers and their parts.

complex      (re, im) -> re + i im: two float32 or two float64 of one shape
real         (z) -> its real part
imag         (z) -> its imaginary part
pairs        (z: (...)) -> (..., 2): the real and the imaginary part side by side, for routines of libraries
from_pairs   ((..., 2)) -> (...): complex numbers of these parts

What computes with complex numbers is emitted as operations on parts (`graph.complex_numbers`); what is linear and the
same for both parts (movement, sums, loops, stacks) takes them as they are. `graph.complex_pairs` splits all of it into
pairs of reals, before any code is made.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.primitive import (
    Array,
    Attrs,
    Axes,
    AxisRule,
    Infer,
    Kind,
    Primitive,
    Reference,
    Types,
    dtype_error,
    same_axes,
    table,
    tensor_type,
    types_text,
)
from loopgrad.graph.types import TensorType, complex_dtype_of, float32, float64


def _infer_complex(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    re, im = tensor_type("complex", operands[0]), tensor_type("complex", operands[1])
    if re != im or re.dtype not in (float32, float64):
        raise dtype_error("complex", "two parts of one shape, float32 or float64", types_text(operands), "cast them")
    return (TensorType(re.shape, complex_dtype_of(re.dtype)),)


def _infer_part(op: str) -> Infer:
    def infer(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
        t = tensor_type(op, operands[0])
        if t.dtype.kind != "c":
            raise dtype_error(op, "complex elements", t, "a real number is its own real part")
        return (t.part,)

    return infer


def _infer_pairs(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    part = _infer_part("pairs")(operands, attrs, regions)[0]
    assert isinstance(part, TensorType)
    return (TensorType((*part.shape, 2), part.dtype),)


def _infer_from_pairs(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    t = tensor_type("from_pairs", operands[0])
    if t.shape[-1:] != (2,) or t.dtype not in (float32, float64):
        raise dtype_error("from_pairs", "pairs of float32 or float64, (..., 2)", t, "cast or stack them")
    return (TensorType(t.shape[:-1], complex_dtype_of(t.dtype)),)


def _complex(attrs: Attrs, re: Array, im: Array) -> tuple[Array]:
    result = np.empty(re.shape, np.result_type(re.dtype, np.complex64))
    result.real, result.imag = re, im
    return (result,)


def _real(attrs: Attrs, z: Array) -> tuple[Array]:
    return (z.real,)


def _imag(attrs: Attrs, z: Array) -> tuple[Array]:
    return (z.imag,)


def _pairs(attrs: Attrs, z: Array) -> tuple[Array]:
    return (np.stack([z.real, z.imag], axis=-1),)


def _from_pairs(attrs: Attrs, pairs: Array) -> tuple[Array]:
    return _complex(attrs, pairs[..., 0], pairs[..., 1])


def _parts_meet(node: Node, operand: int, axes: Axes) -> Axes | None:
    return axes if all(a < len(node.results[0].shape) for a in axes) else None


def _same(attrs: Attrs, size: int) -> Attrs:
    return attrs


def _row(
    name: str, kinds: str, infer: Infer, reference: Reference, axes: AxisRule = same_axes, **traits: Any
) -> Primitive:
    return Primitive(
        name=name, kind=Kind.PARTS, kinds=kinds, infer=infer, reference=reference, axes=axes, linear=True, cost=0.0,
        **traits,
    )  # fmt: skip


ROWS: Final[dict[str, Primitive]] = table(
    _row("complex", "f", _infer_complex, _complex, public=None),
    _row("real", "c", _infer_part("real"), _real),
    _row("imag", "c", _infer_part("imag"), _imag),
    _row("pairs", "c", _infer_pairs, _pairs, batched=_same, public=None),
    _row("from_pairs", "f", _infer_from_pairs, _from_pairs, _parts_meet, batched=_same, public=None),
)
