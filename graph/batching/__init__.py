"""vmap: a graph for many inputs at once, by the batched form of a primitive's record, or one row here.

Enters: a Graph, values for its inputs, and which of these carry the batch axis (in front). Leaves: values of
the ambient scope for its outputs, and which of them carry the batch axis; each batch element is what the
graph gives for that element alone. The method is that of JAX's vmap, except that control flow which depends
on the batch stays control flow: per lane, where JAX selects between everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph.batching import (
    collectives,
    control,
    convolution,
    elementwise,
    indexing,
    linalg,
    movement,
    named_axes,
    stack,
)
from loopgrad.graph.batching.analysis import BatchAnalysis
from loopgrad.graph.batching.row import BatchContext, Row, in_front
from loopgrad.graph.batching.walk import walk
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.primitives import PRIMITIVES

__all__ = ["ROWS", "batch"]

ROWS: Final[dict[str, Row]] = {
    **{op: in_front for op, record in PRIMITIVES.items() if record.batched},
    **elementwise.ROWS,
    **movement.ROWS,
    **indexing.ROWS,
    **linalg.ROWS,
    **convolution.ROWS,
    **control.ROWS,
    **stack.ROWS,
    **collectives.ROWS,
    **named_axes.ROWS,
}


def batch(
    graph: Graph, arguments: Sequence[Value], batched: Sequence[bool], size: int, level: int | None = None
) -> tuple[list[Value], list[bool]]:
    """Emit `graph` into the ambient scope for `size` batch elements, along the named axis of this level (or none)."""
    flow = BatchAnalysis(level)
    context = BatchContext(size, ROWS, flow, flow.batched(graph, tuple(batched), masked=False))
    assert context.flags(graph.inputs) == tuple(batched), "a stack made outside can't turn batched"
    return walk(graph, arguments, context), list(context.flags(graph.outputs))
