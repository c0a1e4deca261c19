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


def _behind_rows(value: Value) -> Value:
    return _turned(value, 0, 1)


def _behind_columns(value: Value) -> Value:
    """The batch goes behind rows and columns."""
    return _turned(value, 0, 2)


def _in_front(value: Value) -> Value:
    return value


TURNED: Final = {"all_gather": _behind_rows, "all_to_all": _behind_columns, "all_sum": _in_front}


def _all_gather(node: Node, operands: Values, context: BatchContext) -> Values:
    parts = [_behind_rows(v) for v in _expanded(node, operands, context)]
    token, *gathered = emit(node.op, (operands[0], *parts), node.attrs)
    return (expanded(token, False, context.size), *[_turned(v, 1, 0) for v in gathered])


def _all_to_all(node: Node, operands: Values, context: BatchContext) -> Values:
    parts = [_behind_columns(v) for v in _expanded(node, operands, context)]
    token, *exchanged = emit(node.op, (operands[0], *parts), node.attrs)
    return (expanded(token, False, context.size), *[_turned(v, 2, 0) for v in exchanged])


def _all_sum(node: Node, operands: Values, context: BatchContext) -> Values:
    token, *summed = emit(node.op, (operands[0], *_expanded(node, operands, context)), node.attrs)
    return (expanded(token, False, context.size), *summed)


def _start(node: Node, operands: Values, context: BatchContext) -> Values:
    """As the collective that it begins takes them."""
    turned = TURNED[node.attrs["op"]]
    parts = [turned(v) for v in _expanded(node, operands, context)]
    (token,) = emit(node.op, (operands[0], *parts), node.attrs)
    return (expanded(token, False, context.size),)


def _expanded(node: Node, operands: Values, context: BatchContext) -> list[Value]:
    flags = context.flags(node.operands)
    return [expanded(v, b, context.size) for v, b in zip(operands[1:], flags[1:], strict=True)]


ROWS: Final[dict[str, Row]] = {
    "all_gather": _all_gather, "all_to_all": _all_to_all, "all_sum": _all_sum, "collective_start": _start
}  # fmt: skip
