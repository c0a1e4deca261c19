"""Compile, capture and replay, forward and backward (Q7 and peer cases 5)."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from oracles import check

import loopgrad as lg


def loss(x, n):
    return lg.sum(lg.fori_loop(0, n, lambda _, v: lg.sin(v) + 0.1, x))


def reference(x, n):
    slope = np.ones_like(x)
    for _ in range(n):
        slope, x = slope * np.cos(x), np.sin(x) + 0.1
    return x.sum(), slope


X = np.array([0.1, 0.4, 0.9])


def test_q7_replay_with_gradients_across_trip_counts(device):
    step = lg.compile(lg.value_and_grad(loss))
    replay = step.capture(lg.asarray(X), lg.asarray(3))
    for x, n in ((X, 3), (X + 0.1, 3), (X, 40), (X, 0), (X - 0.5, 7), (X, 500)):
        value, slope = replay.replay(lg.asarray(x), lg.asarray(n))
        check(value, reference(x, n)[0], 1e-12)
        check(slope, reference(x, n)[1], 1e-11)


def test_q7_replay_of_a_value_dependent_loop(device):
    def grown(x, limit):
        return lg.sum(lg.while_loop(lambda v: v < limit, lambda v: v * 1.5, x))

    step = lg.compile(lg.grad(grown))
    x = lg.asarray([1.0, 5.0, 100.0])
    replay = step.capture(x, lg.asarray(2.0))
    for limit in (2.0, 50.0, 1e6, 0.5, 1e30):
        trips = [max(int(np.ceil(np.log(limit / v) / np.log(1.5))), 0) for v in (1.0, 5.0, 100.0)]
        check(replay.replay(x, lg.asarray(limit)), 1.5 ** np.array(trips), 1e-11)


@pytest.mark.parametrize(
    "other", [lambda: lg.zeros((4,)), lambda: lg.zeros((3,), dtype=lg.float32), lambda: lg.zeros((3, 1))]
)
def test_replay_refuses_other_shapes_and_dtypes(device, other):
    replay = lg.compile(lg.grad(loss)).capture(lg.asarray(X), lg.asarray(3))
    with pytest.raises((TypeError, ValueError), match="expected"):
        replay.replay(other(), lg.asarray(3))
    check(replay.replay(lg.asarray(X), lg.asarray(2)), reference(X, 2)[1], 1e-13)


def test_p100_what_recompiles_and_what_does_not(device):
    calls = []

    def traced(x):
        calls.append(x.shape)
        return lg.sum(x * x)

    compiled = lg.compile(traced)
    for x in ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]):
        check(compiled(lg.asarray(x)), np.square(x).sum())
    assert len(calls) == 1
    check(compiled(lg.asarray([1.0, 2.0, 3.0])), 14.0)
    check(compiled(lg.asarray(2.0)), 4.0)
    assert len(calls) == 3
    check(compiled(lg.asarray([1.0, 2.0], dtype=lg.float32)), 5.0)
    assert len(calls) == 4


def test_p100_changed_python_arguments(device):
    compiled = lg.compile(lambda x, power: lg.sum(x**power))
    x = lg.asarray([1.0, 2.0])
    for power in (1, 2, 3, 2):
        check(compiled(x, power), 1 + 2.0**power)


def test_p100_same_array_twice(device):
    compiled = lg.compile(lambda x, y: x * 2.0 + y)
    x, y = lg.asarray(1.0), lg.asarray(10.0)
    check(compiled(x, x), 3.0)
    check(compiled(x, y), 12.0)
    check(compiled(y, x), 21.0)


def test_p101_structured_outputs(device):
    compiled = lg.compile(lambda x: {"a": (x, [x + 1.0]), "b": x * 2.0, "none": None})
    for value in (1.0, 5.0):
        out = compiled(lg.asarray(value))
        check(out["a"][0], value)
        check(out["a"][1][0], value + 1)
        check(out["b"], 2 * value)
        assert out["none"] is None


def test_p101_keyword_arguments_and_defaults(device):
    def scaled(x, factor=2.0):
        return x * factor

    compiled = lg.compile(scaled)
    check(compiled(lg.asarray(3.0)), 6.0)
    check(compiled(lg.asarray(3.0), factor=lg.asarray(5.0)), 15.0)
    check(compiled(lg.asarray(3.0)), 6.0)


def test_p103_scatter_leaves_other_references_alone(device):
    compiled = lg.compile(lambda x: x.at[1].set(9.0))
    x = lg.asarray([1.0, 2.0])
    check(compiled(x), [1.0, 9.0])
    check(x, [1.0, 2.0])


def test_p104_optimiser_loop(device):
    """Adam on a captured step: the state goes out and comes in again."""
    target = lg.asarray([1.0, -2.0, 3.0])

    def step(x, m, v, t):
        slope = lg.grad(lambda x: lg.sum((x - target) ** 2))(x)
        m, v = 0.9 * m + 0.1 * slope, 0.99 * v + 0.01 * slope * slope
        scaled = (m / (1.0 - 0.9**t)) / (lg.sqrt(v / (1.0 - 0.99**t)) + 1e-8)
        return x - 0.05 * scaled, m, v, t + 1.0

    compiled = lg.compile(step)
    state = (lg.zeros((3,)), lg.zeros((3,)), lg.zeros((3,)), lg.asarray(1.0))
    replay = compiled.capture(*state)
    for _ in range(400):
        state = replay.replay(*state)
    check(state[0], [1.0, -2.0, 3.0], 1e-3)


def test_p104_gradients_across_the_border_of_a_compiled_function(device):
    compiled = lg.compile(lambda x: lg.fori_loop(0, 3, lambda _, v: v * v, x))
    x = lg.asarray([0.9, 1.1])
    check(lg.grad(lambda x: lg.sum(compiled(x * 2.0)))(x), 2 * 8 * (2 * np.array([0.9, 1.1])) ** 7, 1e-12)


def test_p105_reading_a_value_while_tracing(device):
    c = lg.compile(lambda x: x * float(lg.sum(x)))
    with pytest.raises((TypeError, ValueError)):
        c(lg.asarray([1.0, 2.0]))
    check(lg.compile(lambda x: x * lg.sum(x))(lg.asarray([1.0, 2.0])), [3.0, 6.0])


@pytest.mark.usefixtures("young_heap")
def test_p107_recycled_buffers(device):
    replay = lg.compile(lambda x: x + 1.0).capture(lg.zeros((1000,)))
    first = replay.replay(lg.zeros((1000,)))
    kept = np.asarray(first).copy()
    for value in range(20):
        del first
        gc.collect()
        first = replay.replay(lg.full((1000,), float(value)))
        check(first, np.full(1000, value + 1.0))
    check(kept, np.ones(1000))


def test_p108_nested_compiled_functions(device):
    inner = lg.compile(lambda x: lg.sin(x))
    outer = lg.compile(lambda x: inner(x) * inner(2.0 * x))
    check(outer(lg.asarray(0.3)), np.sin(0.3) * np.sin(0.6), 1e-15)
    check(lg.grad(outer)(lg.asarray(0.3)), np.cos(0.3) * np.sin(0.6) + 2 * np.sin(0.3) * np.cos(0.6), 1e-14)


def test_p108_no_arguments(device):
    check(lg.compile(lambda: lg.arange(4) * 2)(), [0, 2, 4, 6])
