"""Carries that count aren't saved: the reverse loop computes them from the trip's number."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg

N = 5


def uneven(x):
    """Lanes with trips of their own; the derivative reads a counter that starts anywhere and grows by 3 - 1."""

    def step(state):
        v, k, left = state
        return v * (1.0 + 0.01 * lg.cos(k)), 3 + k - 1, left - 1

    start = (x, lg.arange(N) * 7, lg.asarray([3, 0, 1, 6, 2]))
    return lg.while_loop(lambda s: s[2] > 0, step, start)[0]


def uneven_by_hand(x):
    result = x.copy()
    for lane, trips in enumerate([3, 0, 1, 6, 2]):
        for t in range(trips):
            result[lane] *= 1.0 + 0.01 * np.cos(7 * lane + 2 * t)
    return result


def narrow(x):
    """An int8 that wraps, in a uniform loop."""
    step = lambda _, c: (c[0] + x * c[1].astype(x.dtype), c[1] + 100)
    return lg.fori_loop(0, 6, step, (lg.zeros_like(x), lg.asarray(np.int8(-120))))[0]


def narrow_by_hand(x):
    return x * float(sum((-120 + 100 * t + 128) % 256 - 128 for t in range(6)))


def nested(x):
    """A counter that an outer loop carries and an inner one advances: each inner trip is its start and the trip."""

    def inner(_, c):
        v, k = c
        return v * (1.0 + 0.1 * lg.sin(k)), k + 1

    return lg.fori_loop(0, 3, lambda _, c: lg.fori_loop(0, 4, inner, c), (x, lg.asarray(5)))[0]


def nested_by_hand(x):
    return x * np.prod(1.0 + 0.1 * np.sin(5 + np.arange(12)))


@pytest.mark.parametrize(
    ("program", "by_hand", "saved"),
    [(uneven, uneven_by_hand, 0), (narrow, narrow_by_hand, 0), (nested, nested_by_hand, 1)],
)
def test_results_and_gradients(device, program, by_hand, saved):
    """All are linear in x, element by element: the gradient is the value at 1. `nested` saves where its inner loops
    began, nothing for their trips."""
    x = np.linspace(0.5, 1.5, N)
    run = lg.compile(lg.value_and_grad(lambda x: lg.sum(program(x))))
    value, slope = run(lg.asarray(x))
    np.testing.assert_allclose(float(value), by_hand(x).sum(), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(slope), by_hand(np.ones(N)), rtol=1e-12)
    if device != "interpreter":
        assert len(run.plan(lg.asarray(x)).residuals) <= saved


def test_second_derivatives():
    x = np.linspace(0.5, 1.5, N)

    def program(x):
        step = lambda s: (s[0] * lg.sin(s[0] + s[1]), s[1] + 1)
        return lg.sum(lg.while_loop(lambda s: s[1] < 4, step, (x, lg.zeros(N, dtype=lg.int64)))[0])

    exact = np.asarray(lg.hvp(program, lg.asarray(x), lg.ones(N)))
    step = 1e-6
    near = [np.asarray(lg.grad(program)(lg.asarray(x + d))) for d in (step, -step)]
    np.testing.assert_allclose(exact, (near[0] - near[1]) / (2 * step), rtol=1e-6)


def test_random_draws_are_not_saved(device):
    """What a loop draws is computed again: the derivative by a factor of it saves nothing, in any kind of loop."""

    def uniform_loop(scale, rng):
        step = lambda _, s: (s[0] + scale * s[1].normal()[0], s[1].normal()[1])
        return lg.fori_loop(0, 9, step, (lg.zeros(()), rng.stream()))[0]

    def lanes(scale, rng):
        def step(s):
            total, u, stream = s
            e, stream = stream.exponential()
            n, stream = stream.normal(size=2)
            return total + scale * e * n[:, 0] + n[:, 1], u + 1, stream

        start = (lg.zeros(N), lg.zeros(N, dtype=lg.int64), rng.stream(N))
        return lg.sum(lg.while_loop(lambda s: s[1] < lg.arange(N), step, start)[0])

    for program in (uniform_loop, lanes):
        run = lg.compile(lg.value_and_grad(program))
        value, slope = run(2.0, lg.random.Generator(3))
        one, three = [float(program(scale, lg.random.Generator(3))) for scale in (1.0, 3.0)]
        np.testing.assert_allclose(float(slope), (three - one) / 2.0, rtol=1e-12)
        np.testing.assert_allclose(float(value), (one + three) / 2.0, rtol=1e-12)
        assert run.plan(2.0, lg.random.Generator(3)).residuals == ()
