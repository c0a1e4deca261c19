"""Accumulators whose updates look at other lanes: a lane's cotangents count while that lane is active, not while
the lane is that they flow to. The oracle is the program lane by lane in NumPy, and its differences."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import central_difference, check

import loopgrad as lg

A = np.array([0.3, -0.4, 0.6])
TRIPS = np.array([2, 0, 3])
PLACE = np.array([1, 0, 1])
UPDATES = {
    "flip": (lambda z: lg.flip(z), lambda z: z[::-1]),
    "sum": (lambda z: lg.broadcast_to(lg.sum(z), (3,)), lambda z: np.full(3, z.sum())),
    "gather": (lambda z: z[2 - lg.arange(3)], lambda z: z[::-1]),
}


def in_numpy(update, how, a):
    """Each lane adds (or multiplies) at its place as often as it makes trips; sum of squares."""
    cells = np.full(2, 0.5)
    for lane in range(3):
        for k in range(TRIPS[lane]):
            value = update(np.tanh(a * (1 + k)))[lane]
            cells[PLACE[lane]] = cells[PLACE[lane]] + value if how == "add" else cells[PLACE[lane]] * (1.5 + value)
    return float(np.sum(cells**2))


def updated(update, how, cells, a, k):
    value = update(lg.tanh(a * (1 + k)))
    place = lg.asarray(PLACE)
    return cells.at[place].add(value) if how == "add" else cells.at[place].multiply(1.5 + value)


def counted(update, how, a):
    body = lambda k, cells: updated(update, how, cells, a, lg.astype(k, lg.float64))
    return lg.fori_loop(0, lg.asarray(TRIPS), body, lg.full((2,), 0.5))


def conditional(update, how, a):
    """The same with a branch in a uniform loop."""

    def body(k, cells):
        add = lambda cells: updated(update, how, cells, a, lg.astype(k, lg.float64))
        return lg.cond(k < lg.asarray(TRIPS), add, lambda cells: cells, cells)

    return lg.fori_loop(0, 3, body, lg.full((2,), 0.5))


@pytest.mark.in_turns
@pytest.mark.parametrize("form", [counted, conditional])
@pytest.mark.parametrize("how", ["add", "mul"])
@pytest.mark.parametrize("update", UPDATES)
def test_gradient(device, update, how, form):
    tensors, arrays = UPDATES[update]
    value, slope = lg.value_and_grad(lambda a: lg.sum(form(tensors, how, a) ** 2))(lg.asarray(A))
    check(value, in_numpy(arrays, how, A), 1e-12)
    check(slope, central_difference(lambda a: in_numpy(arrays, how, a), A), 1e-7, 1e-7)


@pytest.mark.parametrize("form", [counted, conditional])
def test_second_derivative(device, form):
    tensors, _ = UPDATES["sum"]
    gradient = lg.grad(lambda a: lg.sum(form(tensors, "add", a) ** 2))
    along = np.array([0.7, 0.2, -0.5])
    slope = lambda a: np.asarray(gradient(lg.asarray(a)))
    want = (slope(A + 1e-6 * along) - slope(A - 1e-6 * along)) / 2e-6
    check(lg.jvp(gradient, (lg.asarray(A),), (lg.asarray(along),))[1], want, 1e-6, 1e-6)
    check(lg.grad(lambda a: lg.sum(gradient(a) * along))(lg.asarray(A)), want, 1e-6, 1e-6)


def test_an_update_that_is_the_same_in_all_lanes(device):
    """Place and value come from outside the lanes; the update is still each chosen lane's own."""
    chosen, place = np.array([True, False, True]), lg.asarray(1)
    everywhere = lambda z: lg.broadcast_to(z, (3,))

    def loss(a, start):
        add = lambda cells: cells.at[everywhere(place)].add(everywhere(lg.tanh(lg.sum(lg.sin(a)))))
        return lg.sum(lg.cond(lg.asarray(chosen), add, lambda cells: cells, 2 * start) ** 2)

    start = np.array([0.2, -0.1])
    total = np.tanh(np.sin(A).sum())
    rest = 2 * start + np.array([0, 2 * total])
    slopes = lg.grad(loss, (0, 1))(lg.asarray(A), lg.asarray(start))
    check(slopes[0], 2 * rest[1] * 2 * (1 - total**2) * np.cos(A), 1e-12)
    check(slopes[1], 4 * rest, 1e-12)


@pytest.mark.in_turns
@pytest.mark.parametrize("how", ["min", "max", "multiply"])
@pytest.mark.parametrize("nested", [False, True], ids=["branch", "branch in a branch"])
def test_lanes_that_meet_beside_lanes_that_are_off(device, how, nested):
    """Winners of a minimum and factors of a product are those of the lanes that chose the branch."""
    on, x = np.array([False, True, False, True]), np.array([-0.5, -0.5, -0.5, -0.2])
    x = -x if how == "max" else x
    first = {"min": 0.0, "max": 0.0, "multiply": 1.0}[how]
    want = {"min": [0, 1, 0, 0], "max": [0, 1, 0, 0], "multiply": [0, -0.2, 0, -0.5]}[how]

    def loss(x):
        put = lambda cells: getattr(cells.at[lg.asarray(np.ones(4, int))], how)(x)
        branch = (lambda cells: lg.cond(lg.asarray(on), put, lambda c: c, cells)) if nested else put
        return lg.sum(lg.cond(lg.asarray(on), branch, lambda cells: cells, lg.full((3,), first)))

    check(lg.grad(loss)(lg.asarray(x)), want, 1e-12)
    along = np.array([1.0, 2.0, 3.0, 4.0])
    check(lg.jvp(loss, (lg.asarray(x),), (lg.asarray(along),))[1], np.dot(want, along), 1e-12)
