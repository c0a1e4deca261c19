"""Replay of loops and branches over whole arrays (their bodies mix lanes), whose trips change between replays."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check

import loopgrad as lg
from loopgrad.graph.errors import LoopLimitError

N = 300  # more than one lane of a kernel carries
X = np.linspace(-0.6, 0.9, N)
GROWN = ("vulkan", "cuda", "hip", "simulator")


def mixed(v):
    """A step that no lane can make alone."""
    return lg.sin(v) + 0.3 * lg.mean(v)


def mixed_reference(v, slope):
    """The step, and the Jacobian's product with a matrix."""
    return np.sin(v) + 0.3 * v.mean(), np.cos(v)[:, None] * slope + 0.3 * slope.mean(0)


def reference(x, trips, step=mixed_reference):
    slope = np.eye(len(x))
    for _ in range(trips):
        x, slope = step(x, slope)
    return x, slope


def replayed(device, fun, *first):
    return lg.compile(fun).capture(*map(lg.asarray, first))


def test_counted(device):
    replay = replayed(
        device, lg.value_and_grad(lambda x, n: lg.sum(lg.fori_loop(0, n, lambda _, v: mixed(v), x))), X, 3
    )
    for x, trips in ((X, 3), (X + 0.1, 4), (X, 0), (X, 1), (X - 0.2, 41), (X, 6)):
        value, slope = replay.replay(lg.asarray(x), lg.asarray(trips))
        wanted, slopes = reference(x, trips)
        check(value, wanted.sum(), 1e-12)
        check(slope, slopes.sum(0), 1e-11)


def test_results_of_earlier_replays_stay(device):
    """Carries change places an even or odd number of times: a result is never another's memory."""
    replay = replayed(device, lambda x, n: lg.fori_loop(0, n, lambda _, v: mixed(v), x), X, 2)
    counts = (2, 3, 3, 0, 1, 0, 4, 5)
    kept = [replay.replay(lg.asarray(X + trips), lg.asarray(trips)) for trips in counts]
    for trips, result in zip(counts, kept, strict=True):
        check(result, reference(X + trips, trips)[0], 1e-13)


def test_inputs_stay(device):
    x = lg.asarray(X)
    replay = lg.compile(lambda x, n: lg.fori_loop(0, n, lambda _, v: mixed(v), x)).capture(x, lg.asarray(3))
    for trips in (3, 2, 1):
        check(replay.replay(x, lg.asarray(trips)), reference(X, trips)[0], 1e-13)
        check(x, X)


def test_index_of_a_counted_loop_forward_and_reverse(device):
    def fun(x, n):
        return lg.sum(lg.fori_loop(0, n, lambda k, v: v * lg.cos(lg.mean(v)) + k * 0.1, x))

    replay = replayed(device, lg.value_and_grad(fun), X, 2)

    for trips in (2, 5, 1, 0, 9):
        wanted, slopes = np.array(X), np.eye(N)
        for k in range(trips):
            turn, means = wanted.mean(), slopes.mean(0)
            slopes = np.cos(turn) * slopes - np.sin(turn) * wanted[:, None] * means
            wanted = wanted * np.cos(turn) + 0.1 * k
        value, slope = replay.replay(lg.asarray(X), lg.asarray(trips))
        check(value, wanted.sum(), 1e-11)
        check(slope, slopes.sum(0), 1e-10)


def test_depends_on_the_values(device):
    def fun(x, limit):
        return lg.sum(lg.while_loop(lambda v: lg.max(v) < limit, lambda v: 1.3 * v + 0.1 * lg.mean(v), x))

    replay = replayed(device, lg.value_and_grad(fun), X + 1, 3.0)
    for x, limit in ((X + 1, 3.0), (X + 1, 30.0), (X + 1, 0.5), (X + 0.8, 1e5), (X + 1, 3.0)):
        wanted, slopes = np.array(x), np.eye(len(x))
        while wanted.max() < limit:
            wanted, slopes = 1.3 * wanted + 0.1 * wanted.mean(), 1.3 * slopes + 0.1 * slopes.mean(0)
        value, slope = replay.replay(lg.asarray(x), lg.asarray(limit))
        check(value, wanted.sum(), 1e-12)
        check(slope, slopes.sum(0), 1e-12)


