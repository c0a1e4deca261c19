"""A memory budget changes what is computed again, never the result; the schedule is Revolve's."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from loopgrad.autodiff.loops.recompute import recomputed
from loopgrad.autodiff.loops.revolve import split
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.primitives import BARE
from loopgrad.graph.region_ops import traced_for, traced_while
from loopgrad.graph.types import TensorType, int64

X = np.array([0.1, 0.3, 0.51, 0.8])
STATE = X.nbytes


def recurrence(budget, reverse=False):
    def function(x, c, n):
        def body(k, v, w, j):
            index = ops.broadcast_to(ops.cast(k, v.dtype), v.shape)
            moved = ops.add(ops.mul(ops.sin(v), ops.broadcast_to(c, v.shape)), ops.mul(index, 0.01))
            return [moved, ops.add(w, moved), ops.add(j, 1)]

        inits = [x, ops.zeros_like(x), ops.full(0, TensorType(x.shape, int64))]
        return traced_for(n, inits, body, memory_budget=budget, reverse=reverse)

    return function


def search(budget):
    def function(x):
        def step(v):
            return [ops.add(v, ops.mul(ops.sin(v), 0.1))]

        return traced_while([x], lambda v: ops.lt(v, 2.0), step, memory_budget=budget)

    return function


COUNTS = [np.array(0), np.array(1), np.array(2), np.array(13), np.array([0, 3, 5, 9])]


@pytest.mark.parametrize("states", [0, 1, 2, 3, 20])
@pytest.mark.parametrize("count", COUNTS, ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_same_bits_as_without_a_budget(derivatives, states, count, reverse):
    given = [X, np.array(0.9), count]
    plain = derivatives.gradients(recurrence(None, reverse), given)
    kept = derivatives.gradients(recurrence(states * STATE + 1, reverse), given)
    for a, b in zip(plain, kept, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("states", [1, 2, 5])
def test_while(derivatives, states):
    (plain,) = derivatives.gradients(search(None), [X])
    (kept,) = derivatives.gradients(search(states * STATE), [X])
    np.testing.assert_array_equal(plain, kept)
    (uniform,) = derivatives.gradients(search(states * 8), [np.array(0.3)])
    np.testing.assert_array_equal(uniform, plain[1])


@pytest.mark.parametrize("count", [np.array(5), np.array([0, 3, 5, 4])], ids=str)
def test_derivatives_of_the_checkpointed_gradient(derivatives, count):
    derivatives.check(recurrence(2 * STATE), [X, np.array(0.9), count], order=2)


def test_inner_loops(derivatives):
    def function(x, n):
        def body(k, v):
            return traced_for(n, [v], lambda j, w: [ops.sin(ops.mul(w, v))])

        return traced_for(n, [x], body, memory_budget=2 * STATE)

    derivatives.check(function, [X, np.array([0, 1, 3, 2])])
    derivatives.check(function, [X, np.array(3)])


def test_tables_accumulate(derivatives):
    def function(t, x, n):
        def body(k, v):
            return [ops.sin(ops.mul(v, ops.gather(t, ops.mod(k, 3))))]

        return traced_for(n, [x], body, memory_budget=2 * STATE)

    derivatives.check(function, [np.array([0.9, 1.2, 0.4]), X, np.array([0, 1, 5, 4])])


def test_a_linear_body_needs_no_states(derivatives):
    def function(x, n):
        return traced_for(n, [x], lambda k, v: [ops.mul(v, 0.9)], memory_budget=8)

    nodes = derivatives.region_nodes(function, [X, np.array(5)])
    assert [n.op for n in nodes] == ["for", "for"]


def test_a_loop_known_to_fit_saves_as_usual(derivatives):
    def function(x):
        n = ops.full(5, TensorType((), int64))
        return traced_for(n, [x], lambda k, v: [ops.sin(v)], memory_budget=5 * STATE)

    assert derivatives.pushed(function, [X]) == [("cos", "float64[4]")]


# ---- the schedule


def evaluations(derivatives, monkeypatch, trips, states):
    """How often the body is computed for value and gradient together, beyond once per trip for its pullback."""
    calls = 0
    original = BARE["tanh"]

    def counting(attrs, x):
        nonlocal calls
        calls += 1
        return original(attrs, x)

    monkeypatch.setitem(BARE, "tanh", counting)

    def function(x, n):
        return traced_for(n, [x], lambda k, v: [ops.tanh(v)], memory_budget=states * STATE)

    arrays = [X, np.array(trips)]
    interpret(derivatives.gradient_graph(function, arrays), arrays)
    return calls - trips


def fewest(trips, states):
    """r * l - beta(s + 1, r - 1) with the least r such that beta(s, r) >= l (Griewank and Walther, 2000)."""
    if trips == 0:
        return 0
    r = next(r for r in range(trips + 1) if comb(states + r, states) >= trips)
    return r * trips - comb(states + r, r - 1) if r else 0


def stored_first(trips, states):
    """How far the last state lies that is stored before the first pullback."""
    position = 0
    while states > 1 and trips - position > 1:
        left = trips - position
        r = next(r for r in range(left + 1) if comb(states + r, states) >= left)
        position += max(min(comb(states + r - 1, states), left - comb(states + r - 2, states - 1)), 1)
        states -= 1
    return position


@pytest.mark.parametrize("states", [1, 2, 3, 5])
@pytest.mark.parametrize("trips", [1, 2, 3, 7, 10, 21, 40])
def test_no_schedule_computes_less(derivatives, monkeypatch, trips, states):
    """The value costs the trips beyond the last state stored on the way."""
    value = trips - stored_first(trips, states)
    assert evaluations(derivatives, monkeypatch, trips, states) == fewest(trips, states) + value


@pytest.mark.in_turns
@pytest.mark.parametrize(("trips", "states"), [(10, 3), (1000, 20), (10**12, 3), (2, 2), (7, 10**6)])
def test_split_leaves_both_parts_reversible(trips, states):
    scalar = TensorType((), int64)
    graph, _ = trace(lambda a, b: [split(a, b)], [scalar, scalar])
    (first,) = interpret(graph, [np.array(trips), np.array(states)])
    assert 1 <= first < trips
    r = 0
    while comb(states + r, r) < trips:
        r += 1
    assert first <= comb(states + r - 1, states)
    assert trips - first <= comb(states - 1 + r, r)


# ---- functions


def test_checkpointed_function_saves_nothing(derivatives):
    def inner(x):
        return traced_for(ops.full(5, TensorType((), int64)), [ops.exp(x)], lambda k, w: [ops.sin(w)])

    def function(x):
        graph, _ = trace(inner, [x.type])
        return recomputed(graph, [ops.mul(x, 2)])

    derivatives.check(function, [X], order=2)
    forward, reverse = derivatives.region_nodes(function, [X])
    assert len(forward.results) == 1
    assert [n.op for n in reverse.regions[0].nodes].count("exp") == 1
