"""Loops whose bodies mix elements (shifts, reductions, products), at sizes that don't fit registers.

Random nests of them, siblings included: value and gradient on the device against the reference
interpreter. Trip counts are odd and even, since carried tensors change places after each trip.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import loopgrad as lg

SIZE = 300


def body_step(choose, v, w):
    """One random statement over two vectors of SIZE; bounded and smooth, so that rounding stays small."""
    kind = choose.randrange(7)
    if kind == 0:
        return lg.sin(lg.roll(v, choose.choice([1, -3])) + v), w
    if kind == 1:
        return v * 0.5 + w * 0.25, v
    if kind == 2:
        return lg.sin(v + lg.mean(w * w)), lg.cos(w)
    if kind == 3:
        return lg.tanh(v), lg.flip(w) * lg.tanh(lg.max(v * lg.arange(SIZE)) / SIZE)
    if kind == 4:
        return lg.cumsum(v) / SIZE + 0.3, w
    if kind == 5:
        square = lg.reshape(v, (15, 20))
        return lg.reshape(lg.tanh(square @ lg.reshape(w, (20, 15))) @ square / 15, (SIZE,)), w
    return lg.where(lg.arange(SIZE) % 3 == 1, v * w, lg.sin(w)), v


def random_program(seed):
    choose = random.Random(seed)

    def statements(v, w, depth):
        for _ in range(choose.randint(1, 3)):
            if depth and choose.random() < 0.6:
                v, w = loop(v, w, depth)
            else:
                v, w = body_step(choose, v, w)
        return v, w

    def loop(v, w, depth):
        trips, reverse_order = choose.randint(0, 5), choose.random() < 0.3
        state = choose.getstate()

        def body(c):
            choose.setstate(state)
            return statements(*c, depth - 1)

        if choose.random() < 0.6:
            bound = lg.asarray(trips) if choose.random() < 0.7 else trips
            result = lg.fori_loop(0, bound, lambda i, c: body(c), (v, w))
        else:
            result = lg.while_loop(lambda c: c[0] < trips, lambda c: (c[0] + 1, *body(c[1:])), (0, v, w))[1:]
        return result[::-1] if reverse_order else result

    def loss(x, y):
        choose.seed(seed)
        v, w = statements(x, y, 2)
        v, w = loop(v, w, 1)
        return lg.sum(v * v) + lg.sum(lg.sin(w))

    return loss


def value_and_gradients(seed, device, **options):
    generator = np.random.default_rng(seed)
    x, y = generator.uniform(-1, 1, (2, SIZE))
    with lg.default_device(device), lg.options(**options):
        value, gradients = lg.value_and_grad(random_program(seed), argnums=(0, 1))(lg.asarray(x), lg.asarray(y))
        return [np.asarray(a) for a in (value, *gradients)]


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("seed", range(24))
def test_against_the_interpreter(compiled_device, seed):
    wanted_values = value_and_gradients(seed, "interpreter")
    for got, wanted in zip(value_and_gradients(seed, compiled_device), wanted_values, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(wanted).max()))


@pytest.mark.in_turns
@pytest.mark.parametrize("trips", [0, 1, 2, 3, 6])
@pytest.mark.parametrize("budget_states", [None, 1, 2, 3, 8])
def test_shift_loop_gradient_with_and_without_a_budget(device, trips, budget_states):
    """d/dy of sum(sin(roll(v) + v) repeated) by the chain rule, by hand."""
    budget = None if budget_states is None else budget_states * SIZE * 8
    start = np.linspace(0, 1, SIZE)

    def loss(y):
        step = lambda i, v: lg.sin(lg.roll(v, 1) + v)
        return lg.sum(lg.fori_loop(0, lg.asarray(trips), step, y, memory_budget=budget))

    v, slopes = start, []
    for _ in range(trips):
        slopes.append(np.cos(np.roll(v, 1) + v))
        v = np.sin(np.roll(v, 1) + v)
    wanted = np.ones(SIZE)
    for slope in reversed(slopes):
        wanted = wanted * slope + np.roll(wanted * slope, -1)
    with lg.default_device(device):
        got = np.asarray(lg.grad(loss)(lg.asarray(start)))
    np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-12)
