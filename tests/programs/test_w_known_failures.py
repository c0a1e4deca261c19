"""Group W: what is known to fail elsewhere (W1 is A15, W5 A13, W7 G7, W8 test_replay, W9 J3, W10 D18)."""

from __future__ import annotations

import numpy as np
from oracles import check

import loopgrad as lg


def squares(x, trips):
    lane = lambda i: lg.fori_loop(0, trips[i], lambda j, acc: acc + x[j] * x[j], lg.zeros((), dtype=lg.float64))
    return lg.sum(lg.vmap(lane)(lg.arange(4)))


def test_w2_program_that_changes_its_own_trip_counts(device):
    """The counts are zeroed after the loop read them; the reverse pass uses the counts that ran."""

    def loss(x, trips):
        value = squares(x, trips)
        trips = trips.at[:].set(0)
        return value + 0.0 * lg.astype(lg.sum(trips), lg.float64)

    check(lg.grad(loss)(lg.full((8,), 0.1), lg.full((4,), 8)), np.full(8, 0.8), 1e-13)


def test_w3_trip_counts_rebound_between_forward_and_reverse(device):
    trips = lg.full((4,), 5)
    out, pullback = lg.vjp(lambda x: squares(x, trips), lg.full((10,), 0.1))
    trips += 5
    check(out, 4 * 5 * 0.01, 1e-13)
    check(pullback(lg.asarray(1.0))[0], np.where(np.arange(10) < 5, 0.8, 0.0), 1e-13)


def test_w6_prefix_dependence_at_the_top_level(device):
    """`x[i] += x[i-1]` over lanes that depend on each other is an ordinary loop here."""
    loss = lambda x: lg.fori_loop(1, 6, lambda i, x: x.at[i].add(x[i - 1]), x)[5]
    check(lg.grad(loss)(lg.asarray(np.arange(6.0))), np.ones(6))


def test_w11_element_read_then_overwritten(device):
    """N1: `loss = x[1]·b; b += 100`: the gradient is that of the value read."""

    def loss(x, b):
        value = x[1] * b
        b += 100.0
        return value + 0.0 * b

    check(lg.grad(loss)(lg.asarray([1.0, 2.0, 3.0]), lg.asarray(10.0)), [0.0, 10.0, 0.0])
