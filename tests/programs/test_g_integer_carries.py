"""Group G: integers and booleans carried next to differentiable values."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import central_difference, check, check_gradient

import loopgrad as lg


def zero():
    return lg.zeros((), dtype=lg.float64)


@pytest.mark.parametrize("wrt", [0, 1])
def test_g1_integer_weight(device, mode, wrt):
    trips = lg.asarray(np.arange(5))

    def loss(a, b):
        def body(_, c):
            weight, s = c
            return weight * 10, s + lg.astype(weight, lg.float64) * a + b

        start = (lg.ones((5,), dtype=lg.int64), lg.zeros((5,)))
        return lg.sum(lg.fori_loop(0, trips, body, start)[1])

    want = [0.0, 1.0, 11.0, 111.0, 1111.0] if wrt == 0 else np.arange(5.0)
    check_gradient(loss, (lg.full((5,), 2.0), lg.full((5,), 3.0)), want, wrt=wrt, mode=mode)


def test_g2_float_and_integer_carries(device, dtype, mode):
    def loss(x):
        def body(_, c):
            v, j, y = c
            return v + 0.1, j + 1, y + v * lg.astype(j + 1, v.dtype)

        start = (x, lg.asarray(0, dtype=lg.int32), lg.zeros((), dtype=dtype))
        return lg.fori_loop(0, 5, body, start)[2]

    check_gradient(loss, (lg.asarray(0.3, dtype=dtype),), 15.0, mode=mode, rtol=1e-6)


def sibling_loops(loop, choose, v):
    """Six sibling loops, each with a branch on the carried float."""
    for k in range(6):
        threshold, slopes = 0.2 + 0.1 * k, (1.1 - 0.05 * k, 0.9 + 0.03 * k)
        v = loop(3 + k % 2, lambda v, t=threshold, s=slopes: choose(v, t, s), v)
    return v


def test_g3_e5_six_siblings_with_branches(device, mode):
    def numpy_loop(trips, body, v):
        for _ in range(trips):
            v = body(v)
        return v

    def value(x):
        return sum(sibling_loops(numpy_loop, lambda v, t, s: v * s[0] if v < t else v * s[1] + 0.01, v) for v in x)

    def loss(x):
        def loop(trips, body, v):
            return lg.fori_loop(0, lg.full(v.shape, trips, dtype=lg.int32), lambda _, v: body(v), v)

        def choose(v, t, s):
            return lg.cond(v < t, lambda v: v * s[0], lambda v: v * s[1] + 0.01, v)

        return lg.sum(sibling_loops(loop, choose, x))

    x = np.array([0.13, 0.31, 0.52, 0.81])
    check(loss(lg.asarray(x)), value(x), 1e-13)
    check_gradient(loss, (lg.asarray(x),), central_difference(value, x, 1e-5), mode=mode, rtol=1e-7)


def test_g4_interleaved_carries_with_per_lane_trips(device, dtype, mode):
    a = np.array([2, 3, 0, 5], dtype=np.int32)

    def loss(x):
        def body(_, c):
            v0, j, v1 = c
            return 0.95 * v0 + 0.01, j + 1, 0.9 * v1 + 0.02

        start = (x, lg.zeros((4,), dtype=lg.int32), 2.0 * x)
        v0, j, v1 = lg.fori_loop(0, lg.asarray(a), body, start)
        return lg.sum(v0 + v1 + 0.0 * lg.astype(j, x.dtype))

    x = lg.asarray([0.1, 0.2, 0.3, 0.4], dtype=dtype)
    check_gradient(loss, (x,), 0.95**a + 2 * 0.9**a, mode=mode, rtol=2e-6 if dtype is lg.float32 else 1e-14)


@pytest.mark.in_turns
def test_g5_carried_integer_as_index(device, mode):
    def loss(a):
        def lane_body(_, c):
            p, q, b = c
            p, q = q, p + q
            return p, q, b.at[q].add(a[q])

        def lane(_, b):
            return lg.fori_loop(0, 5, lane_body, (lg.asarray(0), lg.asarray(1), b))[2]

        return lg.sum(lg.fori_loop(0, 5, lane, lg.zeros((10,))))

    want = np.zeros(10)
    want[[1, 2, 3, 5, 8]] = 5.0
    check_gradient(loss, (lg.asarray(np.linspace(0, 1, 10)),), want, mode=mode, rtol=1e-14)


def test_g5_carried_integer_as_index_of_each_lane(device, mode):
    def loss(a):
        def body(_, c):
            p, q, s = c
            p, q = q, p + q
            return p, q, s + a[q]

        lanes = lg.full((5,), 5, dtype=lg.int32)
        start = (lg.zeros((5,), dtype=lg.int64), lg.ones((5,), dtype=lg.int64), lg.zeros((5,)))
        return lg.sum(lg.fori_loop(0, lanes, body, start)[2])

    want = np.zeros(10)
    want[[1, 2, 3, 5, 8]] = 5.0
    check_gradient(loss, (lg.asarray(np.linspace(0, 1, 10)),), want, mode=mode, rtol=1e-14)


def test_g6_counter_as_gather_index(device, mode):
    def loss(a):
        lane = lambda _: lg.fori_loop(0, 5, lambda _, c: (c[0] + 1, c[1] + a[c[0]] ** 2), (lg.asarray(0), zero()))[1]
        return lg.sum(lg.vmap(lane)(lg.arange(5)))

    i = np.arange(5.0)
    check_gradient(loss, (lg.asarray(i),), 2 * i * 5, mode=mode, rtol=1e-14)


@pytest.mark.parametrize("integer", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_g7_integer_only_carry_reaches_the_output(device, integer):
    kind = getattr(lg, integer)

    def loss(x):
        v = lg.fori_loop(0, 4, lambda _, v: v + 1, lg.zeros((), dtype=kind))
        return lg.astype(v, lg.float64) + 0.0 * x

    x = lg.asarray(1.0)
    check(loss(x), 4.0)
    check(lg.grad(loss)(x), 0.0)


@pytest.mark.parametrize("integer", ["int8", "int64"])
def test_g7_differentiable_start_cut_by_an_integer_cast(device, integer):
    def loss(x):
        v = lg.astype(x, getattr(lg, integer))
        return lg.sum(lg.astype(lg.fori_loop(0, 4, lambda _, v: v + 1, v), lg.float64))

    check(lg.grad(loss)(lg.asarray([0.5, 3.5])), [0.0, 0.0])


def test_g8_integer_modulo_beside_a_gradient(device, mode):
    x = np.arange(1, 8)

    def loss(a):
        y = lg.asarray(x) % 3
        return lg.sum(a * lg.astype(y, lg.float64))

    check_gradient(loss, (lg.ones((7,)),), (x % 3).astype(float), mode=mode)


def test_g_boolean_carry(device, mode):
    """A lane latches a flag and changes its update from then on."""
    x = np.array([0.2, 0.9, 1.6])

    def loss(x):
        def body(_, c):
            v, latched = c
            latched = latched | (v > 1.0)
            return lg.where(latched, v * 0.5, v * 1.5), latched

        return lg.sum(lg.fori_loop(0, lg.asarray([2, 6, 4]), body, (x, lg.zeros((3,), dtype=lg.bool)))[0])

    want = []
    for start, trips in zip(x, [2, 6, 4], strict=True):
        v, slope, latched = start, 1.0, False
        for _ in range(trips):
            latched = latched or v > 1.0
            v, slope = (v * 0.5, slope * 0.5) if latched else (v * 1.5, slope * 1.5)
        want.append(slope)
    check_gradient(loss, (lg.asarray(x),), want, mode=mode, rtol=1e-14)
