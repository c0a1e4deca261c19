"""Sorts along the last axis, and once for what is sorted and by what."""

import numpy as np
import pytest

from loopgrad.codegen.schedule.sorts import rewrite_sorts
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.types import TensorType, float32

CUBE = TensorType((3, 4, 5), float32)
X = np.random.default_rng(0).choice(np.array([0.0, -0.0, np.nan, 1.0, -2.0, 3.0], np.float32), CUBE.shape)


def rewritten(function):
    graph, _ = trace(function, [CUBE])
    result = rewrite_sorts(graph)
    for got, wanted in zip(interpret(result, [X]), interpret(graph, [X]), strict=True):
        assert got.tobytes() == wanted.tobytes()
    return [(n.op, n.attrs["axis"]) for n in result.nodes if "sort" in n.op]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_axis_is_the_last(axis):
    assert rewritten(lambda x: [ops.sort(x, axis)]) == [("sort", 2)]
    assert rewritten(lambda x: [ops.argsort(x, axis)]) == [("argsort", 2)]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("first", [0, 1])
def test_sorted_once(axis, first):
    both = [ops.sort, ops.argsort]
    assert rewritten(lambda x: [f(x, axis) for f in (both[first], both[1 - first])]) == [("argsort", 2)]


def test_what_differs_is_sorted_by_itself():
    assert rewritten(lambda x: [ops.sort(x, 2), ops.argsort(x, 1)]) == [("sort", 2), ("argsort", 2)]
    assert rewritten(lambda x: [ops.sort(x, 2), ops.argsort(ops.neg(x), 2)]) == [("sort", 2), ("argsort", 2)]


def test_of_what_was_sorted():
    """The operand of a sort is itself one that was rewritten."""
    found = rewritten(lambda x: [ops.sort(ops.sort(x, 0), 1), ops.argsort(ops.sort(x, 0), 1)])
    assert found == [("sort", 2), ("sort", 2), ("sort", 2), ("argsort", 2)]


def test_nothing_to_do():
    graph, _ = trace(lambda x: [ops.neg(x)], [CUBE])
    assert rewrite_sorts(graph) is graph
