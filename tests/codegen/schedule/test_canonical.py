"""Reductions in the forms that kernels have."""

from __future__ import annotations

from loopgrad.codegen.schedule.canonical import rewrite_block
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.types import TensorType, float32


def reduced(graph: Graph) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The operand's shape and the axes of each reduction."""
    return [(n.operands[0].shape, n.attrs["axes"]) for n in graph.nodes if n.op.startswith("reduce")]


def test_a_sum_of_all_goes_by_the_rows_that_others_reduce_first() -> None:
    """One kernel reads the elements for both."""

    def both(x: Value) -> list[Value]:
        return [ops.reduce_sum(x, (0, 1, 2)), ops.reduce_sum(x, (0, 2))]

    graph = trace(both, [TensorType((4, 32, 128), float32)])[0]
    assert [axes for shape, axes in reduced(rewrite_block(graph)) if len(shape) == 3] == [(2,), (2,)]
    assert (0, 1, 2) in [axes for _, axes in reduced(rewrite_block(graph, in_order=True))]
