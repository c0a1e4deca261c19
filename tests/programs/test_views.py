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


OWN = {
    "copy": lambda w: w.copy(),
    "array": lambda w: lg.array(w),
    "positive": lambda w: +w,
    "constants": lambda w: lg.asarray(np.array([[1.0, 2.0], [3.0, 4.0]])),
    "one part": lambda w: lg.concat([w]),
    "no padding": lambda w: lg.pad(w, 0),
    "a carry handed on": lambda w: lg.fori_loop(0, lg.asarray(2), lambda k, c: (c[0], c[1] + k), (w, 0))[0],
    "a while's": lambda w: lg.while_loop(lambda c: c[1] < 3, lambda c: (c[0], c[1] + 1), (w, 0))[0],
    "a scan's": lambda w: lg.scan(lambda c, x: (c, x), w, lg.arange(3))[0],
    "a decided branch's": lambda w: lg.cond(True, lambda d: d["w"], lambda d: d["w"], {"w": w}),
    "a captured one": lambda w: lg.switch(0, [lambda: w]),
    "a map's": lambda w: lg.vmap(lambda row: row)(w),
    "a checkpoint's": lambda w: lg.checkpoint(lambda w: w)(w),
}


def test_bodies_write_to_what_they_made_of_arrays_from_outside(device):
    """Through the array, a view of it and a view of another shape, each of which sees what the others write."""
    start = np.array([[1.0, 2.0], [3.0, 4.0]])

    def sums(w, c):
        total = 0.0
        for make in OWN.values():
            own = make(w)
            column, rows = own.T[0], own.reshape(-1)
            own[0] = c
            column *= 2.0
            rows[3] += own[1, 0]
            total = total + lg.sum(own * own) + rows[0]
        return total

    def expected(c):
        w = np.array([[2.0 * c, c], [6.0, 10.0]])
        return len(OWN) * ((w * w).sum() + w[0, 0])

    w, trips = lg.asarray(start), lg.asarray(2)
    body = lambda k, c: lg.cond(c > 0.0, lambda c: 0.01 * sums(w, c), lambda c: c, c)
    check(lg.fori_loop(0, trips, body, 0.5), 0.01 * expected(0.01 * expected(0.5)))
    check(lg.compile(lambda w: lg.fori_loop(0, 1, lambda k, c: sums(w, c), 0.5))(w), expected(0.5))
    slope = lg.grad(lambda w: lg.fori_loop(0, trips, lambda k, c: sums(w.copy(), 0.5) + 0 * c, 0.0))(w)
    (_, _), (left, right) = start  # what the sum has squares of in the end: 2 * left, and right + 2 * left
    made = len(OWN) - 1  # constants have no derivative
    check(slope, made * np.array([[0.0, 0.0], [8 * left + 4 * (right + 2 * left), 2 * (right + 2 * left)]]))
    check(w, start)


def test_a_branch_that_is_decided_leaves_its_operands(device):
    """As one that isn't yet: what it writes to leaves of a tree stays inside, and results are arrays of their own."""

    def bumped(d):
        d["w"][0] = 9.0
        return d

    for decision in (True, lg.asarray(True)):
        tree = {"w": lg.asarray([1.0, 2.0])}
        result = lg.cond(decision, bumped, lambda d: d, tree)
        check(result["w"], [9.0, 2.0])
        same = lg.switch(lg.asarray(0) if decision is not True else 0, [lambda d: d], tree)
        same["w"][1] = 7.0
        check(tree["w"], [1.0, 2.0])
