"""Writes through names and views, in whole programs on every device."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check


def sweep(m, state):
    """Rows and columns of a matrix written to through views of it, as NumPy scripts do."""
    position, velocity = state
    grid = state.T
    velocity *= 0.5
    position += velocity
    grid[1] = 3.0
    state[:, ::2][1][...] += position[::2]
    edge = m.ravel(state)[-2:]
    edge -= 1.0
    return m.sum(state * state)


def test_a_script_of_views(device):
    a = np.arange(10.0).reshape(2, 5) - 3.0
    x = lg.asarray(a)
    check(sweep(lg, x), sweep(np, a))
    check(x, a)


def test_a_compiled_function_writes_to_its_arguments(device):
    step = lg.compile(lambda state: sweep(lg, state))
    a = np.arange(10.0).reshape(2, 5) - 3.0
    x, y, whole = lg.asarray(a), a.copy(), lg.zeros((3, 2, 5))
    row = x[0]
    for _ in range(3):
        expected = sweep(np, a)
        check(step(x), expected)
        check(step(y), expected)
        check(x, a)
        check(row, a[0])
        check(y, a)
    step(whole[1])
    assert not np.asarray(whole[0]).any()
    assert np.asarray(whole[1]).any()


def test_a_replay_writes_to_its_arguments(device):
    replay = lg.compile(lambda state: sweep(lg, state)).capture(lg.ones((2, 5)))
    a = np.arange(10.0).reshape(2, 5) - 3.0
    x = lg.asarray(a)
    for given in ((x,), (), (x,), ()):  # without arguments on the last ones, as they are now
        check(replay.replay(*given), sweep(np, a))
        check(x, a)


def test_derivatives_through_views(device):
    x = np.linspace(-1.0, 1.0, 10).reshape(2, 5)
    loss = lambda v: sweep(lg, v)
    slope = np.asarray(lg.grad(loss)(lg.asarray(x)))
    for index in np.ndindex(x.shape):
        sides = [x.copy(), x.copy()]
        sides[0][index] += 1e-6
        sides[1][index] -= 1e-6
        difference = (sweep(np, sides[0]) - sweep(np, sides[1])) / 2e-6
        assert slope[index] == pytest.approx(difference, abs=1e-6)
    check(lg.compile(lg.grad(loss))(lg.asarray(x)), slope)


def test_views_of_carries(device):
    """A row that the counter names, written to through a view and through one of its transpose."""

    def body(k, c):
        table, seen = c
        row = table[k]
        row += k
        table.T[0][k] *= 2.0
        seen[table.shape[0] - 1 - k] = row[1]
        return table, seen

    table, seen = np.ones((4, 3)), np.zeros(4)
    for k in range(4):
        table, seen = body(k, (table, seen))
    found = lg.fori_loop(0, 4, body, (lg.ones((4, 3)), lg.zeros(4)))
    check(found[0], table)
    check(found[1], seen)


def test_views_under_vmap_and_in_branches(device):
    def bumped(v):
        head = v[:2]
        head += 1.0
        lg.cond(lg.sum(v) > 0.0, lambda w: w.sort(), lambda w: None, v)  # a branch has arguments of its own
        return v

    x = np.array([[3.0, 1.0, 2.0], [-5.0, 0.0, 1.0]])
    check(lg.vmap(bumped)(lg.asarray(x)), x + np.array([1.0, 1.0, 0.0]))
