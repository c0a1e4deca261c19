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
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import intervals
from loopgrad.graph.primitives.intervals import IntervalRule, between
from loopgrad.graph.primitives.primitive import (
    Array,
    Attrs,
    Axes,
    AxisRule,
    BatchRule,
    Infer,
    Kind,
    Primitive,
    Reference,
    Silent,
    Types,
    always_exact,
    axes_after_batch,
    axes_in_range,
    axis_after_batch,
    axis_in_range,
    dtype_error,
    shape_error,
    sized,
    table,
    tensor_type,
    types_text,
)
from loopgrad.graph.types import TensorType

FEW: Final = 1 << 12  # elements that are written out rather than seen through a view

Operands = tuple[Value, ...]
Regions = tuple[Graph, ...]


def _infer_const(operands: Operands, attrs: Attrs, regions: Regions) -> Types:
    type: TensorType = attrs["type"]
    if type.shape:
        sized("const", type.shape, type.dtype)
    return (type,)


def _const(attrs: Attrs) -> tuple[Array]:
    type: TensorType = attrs["type"]
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
    if type.dtype.kind in "bc":
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
    narrow = x.reshape(aligned)
    if prod(shape) > FEW:
        return (np.broadcast_to(narrow, shape),)
    result = np.empty(shape, x.dtype)  # a fifth of the time that a view takes
    result[...] = narrow
    return (result,)


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
        shape.append(_taken(extent, a, b, s))
    return (sized("slice", shape, t.dtype),)


