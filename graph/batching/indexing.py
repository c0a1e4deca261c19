"""Gather and scatter.

A table that is the same for the whole batch is looked up with batched indices as it is. A table that
differs gets one more index in front, the iota of the batch axis, so that each batch element addresses its
own rows; `graph.lanes` recognises such accesses as owned by the lane. Scatter always needs it, since each
batch element has its own result.

    gather(x: f[N], i: int[])     i batched:     gather(x: f[N], i: int[B])
                                  both batched:  gather(x: f[B,N], iota: int[B], i: int[B])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.batching.row import BatchContext, Row, all_expanded
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import DType, TensorType, int64

Values = Sequence[Value]


def _counts_to(dtype: DType, size: int) -> bool:
    return size <= 1 << (dtype.bits - (dtype.kind == "i"))


def _with_batch_index(indices: Values, size: int) -> list[Value]:
    """The iota of the batch axis before the indices, in a dtype that holds them all."""
    if not _counts_to(indices[0].dtype, size):
        indices = [ops.cast(i, int64) for i in indices]
    return [ops.iota(TensorType(indices[0].shape, indices[0].dtype), 0), *indices]


def _gather(node: Node, operands: Values, context: BatchContext) -> Values:
    table, *indices = all_expanded(node, operands, context)
    if node.operands[0] in context.batched:
        return (ops.gather(table, *_with_batch_index(indices, context.size)),)
    return (ops.gather(operands[0], *indices),)


def _scatter(node: Node, operands: Values, context: BatchContext) -> Values:
    table, *indices, updates = all_expanded(node, operands, context)
    if node.operands[0] in context.shared:
        context.shared.add(node.results[0])
    return emit("scatter", (table, *_with_batch_index(indices, context.size), updates), node.attrs)


ROWS: Final[dict[str, Row]] = {"gather": _gather, "scatter": _scatter}
