"""Sorts along the last axis, and once for what is sorted and by what."""

import numpy as np
import pytest

from loopgrad.codegen.schedule.sorts import rewrite_sorts
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.types import TensorType, float32, int64

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


LINES = TensorType((3, 100), float32)


def places(function):
    """Which places of sorted rows are all that is read, None for any."""
    result = rewrite_sorts(trace(function, [LINES])[0])
    return [node.attrs.get("places") for node in result.nodes if node.op == "sort"]


def column(rows, k):
    start, stop = (0,) * (len(rows.shape) - 1) + (k,), (*rows.shape[:-1], k + 1)
    return ops.slice(rows, start, stop, (1,) * len(rows.shape))


def test_places_that_are_read():
    def in_front(v):
        return ops.broadcast(ops.reshape(v, (1, 3, 100)), (2, 3, 100), (0, 1, 2))

    def numbers(k):
        return ops.full(k, TensorType((7,), int64))

    def chosen(v, k):
        return ops.gather(v, *[numbers(0)] * (len(v.shape) - 1), numbers(k))

    assert places(lambda x: [column(ops.sort(x, 1), 7)]) == [(7,)]
    assert places(lambda x: [column(s := ops.sort(x, 1), 70), column(s, 3)]) == [(3, 70)]
    assert places(lambda x: [chosen(in_front(ops.sort(x, 1)), 50)]) == [(50,)]
    assert places(lambda x: [chosen(ops.sort(x, 1), 1000), chosen(ops.sort(x, 1), -5)]) == [(99,), (0,)]


def test_all_places_may_be_read():
    assert places(lambda x: [s := ops.sort(x, 1), column(s, 7)]) == [None]
    assert places(lambda x: [column(s := ops.sort(x, 1), 7), ops.reduce_sum(s, (1,))]) == [None]
    assert places(lambda x: [column(ops.sort(x, 0), 7)]) == [None]
    assert places(lambda x: [column(ops.reshape(ops.sort(x, 1), (6, 50)), 7)]) == [None]
    assert places(lambda x: [ops.gather(ops.sort(x, 1), ops.full(2, TensorType((), int64)))]) == [None]

    def at(x):
        return ops.cast(ops.reshape(column(x, 0), (3,)), int64)

    assert places(lambda x: [ops.gather(ops.sort(x, 1), ops.full(0, TensorType((3,), int64)), at(x))]) == [None]


def test_digits_that_all_share_are_known():
    """Where they are asked for: those of numbers of which it is known that they lie below some."""
    wide = TensorType((50,), int64)

    def bits(function, **how):
        (node,) = [n for n in rewrite_sorts(trace(function, [wide])[0], **how).nodes if "sort" in n.op]
        return node.attrs.get("bits")

    def bounded(x):
        return ops.min(ops.max(x, 0), 1000)

    assert bits(lambda x: [ops.argsort(bounded(x), 0)], counts_bits=True) == 10
    assert bits(lambda x: [ops.sort(bounded(x), 0)], counts_bits=True) == 10
    assert bits(lambda x: [ops.sort(bounded(x), 0)]) is None
    assert bits(lambda x: [ops.sort(ops.min(x, 1000), 0)], counts_bits=True) is None
