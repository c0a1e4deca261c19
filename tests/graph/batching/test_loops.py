"""Loops: uniform where the batch agrees on the trips, one lane per batch element where it doesn't."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.errors import LoopLimitError
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.types import TensorType, bool_, float64, int32, int64

F, I = TensorType((), float64), TensorType((), int64)
X = np.random.default_rng(0).normal(size=(4, 3))
N = np.array([2, 0, -3, 5])


def power(n, x, reverse=False):
    return traced_for(n, [x], lambda k, v: [ops.sin(ops.add(v, ops.broadcast_to(ops.cast(k, float64), v.shape)))],
                      reverse=reverse)  # fmt: skip


def halved(x, limit):
    """Halve until below `limit`; also how often."""
    return traced_while(
        [x, ops.full(0, I)], lambda v, i: ops.gt(v, limit), lambda v, i: [ops.mul(v, 0.5), ops.add(i, 1)], max_steps=50
    )


# ---- for


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("n", "x", "flags"), [(N, X, (True, True)), (N, X[0], (True, False)), (np.array(3), X, (False, True))]
)
def test_for(same, nodes, n, x, flags, reverse):
    graph = same(lambda n, x: power(n, x, reverse), n, x, flags=flags)
    (loop,) = nodes(graph, "for")
    assert loop.attrs["lanes"] == flags[0]
    assert loop.attrs["reverse"] == reverse


def test_for_keeps_name_budget_and_line(same, nodes):
    def function(n, x):
        return traced_for(n, [x], lambda k, v: [ops.mul(v, v)], name="squaring", memory_budget=100)

    (loop,) = nodes(same(function, N, X), "for")
    assert (loop.attrs["name"], loop.attrs["memory_budget"]) == ("squaring", 100)
    assert loop.loc.function == "function"
    assert nodes(loop.regions[0], "mul")[0].loc.function == "<lambda>"


def test_int32_count(same):
    same(lambda n, x: traced_for(n, [x], lambda k, v: [ops.add(v, ops.cast(k, float64))]), N.astype(np.int32), X[:, 0])


@pytest.mark.parametrize("flags", [(True, False), (False, True), (True, True)])
def test_carries_by_fixpoint(same, nodes, flags):
    """x reaches z through y only after two trips; w never depends on the batch."""

    def function(x, w):
        return traced_for(
            ops.full(4, I), [x, ops.full(0.0, F), ops.full(0.0, F), w],
            lambda k, x, y, z, w: [x, ops.add(x, w), ops.add(y, 1.0), ops.mul(w, 0.5)],
        )  # fmt: skip

    x, w = [np.arange(4.0) if f else np.array(2.0) for f in flags]
    (loop,) = nodes(same(function, x, w, flags=flags), "for")
    assert [r.shape for r in loop.results] == [(4,) if f else () for f in (flags[0], True, True, flags[1])]


def test_captured_values_stay_as_they_are(same, nodes):
    def function(n, x, table):
        return traced_for(n, [x], lambda k, v: [ops.add(v, ops.gather(table, k))])

    graph = same(function, N, X[:, 0], np.arange(6.0), flags=(True, True, False))
    (loop,) = nodes(graph, "for")
    assert loop.operands[-1].shape == (6,)
    assert len(nodes(loop.regions[0], "gather")[0].operands) == 2


def test_integer_and_bool_carries(same):
    def function(n, i, p):
        return traced_for(n, [i, p], lambda k, i, p: [ops.add(i, ops.cast(p, int64)), ops.invert(p)])

    same(function, N, np.arange(4), np.array([True, False, True, False]))


# ---- while


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True)])
def test_while(same, nodes, flags):
    x, limit = [
        v if f else np.array(9.0) for v, f in zip((np.array([8.0, 0.5, 1e3, 0.1]), np.ones(4)), flags, strict=True)
    ]
    (loop,) = nodes(same(halved, x, limit, flags=flags), "while")
    assert (loop.attrs["lanes"], loop.attrs["max_steps"]) == (1, 50)
    assert loop.results[0].shape == (4,)


def test_uniform_while(same, nodes):
    def function(n, x):
        return traced_while(
            [ops.full(0, I), x], lambda i, v: ops.lt(i, n), lambda i, v: [ops.add(i, 1), ops.mul(v, v)]
        )  # fmt: skip

    (loop,) = nodes(same(function, np.array(3), X, flags=(False, True)), "while")
    assert loop.attrs["lanes"] == 0
    assert [r.shape for r in loop.results] == [(), (4, 3)]


def test_the_predicate_turns_batched_after_two_trips(same, nodes):
    def function(x):
        return traced_while(
            [x, ops.full(0.0, F), ops.full(0.0, F)],
            lambda x, y, z: ops.lt(z, 5.0),
            lambda x, y, z: [x, ops.add(y, x), ops.add(ops.max(y, 0.25), z)],
        )

    (loop,) = nodes(same(function, np.array([0.5, 3.0, 0.0, -1.0])), "while")
    assert loop.attrs["lanes"] == 1


def test_vector_carry_and_reduced_predicate(same):
    """The predicate sums over the carry of its own batch element."""
    same(
        lambda x: traced_while(
            [x], lambda v: ops.gt(ops.reduce_sum(v, (0,)), 1.0), lambda v: [ops.mul(v, 0.75)], max_steps=99
        ),
        np.abs(X) * np.array([[1], [20], [0.01], [5]]),
    )


def test_finished_lanes_do_not_hit_the_limit(same):
    """Where a lane has finished, running its body on wouldn't end: `i` never becomes 0 from below."""

    def function(n):
        def body(i, s):
            inner = traced_while(
                [i], lambda j: ops.ne(j, 0), lambda j: [ops.sub(j, 1)], max_steps=20
            )[0]  # fmt: skip
            return [ops.sub(i, 1), ops.add(ops.add(s, i), inner)]

        return traced_while([n, ops.full(0, I)], lambda i, s: ops.ge(i, 0), body, max_steps=20)

    same(function, N)


