"""Collectives of batches: each part stays one message. Rows are along axis 0, so the batch goes behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.batching.row import BatchContext, Row, expanded
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value

Values = Sequence[Value]


def _turned(value: Value, front: int, to: int) -> Value:
    """The axis `front` moved to `to`."""
    order = [d for d in range(len(value.shape)) if d != front]
    order.insert(to, front)
    return ops.transpose(value, order)


def _all_gather(node: Node, operands: Values, context: BatchContext) -> Values:
    parts = [_turned(v, 0, 1) for v in _expanded(node, operands, context)]
    token, *gathered = emit(node.op, (operands[0], *parts), node.attrs)
    return (expanded(token, False, context.size), *[_turned(v, 1, 0) for v in gathered])


def _all_to_all(node: Node, operands: Values, context: BatchContext) -> Values:
    """The batch goes behind rows and columns."""
    parts = [_turned(v, 0, 2) for v in _expanded(node, operands, context)]
    token, *exchanged = emit(node.op, (operands[0], *parts), node.attrs)
    return (expanded(token, False, context.size), *[_turned(v, 2, 0) for v in exchanged])


def _all_sum(node: Node, operands: Values, context: BatchContext) -> Values:
    token, *summed = emit(node.op, (operands[0], *_expanded(node, operands, context)), node.attrs)
    return (expanded(token, False, context.size), *summed)


def _expanded(node: Node, operands: Values, context: BatchContext) -> list[Value]:
    flags = context.flags(node.operands)
    return [expanded(v, b, context.size) for v, b in zip(operands[1:], flags[1:], strict=True)]


ROWS: Final[dict[str, Row]] = {"all_gather": _all_gather, "all_to_all": _all_to_all, "all_sum": _all_sum}
