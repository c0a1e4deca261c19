"""Shapes at the edges: axes of one element, no lanes, carries of nothing."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg


@pytest.mark.parametrize("axes", [0, (0, 1), None])
def test_sum_over_axes_of_one_element(device: str, axes: int | tuple[int, ...] | None) -> None:
    x = np.array([[1.5]])
    roots = lg.sqrt(lg.asarray(x))
    np.testing.assert_allclose(lg.sum(lg.cumsum(roots, axis=0), axis=axes), np.sqrt(x).sum(axis=axes))


def test_one_lane_that_sorts_and_accumulates(device: str) -> None:
    x = np.array([[0.3, -0.7, 0.1]])

    def one(v: lg.Tensor) -> lg.Tensor:
        return lg.fori_loop(0, 3, lambda i, s: lg.roll(lg.cumsum(lg.sort(s * lg.cos(1.0 + i))) * 0.3, 1), v)

    expected = x[0]
    for i in range(3):
        expected = np.roll(np.cumsum(np.sort(expected * np.cos(1.0 + i))) * 0.3, 1)
    np.testing.assert_allclose(lg.vmap(one)(x), expected[None])
    slope = lg.grad(lambda v: lg.sum(lg.sin(lg.vmap(one)(v))))(lg.asarray(x))
    step = 1e-6 * np.array([[1.0, 2.0, 3.0]])
    difference = np.sum(np.sin(np.asarray(lg.vmap(one)(x + step)))) - np.sum(np.sin(np.asarray(lg.vmap(one)(x - step))))
    np.testing.assert_allclose(np.sum(np.asarray(slope) * step) * 2, difference, rtol=1e-6)


def test_one_lane_with_a_count_of_its_own_in_lockstep(device: str) -> None:
    """Masking reduces the counts over lanes, here over an axis of one element."""
    x = np.array([0.75])
    counts = lg.asarray(np.array([3]))
    found = lg.fori_loop(0, counts, lambda k, v: lg.sort(v) * 0.5 + lg.sum(v), lg.asarray(x))
    np.testing.assert_allclose(found, x * 1.5**3)


def test_one_gradient_adds_a_lookup_to_sums_over_the_lanes_of_a_loop(device):
    """Each row looks one element up, and is broadcast to lanes with trip counts of their own."""

    def loss(row, place, trips):
        lanes = lg.broadcast_to(row, (5, 4))
        start = (lg.zeros(5, dtype=lg.int64), lanes)
        _, out = lg.while_loop(lambda s: s[0] < trips, lambda s: (s[0] + 1, 0.5 * s[1]), start)
        return lg.sin(row[place]) + lg.sum(lg.sin(out))

    rows, places = np.linspace(0.1, 0.8, 8).reshape(2, 4), np.array([1, 2])
    trips = np.array([[1, 2, 3, 0, 2], [0, 0, 1, 4, 1]])
    scale = 0.5 ** trips[:, :, None]
    wanted = np.sum(scale * np.cos(scale * rows[:, None, :]), 1)
    wanted[[0, 1], places] += np.cos(rows[[0, 1], places])
    np.testing.assert_allclose(lg.vmap(lg.grad(loss))(rows, places, trips), wanted, rtol=1e-12)