def test_limit_of_a_lane_raises(traced, vmapped):
    graph = traced(lambda x: traced_while([x], lambda v: ops.gt(v, 1.0), lambda v: [v], max_steps=7), [np.array(0.0)])
    vmapped(graph, [np.zeros(3)], [True], 3)
    with pytest.raises(LoopLimitError, match="max_steps=7"):
        vmapped(graph, [np.array([0.0, 2.0])], [True], 2)


# ---- nests


@pytest.mark.parametrize("flags", [(True, True, True), (True, False, True), (False, True, True), (True, True, False)])
def test_for_in_for(same, flags):
    def function(n, m, x):
        return traced_for(n, [x], lambda k, v: power(ops.sub(m, k), v))

    n, m, x = [v if f else v[0] for v, f in zip((N, np.array([3, 4, 1, 2]), X), flags, strict=True)]
    same(function, n, m, x, flags=flags)


def test_while_in_while(same, nodes):
    def function(x):
        def body(v, i):
            w, n = halved(ops.add(v, ops.cast(i, float64)), ops.full(2.0, F))
            return [ops.sub(ops.add(w, v), 1.5), ops.add(ops.add(i, n), 1)]

        return traced_while([x, ops.full(0, I)], lambda v, i: ops.lt(i, 12), body, max_steps=50)

    graph = same(function, np.array([8.0, 0.5, 1e3, 0.1]))
    assert [n.attrs["lanes"] for n in nodes(graph, "while")] == [1, 1]


@pytest.mark.parametrize("flags", [(True, True, True), (True, False, True), (False, True, True), (False, False, True)])
def test_for_in_switch(same, nodes, flags):
    def function(i, n, x):
        return traced_switch(
            i, [lambda n, v: power(n, v), lambda n, v: [ops.neg(v)], lambda n, v: power(n, v, True)], [n, x]
        )

    i, n, x = [v if f else v[3] for v, f in zip((np.array([0, 7, 1, 2]), N, X), flags, strict=True)]
    graph = same(function, i, n, x, flags=flags)
    assert nodes(graph, "switch")[0].attrs["lanes"] == flags[0]


def test_switch_in_while(same):
    def function(x):
        def body(v, i):
            (w,) = traced_switch(
                ops.gt(v, 4.0), [lambda v: [ops.sub(v, 1.0)], lambda v: [ops.mul(v, 0.5)]], [v]
            )  # fmt: skip
            return [w, ops.add(i, 1)]

        return traced_while([x, ops.full(0, I)], lambda v, i: ops.gt(v, 0.0), body, max_steps=99)

    same(function, np.array([8.0, 0.5, 1e3, -1.0]))


# ---- loops with lanes of their own


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True)])
def test_lane_for(same, nodes, flags):
    """Lanes of the program, and the batch: the batch axis comes first, also where the counts don't differ."""
    counts = np.array([N[:3], [1, 1, 4], [0, 0, 0], [2, 0, 1]])
    n, x = [v if f else v[1] for v, f in zip((counts, X), flags, strict=True)]
    (loop,) = nodes(same(power, n, x, flags=flags), "for")
    assert loop.attrs["lanes"] == 2
    assert loop.operands[0].shape == (4, 3)


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True)])
def test_lane_while(same, nodes, flags):
    def function(x, limit):
        return traced_while([x], lambda v: ops.gt(v, limit), lambda v: [ops.mul(v, 0.5)], max_steps=99)

    x, limit = [v if f else v[1] for v, f in zip((np.abs(X) * 40, np.abs(X)), flags, strict=True)]
    (loop,) = nodes(same(function, x, limit, flags=flags), "while")
    assert loop.attrs["lanes"] == 2


