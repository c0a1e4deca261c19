"""Group C: conditionals, alone and inside loops."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import central_difference, check, check_gradient, tolerance

import loopgrad as lg


def zero():
    return lg.zeros((), dtype=lg.float64)


def per_element(pred, true_fun, false_fun, x):
    """`cond` with an array predicate."""
    return lg.cond(pred(x), true_fun, false_fun, x)


def mapped(pred, true_fun, false_fun, x):
    """A scalar `cond` under vmap."""
    return lg.vmap(lambda one: lg.cond(pred(one), true_fun, false_fun, one))(x)


def selected(pred, true_fun, false_fun, x):
    """`where`: both sides are computed."""
    return lg.where(pred(x), true_fun(x), false_fun(x))


CONDITIONALS = [per_element, mapped, selected]


def test_c1_if_without_else(device, mode):
    def loss(x):
        return lg.cond(x > 0.0, lambda x: x, lambda x: x * 0.0, x)

    check_gradient(loss, (lg.asarray(1.0),), 1.0, mode=mode)
    check_gradient(loss, (lg.asarray(-1.0),), 0.0, mode=mode)


@pytest.mark.parametrize("conditional", CONDITIONALS)
def test_c2_boundary_goes_to_else(device, dtype, mode, conditional):
    x = lg.asarray([0.0, 1.0], dtype=dtype)

    def loss(x):
        return lg.sum(conditional(lambda x: x > 0.0, lambda x: x, lambda x: 2.0 * x, x))

    check_gradient(loss, (x,), [2.0, 1.0], mode=mode, rtol=tolerance(dtype, 1e-6, 1e-14))


def test_c3_four_arms(device, mode):
    z = np.random.default_rng(3).normal(size=12)

    def loss(z):
        def lane(i, z):
            bit = lambda true, false: lg.cond(i % 2 == 1, lambda: true, lambda: false)
            return lg.cond(i % 4 < 2, lambda: bit(z * 1.0, z * 0.0), lambda: bit(z * 3.0, z * 2.0))

        return lg.sum(lg.vmap(lane)(lg.arange(12), z))

    check_gradient(loss, (lg.asarray(z),), np.arange(12.0) % 4, mode=mode)


def test_c3_four_arms_as_a_switch(device, mode):
    z = np.random.default_rng(3).normal(size=12)
    arms = [lambda z, k=k: z * float(k) for k in range(4)]

    def loss(z):
        return lg.sum(lg.switch(lg.arange(12) % 4, arms, z))

    check_gradient(loss, (lg.asarray(z),), np.arange(12.0) % 4, mode=mode)


@pytest.mark.parametrize("conditional", [per_element, mapped])
def test_c4_masked_reciprocal(device, dtype, mode, conditional):
    x = lg.asarray([0.0, 2.0], dtype=dtype)

    def loss(x):
        return lg.sum(conditional(lambda x: x > 0.0, lambda x: 1.0 / x, lambda x: x * 0.0, x))

    check(loss(x), 0.5, 1e-7)
    check_gradient(loss, (x,), [0.0, -0.25], mode=mode, rtol=tolerance(dtype, 1e-6, 1e-14))


def test_c4_scalar_branch_that_is_not_taken(device):
    def loss(x):
        return lg.cond(x > 0.0, lambda x: lg.sqrt(x), lambda x: 3.0 * x, x)

    check(lg.grad(loss)(lg.asarray(0.0)), 3.0)


def test_c5_nested_ifs(device, dtype, mode):
    w = np.array([-2.0, 1, 2, 3, 4, 5, 6, 20])

    def loss(w):
        def lane(w):
            inner = lambda w: lg.cond(w < 10.0, lambda w: w * w, lambda w: w * 0.0, w)
            return lg.cond(w > 0.0, inner, lambda w: w * 0.0, w)

        return lg.sum(lg.vmap(lane)(w))

    want = np.where((w > 0) & (w < 10), 2 * w, 0.0)
    check_gradient(loss, (lg.asarray(w, dtype=dtype),), want, mode=mode, rtol=tolerance(dtype, 1e-6, 1e-14))


def test_c6_elif_chain_with_boundaries(device, mode):
    v = np.array([-3.0, -0.5, 0.0, 1.0, 4.75, 5.0, 7.5, 9.75, 10.0, 12.0])

    def loss(v):
        def lane(v):
            high = lambda: lg.cond(v < 10.0, lambda: v * v, lambda: 3.0 * v)
            not_negative = lambda: lg.cond(v < 5.0, lambda: 2.0 * v * v, high)
            return lg.cond(v < 0.0, lambda: -v, not_negative)

        return lg.sum(lg.vmap(lane)(v))

    want = np.select([v < 0, v < 5, v < 10], [-1.0 + 0 * v, 4 * v, 2 * v], 3.0)
    check_gradient(loss, (lg.asarray(v),), want, mode=mode, rtol=1e-14)


def rows_written(x, n_iter, arms):
    """`for i<n_iter: out[i] = arms[i]` where the branch depends on the loop index."""

    def body(i, out):
        row = lg.switch(i, arms, x)
        return out.at[i].set(row)

    return lg.sum(lg.fori_loop(0, n_iter, body, lg.zeros((4, 3), dtype=lg.float64)))


def test_c7_branch_depends_on_the_index(device, mode):
    n_iter = lg.asarray(2, dtype=lg.int32)
    arms = [lambda x: x[:3], lambda x: lg.full((3,), 7.0)]
    x = lg.asarray([0.5, 1.0, 1.5, 2.0])
    check(rows_written(x, n_iter, arms), 3.0 + 21.0, 1e-14)
    check_gradient(lambda x: rows_written(x, n_iter, arms), (x,), [1.0, 1.0, 1.0, 0.0], mode=mode)


def test_c8_branch_chain_depends_on_the_index(device, mode):
    n_iter = lg.asarray(4, dtype=lg.int32)
    arms = [
        lambda x: x[:3],
        lambda x: x[1:],
        lambda x: lg.stack([x[2], x[3], x[0]]),
        lambda x: lg.full((3,), 7.0),
    ]
    x = lg.asarray([0.5, 1.0, 1.5, 2.0])
    check_gradient(lambda x: rows_written(x, n_iter, arms), (x,), [2.0, 2.0, 3.0, 2.0], mode=mode)


def test_c9_condition_on_the_loop_index(device, mode):
    def loss(position, b):
        def body(n, total):
            return total + lg.cond(n < 4, lambda: lg.ones((), dtype=lg.float64), lambda: b * position)

        return lg.fori_loop(0, 12, body, zero())

    arguments = (lg.asarray(0.75), lg.asarray(1.5))
    check(loss(*arguments), 4 + 8 * 0.75 * 1.5, 1e-14)
    check_gradient(loss, arguments, 8 * 1.5, wrt=0, mode=mode, rtol=1e-14)
    check_gradient(loss, arguments, 8 * 0.75, wrt=1, mode=mode, rtol=1e-14)


@pytest.mark.parametrize("wrt", [0, 1])
def test_c10_select(device, mode, wrt):
    i = np.arange(8)

    def loss(x, y):
        return lg.sum(lg.where(lg.asarray(i % 2 == 1), x, y))

    arguments = (lg.asarray(np.linspace(1, 2, 8)), lg.asarray(np.linspace(3, 4, 8)))
    want = i % 2 if wrt == 0 else 1 - i % 2
    check_gradient(loss, arguments, want.astype(float), wrt=wrt, mode=mode)


def test_c11_fractional_part(device, mode):
    x = np.random.default_rng(11).normal(size=10) * 3

    def loss(x):
        fraction = lg.cond(x > 0.0, lambda x: x - lg.floor(x), lambda x: x - lg.ceil(x), x)
        return lg.sum(fraction * fraction)

    want = 2 * np.where(x > 0, x - np.floor(x), x - np.ceil(x))
    check_gradient(loss, (lg.asarray(x),), want, mode=mode, rtol=1e-13)


@pytest.mark.parametrize(
    ("function", "want"),
    [
        (lambda x: lg.minimum(x, 0.5), 1.0),
        (lambda x: lg.minimum(0.5, x), 1.0),
        (lambda x: lg.minimum(x, 0.1), 0.0),
        (lambda x: lg.maximum(x, 0.1), 1.0),
        (lambda x: lg.maximum(0.1, x), 1.0),
        (lambda x: lg.maximum(x, 0.5), 0.0),
    ],
)
def test_c12_min_and_max_with_constants(device, mode, function, want):
    check_gradient(function, (lg.asarray(0.234),), want, mode=mode)


def test_c13_arms_of_different_work(device):
    """One arm is straight code, the other a loop; each lane's seed must stay its own."""
    dt, kind, q_end = 0.25, lg.asarray(2), lg.asarray(3, dtype=lg.int32)
    vel = np.random.default_rng(13).normal(size=(2, 3))

    def positions(vel):
        def lane(vel):
            straight = lambda: lg.concat([lg.reshape(lg.sum(vel * vel), (1,)), vel[:1], vel[:1]])
            step = lambda j, q: q.at[j].set(vel[j] * dt)
            looped = lambda: lg.fori_loop(0, q_end, step, lg.zeros((3,), dtype=lg.float64))
            return lg.cond(kind == 3, straight, looped)

        return lg.vmap(lane)(vel)

    out, pullback = lg.vjp(positions, lg.asarray(vel))
    check(out, vel * dt, 1e-15)
    seeds = np.repeat([[1.0], [2.0]], 3, axis=1)
    (gradient,) = pullback(lg.asarray(seeds))
    check(gradient, seeds * dt, 1e-15)


