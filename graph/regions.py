"""What the operands, results and regions of a region node are."""

from __future__ import annotations

from loopgrad.graph.nodes import Node


def lane_shape(node: Node) -> tuple[int, ...]:
    """The shape of the lanes of a region node; () where it has none."""
    if not node.attrs["lanes"]:
        return ()
    return node.regions[0].outputs[0].shape if node.op == "while" else node.operands[0].shape