def test_lane_while_with_a_common_predicate(same, nodes):
    """Only y differs within the batch; the lanes' own counter decides."""

    def function(n, y):
        i = ops.zeros_like(n)
        return traced_while([i, y], lambda i, y: ops.lt(i, n), lambda i, y: [ops.add(i, 1), ops.mul(y, 2.0)])

    (loop,) = nodes(same(function, np.array([3, 0, 1]), X, flags=(False, True)), "while")
    assert (loop.attrs["lanes"], loop.regions[0].outputs[0].shape) == (2, (4, 3))


def test_lane_loop_that_does_not_depend_on_the_batch(same, nodes):
    (loop,) = nodes(same(lambda n, w, x: [ops.add(x, *power(n, w))], N[:3], X[0], X, flags=(False, False, True)), "for")
    assert loop.attrs["lanes"] == 1


@pytest.mark.parametrize("size", [3, 4])
def test_lane_loop_of_the_batch_size_under_a_mask(traced, vmapped, size):
    """The inner loop has as many lanes as the batch has elements and doesn't depend on the batch; the mask of
    the outer loop must not be taken for one over these lanes."""

    def function(n, counts, x):
        return traced_for(
            n, [x, ops.full(0.0, F)],
            lambda k, v, s: [ops.add(v, 1.0), ops.add(s, ops.reduce_sum(power(counts, x)[0], (0,)))],
        )  # fmt: skip

    arrays = [np.array([2, 0, 1, 3])[:size], np.array([1, 2, 3, 0]), np.arange(4.0)]
    vmapped(traced(function, [arrays[0][0], *arrays[1:]]), arrays, [True, False, False], size)


def test_scalar_while_in_a_lane_loop_that_ended(same):
    """Once all lanes of a batch element are done, its scalar loop inside must not run on: it wouldn't end."""

    def function(n):
        def body(i, s):
            top = ops.reduce_max(i, (0,))
            rest = traced_while([top], lambda j: ops.ne(j, 0), lambda j: [ops.sub(j, 1)], max_steps=20)[0]
            return [ops.sub(i, 1), ops.add(s, ops.broadcast_to(ops.add(top, rest), s.shape))]

        return traced_while([n, ops.zeros_like(n)], lambda i, s: ops.ge(i, 0), body, max_steps=20)

    same(function, np.array([[2, 0, 1], [-1, -5, -2], [7, 1, 1], [3, 3, 3]]))


# ---- accumulators


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
            branches = [lambda t, x: [t], lambda t, x: [ops.scatter("add", t, (j,), x)]]
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
def test_shared_carries_under_a_mask(traced, vmapped, size):
    """Inside a loop with one lane per batch element, a loop with accumulators that all elements could share."""

    def function(m, n, table, index, x):
        def body(k, s):
            table_now, _ = shared_lanes(n, table, index, x)
            (plain,) = traced_for(
                ops.full(2, I), [table], lambda j, t: [ops.scatter("add", t, (index,), x)], shared=(0,)
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
                m, [ops.full(0.0, TensorType((5,), float64))], lambda j, t: [ops.scatter("add", t, (index,), v)]
            )  # fmt: skip
            return [ops.add(ops.mul(v, 0.1), ops.gather(t, index))]

        return traced_for(n, [x], body)

    same(function, np.array([[2, 0, 3]] * 4), np.array([[0, 1, 1]] * 4), X, np.array([1, 2, 0, 3]))


def test_lane_rows_written_by_other_lanes_are_not_shared(same, nodes):
    """In the inner lane loop the table is a carry of lane rows: a scatter may write any row, and only active
    lanes keep theirs. That chain of scatters is no accumulator."""

    def function(m, n, table):
        def inner(j, t):
            return [ops.scatter("add", t, (ops.full(1, I),), ops.full(1.0, TensorType((2,), float64)))]

        return traced_for(m, [table], lambda k, t: traced_for(n, [t], inner))

    graph = same(function, np.array([1, 0, 3, 2]), np.array([[2, 0, 3]] * 4), np.zeros((4, 3, 2)))
    assert [n.attrs["shared"] for n in nodes(graph, "for")] == [(), ()]


# ---- replacing nodes


def test_replacing_loops_replace_each_other(traced, vmapped):
    """A graph can hold a loop and the one that replaces it, where one needs the other: their batched forms
    are linked alike."""

    def function(n, x):
        (first,) = power(n, x)
        second = traced_for(
            n, [x, first], lambda k, v, w: [ops.sin(ops.add(v, ops.cast(k, float64))), ops.mul(w, v)],
            replaces=first.node,
        )  # fmt: skip
        return [first, *second]

    graph = traced(function, [np.array(1), np.array(1.0)])
    batched = vmapped(graph, [N, X[:, 0]], [True, True], 4)
    old, new = [n for n in batched.nodes if n.op == "for"]
    assert new.replaces is old
    batched = vmapped(graph, [N[3], X[:, 0]], [False, True], 4)
    old, new = [n for n in batched.nodes if n.op == "for"]
    assert new.replaces is old