def _taken(extent: int, start: int, stop: int | None, step: int) -> int:
    """How many elements a slice takes; of what may be recorded (codegen.extents), so without `range`."""
    if step > 0:
        end = extent if stop is None else min(stop, extent)
        return max((end - min(start, extent) + step - 1) // step, 0)
    end = -1 if stop is None else min(stop, extent - 1)
    return max((min(start, extent - 1) - end - step - 1) // -step, 0)


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
    low, high = attrs["low"], attrs["high"]
    padded = np.full([n + a + b for n, a, b in zip(x.shape, low, high, strict=True)], value[()], x.dtype)
    padded[tuple([builtins.slice(a, a + n) for n, a in zip(x.shape, low, strict=True)])] = x
    return (padded,)


def _infer_concat(operands: Operands, attrs: Attrs, regions: Regions) -> Types:
    axis: int = attrs["axis"]
    if not operands:
        raise shape_error("concat", "at least one operand", "none", "pass a tensor")
    types = [tensor_type("concat", v) for v in operands]
    first = types[0]
    axis_in_range("concat", axis, len(first.shape))
    for t in types:
        if t == first:
            continue
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


# ---- where axes go


def _broadcast_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    shape, dims = node.attrs["shape"], node.attrs["dims"]
    if any(node.operands[0].shape[a] != shape[dims[a]] for a in axes):
        return None
    return tuple([dims[a] for a in axes])


def _reshape_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    """An axis survives where the extents before it multiply to the same number; several in a row may become others
    that hold as many elements."""
    old, new = node.operands[0].shape, node.attrs["shape"]
    moved: list[int] = []
    rest = list(axes)
    while rest:
        before = prod(old[: rest[0]])
        places = [j for j in range(len(new)) if j not in moved and prod(new[:j]) == before]
        same = next((j for j in places if new[j] == old[rest[0]]), None)
        if same is not None:
            moved.append(same)
            rest.pop(0)
        elif not _regrouped(old, new, before, rest, moved):
            return None
    return tuple(moved)


def _regrouped(old: Sequence[int], new: Sequence[int], before: int, rest: list[int], moved: list[int]) -> bool:
    """Take the fewest axes from the front of `rest` that hold as many elements as some axes of the result do."""
    ahead = [j for j, extent in enumerate(new) if extent != 1 and prod(new[:j]) >= before]
    taken, placed = 1, 1
    while taken == 1 or taken != placed:
        if taken <= placed:
            if not rest or prod(old[: rest[0]]) != before * taken:  # an axis between them isn't asked for
                return False
            taken *= old[rest.pop(0)]
        else:
            if not ahead or prod(new[: ahead[0]]) != before * placed:
                return False
            placed *= new[ahead[0]]
            moved.append(ahead.pop(0))
    return True


def _transpose_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    perm = node.attrs["perm"]
    return tuple([perm.index(a) for a in axes])


def _slice_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    old, new = node.operands[0].shape, node.results[0].shape
    whole = all(node.attrs["step"][a] == 1 and old[a] == new[a] for a in axes)
    return axes if whole else None


def _pad_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    low, high = node.attrs["low"], node.attrs["high"]
    return None if any(low[a] or high[a] for a in axes) else axes


def _concat_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    return None if node.attrs["axis"] in axes else axes


def _flip_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    return None if any(a in node.attrs["axes"] for a in axes) else axes


# ---- batches


def _batched_broadcast(attrs: Attrs, size: int) -> Attrs:
    return {"shape": (size, *attrs["shape"]), "dims": (0, *(d + 1 for d in attrs["dims"]))}


def _batched_reshape(attrs: Attrs, size: int) -> Attrs:
    return {"shape": (size, *attrs["shape"])}


def _batched_transpose(attrs: Attrs, size: int) -> Attrs:
    return {"perm": (0, *(p + 1 for p in attrs["perm"]))}


def _batched_slice(attrs: Attrs, size: int) -> Attrs:
    return {"start": (0, *attrs["start"]), "stop": (size, *attrs["stop"]), "step": (1, *attrs["step"])}


# ---- the rows


def _created(name: str, public: str | None, infer: Infer, reference: Reference, interval: IntervalRule) -> Primitive:
    return Primitive(
        name=name, public=public, kind=Kind.NULLARY, infer=infer, reference=reference, interval=interval,
        not_differentiable="depends on nothing", cost=0.0, exact=always_exact,
    )  # fmt: skip


def _arranged(
    name: str, infer: Infer, reference: Reference, axes: AxisRule, batched: BatchRule, **traits: Any
) -> Primitive:
    """One operand's elements in another order or number."""
    return Primitive(
        name=name, kind=Kind.MOVEMENT, infer=infer, reference=reference, interval=intervals.moved, axes=axes,
        batched=batched, linear=True, keeps_splats=True, exact=always_exact, **traits,
    )  # fmt: skip


def _joined(name: str, infer: Infer, reference: Reference, axes: AxisRule, **traits: Any) -> Primitive:
    """Elements of several operands."""
    return Primitive(
        name=name, kind=Kind.MOVEMENT, infer=infer, reference=reference, interval=between(0), axes=axes,
        linear=True, cost=2.0, exact=always_exact, **traits,
    )  # fmt: skip


ROWS: Final[dict[str, Primitive]] = table(
    _created("const", "full", _infer_const, Silent(_const), intervals.const),
    _created("literal", None, _infer_literal, _literal, intervals.literal),
    _created("iota", "arange", _infer_iota, _iota, intervals.iota),
    _arranged(
        "broadcast", _infer_broadcast, _broadcast, _broadcast_axes, _batched_broadcast, public="broadcast_to", cost=0.0
    ),
    _arranged("reshape", _infer_reshape, _reshape, _reshape_axes, _batched_reshape, cost=0.0),
    _arranged("transpose", _infer_transpose, _transpose, _transpose_axes, _batched_transpose, cost=0.0),
    _arranged("slice", _infer_slice, _slice, _slice_axes, _batched_slice, public=None, cost=0.5),
    _arranged("flip", _infer_flip, _flip, _flip_axes, axes_after_batch, cost=0.5),
    _joined("pad", _infer_pad, _pad, _pad_axes),
    _joined("concat", _infer_concat, _concat, _concat_axes, batched=axis_after_batch),
)
