"""Group E: sibling loops. The reverse pass must undo them in reverse order."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check, check_gradient

import loopgrad as lg


def zero():
    return lg.zeros((), dtype=lg.float64)


def lanes_sum(lane, count):
    return lg.sum(lg.vmap(lane)(lg.arange(count)))


def test_e1_second_reads_what_the_first_wrote(device, mode):
    w = np.array([2.0, -1.0, 0.5, 3.0])

    def loss(x):
        def outer(_, carry):
            s, out = carry
            s = lg.fori_loop(0, 4, lambda i, s: s.at[i].set(x[i]), s)
            out = lg.fori_loop(0, 4, lambda i, out: out.at[i].set(s[i] * lg.asarray(w)[i]), out)
            return s, out

        return lg.sum(lg.fori_loop(0, 1, outer, (lg.zeros((4,)), lg.zeros((4,))))[1])

    check_gradient(loss, (lg.asarray([1.0, 2.0, 3.0, 4.0]),), w, mode=mode, rtol=1e-14)


def test_e1_siblings_whose_order_matters(device, mode):
    """First squares, then sines: undone in the wrong order the slopes differ."""

    def loss(x):
        v = lg.fori_loop(0, 2, lambda _, v: v * v, x)
        v = lg.fori_loop(0, 3, lambda _, v: lg.sin(v), v)
        return lg.sum(lg.fori_loop(0, 2, lambda _, v: v * v + 0.5, v))

    def value(x):
        v = x**4
        v = np.sin(np.sin(np.sin(v)))
        return (v * v + 0.5) ** 2 + 0.5

    x = np.array([0.4, 0.9, 1.3])
    want = (value(x + 1e-6) - value(x - 1e-6)) / 2e-6
    check_gradient(loss, (lg.asarray(x),), want, mode=mode, rtol=1e-8)


def test_e2_trip_count_computed_between(device, mode):
    trip = np.array([0, 3, 5], dtype=np.int32)
    table = lg.asarray(trip)

    def loss(x):
        def lane(i):
            v = x[i]
            y = lg.fori_loop(0, 2, lambda _, y: y + v, zero())
            t = table[i]
            return lg.fori_loop(0, t, lambda _, y: y + 0.1 * v, y)

        return lanes_sum(lane, 3)

    check_gradient(loss, (lg.asarray([0.1, 0.2, 0.3]),), 2 + 0.1 * trip, mode=mode, rtol=1e-14)


def test_e3_value_loaded_between(device, mode):
    scale = np.array([0.5, -1.0, 2.0])

    def loss(x):
        def lane(i):
            v = x[i]
            y = lg.fori_loop(0, 2, lambda _, y: y + v, zero())
            factor = lg.asarray(scale)[i]
            return lg.fori_loop(0, 3, lambda _, y: y + factor * v, y)

        return lanes_sum(lane, 3)

    check_gradient(loss, (lg.asarray([0.1, 0.2, 0.3]),), 2 + 3 * scale, mode=mode, rtol=1e-14)


def test_e4_statement_then_stacked_nests(device, mode):
    def loss(x):
        def nest(y):
            def outer(_, y):
                return y + lg.fori_loop(0, 3, lambda _, s: s + lg.sin(x) + 1.0, zero())

            return lg.fori_loop(0, 3, outer, y)

        return lanes_sum(lambda i: nest(nest(lg.sin(x) + 0.0 * lg.astype(i, x.dtype))), 2)

    x = lg.asarray(0.0)
    check(loss(x), 36.0, 1e-14)
    check_gradient(loss, (x,), 38.0, mode=mode, rtol=1e-14)


def test_e4_nests_of_both_kinds(device, mode):
    def loss(x):
        def plain(y):
            inner = lambda _, y: lg.fori_loop(0, 3, lambda _, y: y + lg.sin(x) + 1.0, y)
            return lg.fori_loop(0, 3, inner, y)

        def with_local(y):
            def outer(_, y):
                return y + lg.fori_loop(0, 3, lambda _, s: s + lg.sin(x) + 1.0, zero())

            return lg.fori_loop(0, 3, outer, y)

        return lanes_sum(lambda i: plain(with_local(plain(lg.sin(x) + 0.0 * lg.astype(i, x.dtype)))), 2)

    x = lg.asarray(0.0)
    check(loss(x), 54.0, 1e-14)
    check_gradient(loss, (x,), 56.0, mode=mode, rtol=1e-14)


def test_e6_second_loop_reduces_the_first(device, mode):
    lane = np.arange(16)

    def merged(a):
        b = lg.zeros((4,)).at[lg.asarray(lane // 4)].add(a)
        return lg.fori_loop(0, 4, lambda i, c: c + b[i], zero())

    def separate(a):
        b = lg.fori_loop(0, 16, lambda i, b: b.at[i // 4].add(a[i]), lg.zeros((4,)))
        return lg.fori_loop(0, 4, lambda i, c: c + b[i], zero())

    a = lg.asarray(np.linspace(0, 1, 16))
    check(separate(a), 8.0, 1e-14)
    check_gradient(merged, (a,), np.ones(16), mode=mode)
    check_gradient(separate, (a,), np.ones(16), mode=mode)


def test_e7_write_after_the_loop_wins(device, mode):
    trips = lg.asarray(np.arange(6))
    i = lg.astype(lg.arange(6), lg.float64)

    def p(a):
        start = lg.zeros((6,), dtype=lg.float64)
        looped = lg.fori_loop(0, trips, lambda _, p: p + i * a, start)
        return looped.at[lg.arange(6)].set(a * i)

    a = lg.asarray(np.arange(6.0))
    check(p(a), np.arange(6.0) ** 2)
    check_gradient(lambda a: lg.sum(p(a)), (a,), np.arange(6.0), mode=mode)


@pytest.mark.parametrize("statement_first", [True, False])
def test_e8_statement_beside_static_loops(device, mode, statement_first):
    def loss(x):
        y = zero()
        if statement_first:
            y = y + x
        for _ in range(10):
            y = y + x
        y = lg.fori_loop(0, 10, lambda _, y: lg.fori_loop(0, 10, lambda _, y: y + x, y), y)
        return y if statement_first else y + x

    x = lg.asarray(1.0)
    check(loss(x), 111.0)
    check_gradient(loss, (x,), 111.0, mode=mode, rtol=1e-14)
