"""Carries that are only scattered into are shared by the lanes, each of which owns its row."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.region_ops import traced_for, traced_switch
from loopgrad.graph.types import TensorType, float64, int64

F, INT = TensorType((), float64), TensorType((), int64)
X = np.random.default_rng(0).normal(size=(4, 3))
N = np.array([2, 0, -3, 5])


def histogram(n, table, index, weight, kind="add"):
    """Scatter into `table` as long as k < n; nothing reads it."""

    def body(k, h, w):
        return [ops.scatter(kind, h, (ops.gather(index, k),), w), ops.mul(w, 0.5)]

    return traced_for(n, [table, weight], body)


@pytest.mark.parametrize("kind", ["add", "mul", "set", "max"])
@pytest.mark.parametrize("flags", [(True, True, True), (True, False, True), (True, True, False), (True, False, False)])
def test_accumulators_become_shared(same, nodes, flags, kind):
    table = np.arange(20.0).reshape(4, 5) if flags[1] else np.arange(5.0)
    index = np.array([[0, 1, 9, 1, 2]] * 4) if flags[2] else np.array([0, 1, 9, 1, 2])
    graph = same(
        lambda n, t, i: histogram(n, t, i, ops.full(3.0, F), kind), np.array([2, 0, -3, 5]), table, index, flags=flags
    )
    (loop,) = nodes(graph, "for")
    assert (loop.attrs["lanes"], loop.attrs["shared"]) == (1, (0,))
    (scatter,) = nodes(loop.regions[0], "scatter")
    assert scatter.operands[1].shape == (4,)


def test_a_table_that_is_read_is_not_shared(same, nodes):
    def function(n, table):
        def body(k, t):
            return [ops.scatter("add", t, (k,), ops.gather(t, ops.add(k, 1)))]

        return traced_for(n, [table], body)

    (loop,) = nodes(same(function, N, np.arange(20.0).reshape(4, 5)), "for")
    assert loop.attrs["shared"] == ()


def test_accumulators_through_inner_loops_and_branches(same, nodes):
    """The chain of scatters passes a loop and a branch, which share the accumulator too."""

    def function(n, m, table, x):
        def inner(j, t, x):
            branches = [lambda t, _x: [t], lambda t, x: [ops.scatter("add", t, (j,), x)]]
            (t,) = traced_switch(ops.gt(x, 0.5), branches, [t, x])
            return [ops.scatter("add", t, (ops.add(j, 1),), x), ops.mul(x, 0.7)]

        def body(k, t, x):
            t, x = traced_for(ops.sub(m, k), [t, x], inner)
            t = ops.scatter("mul", t, (k,), x)
            return [t, ops.add(x, 1.0)]

        return traced_for(n, [table, x], body)

    arrays = [np.array([2, 0, -3, 4]), np.array([3, 4, 1, 5]), np.arange(20.0).reshape(4, 5), np.ones(4)]
    graph = same(function, *arrays)
    assert [n.attrs["shared"] for n in nodes(graph, "for", "switch")] == [(0,)] * 3
    graph = same(function, arrays[0], arrays[1][0], *arrays[2:], flags=(True, False, True, True))
    assert [n.attrs["lanes"] for n in nodes(graph, "for")] == [1, 1]


def test_accumulators_through_a_loop_that_is_common_to_the_batch(same, nodes):
    def function(n, table):
        def inner(j, t):
            return [ops.scatter("add", t, (j,), ops.full(1.0, F))]

        return traced_for(n, [table], lambda _k, t: traced_for(ops.full(2, INT), [t], inner))

    graph = same(function, np.array([2, 0, -3, 5]), np.zeros(5), flags=(True, False))
    assert [(n.attrs["lanes"], n.attrs["shared"]) for n in nodes(graph, "for")] == [(1, (0,)), (0, (0,))]


def test_accumulator_through_a_branch_that_is_common_to_the_batch(same, nodes):
    def function(n, p, table):
        def body(k, t):
            return traced_switch(p, [lambda t: [t], lambda t: [ops.scatter("add", t, (k,), ops.full(1.0, F))]], [t])

        return traced_for(n, [table], body)

    graph = same(function, np.array([2, 0, -3, 5]), np.array(True), np.zeros(5), flags=(True, False, False))
    (switch,) = nodes(graph, "switch")
    assert (switch.attrs["lanes"], switch.attrs["shared"]) == (0, (0,))


def shared_lanes(n, table, index, x):
    """A lane loop with an accumulator of its own."""

    def body(k, t, x):
        return [ops.scatter("add", t, (ops.min(ops.add(index, k), 4),), x), ops.mul(x, 0.5)]

    return traced_for(n, [table, x], body, shared=(0,))


@pytest.mark.parametrize("flags", [(True,) * 4, (False, False, False, True), (False, True, False, False),
                                   (True, False, False, False), (False, False, True, False)])  # fmt: skip
def test_shared_carries_of_lane_loops_stay_shared(same, nodes, flags):
    arrays = [np.array([[2, 0, 3]] * 4), np.arange(20.0).reshape(4, 5), np.array([[0, 1, 1]] * 4), X]
    graph = same(shared_lanes, *[v if f else v[0] for v, f in zip(arrays, flags, strict=True)], flags=flags)
    (loop,) = nodes(graph, "for")
    assert (loop.attrs["lanes"], loop.attrs["shared"]) == (2, (0,))


@pytest.mark.parametrize("size", [3, 4])
def test_lane_switch_of_the_batch_size_under_a_mask(traced, vmapped, size):
    """As for loops: the switch has as many lanes as the batch has elements."""

    def function(n, index, x):
        def body(_k, s):
            (chosen,) = traced_switch(index, [lambda x: [ops.neg(x)], lambda x: [ops.exp(x)]], [x])
            return [ops.add(s, ops.reduce_sum(chosen, (0,)))]

        return traced_for(n, [ops.full(0.0, F)], body)

    arrays = [np.array([2, 0, 1, 3])[:size], np.array([1, 0, 1, 0]), np.arange(4.0)]
    vmapped(traced(function, [arrays[0][0], *arrays[1:]]), arrays, [True, False, False], size)


@pytest.mark.parametrize("size", [3, 4])
def test_shared_results_under_a_mask(traced, vmapped, size):
    """A switch of accumulators that all batch elements could share."""

    def function(n, p, table, index, x):
        def body(_k, s):
            updated = [lambda t: [t], lambda t: [ops.scatter("add", t, (index,), x)]]
            (t,) = traced_switch(p, updated, [table], shared=(0,))
            return [ops.add(s, ops.reduce_sum(t, (0,)))]

        return traced_for(n, [ops.full(0.0, F)], body)

    arrays = [np.array([1, 0, 3, 2])[:size], np.array(True), np.arange(5.0), np.array([0, 1, 1]), X[0]]
    vmapped(traced(function, [arrays[0][0], *arrays[1:]]), arrays, [True] + [False] * 4, size)


@pytest.mark.parametrize("size", [3, 4])
def test_shared_carries_under_a_mask(traced, vmapped, size):
    """Inside a loop with one lane per batch element, a loop with accumulators that all elements could share."""

    def function(m, n, table, index, x):
        def body(k, s):
            table_now, _ = shared_lanes(n, table, index, x)
            (plain,) = traced_for(
                ops.full(2, INT), [table], lambda _j, t: [ops.scatter("add", t, (index,), x)], shared=(0,)
            )  # fmt: skip
            return [ops.add(s, ops.add(ops.reduce_sum(table_now, (0,)), ops.reduce_sum(plain, (0,))))]

        return traced_for(m, [ops.full(0.0, F)], body)

    arrays = [np.array([1, 0, 3, 2])[:size], np.array([2, 0, 3]), np.arange(5.0), np.array([0, 1, 1]), X[0]]
    graph = traced(function, [arrays[0][0], *arrays[1:]])
    vmapped(graph, arrays, [True, False, False, False, False], size)


def test_scatters_of_stopped_lanes_count_for_a_carry(same):
    """A scalar loop in a lane loop: its carry takes the scatters of all lanes, those that have stopped too."""

    def function(n, index, x, m):
        def body(k, v):
            (t,) = traced_for(
                m, [ops.full(0.0, TensorType((5,), float64))], lambda _j, t: [ops.scatter("add", t, (index,), v)]
            )  # fmt: skip
            return [ops.add(ops.mul(v, 0.1), ops.gather(t, index))]

        return traced_for(n, [x], body)

    same(function, np.array([[2, 0, 3]] * 4), np.array([[0, 1, 1]] * 4), X, np.array([1, 2, 0, 3]))


def test_lane_rows_written_by_other_lanes_are_not_shared(same, nodes):
    """In the inner lane loop the table is a carry of lane rows: a scatter may write any row, and only active
    lanes keep theirs. That chain of scatters is no accumulator."""

    def function(m, n, table):
        def inner(j, t):
            return [ops.scatter("add", t, (ops.full(1, INT),), ops.full(1.0, TensorType((2,), float64)))]

        return traced_for(m, [table], lambda _k, t: traced_for(n, [t], inner))

    graph = same(function, np.array([1, 0, 3, 2]), np.array([[2, 0, 3]] * 4), np.zeros((4, 3, 2)))
    assert [n.attrs["shared"] for n in nodes(graph, "for")] == [(), ()]


def test_a_switch_that_takes_the_accumulator_and_looks_away(same, nodes):
    """What a gradient leaves of a branch may take operands that it no longer needs."""

    def body(k, v, total):
        index = ops.cast(ops.min(k, 1), int64)
        (after,) = traced_switch(index, [lambda v, _t: [ops.sin(v)], lambda v, _t: [ops.neg(v)]], [v, total])
        return [after, ops.scatter("add", total, (index,), v)]

    def function(n, v):
        return traced_for(n, [v, ops.full(0.0, TensorType((3,), float64))], body)

    (loop,) = nodes(same(function, np.array([3, 0, 5, 1]), np.linspace(0.1, 1, 4)), "for")
    assert loop.attrs["shared"] == (1,)
