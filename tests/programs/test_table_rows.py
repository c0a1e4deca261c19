"""Rows of a table at positions that data gives: read, added up, replaced, and differentiated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg

ROWS, PICKS = 23, 150
COLUMNS = [1, 3, 4, 5, 8, 12, 17, 33, 64, 100]


def table(columns: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(columns).integers(-4, 5, (ROWS, columns)).astype(dtype)


def positions(beyond: int = 0) -> np.ndarray:
    return np.random.default_rng(1).integers(-ROWS - beyond, ROWS + beyond, PICKS).astype(np.int32)


@pytest.mark.in_turns
@pytest.mark.parametrize("columns", COLUMNS)
def test_gradient_of_rows(compiled_device: str, columns: int) -> None:
    x, at = table(columns), positions()
    value, slope = lg.value_and_grad(lambda x: lg.sum(x[at] * x[at]))(lg.asarray(x))
    times = np.bincount(at % ROWS, minlength=ROWS)
    assert float(value) == np.sum(x[at] ** 2)
    np.testing.assert_array_equal(np.asarray(slope), 2 * times[:, None] * x)


@pytest.mark.in_turns
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("kind", ["add", "min", "max", "multiply"])
def test_rows_that_meet(compiled_device: str, kind: str, columns: int) -> None:
    x, at, rows = table(columns), positions(beyond=3), np.sign(table(columns + 1)[:, :columns] + 0.5)
    given = np.resize(rows, (PICKS, columns)).astype(np.float32)
    got = getattr(lg.asarray(x).at[lg.asarray(at)], kind)(lg.asarray(given) * 1.0)
    want, inside = x.copy(), (at >= -ROWS) & (at < ROWS)
    ufunc = {"add": np.add, "min": np.minimum, "max": np.maximum, "multiply": np.multiply}[kind]
    ufunc.at(want, at[inside], given[inside])
    np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16", "float64"])
@pytest.mark.parametrize("columns", [4, 8, 12])
def test_dtypes(compiled_device: str, dtype: str, columns: int) -> None:
    x, at = table(columns, dtype), positions()
    again = (lambda x, at: x.at[at].set(x[at])) if dtype == "bool" else (lambda x, at: x.at[at].max(x[at]))
    got = lg.compile(lambda x, at: (lg.where(x[at] > 0, x[at], x[at[::-1]]), again(x, at)))(x, at)
    np.testing.assert_array_equal(np.asarray(got[0]), np.where(x[at] > 0, x[at], x[at[::-1]]))
    np.testing.assert_array_equal(np.asarray(got[1]), x)


@pytest.mark.parametrize("columns", [5, 8])
def test_rows_beside_other_arithmetic(compiled_device: str, columns: int) -> None:
    """Rows twice in one kernel, sums over a part of the axes, a mask, and positions of two axes."""
    x, at = table(columns).astype(np.float64), positions()
    pairs = at.reshape(10, 15)

    def program(x: Any) -> Any:
        rows = x[pairs]
        return lg.sum(rows * lg.flip(rows, axis=2), axis=2), lg.sum(lg.where(rows > 0, rows, 0.0), axis=(0, 1))

    first, second = lg.compile(program)(lg.asarray(x))
    rows = x[pairs]
    np.testing.assert_allclose(np.asarray(first), np.sum(rows * rows[..., ::-1], axis=2), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(second), np.sum(np.where(rows > 0, rows, 0.0), axis=(0, 1)), rtol=1e-12)


def test_a_vector_lies_along_a_row_on_the_cpu() -> None:
    step = lg.compile(lg.grad(lambda x, at: lg.sum(x[at] * x[at])))
    big = np.zeros((70_000, 8), np.float32)
    with lg.default_device("cpu"):
        kernels = step.plan(lg.asarray(big), lg.asarray(positions())).kernels
    assert {kernel.width for kernel in kernels if kernel.domain == (PICKS, 8)} in ({4}, {8})


def test_of_updates_that_meet_the_last_stays(compiled_device: str) -> None:
    """Elements and rows, whether little or much is computed for them, negative positions and such out of range."""
    rng = np.random.default_rng(3)
    few, many = rng.integers(-60, 60, 3000).astype(np.int32), rng.integers(0, 50, (40, 7))
    x, rows = rng.normal(size=3000), rng.normal(size=(3000, 5)).astype(np.float32)

    def updated(x, rows, few, many):
        return (
            lg.zeros(50).at[few].set(x),
            lg.ones((50, 5), dtype=lg.float32).at[few].set(rows),
            lg.zeros(50).at[few].set(lg.sin(lg.exp(lg.cos(x)))),
            lg.zeros(50, dtype=lg.bool_).at[many].set(x[:280].reshape(40, 7) > 0),
            lg.zeros((50, 40)).at[many, lg.arange(40)[:, None]].set(x[:280].reshape(40, 7)),
        )

    def expected(table, positions, values):
        held = np.array(table)
        for place, value in zip(positions, values, strict=True):
            if all(-n <= at < n for at, n in zip(place, held.shape, strict=False)):
                held[place] = value
        return held

    got = lg.compile(updated)(x, rows, few, many)
    single, spread = [(int(i),) for i in few], [(int(i),) for i in many.ravel()]
    pairs = [(int(i), row) for row, found in enumerate(many) for i in found]
    for found, wanted in zip(
        got,
        [
            expected(np.zeros(50), single, x),
            expected(np.ones((50, 5), np.float32), single, rows),
            expected(np.zeros(50), single, np.sin(np.exp(np.cos(x)))),
            expected(np.zeros(50, bool), spread, x[:280] > 0),
            expected(np.zeros((50, 40)), pairs, x[:280]),
        ],
        strict=True,
    ):
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-12)
