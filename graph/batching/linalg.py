"""Matmul: the batch axis is one more batch dim.

A large matrix that all batch elements share isn't repeated: the batch axis joins the rows of the other
operand, which makes one large product. A small one is repeated after all, because that form keeps the batch
axis apart from the rest, so that a loop around it can run one batch element per lane.

    (B, M, K) x (K, N)   ->   (B*M, K) x (K, N)
    (M, K) x (B, K, N)   ->   (B*N, K) x (K, M), transposed
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.batching.row import BatchContext, Row, all_expanded
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives.primitive import Attrs, tensor_type

_REPEATED: Final = 256  # elements: about what a lane can hold in registers


def _matmul(node: Node, operands: Sequence[Value], context: BatchContext) -> Sequence[Value]:
    a, b = operands
    a_varies, b_varies = context.flags(node.operands)
    if not b_varies and _stays_whole(b):
        return (_collapsed(a, b, node.attrs),)
    if not a_varies and _stays_whole(a):
        product = _collapsed(ops.transpose(b, (0, 2, 1)), ops.transpose(a, (1, 0)), node.attrs)
        return (ops.transpose(product, (0, 2, 1)),)
    return emit("matmul", all_expanded(node, operands, context), node.attrs)


def _stays_whole(matrix: Value) -> bool:
    type = tensor_type("matmul", matrix)
    return len(type.shape) == 2 and type.size > _REPEATED


def _collapsed(a: Value, b: Value, attrs: Attrs) -> Value:
    """(B, M, K) x (K, N)."""
    size, m, k = a.shape
    return ops.reshape(emit("matmul", (ops.reshape(a, (size * m, k)), b), attrs)[0], (size, m, b.shape[1]))


ROWS: Final[dict[str, Row]] = {"matmul": _matmul}
