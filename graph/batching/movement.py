"""Creation, which is no part of a batch, and padding, whose scalar may be. All other movement has a batched form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.batching.row import BatchContext, Row, all_expanded
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import TensorType, bool_

Values = Sequence[Value]


def _created(node: Node, operands: Values, context: BatchContext) -> Values:
    """What is made of nothing is the same for the whole batch."""
    return emit(node.op, operands, node.attrs)


def _pad(node: Node, operands: Values, context: BatchContext) -> Values:
    attrs = {"low": (0, *node.attrs["low"]), "high": (0, *node.attrs["high"])}
    if node.operands[1] not in context.batched:
        return emit("pad", operands, attrs)
    # pad takes one scalar, here each batch element has its own: it goes where a padded mask is False
    x, filling = all_expanded(node, operands, context)
    edge = ops.full(False, TensorType((), bool_))
    kept = emit("pad", (ops.full(True, TensorType(x.shape, bool_)), edge), attrs)[0]
    padded = emit("pad", (x, ops.full(0, TensorType((), x.dtype))), attrs)[0]
    return (ops.select(kept, padded, ops.broadcast_leading(filling, padded.shape)),)


ROWS: Final[dict[str, Row]] = {"const": _created, "literal": _created, "iota": _created, "pad": _pad}
