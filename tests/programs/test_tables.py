"""Rows taken from tables and added to tables, on every device, against NumPy; tables small and large."""

from fractions import Fraction

import numpy as np
import pytest

import loopgrad as lg

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "float32", "float64"]
LARGE = 17_000  # rows of 9 elements: too many for exact sums
BITS = {"float16": 11, "float32": 24, "float64": 53}


def added(table, index, updates):
    """As np.add.at, where indices that are out of range are dropped, in exact arithmetic for floats."""
    index = np.where(index < 0, index + len(table), index)
    kept = (index >= 0) & (index < len(table))
    if table.dtype.kind != "f":
        wanted = table.copy()
        np.add.at(wanted, index[kept], updates[kept])
        return wanted
    found = {}
    for i, u in zip(index[kept], updates[kept], strict=True):
        row = found.setdefault(int(i), [Fraction(float(v)) for v in table[i].reshape(-1)])
        for k, v in enumerate(u.reshape(-1)):
            row[k] += Fraction(float(v))
    wanted = table.astype(np.float64)
    for i, row in found.items():
        wanted[i] = np.array([float(v) for v in row]).reshape(table.shape[1:])
    return wanted


def near(device, got, wanted, bits):
    """GPUs round sums, and what is in the table with them; the others may add one term after the other."""
    scale, roundings = np.maximum(np.abs(wanted), 1.0), 200 if device in ("interpreter", "cpu") else 3
    assert np.all(np.abs(got.astype(np.float64) - wanted) <= roundings * 2.0**-bits * scale)


def rows_of(device, rows):
    return min(rows, 50) if device.startswith("emulator") else rows


@pytest.mark.in_turns
@pytest.mark.parametrize("rows", [3, 60, LARGE])
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_updates_of_rows(device, rows, dtype):
    rows = rows_of(device, rows)
    rng = np.random.default_rng(rows)
    index = rng.integers(-rows - 2, rows + 2, 400)
    index[::3] = rows // 2
    updates = (rng.normal(size=(400, 9)) if dtype in FLOATS else rng.integers(0, 9, (400, 9))).astype(dtype)
    table = np.ones((rows, 9), dtype)
    run = lg.compile(lambda t, i, u: t.at[i].add(u))
    got = np.asarray(run(lg.asarray(table), lg.asarray(index), lg.asarray(updates)))
    wanted = added(table, index, updates)
    if dtype in FLOATS:
        near(device, got, wanted, BITS[dtype])
    else:
        np.testing.assert_array_equal(got, wanted)
    again = np.asarray(run(lg.asarray(table), lg.asarray(index), lg.asarray(updates)))
    assert again.tobytes() == got.tobytes()


@pytest.mark.in_turns
@pytest.mark.parametrize("width", [1, 8, 33])
@pytest.mark.parametrize("rows", [5, LARGE])
def test_gradients_of_rows_that_were_taken(device, rows, width):
    """Of a sum of squares of rows, many of which are taken more than once, and many never."""
    rows = rows_of(device, rows)
    rng = np.random.default_rng(width)
    table, index = rng.normal(size=(rows, width)).astype(np.float32), rng.integers(-rows, rows, 300)
    weight = rng.normal(size=(300, width)).astype(np.float32)

    def loss(t, i, w):
        taken = t[i]
        return lg.sum(taken * taken * w)

    value, gradient = lg.value_and_grad(loss)(*map(lg.asarray, (table, index, weight)))
    taken = table[index].astype(np.float64)
    assert abs(float(value) - np.sum(taken * taken * weight)) <= 1e-5 * np.sum(taken * taken * np.abs(weight))
    wanted, sizes = np.zeros((rows, width)), np.zeros((rows, width))
    np.add.at(wanted, index, 2 * taken * weight)
    np.add.at(sizes, index, np.abs(2 * taken * weight))
    assert np.all(np.abs(np.asarray(gradient) - wanted) <= 3e-6 * sizes)
    np.testing.assert_array_equal(np.asarray(gradient)[sizes == 0], 0.0)


