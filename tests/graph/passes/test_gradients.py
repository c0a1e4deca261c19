"""Passes and masks on what the reverse pass and vmap make: augmented loops, stacks, accumulators."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.autodiff.reverse import vjp_emit
from loopgrad.graph import ops
from loopgrad.graph.batching import batch
from loopgrad.graph.build import inline, trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.lanes import lane_domain
from loopgrad.graph.passes import PIPELINE, mask, optimise
from loopgrad.graph.text import parse_graph, print_graph
from loopgrad.graph.types import TensorType, float64
from loopgrad.graph.verify import verify
from tests.graph.passes import checking

random_program, random_arrays = checking.random_graphs.random_program, checking.random_graphs.random_arrays

SIZE = 5


def with_gradients(outputs, inputs):
    """The float outputs and the gradient of their sum."""
    losses = [v for v in outputs if v.type.dtype is float64]
    wrt = [v for v in inputs if v.type.dtype is float64]
    cotangents = vjp_emit(losses, [ops.full(1.0, v.type) for v in losses], wrt) if losses else []
    return [*losses, *[v for v in cotangents if v is not None]]


def gradient_graph(program):
    graph, _ = trace(lambda *v: with_gradients(inline(program, v), v), program.input_types)
    return graph


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", range(18))
def test_gradients_of_random_programs(seed):
    program, arrays = random_program(seed, depth=1 + seed % 3)
    graph = gradient_graph(program)
    current = graph
    for name, run in PIPELINE:
        current = run(current)
        verify(current, after=name)
    checking.same_meaning(graph, current, arrays, rtol=1e-7)
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", range(18))
def test_masked_gradients(seed):
    program, arrays = random_program(seed, depth=1 + seed % 3)
    graph = gradient_graph(program)
    for wanted in (lambda _node: True, mask.crosses_lanes):
        masked = mask.run(graph, wanted)
        verify(masked, after="mask")
        for expected, got in zip(interpret(graph, arrays), interpret(masked, arrays), strict=True):
            np.testing.assert_array_equal(got, expected)


def lane_nodes(graph):
    for node in graph.nodes:
        if node.regions and node.attrs["lanes"]:
            yield node
        for region in node.regions:
            yield from lane_nodes(region)


@pytest.mark.parametrize("seed", range(18))
def test_loops_that_vmap_makes_are_local_and_so_are_their_gradients(seed):
    program, _ = random_program(seed, depth=1 + seed % 3, lanes=False)
    types = [TensorType((SIZE, *t.shape), t.dtype) for t in program.input_types]

    def batched(*inputs):
        outputs, flags = batch(program, inputs, [True] * len(inputs), SIZE)
        return with_gradients([v for v, is_batched in zip(outputs, flags, strict=True) if is_batched], inputs)

    graph, _ = trace(batched, types)
    after = optimise(graph)
    checking.same_meaning(graph, after, random_arrays(np.random.default_rng(seed), types), rtol=1e-7)
    for node in lane_nodes(after):
        report = lane_domain(node)
        assert report.local, report.reason
