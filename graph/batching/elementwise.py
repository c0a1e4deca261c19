"""Elementwise primitives: the batch axis is one more axis; unbatched operands are repeated along it.

An alias that bounds something from above (`ops.upper_bound`) becomes the largest of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.batching.analysis import is_bound
from loopgrad.graph.batching.row import BatchContext, Row, all_expanded
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import ELEMENTWISE, complex_parts


def _elementwise(node: Node, operands: Sequence[Value], context: BatchContext) -> Sequence[Value]:
    return emit(node.op, all_expanded(node, operands, context), node.attrs)


def _alias(node: Node, operands: Sequence[Value], context: BatchContext) -> Sequence[Value]:
    if not is_bound(node):
        return _elementwise(node, operands, context)
    largest = ops.reduce_max(operands[0], (0,)) if context.size else ops.zeros_like(node.operands[0])
    return (ops.upper_bound(largest),)


PARTS: Final = tuple([op for op, record in complex_parts.ROWS.items() if record.batched is None])
ROWS: Final[dict[str, Row]] = {**dict.fromkeys((*ELEMENTWISE, *PARTS), _elementwise), "alias": _alias}
