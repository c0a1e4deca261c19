"""Which updates of a scatter go to elements of their own, so that nobody has to put any together.

    scatter {kind=add}(zeros, iota {axis=0}, argsort {axis=1}(x), updates)      positions of a row are all different

An index that counts along an axis, in steps of one number as slices do, keeps what differs there apart. So does one
that holds each position once along an axis: what sorts it, or a part of that. One such axis may be left when all others
are kept apart by counting.
"""

from __future__ import annotations

from typing import Final

from loopgrad.graph.lane_axes import moved_axes
from loopgrad.graph.lanes import iota_axis
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import KEEPING_SPLATS

SORTING: Final = frozenset({"argsort", "top_positions"})
COUNTING: Final = frozenset({"iota"})
LARGEST_STEP: Final = 1 << 20  # times a position, which has less than 40 bits, it stays within 64


def no_duplicates(scatter: Node) -> bool:
    """Whether every update of a scatter provably goes to an element of its own."""
    indices = scatter.operands[1:-1]
    wide = {d for d, n in enumerate(indices[0].shape) if n != 1}
    left = wide - {iota_axis(i) for i in indices} - {_axis_through(i, COUNTING) for i in indices}
    return not left or (len(left) == 1 and not left.isdisjoint({distinct_axis(i) for i in indices}))


def distinct_axis(value: Value) -> int | None:
    """An axis along which all elements differ, wherever one is along the others."""
    return _axis_through(value, SORTING)


def _axis_through(value: Value, sources: frozenset[str]) -> int | None:
    """That of an operation among `sources`, seen through what moves elements, or keeps different ones different."""
    path: list[Node] = []
    source: Value | None = value
    while source is not None and source.node is not None and source.node.op not in sources:
        path.append(source.node)
        source = _one_to_one(source.node)
    if source is None or source.node is None:
        return None
    axis: int | None = source.node.attrs["axis"]
    for step in reversed(path):
        if axis is not None and step.op in KEEPING_SPLATS and step.op not in ("flip", "slice"):
            moved = moved_axes(step, 0, (axis,))
            axis = moved[0] if moved else None
    return axis


def _one_to_one(node: Node) -> Value | None:
    """The operand whose different elements are different elements of the result."""
    if node.op in KEEPING_SPLATS:
        return node.operands[0]
    if node.op in ("add", "sub") or (node.op == "mul" and any(map(_is_step, node.operands))):
        x, y = node.operands
        others = [v for v, beside in ((x, y), (y, x)) if beside.node is not None and beside.node.op == "const"]
        return others[0] if others else None
    return None


def _is_step(value: Value) -> bool:
    """Whether it is a number by which positions are multiplied, and stay different."""
    node = value.node
    if node is None or node.op != "const" or value.dtype.kind != "i" or value.dtype.bits != 64:
        return False
    return 0 < abs(int(node.attrs["value"])) < LARGEST_STEP
