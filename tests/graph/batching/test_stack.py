"""Stacks are batched from their making to their end where anything batched is pushed."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.types import TensorType, float64, int64

F, INT = TensorType((), float64), TensorType((), int64)
X = np.random.default_rng(0).normal(size=(4, 3))
N = np.array([2, 0, -3, 5])


def recorded(n, x, depth=None):
    """Push what a loop computes, then pop it in reverse order."""
    stack = ops.stack_new(x.type, depth)
    stack, y = traced_for(n, [stack, x], lambda _k, s, v: [ops.push(s, v), ops.sin(v)])

    def backward(k, s, w):
        s, v = ops.pop(s)
        return [s, ops.add(ops.mul(w, 0.5), ops.cos(v))]

    return [traced_for(n, [stack, y], backward, reverse=True)[1]]


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True)])
def test_recorded_loops(same, nodes, flags):
    n, x = N if flags[0] else N[3], X if flags[1] else X[0]
    graph = same(recorded, n, x, flags=flags)
    (stack,) = nodes(graph, "stack_new")
    assert stack.attrs["element"].shape == (4, 3)


def test_a_stack_common_to_the_batch_is_not_repeated(same, nodes):
    def function(w, x):
        return [ops.add(x, *recorded(ops.full(3, INT), w))]

    (stack,) = nodes(same(function, X[0], X, flags=(False, True)), "stack_new")
    assert stack.attrs["element"].shape == (3,)


def test_a_later_push_makes_the_whole_stack_batched(same, nodes):
    def function(w, x):
        stack = ops.push(ops.push(ops.stack_new(F), w), x)
        stack, top = ops.pop(ops.push(stack, w))
        stack, middle = ops.pop(stack)
        return [top, middle, ops.pop(stack)[1]]

    (stack,) = nodes(same(function, np.array(2.0), np.arange(4.0), flags=(False, True)), "stack_new")
    assert stack.attrs["element"].shape == (4,)


def test_depth_is_the_largest_of_the_batch(same, nodes):
    graph = same(lambda n, x: recorded(n, x, ops.max(n, 0)), N, X)
    (stack,) = nodes(graph, "stack_new")
    assert stack.operands[0].node.op == "reduce_max"
    assert stack.operands[0].shape == ()


def test_depth_common_to_the_batch(same, nodes):
    graph = same(lambda n, x: recorded(n, x, n), np.array(3), X, flags=(False, True))
    assert not nodes(graph, "reduce_max")


def test_depth_in_a_region_is_measured(same, nodes):
    def function(m, n, x):
        return traced_for(m, [x], lambda _k, v: recorded(n, v, n))

    (stack,) = nodes(same(function, np.array(2), N, X, flags=(False, True, True)), "stack_new")
    assert not stack.operands


def test_counts_saved_by_a_while(same):
    """What reverse mode does: the while counts its trips, which the reverse loop then runs."""

    def function(x):
        stack, y, count = traced_while(
            [ops.stack_new(F), x, ops.full(0, INT)],
            lambda _s, v, _i: ops.gt(v, 1.0),
            lambda s, v, i: [ops.push(s, v), ops.sub(ops.mul(v, 0.5), 0.1), ops.add(i, 1)],
        )

        def backward(k, s, w):
            s, v = ops.pop(s)
            return [s, ops.add(ops.mul(w, 0.5), v)]

        return [traced_for(count, [stack, y], backward, reverse=True)[1], y]

    same(function, np.array([8.0, 0.5, 1e3, 0.1]))


@pytest.mark.parametrize("flags", [(True, True, True), (True, False, True), (False, True, True), (True, True, False)])
def test_stacks_of_inner_loops(same, flags):
    """The inner loop's stack goes through the outer loop, its counts are pushed by the outer loop."""

    def function(n, m, x):
        def forward(k, inner, counts, v):
            count = ops.sub(m, k)
            inner, v = traced_for(count, [inner, v], lambda _j, s, v: [ops.push(s, v), ops.sin(v)])
            return [inner, ops.push(counts, count), v]

        inner, counts, y = traced_for(n, [ops.stack_new(x.type), ops.stack_new(INT), x], forward)

        def pop_one(j, s, w):
            s, v = ops.pop(s)
            return [s, ops.add(ops.mul(w, 0.5), v)]

        def backward(k, inner, counts, w):
            counts, count = ops.pop(counts)
            inner, w = traced_for(count, [inner, w], pop_one, reverse=True)
            return [inner, counts, ops.neg(w)]

        return [traced_for(n, [inner, counts, y], backward, reverse=True)[2]]

    arrays = (np.array([2, 0, -3, 4]), np.array([3, 4, 1, 5]), X)
    same(function, *[v if f else v[0] for v, f in zip(arrays, flags, strict=True)], flags=flags)


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True)])
def test_stacks_through_branches(same, flags):
    """One branch pushes; the reverse pops in the same branch."""

    def function(n, x):
        def forward(k, s, v):
            branches = [lambda s, v: [ops.push(s, v), ops.sin(v)], lambda s, v: [s, ops.neg(v)]]
            return traced_switch(ops.eq(ops.mod(k, 3), ops.full(1, INT)), branches, [s, v])

        def popped(s, w):
            s, v = ops.pop(s)
            return [s, ops.add(ops.mul(w, 0.5), v)]

        def backward(k, s, w):
            return traced_switch(
                ops.eq(ops.mod(k, 3), ops.full(1, INT)), [popped, lambda s, w: [s, ops.neg(w)]], [s, w]
            )

        stack, y = traced_for(n, [ops.stack_new(x.type), x], forward)
        return [traced_for(n, [stack, y], backward, reverse=True)[1]]

    same(function, N if flags[0] else N[3], X if flags[1] else X[0], flags=flags)
