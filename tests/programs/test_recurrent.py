"""Recurrent layers by scan, of sizes whose products leave the loops: values and derivatives of all orders against
NumPy, where cells and their derivatives are written out, and against central differences."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import loopgrad as lg
from benchmarks.workloads.arrays import recurrent
from tests.programs.oracles import direction

TIME, BATCH, WIDE = 7, 3, 12
CELLS = {"lstm": (4, recurrent.lstm, recurrent.lstm_by_hand), "gru": (3, recurrent.gru, recurrent.gru_by_hand)}


@pytest.fixture
def cell(request, monkeypatch):
    """The loss of a cell by its name, with its derivatives by hand, and arguments in float64."""
    gates, function, by_hand = CELLS[request.param]
    monkeypatch.setattr(recurrent, "TIME", TIME)
    monkeypatch.setattr(recurrent, "WIDE", WIDE)
    zeros = lambda shape, like: lg.zeros(shape, dtype=like.dtype)
    arrays = [np.asarray(v, np.float64) for v in recurrent.sequences(gates, BATCH).values()]
    return partial(function, lg, lg.scan, lg.sigmoid, zeros), by_hand, arrays


@pytest.mark.parametrize("cell", CELLS, indirect=True)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_value_and_gradient(cell, dtype, device):
    loss, by_hand, arrays = cell
    arguments = [lg.asarray(v.astype(dtype)) for v in arrays]
    step = lg.compile(lg.value_and_grad(loss, argnums=(0, 1, 2)))
    want = by_hand(*arrays)
    for _ in range(2):
        value, slopes = step(*arguments)
        for got, expected in zip((value, *slopes), want, strict=True):
            exact = 1e-10 if dtype is np.float64 else 1e-4
            np.testing.assert_allclose(got, expected, rtol=exact, atol=exact * np.abs(expected).max())


@pytest.mark.in_turns
@pytest.mark.parametrize("cell", CELLS, indirect=True)
def test_all_derivatives(cell):
    """By the inputs too, forward, and of second order."""
    loss, by_hand, arrays = cell
    along = [1e-1 * direction(v.shape) / np.linalg.norm(direction(v.shape)) for v in arrays]

    def at(h):
        return [lg.asarray(v + h * a) for v, a in zip(arrays, along, strict=True)]

    slope = lg.grad(loss, argnums=(0, 1, 2, 3))
    value, forward = lg.jvp(loss, at(0.0), [lg.asarray(a) for a in along])
    reverse = sum(np.vdot(a, s) for a, s in zip(along, slope(*at(0.0)), strict=True))
    difference = (float(loss(*at(1e-4))) - float(loss(*at(-1e-4)))) / 2e-4
    np.testing.assert_allclose(value, by_hand(*arrays)[0], rtol=1e-10)
    np.testing.assert_allclose(forward, difference, rtol=1e-6)
    np.testing.assert_allclose(reverse, forward, rtol=1e-10)
    _, second = lg.jvp(slope, at(0.0), [lg.asarray(a) for a in along])
    for got, high, low in zip(second, slope(*at(1e-4)), slope(*at(-1e-4)), strict=True):
        expected = (np.asarray(high) - np.asarray(low)) / 2e-4
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


def test_products_leave_the_loop(monkeypatch):
    """Per trip one product is left forwards and one backwards; the plan says which left, and what they take."""
    monkeypatch.setattr(recurrent, "TIME", TIME)
    monkeypatch.setattr(recurrent, "WIDE", WIDE)
    loss = recurrent.cell(recurrent.lstm)["loopgrad"](lg)
    arguments = [lg.asarray(v) for v in recurrent.sequences(4, BATCH).values()]
    plan = str(lg.compile(lg.value_and_grad(loss, argnums=(0, 1, 2))).plan(*arguments))
    assert plan.count(f"is one product of all {TIME} trips, before the loop") == 1
    assert plan.count(f"is one product of all {TIME} trips, after the loop") == 2
    assert f"rows of {4 * TIME * BATCH * 4 * WIDE:,} bytes" in plan


def test_rows_of_a_table_and_what_each_trip_returns(device):
    """Words looked up, a layer on top of each row, and the derivative by the table."""
    rng = np.random.default_rng(3)
    table, w, u = (rng.standard_normal(s) / 4 for s in ((9, 16), (16, 12), (12, 12)))
    words = np.array([[1, 5, 1, 8], [0, 0, 3, 3], [7, 2, 5, 1]])

    def loss(xp, scan, table, w, u):
        def step(h, row):
            h = xp.tanh(table[row] @ w + h @ u)
            return h, h @ u

        _, made = scan(step, xp.zeros((4, 12)), words if xp is np else lg.asarray(words))
        return xp.sum(made * made)

    def rows_in_python(step, h, rows):
        made = []
        for row in rows:
            h, y = step(h, row)
            made.append(y)
        return h, np.stack(made)

    numbers = [table, w, u]
    value, slopes = lg.value_and_grad(partial(loss, lg, lg.scan), argnums=(0, 1, 2))(*map(lg.asarray, numbers))
    np.testing.assert_allclose(value, loss(np, rows_in_python, *numbers), rtol=1e-12)
    for i, slope in enumerate(slopes):
        change = 1e-5 * direction(numbers[i].shape)
        up, down = (
            loss(np, rows_in_python, *[v + s * change if j == i else v for j, v in enumerate(numbers)]) for s in (1, -1)
        )
        np.testing.assert_allclose(np.vdot(change, slope), (up - down) / 2, rtol=1e-6)
