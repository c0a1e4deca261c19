"""Group F: loops inside conditionals."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check_gradient

import loopgrad as lg


def zero():
    return lg.zeros((), dtype=lg.float64)


def accumulated(v):
    """Four trips of `acc += v; v = .95v + .01`."""
    return lg.fori_loop(0, 4, lambda _, c: (c[0] + c[1], 0.95 * c[1] + 0.01), (zero(), v))[0]


@pytest.mark.parametrize("outer", ["lanes", "loop"])
def test_f1_runtime_if_around_a_loop(device, mode, outer):
    active = lg.asarray(3)

    def loss(x):
        term = lambda i: lg.cond(i < active, lambda: accumulated(x[i]), zero)
        if outer == "lanes":
            return lg.sum(lg.vmap(term)(lg.arange(5)))
        return lg.fori_loop(0, 5, lambda i, y: y + term(i), zero())

    slope = sum(0.95**k for k in range(4))
    want = np.where(np.arange(5) < 3, slope, 0.0)
    check_gradient(loss, (lg.asarray(np.linspace(0.1, 0.5, 5)),), want, mode=mode, rtol=1e-14)


@pytest.mark.parametrize("n", [0, 3])
def test_f4_guard_around_a_counted_loop(device, mode, n):
    bound = lg.asarray(n, dtype=lg.int32)

    def loss(x):
        inner = lambda: lg.fori_loop(0, bound, lambda k, y: y + x[k] * x[k], zero())
        return lg.cond(bound > 0, inner, zero)

    x = np.linspace(0.1, 0.4, 4)
    check_gradient(loss, (lg.asarray(x),), np.where(np.arange(4) < n, 2 * x, 0.0), mode=mode, rtol=1e-14)


def test_f4_guard_per_lane_around_a_difference_of_bounds(device, mode):
    start, stop = np.array([0, 4, 3]), np.array([3, 2, 6])

    def loss(x):
        def lane(i):
            n = lg.asarray(stop)[i] - lg.asarray(start)[i]
            body = lambda k, y: y + x[lg.asarray(start)[i] + k] ** 2
            return lg.cond(n > 0, lambda: lg.fori_loop(0, n, body, zero()), zero)

        return lg.sum(lg.vmap(lane)(lg.arange(3)))

    x = np.linspace(0.1, 0.6, 6)
    check_gradient(loss, (lg.asarray(x),), 2 * x, mode=mode, rtol=1e-14)


def test_f_while_inside_a_branch_of_a_lane(device, mode):
    """Only the lanes that take the branch run the value-dependent loop."""
    x = np.array([0.5, -1.0, 2.0, -3.0])

    def loss(x):
        def lane(v):
            grow = lambda: lg.while_loop(lambda v: v < 8.0, lambda v: v * v + 0.5, v)
            return lg.cond(v > 0.0, grow, lambda: 2.0 * v)

        return lg.sum(lg.vmap(lane)(x))

    def slope(v):
        if v <= 0:
            return 2.0
        result = 1.0
        while v < 8.0:
            result, v = result * 2 * v, v * v + 0.5
        return result

    check_gradient(loss, (lg.asarray(x),), [slope(v) for v in x], mode=mode, rtol=1e-13)
