"""A sum of many padded values, each of which has a place of its own, is a concat.

Enters: a Graph. Leaves: a Graph in which such sums are one array of pieces side by side. They are what the reverse pass
makes of a Python loop that reads `x[0]`, `x[1]`, ...: each reading gives a cotangent that is zero elsewhere, and adding
n of them up takes n * n additions.

    %1 = pad(%a, 0) {low=(0,), high=(8,)}
    %2 = pad(%b, 0) {low=(1,), high=(7,)}               %1 = concat(%a, %b, ...)
    %3 = add(%1, %2)                           ->       %2 = add(%1, 0)
    ...

Adding zeros is exact, whatever the order, but for one thing: -0 + 0 is 0. Hence the 0 that is still added. Regions are
left alone, as by `alike`.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import copysign
from typing import Final

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder, renewed
from loopgrad.graph.types import TensorType

MANY: Final = 8  # terms


def run(graph: Graph) -> Graph:
    """`graph` with its own sums of pads joined."""
    if sum(node.op == "pad" for node in graph.nodes) < MANY:
        return graph
    uses = Counter(v for node in graph.nodes for v in node.operands)
    uses.update(graph.outputs)
    sums = _sums(graph, uses)
    if not sums:
        return graph
    builder = GraphBuilder()
    env: dict[Value, Value] = {}
    for node in graph.nodes:
        if node in sums:
            builder.loc = node.loc
            env[node.results[0]] = _joined(sums[node], env, builder)
            continue
        current = renewed(node, tuple([env.get(v, v) for v in node.operands]), node.regions) if env else node
        if current is not node:
            env.update(zip(node.results, current.results, strict=True))
        builder.nodes.append(current)
    return Graph(graph.inputs, tuple(builder.nodes), tuple([env.get(v, v) for v in graph.outputs]))


def _sums(graph: Graph, uses: Counter[Value]) -> dict[Node, list[Node]]:
    """The last additions of sums that can be joined, each with its pads in the order of their places."""
    found: dict[Node, list[Node]] = {}
    inner: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op != "add" or node in inner:
            continue
        terms: list[Value] = []
        pending = list(node.operands)
        while pending:
            v = pending.pop()
            if v.node is not None and v.node.op == "add" and uses[v] == 1:
                inner.add(v.node)
                pending += v.node.operands
            else:
                terms.append(v)
        pads = [v.node for v in terms if v.node is not None and _has_zeros(v.node)]
        if len(pads) == len(terms) >= MANY and (axis := _axis(pads)) is not None:
            found[node] = sorted(pads, key=lambda pad: pad.attrs["low"][axis])
    return found


def _has_zeros(node: Node) -> bool:
    if node.op != "pad" or not (node.results[0].dtype.is_float or node.results[0].dtype.is_integer):
        return False
    filling = node.operands[1].node
    value = filling.attrs["value"] if filling is not None and filling.op == "const" else None
    return value is not None and value == 0 and copysign(1.0, value) > 0


def _axis(pads: list[Node]) -> int | None:
    """The axis along which the places differ, and are apart."""
    lows, highs = [pad.attrs["low"] for pad in pads], [pad.attrs["high"] for pad in pads]
    moving = [
        axis for axis in range(len(lows[0])) if len({(a[axis], b[axis]) for a, b in zip(lows, highs, strict=True)}) > 1
    ]
    if len(moving) != 1:
        return None
    (axis,) = moving
    places = sorted((pad.attrs["low"][axis], pad.operands[0].shape[axis]) for pad in pads)
    apart = all(start + size <= other for (start, size), (other, _) in pairwise(places))
    return axis if apart else None


def _joined(pads: list[Node], env: dict[Value, Value], b: GraphBuilder) -> Value:
    axis = _axis(pads)
    assert axis is not None
    zero = env.get(pads[0].operands[1], pads[0].operands[1])
    pieces: list[Value] = []
    end = 0
    for pad in pads:
        piece = pad.operands[0]
        pieces += _gap(piece, axis, pad.attrs["low"][axis] - end, b)
        pieces.append(env.get(piece, piece))
        end = pad.attrs["low"][axis] + piece.shape[axis]
    pieces += _gap(pads[0].operands[0], axis, pads[0].results[0].shape[axis] - end, b)
    whole = b.value("concat", *pieces, axis=axis)
    low, high = ([n if d != axis else 0 for d, n in enumerate(pads[0].attrs[side])] for side in ("low", "high"))
    if any(low) or any(high):
        whole = b.value("pad", whole, zero, low=tuple(low), high=tuple(high))
    type = whole.type
    assert isinstance(type, TensorType)
    return b.value("add", whole, b.const(0.0, type)) if type.dtype.is_float else whole


def _gap(like: Value, axis: int, size: int, b: GraphBuilder) -> list[Value]:
    """Zeros between two pieces."""
    shape = (*like.shape[:axis], size, *like.shape[axis + 1 :])
    return [b.const(0, TensorType(shape, like.dtype))] if size else []
