"""Creation and movement of elements: nothing here computes on values.

const      attrs value (Python scalar), type: every element is `value`
literal    attrs data (bytes, row-major), type: a small constant array
iota       attrs type, axis: each element is its index along `axis`
broadcast  attrs shape, dims: operand dim j becomes result dim dims[j]; its extent is 1 or the result's
reshape    attrs shape
transpose  attrs perm: result dim j is operand dim perm[j]
slice      attrs start, stop, step: per dim as in `x[start:stop:step]`, without negative positions;
           stop None means past the end (before the start where the step is negative)
pad        (x, value scalar) attrs low, high: extents to add on each side
concat     (x, ...) attrs axis
flip       attrs axes
"""

from __future__ import annotations

import builtins
from typing import Final

import numpy as np

from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.primitives.primitive import (
    Array,
    Attrs,
    Primitive,
    Types,
    axes_in_range,
    axis_in_range,
    dtype_error,
    shape_error,
    sized,
    tensor_type,
    types_text,
)
from loopgrad.graph.types import TensorType

Operands = tuple[Value, ...]
Regions = tuple[Graph, ...]


def _infer_const(operands: Operands, attrs: Attrs, regions: Regions) -> Types:
    type: TensorType = attrs["type"]
    if type.shape:
        sized("const", type.shape, type.dtype)
    return (type,)


def _const(attrs: Attrs) -> tuple[Array]:
    type: TensorType = attrs["type"]
    with np.errstate(all="ignore"):
        return (np.full(type.shape, attrs["value"], dtype=type.dtype.np),)


def _infer_literal(operands: Operands, attrs: Attrs, regions: Regions) -> Types:
    type: TensorType = attrs["type"]
    if len(attrs["data"]) != type.nbytes:
        raise shape_error("literal", f"{type.nbytes} bytes for {type}", len(attrs["data"]), "pass one array's bytes")
    return (type,)


def _literal(attrs: Attrs) -> tuple[Array]:
    type: TensorType = attrs["type"]
    return (np.frombuffer(attrs["data"], dtype=type.dtype.np).reshape(type.shape),)


def _infer_iota(operands: Operands, attrs: Attrs, regions: Regions) -> Types:
    type: TensorType = attrs["type"]
    axis_in_range("iota", attrs["axis"], len(type.shape))
    if type.dtype.kind == "b":
        raise dtype_error("iota", "integer or float elements", type, "compare an integer iota instead")
    return (sized("iota", type.shape, type.dtype),)


def _iota(attrs: Attrs) -> tuple[Array]:
    type: TensorType = attrs["type"]
    axis: int = attrs["axis"]
    column = [1] * len(type.shape)
    column[axis] = type.shape[axis]
    counts = np.arange(type.shape[axis]).astype(type.dtype.np).reshape(column)
    return (np.broadcast_to(counts, type.shape),)


def _infer_broadcast(operands: Operands, attrs: Attrs, regions: Regions) -> Types:
    t = tensor_type("broadcast", operands[0])
    shape: tuple[int, ...] = attrs["shape"]
    dims: tuple[int, ...] = attrs["dims"]
    axes_in_range("broadcast", dims, len(shape))
    if len(dims) != len(t.shape) or list(dims) != sorted(dims):
        raise shape_error("broadcast", f"{len(t.shape)} increasing dims for {t}", dims, "name one result dim each")
    if any(extent not in (1, shape[d]) for extent, d in zip(t.shape, dims, strict=True)):
        raise shape_error(
            "broadcast", f"extents of 1 or those of {shape} at dims {dims}", t, "reshape, slice or repeat the operand"
        )
    return (sized("broadcast", shape, t.dtype),)


def _broadcast(attrs: Attrs, x: Array) -> tuple[Array]:
    shape: tuple[int, ...] = attrs["shape"]
    aligned = [1] * len(shape)
    for extent, d in zip(x.shape, attrs["dims"], strict=True):
        aligned[d] = extent
    return (np.broadcast_to(x.reshape(aligned), shape),)


def _infer_reshape(operands: Operands, attrs: Attrs, regions: Regions) -> Types:
    t = tensor_type("reshape", operands[0])
    result = sized("reshape", attrs["shape"], t.dtype)
    if result.size != t.size:
        raise shape_error(
            "reshape", f"a shape of {t.size} elements for {t}", f"{result.shape} ({result.size})", "fix the extents"
        )
    return (result,)


def _reshape(attrs: Attrs, x: Array) -> tuple[Array]:
    return (x.reshape(attrs["shape"]),)