def test_nested(device):
    def fun(x, n, m):
        def outer(k, v):
            return lg.fori_loop(0, m + k, lambda _, u: mixed(u), v) * 0.9

        return lg.sum(lg.fori_loop(0, n, outer, x))

    replay = replayed(device, lg.value_and_grad(fun), X, 2, 1)
    for n, m in ((2, 1), (3, 0), (0, 5), (1, 7), (4, 3), (2, 1), (3, -1)):
        x, slopes = np.array(X), np.eye(len(X))
        for k in range(n):
            for _ in range(m + k):
                x, slopes = mixed_reference(x, slopes)
            x, slopes = 0.9 * x, 0.9 * slopes
        value, slope = replay.replay(lg.asarray(X), lg.asarray(n), lg.asarray(m))
        check(value, x.sum(), 1e-12)
        check(slope, slopes.sum(0), 1e-11)


def test_branches_in_a_loop(device):
    """The branch is chosen anew in each pass."""

    def fun(x, n):
        def body(k, v):
            return lg.switch(k % 3, [mixed, lambda v: v * lg.max(v), lambda v: v - 0.2 * lg.sum(v) / N], v)

        return lg.sum(lg.fori_loop(0, n, body, x))

    def largest(v, slope):
        return v * v.max(), v.max() * slope + v[:, None] * slope[v.argmax()]

    def centred(v, slope):
        return v - 0.2 * v.mean(), slope - 0.2 * slope.mean(0)

    replay = replayed(device, lg.value_and_grad(fun), X, 1)
    for trips in (1, 2, 3, 0, 8, 13):
        x, slopes = np.array(X), np.eye(len(X))
        for k in range(trips):
            x, slopes = (mixed_reference, largest, centred)[k % 3](x, slopes)
        value, slope = replay.replay(lg.asarray(X), lg.asarray(trips))
        check(value, x.sum(), 1e-12)
        check(slope, slopes.sum(0), 1e-11)


def test_a_loop_in_a_branch(device):
    def fun(flag, x, n):
        return lg.sum(lg.cond(flag, lambda v: lg.fori_loop(0, n, lambda _, u: mixed(u), v), lambda v: 2.0 * v, x))

    replay = replayed(device, lg.value_and_grad(fun, argnums=1), True, X, 2)
    for flag, trips in ((True, 2), (False, 9), (True, 5), (True, 0), (False, 1)):
        wanted, slopes = reference(X, trips) if flag else (2 * X, 2 * np.eye(len(X)))
        value, slope = replay.replay(lg.asarray(flag), lg.asarray(X), lg.asarray(trips))
        check(value, wanted.sum(), 1e-12)
        check(slope, slopes.sum(0), 1e-11)


def test_loops_of_lanes_in_a_loop_over_arrays(device):
    """Stacks of kernels and stacks of arrays grow both, and nothing is captured again."""

    def fun(x, n, counts):
        def body(_, v):
            return lg.fori_loop(0, counts, lambda _, u: lg.sin(u) + 0.1, v) + 0.1 * lg.mean(v)

        return lg.sum(lg.fori_loop(0, n, body, x))

    def step(counts):
        def made(v, slope):
            mean, means = 0.1 * v.mean(), 0.1 * slope.mean(0)
            v, slope = np.array(v), np.array(slope)
            for lane, count in enumerate(counts):
                for _ in range(count):
                    slope[lane] *= np.cos(v[lane])
                    v[lane] = np.sin(v[lane]) + 0.1
            return v + mean, slope + means

        return made

    counts = np.arange(N) * 7 % 6
    replay = replayed(device, lg.value_and_grad(fun), X, 2, counts)
    for trips, more in ((2, 0), (5, 0), (5, 9), (1, 40), (12, 3), (2, 0)):
        value, slope = replay.replay(lg.asarray(X), lg.asarray(trips), lg.asarray(counts + more))
        wanted, slopes = reference(X, trips, step(counts + more))
        check(value, wanted.sum(), 1e-12)
        check(slope, slopes.sum(0), 1e-10)
    stats = replay.stats()
    assert (stats.captures, stats.replays) == (1, 6)
    if device.startswith(GROWN):
        assert 2 <= stats.growths <= 6


