"""Group R: programs that an over-eager optimiser gets wrong.

R4 (with and without optimisation) is the `device` fixture: the interpreter optimises nothing.
R5 (every nonlinear primitive keeps what its derivative reads) is tests/architecture/test_tables.py
together with the derivative of each primitive in tests/autodiff.
"""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check, check_gradient

import loopgrad as lg


@pytest.mark.parametrize("looped", [False, True])
def test_r1_conditional_zero_store(device, mode, looped):
    c = np.array([0.3, 0.7, 1.1, 1.4])
    reset = np.array([0, 1, 0, 1])

    def loss(c):
        def lane(c, reset):
            body = lambda _, y: y + lg.sin(lg.cond(reset > 0, lambda: 0.0 * c, lambda: lg.sin(c)))
            return lg.fori_loop(0, 2, body, lg.zeros((), dtype=lg.float64))

        if looped:
            return lg.sum(lg.vmap(lane)(c, lg.asarray(reset)))
        return 2.0 * lg.sum(lg.sin(lg.where(lg.asarray(reset) > 0, 0.0, lg.sin(c))))

    want = np.where(reset > 0, 0.0, 2 * np.cos(c) * np.cos(np.sin(c)))
    check_gradient(loss, (lg.asarray(c),), want, mode=mode, rtol=1e-14)


@pytest.mark.parametrize("wrt", [0, 1])
def test_r2_guarded_division(device, mode, wrt):
    numerator = np.array([[1.0, 2.0], [3.0, 4.0]])
    m = np.array([[0.0, 0.0], [0.0, 2.0]])

    def loss(numerator, m):
        def cell(numerator, m):
            return lg.cond(m > 0.0, lambda: numerator / m, lambda: 0.0 * numerator)

        return lg.sum(lg.vmap(lg.vmap(cell))(numerator, m))

    want = np.zeros((2, 2))
    want[1, 1] = 0.5 if wrt == 0 else -1.0
    check_gradient(loss, (lg.asarray(numerator), lg.asarray(m)), want, wrt=wrt, mode=mode)


def test_r3_value_read_before_and_after_it_is_divided(device, mode):
    def loss(data):
        def body(i, carry):
            data, total = carry
            before = data[i]
            data = data.at[i].set(data[i] / data[i])
            return data, total + before * data[i]

        return lg.fori_loop(0, 4, body, (data, lg.zeros((), dtype=lg.float64)))[1]

    check_gradient(loss, (lg.asarray([1.0, 2.0, 3.0, 4.0]),), np.ones(4), mode=mode, rtol=1e-14)


def test_r_same_value_saved_once_and_used_twice(device, mode):
    """Common subexpressions across trips are not the same value."""

    def loss(x):
        body = lambda _, c: (lg.sin(c[0]) + 0.1, c[1] + lg.sin(c[0]) * lg.sin(c[0]))
        return lg.sum(lg.fori_loop(0, lg.asarray([3, 5]), body, (x, lg.zeros_like(x)))[1])

    want = []
    for v, trips in ((0.4, 3), (1.2, 5)):
        slope, total = 1.0, 0.0
        for _ in range(trips):
            total += 2 * np.sin(v) * np.cos(v) * slope
            slope, v = slope * np.cos(v), np.sin(v) + 0.1
        want.append(total)
    check_gradient(loss, (lg.asarray([0.4, 1.2]),), want, mode=mode, rtol=1e-13)


def test_r_invariant_computation_inside_a_body(device, mode):
    """What does not change from trip to trip may be hoisted, its derivative summed over the trips."""
    trips = np.array([0, 1, 4])

    def loss(x, w):
        body = lambda _, y: y + lg.exp(w) * lg.sin(x * w)
        return lg.sum(lg.fori_loop(0, lg.asarray(trips), body, lg.zeros_like(x)))

    x, w = np.array([0.2, 0.4, 0.9]), 0.7
    slope_w = (trips * (np.exp(w) * np.sin(x * w) + np.exp(w) * x * np.cos(x * w))).sum()
    arguments = (lg.asarray(x), lg.asarray(w))
    check_gradient(loss, arguments, trips * np.exp(w) * w * np.cos(x * w), wrt=0, mode=mode, rtol=1e-13)
    check_gradient(loss, arguments, slope_w, wrt=1, mode=mode, rtol=1e-13)


def test_r_dead_carry_does_not_disturb(device):
    """A carry nobody reads may go; with it must not go what shares its inputs."""

    def loss(x):
        body = lambda k, c: (lg.sin(c[0]), c[1] + 1.0 / (c[0] - c[0]), c[2] * c[0])
        return lg.sum(lg.fori_loop(0, lg.asarray([2, 3]), body, (x, x, lg.ones_like(x)))[2])

    def slope(v, trips):
        h = 1e-6

        def product(v):
            total = 1.0
            for _ in range(trips):
                total, v = total * v, np.sin(v)
            return total

        return (product(v + h) - product(v - h)) / (2 * h)

    gradient = lg.grad(loss)(lg.asarray([0.5, 0.9]))
    check(gradient, [slope(0.5, 2), slope(0.9, 3)], 1e-8)