def _infer_transpose(operands: Operands, attrs: Attrs, regions: Regions) -> Types:
    t = tensor_type("transpose", operands[0])
    perm: tuple[int, ...] = attrs["perm"]
    if sorted(perm) != list(range(len(t.shape))):
        raise shape_error("transpose", f"a permutation of 0..{len(t.shape) - 1} for {t}", perm, "name each axis once")
    return (TensorType(tuple([t.shape[p] for p in perm]), t.dtype),)


def _transpose(attrs: Attrs, x: Array) -> tuple[Array]:
    return (x.transpose(attrs["perm"]),)


def _infer_slice(operands: Operands, attrs: Attrs, regions: Regions) -> Types:
    t = tensor_type("slice", operands[0])
    start, stop, step = attrs["start"], attrs["stop"], attrs["step"]
    if not len(start) == len(stop) == len(step) == len(t.shape):
        raise shape_error("slice", f"one start, stop and step per dim of {t}", (start, stop, step), "add the others")
    shape = []
    for extent, a, b, s in zip(t.shape, start, stop, step, strict=True):
        if a < 0 or s == 0 or (b is not None and b < 0):
            raise shape_error("slice", "start >= 0, stop >= 0 or None, step != 0", (a, b, s), "count from the front")
        shape.append(len(range(*builtins.slice(a, b, s).indices(extent))))
    return (TensorType(tuple(shape), t.dtype),)


def _slice(attrs: Attrs, x: Array) -> tuple[Array]:
    return (x[tuple(map(builtins.slice, attrs["start"], attrs["stop"], attrs["step"]))],)


def _infer_pad(operands: Operands, attrs: Attrs, regions: Regions) -> Types:
    t, value = tensor_type("pad", operands[0]), tensor_type("pad", operands[1])
    low, high = attrs["low"], attrs["high"]
    if value.shape or value.dtype is not t.dtype:
        raise dtype_error("pad", f"a {t.dtype} scalar to pad with", value, "cast or reshape it")
    if not len(low) == len(high) == len(t.shape) or min((0, *low, *high)) < 0:
        raise shape_error("pad", f"a low and a high of at least 0 per dim of {t}", (low, high), "slice to shrink")
    return (sized("pad", [n + a + b for n, a, b in zip(t.shape, low, high, strict=True)], t.dtype),)


def _pad(attrs: Attrs, x: Array, value: Array) -> tuple[Array]:
    return (np.pad(x, tuple(zip(attrs["low"], attrs["high"], strict=True)), constant_values=value[()]),)


def _infer_concat(operands: Operands, attrs: Attrs, regions: Regions) -> Types:
    axis: int = attrs["axis"]
    if not operands:
        raise shape_error("concat", "at least one operand", "none", "pass a tensor")
    types = [tensor_type("concat", v) for v in operands]
    first = types[0]
    axis_in_range("concat", axis, len(first.shape))
    for t in types:
        if t.dtype is not first.dtype:
            raise dtype_error("concat", "operands of one dtype", types_text(operands), "cast them first")
        if len(t.shape) != len(first.shape) or any(t.shape[d] != n for d, n in enumerate(first.shape) if d != axis):
            raise shape_error("concat", f"equal extents except along axis {axis}", types_text(operands), "slice or pad")
    shape = list(first.shape)
    shape[axis] = sum(t.shape[axis] for t in types)
    return (sized("concat", shape, first.dtype),)


def _concat(attrs: Attrs, *arrays: Array) -> tuple[Array]:
    return (np.concatenate(arrays, axis=attrs["axis"]),)


def _infer_flip(operands: Operands, attrs: Attrs, regions: Regions) -> Types:
    t = tensor_type("flip", operands[0])
    axes_in_range("flip", attrs["axes"], len(t.shape))
    return (t,)


def _flip(attrs: Attrs, x: Array) -> tuple[Array]:
    return (np.flip(x, attrs["axes"]),)


ROWS: Final[dict[str, Primitive]] = {
    "const": Primitive(_infer_const, _const),
    "literal": Primitive(_infer_literal, _literal),
    "iota": Primitive(_infer_iota, _iota),
    "broadcast": Primitive(_infer_broadcast, _broadcast),
    "reshape": Primitive(_infer_reshape, _reshape),
    "transpose": Primitive(_infer_transpose, _transpose),
    "slice": Primitive(_infer_slice, _slice),
    "pad": Primitive(_infer_pad, _pad),
    "concat": Primitive(_infer_concat, _concat),
    "flip": Primitive(_infer_flip, _flip),
}