def test_c14_runtime_false_branch_between_reads(device):
    level = lg.asarray(5)

    def loss(table):
        def body(i, y):
            y = y + table[i]
            y = lg.cond(level < 0, lambda y: y * 100.0, lambda y: y, y)
            return y + table[i]

        return lg.fori_loop(0, 4, body, zero())

    out, pullback = lg.vjp(loss, lg.asarray([1.0, 2.0, 3.0, 4.0]))
    check(out, 20.0)
    check(pullback(lg.asarray(3.0))[0], np.full(4, 6.0))


def test_c15_store_under_a_condition(device, mode):
    x, y = np.linspace(1, 2, 8), np.linspace(3, 4, 8)

    def loss(y, x):
        def body(i, x):
            return lg.cond(i % 2 == 0, lambda x: x.at[i].set(y[i]), lambda x: x, x)

        return lg.sum(lg.fori_loop(0, 8, body, x))

    even = (np.arange(8) % 2 == 0).astype(float)
    arguments = (lg.asarray(y), lg.asarray(x))
    check_gradient(loss, arguments, even, wrt=0, mode=mode)
    check_gradient(loss, arguments, 1 - even, wrt=1, mode=mode)


def test_c7_branch_on_a_carried_value_in_a_lane_loop(device, mode):
    """The branch a lane took is data: it is saved, not decided again from changed values."""
    x = np.array([0.3, 1.2, 2.4, -0.7])

    def reference(x):
        total = 0.0
        for value, trips in zip(x, [3, 6, 0, 5], strict=True):
            for _ in range(trips):
                value = 0.5 * value * value if value > 1.0 else value + 0.4 * np.sin(value)
            total += value
        return total

    def loss(x):
        trips = lg.asarray([3, 6, 0, 5])

        def body(_, v):
            return lg.cond(v > 1.0, lambda v: 0.5 * v * v, lambda v: v + 0.4 * lg.sin(v), v)

        return lg.sum(lg.fori_loop(0, trips, body, x))

    check(loss(lg.asarray(x)), reference(x), 1e-13)
    check_gradient(loss, (lg.asarray(x),), central_difference(reference, x), mode=mode, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("heavy", [False, True])
def test_c8_a_sum_over_lanes_sees_the_branches_of_lanes_that_are_done(device, mode, heavy):
    """In a lane that is done a `cond` gives what its branch gives, and a loop in it takes no trip."""
    trips, inner = np.array([3, 0, 4, 1]), np.array([2, 1, 0, 3])
    x = np.array([0.3, 1.2, 2.4, -0.7])

    def reference(x):
        value = np.array(x)
        for k in range(trips.max()):
            active = k < trips
            other = value * 0.5 ** np.where(active, inner, 0) if heavy else 0.5 * value
            mixed = np.where(value > 1.0, np.sin(value), other)
            value = np.where(active, 0.9 * value + 0.1 * mixed.sum(), value)
        return value.sum()

    def loss(x):
        def halved(v):
            return lg.fori_loop(0, lg.asarray(inner), lambda _, u: 0.5 * u, v) if heavy else 0.5 * v

        def body(_, v):
            return 0.9 * v + 0.1 * lg.sum(lg.cond(v > 1.0, lg.sin, halved, v))

        return lg.sum(lg.fori_loop(0, lg.asarray(trips), body, x))

    check(loss(lg.asarray(x)), reference(x), 1e-13)
    check_gradient(loss, (lg.asarray(x),), central_difference(reference, x), mode=mode, rtol=1e-7, atol=1e-7)
