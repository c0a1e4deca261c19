"""Stacks: where anything batched is pushed, the elements have the batch axis in front.

The depth of a stack is one number, so a batched one becomes the largest of the batch. In a region that
would make lanes wait for each other; there the depth is left to be measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.batching.row import BatchContext, Row, batched_type, expanded
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import StackType, TensorType, int64

Values = Sequence[Value]


def _stack_new(node: Node, operands: Values, context: BatchContext) -> Values:
    (stack,) = node.results
    type = batched_type(stack.type, stack in context.batched, context.size)
    assert isinstance(type, StackType)
    if operands and node.operands[0] in context.batched:
        operands = () if context.inside else (_largest(operands[0], context.size),)
    return emit("stack_new", operands, {**node.attrs, "element": type.element})


def _largest(depth: Value, size: int) -> Value:
    return ops.reduce_max(depth, (0,)) if size else ops.full(0, TensorType((), int64))


def _push(node: Node, operands: Values, context: BatchContext) -> Values:
    stack, value = operands
    return (ops.push(stack, expanded(value, node.operands[1] in context.batched, context.size)),)


def _pop(node: Node, operands: Values, context: BatchContext) -> Values:
    return ops.pop(operands[0])


ROWS: Final[dict[str, Row]] = {"stack_new": _stack_new, "push": _push, "pop": _pop}
