"""Lanes that run on their own and add into one table, whose loss reads the lanes' results and the table.

The reverse loop runs the forward loop again for what it saves. What the lanes added together is in memory then, and
must be read from there: a lane that runs alone only knows its own part. Expected numbers come from plain Python loops.
"""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check_gradient

import loopgrad as lg

LANES, BINS = 5, 4
START = np.array([0.3, -0.2, 0.7, 0.5, -0.6])
TRIPS = np.array([4, -1, 3, 4, 1])
PLACES = np.array([3, 3, 0, 3, 1])

# what a lane adds, by its carry, its own value and the trip
ADDED = {
    "value": lambda c, e, k: e,
    "scaled value": lambda c, e, k: 1.5 * e,
    "value by trip": lambda c, e, k: e * (k + 0.5),
    "carry": lambda c, e, k: c,
    "carry by value": lambda c, e, k: c * e,
}
# the loss, by the carries and the table
LOSSES = {
    "linear": lambda xp, c, h: xp.sum(c) + xp.sum(h),
    "squares": lambda xp, c, h: xp.sum(c) + xp.sum(h * h),
    "table only": lambda xp, c, h: xp.sum(xp.sin(h)),
    "mixed": lambda xp, c, h: xp.sum(c * c) * xp.sum(xp.sin(h)),
    "read by lanes": lambda xp, c, h: xp.sum(c * h[PLACES]),
}


def plain(added, loss):
    def value(start):
        table, ends = np.zeros(BINS), start.copy()
        for lane in range(LANES):
            for k in range(TRIPS[lane]):
                table[PLACES[lane]] += added(ends[lane], start[lane], k)
                ends[lane] = np.tanh(ends[lane])
        return loss(np, ends, table)

    return value


def slope(value, x, step=1e-6):
    units = step * np.eye(len(x))
    return np.array([(value(x + u) - value(x - u)) / (2 * step) for u in units])


def counted(added, loss):
    def value(e):
        def body(k, state):
            c, h = state
            return lg.tanh(c), h.at[PLACES].add(added(c, e, lg.astype(k, lg.float64)))

        return loss(lg, *lg.fori_loop(0, lg.asarray(TRIPS), body, (e, lg.zeros(BINS))))

    return value


