"""The axis that has the name is the one that gets examples: then they have met. Others go behind it, and wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.batching.row import BatchContext, Row, all_expanded
from loopgrad.graph.errors import NamedAxisError, explained
from loopgrad.graph.nodes import Node, Value

Values = Sequence[Value]


def _exchanged(x: Value) -> Value:
    """The first two axes, exchanged."""
    return ops.transpose(x, (1, 0, *range(2, len(x.shape))))


def _gather(node: Node, operands: Values, context: BatchContext) -> Values:
    (x,) = all_expanded(node, operands, context)
    if node.attrs["level"] != context.flow.level:
        return (_exchanged(ops.axis_gather(x, node.attrs)),)
    if context.mask:
        got = "a loop whose trips, or a branch whose choice, may differ between them"
        fix = "let the condition depend on what all examples have (lg.pmax, lg.psum), or reduce after the loop"
        expected = f"examples of axis {node.attrs['name']} that run together where they meet"
        raise NamedAxisError(explained("vmap", expected, got, fix))
    return (x,)


def _split(node: Node, operands: Values, context: BatchContext) -> Values:
    if node.attrs["level"] != context.flow.level:
        (x,) = all_expanded(node, operands, context)
        return (ops.axis_split(_exchanged(x), node.attrs),)
    assert operands[0].shape == node.operands[0].shape, "what exists once doesn't turn batched"
    return operands


def _share(node: Node, operands: Values, context: BatchContext) -> Values:
    if node.attrs["level"] != context.flow.level:
        return (ops.axis_share(operands[0], node.attrs),)
    return operands


ROWS: Final[dict[str, Row]] = {"axis_gather": _gather, "axis_split": _split, "axis_share": _share}
