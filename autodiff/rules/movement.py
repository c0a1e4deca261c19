"""Derivatives of the movement primitives: all linear, so the JVP applies the primitive to the tangent.

`VJP[op](node, cotangents)` gives one cotangent (or None) per operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import TensorType, bool_

Values = Sequence[Value | None]
Rule = Callable[[Node, Values], tuple[Value | None, ...]]


def linear(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    """The JVP of a primitive that is linear in all its operands."""
    filled = [ops.zeros_like(v) if t is None else t for v, t in zip(node.operands, tangents, strict=True)]
    return emit(node.op, filled, node.attrs)


def _given(cotangents: Values) -> Value:
    """The one cotangent of a node with one result; the walker calls a rule only where there is one."""
    (ct,) = cotangents
    assert ct is not None
    return ct


def _broadcast(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    ct = _given(cotangents)
    shape, dims = node.operands[0].shape, node.attrs["dims"]
    kept = [d for extent, d in zip(shape, dims, strict=True) if extent == ct.shape[d]]
    return (ops.reshape(_summed(ct, [d for d in range(len(ct.shape)) if d not in kept]), shape),)


def _summed(ct: Value, axes: Sequence[int]) -> Value:
    """The sum along the axes. Of terms with a factor that is one number there, it is that times a sum: where somebody
    wrote a variance, what reaches the mean is a sum of differences, which waits for no cotangent, so the pass over
    them that the variance takes makes it, too. Halves might leave their range."""
    node, wide = ct.node, ct.dtype.kind == "f" and ct.dtype.bits >= 32
    if node is not None and wide and axes and _has_factor(ct, axes):
        if node.op != "mul":
            return emit(node.op, [_summed(v, axes) for v in node.operands], node.attrs)[0]
        x, y = node.operands if _is_one_number(node.operands[0], axes) else node.operands[::-1]
        return ops.mul(_number_along(x, axes), _summed(y, axes))
    return ops.reduce_sum(ct, axes)


def _has_factor(v: Value, axes: Sequence[int]) -> bool:
    """Whether all terms have one that is the same along the axes."""
    if v.node is None:
        return False
    match v.node.op:
        case "mul":
            return any(_is_one_number(x, axes) for x in v.node.operands)
        case "neg" | "add":
            return all(_has_factor(x, axes) for x in v.node.operands)
    return False


def _is_one_number(v: Value, axes: Sequence[int]) -> bool:
    if v.node is None or v.node.op != "broadcast":
        return False
    extents = zip(v.node.operands[0].shape, v.node.attrs["dims"], strict=True)
    return all(extent == 1 for extent, d in extents if d in axes)


def _number_along(v: Value, axes: Sequence[int]) -> Value:
    """What is broadcast, without the axes."""
    assert v.node is not None, "only what is broadcast is one number"
    (source,), dims = v.node.operands, v.node.attrs["dims"]
    kept = [d for d in range(len(v.shape)) if d not in axes]
    own = [(extent, kept.index(d)) for extent, d in zip(source.shape, dims, strict=True) if d in kept]
    flat = ops.reshape(source, [extent for extent, _ in own])
    return ops.broadcast(flat, [v.shape[d] for d in kept], [place for _, place in own])


def _reshape(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    return (ops.reshape(_given(cotangents), node.operands[0].shape),)


def _transpose(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    perm: tuple[int, ...] = node.attrs["perm"]
    return (ops.transpose(_given(cotangents), [perm.index(d) for d in range(len(perm))]),)


def _slice(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    """Undo the steps by spreading with zeros, then pad back what was cut off."""
    ct, operand = _given(cotangents), node.operands[0]
    if 0 in ct.shape:
        return (ops.zeros_like(operand),)
    low, high = [], []
    for axis, extent in enumerate(operand.shape):
        positions = range(extent)[slice(node.attrs["start"][axis], node.attrs["stop"][axis], node.attrs["step"][axis])]
        if positions.step < 0:
            ct, positions = ops.flip(ct, [axis]), positions[::-1]
        ct = _spread(ct, axis, positions.step)
        low.append(positions[0])
        high.append(extent - 1 - positions[-1])
    return (ops.pad(ct, low, high),)


def _spread(v: Value, axis: int, step: int) -> Value:
    """step - 1 zeros between neighbours along `axis`."""
    if step == 1:
        return v
    shape = v.shape
    column = ops.reshape(v, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    none = [0] * len(column.shape)
    after = none.copy()
    after[axis + 1] = step - 1
    flat = ops.reshape(ops.pad(column, none, after), (*shape[:axis], shape[axis] * step, *shape[axis + 1 :]))
    stop = list(flat.shape)
    stop[axis] -= step - 1
    return ops.slice(flat, [0] * len(shape), stop)


def _pad(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    ct, (x, _) = _given(cotangents), node.operands
    low = node.attrs["low"]
    inner = ops.slice(ct, low, [a + n for a, n in zip(low, x.shape, strict=True)])
    inside = ops.pad(ops.full(True, TensorType(x.shape, bool_)), low, node.attrs["high"], False)
    border = ops.reduce_sum(ops.select(inside, 0, ct), range(len(ct.shape)))
    return (inner, border)


def _concat(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    ct, axis = _given(cotangents), node.attrs["axis"]
    start, stop = [0] * len(ct.shape), list(ct.shape)
    pieces = []
    for v in node.operands:
        stop[axis] = start[axis] + v.shape[axis]
        pieces.append(ops.slice(ct, start, stop))
        start[axis] = stop[axis]
    return tuple(pieces)


def _flip(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    return (ops.flip(_given(cotangents), node.attrs["axes"]),)


VJP: Final[dict[str, Rule]] = {
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "pad": _pad,
    "concat": _concat,
    "flip": _flip,
}

JVP: Final[dict[str, Rule]] = dict.fromkeys(VJP, linear)
