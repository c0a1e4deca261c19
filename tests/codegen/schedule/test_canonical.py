"""Reductions in the forms that kernels have."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.schedule.canonical import rewrite_block
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
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


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((8, 1024, 16, 8), (1, 3)),  # normalisation of groups of channels that lie side by side
        ((1000, 8, 1, 37), (0, 2, 3)),
        ((64, 5, 256, 3), (0, 2)),
        ((16, 3, 128, 5, 64, 2), (0, 2, 4)),
    ],
)
def test_dims_with_kept_ones_between_are_reduced_one_after_the_other(shape, axes) -> None:
    """The few lanes of what is kept would go through all of them."""
    graph = trace(lambda x: [ops.reduce_sum(x, axes), ops.reduce_max(x, axes)], [TensorType(shape, float32)])[0]
    rewritten = rewrite_block(graph)
    assert all(len(axes) == 1 for _, axes in reduced(rewritten))
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    for got, want in zip(interpret(rewritten, [x]), interpret(graph, [x]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-3)


def test_where_much_is_kept_lanes_go_through_all_of_it() -> None:
    graph = trace(lambda x: [ops.reduce_sum(x, (1, 3))], [TensorType((512, 8, 512, 8), float32)])[0]
    assert [axes for _, axes in reduced(rewrite_block(graph))] == [(1, 3)]


@pytest.mark.parametrize("shape", [(3, 20_000, 2), (2, 1 << 16, 8)])
def test_few_columns_in_several_places_arent_a_lane_each(shape) -> None:
    graph = trace(lambda x: [ops.reduce_sum(x, (1,))], [TensorType(shape, float32)])[0]
    rewritten = rewrite_block(graph)
    assert (shape, (1,)) not in reduced(rewritten)
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    np.testing.assert_allclose(interpret(rewritten, [x])[0], interpret(graph, [x])[0], rtol=1e-4, atol=1e-2)
