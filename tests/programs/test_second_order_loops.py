"""Second derivatives through loops in branches, also where a reverse pass computes them again."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check

import loopgrad as lg

X = np.array([0.4, -0.7, 0.2])
TRIPS = np.array([2, 0, 3])


def repeated_tanh(x, trips):
    """tanh applied `trips` times, its first and second derivative."""
    value, slope, bend = x.copy(), np.ones_like(x), np.zeros_like(x)
    for k in range(trips.max(initial=0)):
        y = np.tanh(value)
        d = 1 - y * y
        on = k < trips
        bend = np.where(on, d * bend - 2 * y * d * slope**2, bend)
        slope = np.where(on, d * slope, slope)
        value = np.where(on, y, value)
    return value, slope, bend


def loop_in_branch(chosen, trips):
    """Identity where not chosen."""
    return lambda v: lg.cond(
        lg.asarray(chosen), lambda v: lg.fori_loop(0, lg.asarray(trips), lambda _, v: lg.tanh(v), v), lambda v: v, v
    )


AROUND = {
    "plain": lambda f: f,
    "checkpoint": lg.checkpoint,
    "budget": lambda f: lambda v: lg.fori_loop(0, lg.asarray(2), lambda _, v: f(v), v, memory_budget=1),
    "budget in a checkpoint": lambda f: lg.checkpoint(AROUND["budget"](f)),
}


@pytest.mark.in_turns
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("lanes", [False, True], ids=["uniform", "lanes"])
def test_a_loop_in_a_branch(device, around, lanes):
    """Both switches hand their stacks on to the end, the emptied ones too: a further derivative follows them."""
    chosen = np.array([True, True, True]) if lanes else np.array(True)
    trips = TRIPS if lanes else np.array(2)
    times = 2 if "budget" in around else 1
    _, _, bend = repeated_tanh(X, times * np.broadcast_to(trips, X.shape))
    function = AROUND[around](loop_in_branch(chosen, trips))
    gradient = lg.grad(lambda x: lg.sum(function(x)))
    check(lg.jvp(gradient, (lg.asarray(X),), (lg.ones(3),))[1], bend, 1e-12, 1e-15)
    check(lg.grad(lambda x: lg.sum(gradient(x)))(lg.asarray(X)), bend, 1e-12, 1e-15)


def _pulled_in_lanes(x, choices, trips):
    """A pullback inside a loop of lanes: of a switch whose branches loop, over rows read and written at places of the
    lanes. One branch saves, the other doesn't: what lanes that hadn't chosen it push has no derivative."""

    def lane(x, choice, trips):
        def body(b, c, row):
            scale = lambda _, row: row.at[(choice - 1) % 3].multiply(0.46)
            row = lg.fori_loop(0, 1, scale, row)

            def until(b, c, row):
                step = lambda s: (s[0] + 1, s[1], s[2], s[3].at[(choice + 3) % 3].add(0.03))
                return lg.while_loop(lambda s: (s[0] < 1) & (s[1] > -9.0), step, (lg.zeros_like(choice), b, c, row))[1:]

            def scanned(b, c, row):
                step = lambda s, e: ((s[0], s[1], s[2].at[choice % 3].set(c * s[2][(choice - 1) % 3])), e * s[1])
                return lg.scan(step, (b, c, row), lg.asarray([0.3, -0.7, 0.9]))[0]

            return lg.switch(choice, [until, scanned], b, c, row)

        start = (0.7 * x + 0.1, lg.sin(x), x * lg.arange(3.0))
        pull = lambda _, cotangents: tuple(lg.vjp(body, *start)[1](cotangents))
        ends = lg.fori_loop(0, trips, pull, (lg.asarray(0.5), lg.asarray(0.7), lg.arange(1.0, 4.0)))
        return ends[0] + ends[1] + lg.sum(ends[2] * lg.arange(2.0, 5.0))

    return lg.sum(lg.vmap(lane)(x, choices, trips))


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("trips", [(1, 1), (2, 1), (0, 2)])
def test_pullbacks_inside_loops_of_lanes(device, trips):
    x, choices = np.array([0.3, 0.6]), lg.asarray([0, 2])
    loss = lambda x: _pulled_in_lanes(x, choices, lg.asarray(trips))
    value = lambda x: float(loss(lg.asarray(x)))
    want = [(value(x + u) - value(x - u)) / 2e-6 for u in 1e-6 * np.eye(2)]
    np.testing.assert_allclose(np.asarray(lg.grad(loss)(lg.asarray(x))), want, rtol=1e-7, atol=1e-8)
    _, tangent = lg.jvp(loss, (lg.asarray(x),), (lg.ones(2),))
    np.testing.assert_allclose(float(tangent), sum(want), rtol=1e-7, atol=1e-8)


def _lanes_beside_a_shared_table(start, rows, places, trips):
    """Each lane's own trips; the rows that lanes put elsewhere have no part in the loss, but in what is saved."""
    own = lg.arange(len(places))

    def body(_, carried):
        seen, v = carried
        return seen.at[own, lg.asarray(places)].max(start), lg.sin(rows[lg.asarray(places)] * v)

    ends = lg.fori_loop(0, lg.asarray(trips), body, (lg.ones((len(places), 1)), lg.ones((len(places), 1))))
    return lg.sum(ends[1])


