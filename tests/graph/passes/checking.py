"""What every pass test does: run the pass, verify the result, compare it with the interpreter."""

from __future__ import annotations

import numpy as np

from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.types import TensorType, bool_, float64, int64
from loopgrad.graph.verify import verify
from tests.graph import random_graphs

SEEDS = range(25)


def f(*shape):
    return TensorType(shape, float64)


def i(*shape):
    return TensorType(shape, int64)


def b(*shape):
    return TensorType(shape, bool_)


def traced(function, *types):
    """The graph of what `function` emits."""
    graph, captures = trace(lambda *v: list(function(*v)), types)
    assert not captures
    return graph


def same_meaning(before, after, arrays, rtol=1e-9):
    """`after` is valid, takes the same inputs and computes the same."""
    verify(after)
    assert after.inputs == before.inputs
    for expected, got in zip(interpret(before, arrays), interpret(after, arrays), strict=True):
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol)


def checked(run, function, *types, seed=0):
    """The graph of `function` after the pass, checked on random inputs."""
    before = traced(function, *types)
    after = run(before)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        same_meaning(before, after, random_graphs.random_arrays(rng, types))
    return after


def check_random(run, seed):
    """The pass on one random program, twice."""
    graph, arrays = random_graphs.random_program(seed, depth=2 + seed % 2)
    once = run(graph)
    same_meaning(graph, once, arrays)
    same_meaning(graph, run(once), arrays)


def ops_of(graph, deep=True):
    """Operation names in order, regions after their node."""
    found = []
    for node in graph.nodes:
        found.append(node.op)
        if deep:
            for region in node.regions:
                found += ops_of(region)
    return found