@pytest.mark.parametrize("rows", [5, LARGE])
def test_updates_that_are_not_finite(device, rows):
    rows = rows_of(device, rows)
    inf, nan = np.inf, np.nan
    updates = np.repeat(np.array([1, inf, 2, -inf, inf, -inf, nan, 3, 3e38, 3e38, 1, -0.0], np.float32)[:, None], 9, 1)
    index = np.array([0, 1, 1, 2, 3, 3, 4, 4, 0, 0, rows, 2])
    got = np.asarray(lg.zeros((rows, 9), dtype=lg.float32).at[lg.asarray(index)].add(lg.asarray(updates)))
    np.testing.assert_array_equal(got[:5, 3], np.array([inf, inf, -inf, nan, nan], np.float32))
    np.testing.assert_array_equal(got[5:], 0.0)


@pytest.mark.parametrize("rows", [2, LARGE])
@pytest.mark.parametrize("count", [0, 1])
def test_few_updates(device, rows, count):
    rows = rows_of(device, rows)
    table, updates = np.full((rows, 9), -0.0, np.float32), np.full((count, 9), 2.5, np.float32)
    got = np.asarray(lg.asarray(table).at[lg.asarray(np.full(count, rows - 1))].add(lg.asarray(updates)))
    table[rows - 1] += updates.sum(0)
    np.testing.assert_array_equal(got, table)
    assert np.asarray(lg.asarray(table)[lg.asarray(np.zeros(0, int))]).shape == (0, 9)


def test_updates_in_a_loop(device):
    """Every trip adds to a table too large for exact sums; recorded and replayed."""
    rows = rows_of(device, LARGE)

    def run(table, index, update):
        return lg.fori_loop(0, 3, lambda k, t: t.at[(index + k) % rows].add(update * (1.0 + k)), table)

    rng = np.random.default_rng(1)
    arrays = np.zeros((rows, 9), np.float32), rng.integers(0, rows, 64), rng.normal(size=(64, 9)).astype(np.float32)
    replay = lg.compile(run).capture(*map(lg.asarray, arrays))
    wanted = np.zeros((rows, 9))
    for k in range(3):
        np.add.at(wanted, (arrays[1] + k) % rows, arrays[2] * (1.0 + k))
    for _ in range(2):
        np.testing.assert_allclose(np.asarray(replay.replay(*map(lg.asarray, arrays))), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_plan_says_how_lanes_meet(device, deterministic):
    if device in ("interpreter", "cpu"):
        return
    run = lg.compile(lambda t, i, u: t.at[i].add(u))
    with lg.options(deterministic=deterministic):
        arrays = [
            lg.zeros((LARGE, 9), dtype=lg.float32),
            lg.zeros(50, dtype=lg.int32),
            lg.ones((50, 9), dtype=lg.float32),
        ]
        (row,) = run.plan(*arrays).routines
        if not device.startswith("emulator"):
            assert float(run(*arrays)[0, 0]) == 50.0
    assert row.operands == f"float32[{9 * LARGE}] by 450 lanes"
    assert ("fixed point" in row.provider) == deterministic
    assert ("float atomics" in row.provider) == (not deterministic)


def test_counts_of_many_elements(device):
    """Enough of them for tables in memory of workgroups."""
    if device.startswith("emulator"):
        return
    x = np.random.default_rng(0).integers(-3, 70, 1 << 18)
    counted = lg.compile(lambda v: lg.bincount(v, length=64))
    exact = np.bincount(np.maximum(x, 0)[x < 64], minlength=64)
    np.testing.assert_array_equal(np.asarray(counted(lg.asarray(x))), exact)
    if device not in ("interpreter", "cpu"):
        (row,) = counted.plan(lg.asarray(x)).routines
        assert "memory of each workgroup" in row.provider