@pytest.mark.parametrize("lanes", [2, 40])
def test_lanes_of_different_trips_that_push_together(device, lanes):
    """What is saved by all lanes together isn't taken back by each lane for itself."""
    places, trips = np.arange(lanes) % 3, np.arange(lanes) % 5 + 1
    start, rows = np.linspace(-0.5, 0.5, lanes), np.array([[-0.48], [0.7], [1.1]])
    loss = lambda start, rows: _lanes_beside_a_shared_table(start, rows, places, trips)
    slope = lambda rows: np.asarray(lg.grad(loss, 1)(lg.asarray(start), lg.asarray(rows)))
    along = np.array([[0.85], [0.3], [-0.4]])
    want = (slope(rows + 1e-6 * along) - slope(rows - 1e-6 * along)) / 2e-6
    both = lambda start, rows: lg.grad(loss, (0, 1))(start, rows)
    given = (lg.asarray(start), lg.asarray(rows)), (lg.ones(lanes), lg.asarray(along))
    check(lg.jvp(both, *given)[1][1], want, rtol=1e-7, atol=1e-8)


@pytest.mark.in_turns
@pytest.mark.parametrize("trips", [[3, 1], [2, 2], [0, 4]])
def test_rows_over_lanes_in_a_loop_of_lanes(device, trips):
    """A loop inside reads one row of all lanes at a time: its derivative adds to rows, not at places of the lanes, so
    what lanes that aren't active add must be dropped some other way."""
    x = np.array([0.3, 0.7])

    def program(x):
        def trip(k, total):
            row = lambda c, r: ((), lg.where(k % 2 == 1, r * 0.5, r))
            _, rows = lg.scan(row, (), lg.expand_dims(x, 0))
            return total + lg.sum(lg.sin(rows), axis=0)

        return lg.sum(lg.fori_loop(0, lg.asarray(trips), trip, x * 0))

    odd, even = np.array(trips) // 2, (np.array(trips) + 1) // 2
    gradient = lg.grad(program)
    check(gradient(lg.asarray(x)), even * np.cos(x) + odd * 0.5 * np.cos(x / 2), 1e-14)
    bend = -even * np.sin(x) - odd * 0.25 * np.sin(x / 2)
    check(lg.jvp(gradient, (lg.asarray(x),), (lg.ones(2),))[1], bend, 1e-13, 1e-15)
    check(lg.grad(lambda x: lg.sum(gradient(x)))(lg.asarray(x)), bend, 1e-13, 1e-15)


def test_rows_over_lanes_in_a_branch_of_lanes(device):
    """What a loop in a branch saves holds a row of all lanes: it is pushed and popped for all of them together, also
    where only the reverse of the reverse pass has to look at other lanes."""
    x, e, t = np.array([0.5, 0.4, -0.5]), np.array([0.7, -0.2, 0.6]), np.array([0.7])
    first, weight = x < 0.35, np.array([[1.0]])

    def program(x, e, t):
        def looping(a, b):
            at_lanes = lg.asarray(np.zeros(3, np.int64))
            _, rows = lg.scan(lambda c, _: (c, t[at_lanes]), (), length=1)
            return 0.5 * a - 0.25 * e, b + lg.sum(lg.sin(rows) * weight, axis=0)

        chosen = lg.where(x < 0.35, 0, 1)
        a, b = lg.switch(chosen, [looping, lambda a, b: (a, lg.sin(x * x))], x, x * e)
        return lg.sum(b) + lg.sum(lg.tanh(a))

    along = (np.array([0.5, -1.0, 0.3]), np.array([1.0, 0.2, -0.4]), np.array([0.8]))
    bent = lambda z: -2 * np.tanh(z) * (1 - np.tanh(z) ** 2)
    mixed = bent(0.5 * x - 0.25 * e)
    straight = 2 * np.cos(x * x) - 4 * x * x * np.sin(x * x) + bent(x)
    wanted = (
        np.where(first, 0.25 * mixed * along[0] + (1 - 0.125 * mixed) * along[1], straight * along[0]),
        np.where(first, (1 - 0.125 * mixed) * along[0] + 0.0625 * mixed * along[1], 0.0),
        -np.sum(first) * np.sin(t) * along[2],
    )

    def slope(*values):
        return sum(lg.sum(g * d) for g, d in zip(lg.grad(program, (0, 1, 2))(*values), along, strict=True))

    for got, want in zip(lg.compile(lg.grad(slope, (0, 1, 2)))(x, e, t), wanted, strict=True):
        check(got, want, 1e-13, 1e-15)