def conditional(added, loss):
    def value(e):
        def body(state):
            k, c, h = state
            return k + 1, lg.tanh(c), h.at[PLACES].add(added(c, e, lg.astype(k, lg.float64)))

        start = (lg.zeros(LANES, dtype=lg.int64), e, lg.zeros(BINS))
        return loss(lg, *lg.while_loop(lambda s: s[0] < lg.asarray(TRIPS), body, start)[1:])

    return value


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("loop", [counted, conditional])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("added", ADDED)
def test_the_table_that_a_loss_reads_is_what_all_lanes_added(device, added, loss, loop):
    want = slope(plain(ADDED[added], LOSSES[loss]), START)
    check_gradient(loop(ADDED[added], LOSSES[loss]), (lg.asarray(START),), want, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("kind", ["min", "max"])
def test_extrema_of_all_lanes(device, kind):
    combine = np.minimum if kind == "min" else np.maximum

    def plain_value(start):
        table, ends = np.zeros(BINS), start.copy()
        for lane in range(LANES):
            for _ in range(TRIPS[lane]):
                table[PLACES[lane]] = combine(table[PLACES[lane]], start[lane])
                ends[lane] = np.tanh(ends[lane])
        return np.sum(ends) + np.sum(table * table)

    def value(e):
        def body(_, state):
            c, h = state
            return lg.tanh(c), getattr(h.at[PLACES], kind)(e)

        c, h = lg.fori_loop(0, lg.asarray(TRIPS), body, (e, lg.zeros(BINS)))
        return lg.sum(c) + lg.sum(h * h)

    check_gradient(value, (lg.asarray(START),), slope(plain_value, START), rtol=1e-7, atol=1e-8)


def test_two_tables_added_to_at_two_places(device):
    other = np.array([0, 1, 1, 2, 3])

    def plain_value(start):
        first, second, ends = np.zeros(BINS), np.ones(BINS), start.copy()
        for lane in range(LANES):
            for _ in range(TRIPS[lane]):
                first[PLACES[lane]] += start[lane]
                second[other[lane]] += ends[lane]
                first[other[lane]] += 0.5
                ends[lane] = np.sin(ends[lane])
        return np.sum(first * second) + np.sum(ends)

    def value(e):
        def body(_, state):
            c, first, second = state
            return lg.sin(c), first.at[PLACES].add(e).at[other].add(0.5), second.at[other].add(c)

        c, first, second = lg.fori_loop(0, lg.asarray(TRIPS), body, (e, lg.zeros(BINS), lg.ones(BINS)))
        return lg.sum(first * second) + lg.sum(c)

    check_gradient(value, (lg.asarray(START),), slope(plain_value, START), rtol=1e-7, atol=1e-8)


def test_a_long_table_isnt_made_again_in_registers(compiled_device):
    """Beside the loop that runs again for its stack, what it wrote is in memory: not 200,000 scalars of a lane."""
    extent = 100_000

    def fill(k, row):
        return lg.while_loop(lambda s: s[0] < extent, lambda s: (s[0] + 1, s[1].at[s[0]].set(1.0)), (k, row))[1]

    def pulled(first, rows):
        filled, pull = lg.vjp(lambda rows: lg.vmap(fill)(first, rows), rows)
        return pull(lg.ones_like(filled))[0]

    got = np.asarray(lg.compile(pulled)(lg.asarray([5, extent - 3]), lg.zeros((2, extent))))
    want = np.stack([np.arange(extent) < start for start in (5, extent - 3)])  # 0 where it was overwritten
    np.testing.assert_array_equal(got, want.astype(np.float64))


def test_rows_that_lanes_share_are_refused(device):
    """A row of all lanes isn't a place of one lane: what lanes that have ended add couldn't be dropped."""

    def trip(_, carried):
        value, table = carried
        return value + lg.sum(value), lg.fori_loop(0, 2, lambda j, t: t.at[j].add(value), table)

    with pytest.raises(lg.ShapeError, match="per-lane positions"):
        lg.fori_loop(0, lg.asarray(TRIPS), trip, (lg.asarray(START), lg.zeros((3, LANES))))


def test_a_constant_update_in_a_branch_within_lanes(device):
    """An update that all lanes make alike at one place isn't computed before the branch: it is the table's."""

    def program(scale, start):
        def chosen(table, value):
            add = lambda t: t.at[lg.zeros(LANES, dtype=lg.int64)].add(lg.full((LANES,), 0.25))
            table = lg.cond(scale > 0, add, lambda t: t.at[lg.asarray(PLACES)].add(value), table)
            return table, value * scale

        index = lg.asarray(np.array([0, 1, 0, 1, 1]))
        table, value = lg.switch(index, [lambda t, v: (t, v), chosen], lg.ones(BINS), start)
        return lg.sum(table * table) + lg.sum(value)

    gradient = lg.compile(lg.grad(program, argnums=(0, 1)))
    active = np.array([0, 1, 0, 1, 1])
    for scale in (2.0, -2.0):
        table = np.ones(BINS)
        np.add.at(table, PLACES, active * START) if scale < 0 else table.__setitem__(0, 1 + 0.25 * active.sum())
        by_start = np.where(active, scale, 1.0) + (active * 2 * table[PLACES] if scale < 0 else 0)
        got = gradient(np.array(scale), START)
        np.testing.assert_allclose(np.asarray(got[0]), np.sum(active * START), rtol=1e-12)
        np.testing.assert_allclose(np.asarray(got[1]), by_start, rtol=1e-12)