def test_limits_raise_and_the_next_replay_is_right(device):
    def fun(x, limit):
        return lg.sum(lg.while_loop(lambda v: lg.max(v) < limit, lambda v: v + lg.mean(v), x, max_steps=4))

    replay = replayed(device, lg.value_and_grad(fun), np.ones(N), 3.0)
    for limit, trips in ((3.0, 2), (16.0, 4), (17.0, None), (2.0, 1), (1e9, None), (1.0, 0)):
        arguments = lg.asarray(np.ones(N)), lg.asarray(limit)
        if trips is None:
            with pytest.raises(LoopLimitError, match="test_replay_loops"):
                np.asarray(replay.replay(*arguments)[0])
            continue
        value, slope = replay.replay(*arguments)
        check(value, N * 2.0**trips)
        check(slope, np.full(N, 2.0**trips))


def test_a_failed_check_ends_the_loop(device):
    """The index leaves the array while the loop's condition stays true: nothing else would end it."""

    def fun(x, start):
        def body(state):
            i, v = state
            return i + 1, mixed(v) + x[i]

        return lg.while_loop(lambda s: (s[0] < 3) | (s[0] > 6), body, (start, x))[1]

    def wanted(start):
        v = X
        for i in range(start, 3):
            v = mixed_reference(v, np.eye(N))[0] + X[i]
        return v

    with lg.options(check_indices=True):
        replay = replayed(device, fun, X, 1)
        check(replay.replay(lg.asarray(X), lg.asarray(0)), wanted(0), 1e-14)
        with pytest.raises(IndexError):
            np.asarray(replay.replay(lg.asarray(X), lg.asarray(7)))
        check(replay.replay(lg.asarray(X), lg.asarray(2)), wanted(2), 1e-14)


def test_checkpointed(device):
    """Stacks of arrays are pushed and popped by turns."""

    def fun(x, n):
        return lg.sum(lg.fori_loop(0, n, lambda _, v: mixed(v), x, memory_budget=4 * N * 8))

    replay = replayed(device, lg.value_and_grad(fun), X, 3)
    for trips in (3, 11, 0, 25, 4):
        value, slope = replay.replay(lg.asarray(X), lg.asarray(trips))
        wanted, slopes = reference(X, trips)
        check(value, wanted.sum(), 1e-12)
        check(slope, slopes.sum(0), 1e-11)


@pytest.mark.costly
def test_second_derivatives(device):
    def fun(x, n):
        return lg.sum(lg.fori_loop(0, n, lambda _, v: lg.sin(v) * lg.mean(v), x))

    def twice(x, n):
        return lg.sum(lg.grad(fun)(x, n) ** 2)

    replay = replayed(device, lg.grad(twice), X, 2)
    fresh = lg.compile(lg.grad(twice))
    for trips in (2, 4, 1, 0, 3):
        wanted = np.asarray(fresh(lg.asarray(X), lg.asarray(trips)))
        check(replay.replay(lg.asarray(X), lg.asarray(trips)), wanted, 1e-12)


@pytest.mark.in_turns
def test_a_matrix_product_in_a_loop(device):
    rng = np.random.default_rng(1)
    a = rng.standard_normal((N, N)) / N**0.5

    def fun(a, x, n):
        return lg.sum(lg.fori_loop(0, n, lambda _, v: lg.tanh(a @ v), x))

    replay = replayed(device, lg.value_and_grad(fun, argnums=1), a, X, 2)
    for trips in (2, 6, 0, 3):
        x, slopes = X, np.eye(N)
        for _ in range(trips):
            x = np.tanh(a @ x)
            slopes = (1 - x**2)[:, None] * (a @ slopes)
        value, slope = replay.replay(lg.asarray(a), lg.asarray(X), lg.asarray(trips))
        check(value, x.sum(), 1e-12)
        check(slope, slopes.sum(0), 1e-11)
