"""Group J: size expressions, evaluated in parallel and without a cap."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check

import loopgrad as lg


def gradient_of_last_cell(bound_of, a):
    """`a` is zero except for its last cell: only that lane runs, and its gradient is 2·x = .2."""

    def loss(x, a):
        trips = bound_of(a)
        return lg.sum(lg.fori_loop(0, trips, lambda _, acc: acc + x * x, lg.zeros(trips.shape, dtype=lg.float32)))

    return lg.grad(loss)(lg.asarray(0.1, dtype=lg.float32), a)


BODIES = {
    "cell": lambda a: a,
    "shape terms": lambda a: a + (a.shape[0] - a.shape[0]),
    "max with a field": lambda a: lg.maximum(a, lg.zeros_like(a)),
    "max of a difference": lambda a: lg.maximum(a, a - a),
    "arithmetic": lambda a: a * 2 - a,
}


@pytest.mark.parametrize("body", list(BODIES))
def test_j3_only_the_last_cell_counts(device, body):
    a = np.zeros(256, dtype=np.int32)
    a[-1] = 1
    check(gradient_of_last_cell(BODIES[body], lg.asarray(a)), 0.2, 1e-6)


@pytest.mark.costly
def test_j3_j6_d19_beyond_two_to_the_24_lanes(compiled_device):
    """No cap: 2^24 + 1 lanes, a 64-bit bound array behind an arithmetic index."""
    a = np.zeros(2**24 + 1, dtype=np.int64)
    a[-1] = 1
    bound = lambda a: a[lg.arange(2**24 + 1, dtype=lg.int64)]
    check(gradient_of_last_cell(bound, lg.asarray(a)), 0.2, 1e-6)


def nonlinear(x, trips):
    return lg.sum(lg.fori_loop(0, trips, lambda _, v: lg.sin(v) + 0.1, x))


def nonlinear_slope(x, trips):
    want = np.ones_like(x)
    for lane, count in enumerate(trips):
        v = x[lane]
        for _ in range(count):
            want[lane] *= np.cos(v)
            v = np.sin(v) + 0.1
    return want


@pytest.mark.parametrize("outer", ["difference of maxima", "maximum of differences"])
def test_j7_difference_of_maxima_is_not_the_maximum_of_differences(device, outer):
    start, stop = np.array([7, 0, 5, 2]), np.array([8, 4, 9, 2])
    if outer == "difference of maxima":
        trips = np.full(4, stop.max() - start.max())
        bound = lambda s, e: lg.full((4,), 0) + lg.max(e) - lg.max(s)
    else:
        trips = stop - start
        bound = lambda s, e: e - s
    x = np.linspace(0.2, 0.8, 4)
    loss = lambda x, s, e: nonlinear(x, bound(s, e))
    gradient = lg.grad(loss)(lg.asarray(x), lg.asarray(start), lg.asarray(stop))
    check(gradient, nonlinear_slope(x, trips), 1e-13)


def test_j1_j2_j5_constant_trips_are_folded(compiled_device):
    """A constant trip count is the stack's depth itself: no reduction runs for it."""
    x = lg.asarray(np.linspace(0.2, 0.8, 4))
    loss = lambda x: nonlinear(x, lg.full((4,), 5, dtype=lg.int32))
    gradient = lg.compile(lg.grad(loss))
    check(gradient(x), nonlinear_slope(np.linspace(0.2, 0.8, 4), [5] * 4), 1e-13)
    formulas = [r.formula for r in gradient.plan(x).residuals]
    assert formulas
    assert all("5" in formula for formula in formulas), formulas


def test_j5_nested_constant_trips(device):
    """Product of the enclosing trip counts, however the nest is written."""
    x = np.linspace(0.2, 0.8, 4)

    def loss(x):
        inner = lambda _, v: lg.fori_loop(0, 3, lambda _, v: lg.sin(v) + 0.1, v)
        return lg.sum(lg.fori_loop(0, 4, inner, x))

    check(lg.grad(loss)(lg.asarray(x)), nonlinear_slope(x, [12] * 4), 1e-13)


def test_j8_pushes_in_the_arms_of_a_branch(device):
    """Only the arm taken saves values; the other lane's rows stay its own."""
    x = np.array([0.3, 0.9])

    def loss(x):
        def lane(v):
            def body(_, v):
                deep = lambda v: lg.fori_loop(0, 3, lambda _, v: lg.sin(v) + 0.1, v)
                return lg.cond(v > 0.8, deep, lambda v: v + 0.05, v)

            return lg.fori_loop(0, 4, body, v)

        return lg.sum(lg.vmap(lane)(x))

    def slope(v):
        result = 1.0
        for _ in range(4):
            if v > 0.8:
                for _ in range(3):
                    result, v = result * np.cos(v), np.sin(v) + 0.1
            else:
                v += 0.05
        return result

    check(lg.grad(loss)(lg.asarray(x)), [slope(v) for v in x], 1e-13)
