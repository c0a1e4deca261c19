"""Loops: uniform where the batch agrees on the trips, one lane per batch element where it doesn't."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.errors import LoopLimitError
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.types import TensorType, float64, int64

F, INT = TensorType((), float64), TensorType((), int64)
X = np.random.default_rng(0).normal(size=(4, 3))
N = np.array([2, 0, -3, 5])


def power(n, x, reverse=False):
    return traced_for(n, [x], lambda k, v: [ops.sin(ops.add(v, ops.broadcast_to(ops.cast(k, float64), v.shape)))],
                      reverse=reverse)  # fmt: skip


def halved(x, limit):
    """Halve until below `limit`; also how often."""
    return traced_while(
        [x, ops.full(0, INT)],
        lambda v, _i: ops.gt(v, limit),
        lambda v, i: [ops.mul(v, 0.5), ops.add(i, 1)],
        max_steps=50,
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
        return traced_for(n, [x], lambda _k, v: [ops.mul(v, v)], name="squaring", memory_budget=100)

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
            ops.full(4, INT), [x, ops.full(0.0, F), ops.full(0.0, F), w],
            lambda _k, x, y, _z, w: [x, ops.add(x, w), ops.add(y, 1.0), ops.mul(w, 0.5)],
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
        return traced_for(n, [i, p], lambda _k, i, p: [ops.add(i, ops.cast(p, int64)), ops.invert(p)])

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
            [ops.full(0, INT), x], lambda i, _v: ops.lt(i, n), lambda i, v: [ops.add(i, 1), ops.mul(v, v)]
        )  # fmt: skip

    (loop,) = nodes(same(function, np.array(3), X, flags=(False, True)), "while")
    assert loop.attrs["lanes"] == 0
    assert [r.shape for r in loop.results] == [(), (4, 3)]


def test_the_predicate_turns_batched_after_two_trips(same, nodes):
    def function(x):
        return traced_while(
            [x, ops.full(0.0, F), ops.full(0.0, F)],
            lambda _x, _y, z: ops.lt(z, 5.0),
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

        return traced_while([n, ops.full(0, INT)], lambda i, _s: ops.ge(i, 0), body, max_steps=20)

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

        return traced_while([x, ops.full(0, INT)], lambda _v, i: ops.lt(i, 12), body, max_steps=50)

    graph = same(function, np.array([8.0, 0.5, 1e3, 0.1]))
    assert [n.attrs["lanes"] for n in nodes(graph, "while")] == [1, 1]


@pytest.mark.parametrize("flags", [(True, True, True), (True, False, True), (False, True, True), (False, False, True)])
def test_for_in_switch(same, nodes, flags):
    def function(i, n, x):
        return traced_switch(
            i, [lambda n, v: power(n, v), lambda _n, v: [ops.neg(v)], lambda n, v: power(n, v, True)], [n, x]
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

        return traced_while([x, ops.full(0, INT)], lambda v, _i: ops.gt(v, 0.0), body, max_steps=99)

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
        return traced_while([i, y], lambda i, _y: ops.lt(i, n), lambda i, y: [ops.add(i, 1), ops.mul(y, 2.0)])

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
            lambda _k, v, s: [ops.add(v, 1.0), ops.add(s, ops.reduce_sum(power(counts, x)[0], (0,)))],
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

        return traced_while([n, ops.zeros_like(n)], lambda i, _s: ops.ge(i, 0), body, max_steps=20)

    same(function, np.array([[2, 0, 1], [-1, -5, -2], [7, 1, 1], [3, 3, 3]]))


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
