"""Elementwise primitives: the batch axis is one more axis; unbatched operands are repeated along it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph.batching.row import Context, Row, all_expanded
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import elementwise


def _elementwise(node: Node, operands: Sequence[Value], context: Context) -> Sequence[Value]:
    return emit(node.op, all_expanded(node, operands, context), node.attrs)


ROWS: Final[dict[str, Row]] = dict.fromkeys(elementwise.ROWS, _elementwise)
