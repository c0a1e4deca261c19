"""Rows of arrays that are longer than a vector or about as long: elements are those of NumPy, and what lies at equal
distances is read and written without gathers and scatters, also where rows aren't a multiple of a vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg


@pytest.mark.in_turns
@pytest.mark.parametrize("columns", [3, 15, 16, 17, 30, 33, 63, 64, 100, 129])
@pytest.mark.parametrize("name", ["float32", "float64", "int64"])
def test_reductions_of_many_rows(columns: int, name: str) -> None:
    x = (np.random.default_rng(columns).normal(size=(5003, columns)) * 9).astype(name)
    total, largest, at = lg.compile(lambda x: (lg.sum(x, axis=1), lg.max(x, axis=1), lg.argmin(x, axis=1)))(x)
    assert np.allclose(np.asarray(total), x.astype(np.float64).sum(1), rtol=1e-6, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(largest), x.max(1))
    np.testing.assert_array_equal(np.asarray(at), x.argmin(1))


@pytest.mark.parametrize("columns", [5, 17, 31, 56, 100])
def test_rows_beside_a_column_and_a_row(columns: int) -> None:
    rng = np.random.default_rng(0)
    x, column, row = rng.normal(size=(301, columns)), rng.normal(size=(301, 1)), rng.normal(size=columns)
    got = lg.compile(lambda x, column, row: (x - row) * column)(x, column, row)
    np.testing.assert_array_equal(np.asarray(got), (x - row) * column)


def test_a_row_that_is_no_multiple_of_a_vector_runs_without_masks() -> None:
    text = lg.compile(lambda x: lg.sqrt(x) + 1.0).text("llvm", np.ones(1009, np.float32))
    assert "masked" not in text


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_lanes_that_write_far_apart(count: int) -> None:
    parts = np.random.default_rng(0).normal(size=(count, 4099)).astype(np.float32)
    stacked = lg.compile(lambda *parts: lg.stack([2 * p for p in parts], axis=1))
    np.testing.assert_array_equal(np.asarray(stacked(*parts)), 2 * parts.T)
    if count > 2:
        assert "masked.scatter" not in stacked.text("llvm", *parts)


def test_rows_that_are_read_far_apart_have_no_gather() -> None:
    text = lg.compile(lambda x: lg.max(x[:, ::11], axis=1)).text("llvm", np.ones((8192, 132), np.float32))
    assert "masked.gather" not in text


@pytest.mark.parametrize("name", ["int8", "float32", "float64", "int64"])
def test_positions_that_lie_side_by_side_or_dont(name: str) -> None:
    """At positions from data: neighbours, some that are none, all alike, backwards."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=3001) * 50).astype(name)
    beside = np.arange(3001)
    mixed = np.where(rng.random(3001) < 0.02, rng.integers(0, 3001, 3001), beside)
    looked_up = lg.compile(lambda x, index: x[index])
    for index in (beside, mixed, np.zeros(3001, int), beside[::-1].copy(), np.clip(beside - 5, 0, 2900)):
        np.testing.assert_array_equal(np.asarray(looked_up(x, index)), x[index])
    assert "beside" in looked_up.text("llvm", x, beside)


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "shape", [(70, 9, 2), (301, 5, 3), (40, 33, 10), (33, 17, 20), (5, 40, 16, 8), (9, 12, 3, 7), (4, 30, 0)]
)
def test_loops_over_an_axis_before_short_rows(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape)
    for name in ("float32", "float64", "int64"):
        given = (x * 9).astype(name)
        total, largest, scaled = lg.compile(
            lambda x: (lg.sum(x, axis=1), lg.max(x, axis=1), lg.sum(x * x[:, :1], axis=1))
        )(given)
        wide = given.astype(np.float64)
        np.testing.assert_allclose(np.asarray(total), wide.sum(1), rtol=1e-6, atol=1e-4)
        np.testing.assert_array_equal(np.asarray(largest), given.max(1))
        np.testing.assert_allclose(np.asarray(scaled), (wide * wide[:, :1]).sum(1), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("columns", [2, 7, 12, 19])
def test_moved_rows(columns: int) -> None:
    x = np.random.default_rng(0).normal(size=(203, columns)).astype(np.float32)
    for name, function in MOVED.items():
        got = np.asarray(lg.compile(lambda x, function=function: function(lg, x))(x))
        np.testing.assert_array_equal(got, function(np, x), name)


MOVED: dict[str, Callable[[Any, Any], Any]] = {
    "repeated": lambda m, x: m.repeat(x, 3, axis=0),
    "beside each other": lambda m, x: m.concatenate([x, 2 * x, x[:, :1]], 1),
    "bordered": lambda m, x: m.pad(x, 1),
    "turned around": lambda m, x: m.roll(x, 1, axis=1),
    "differences": lambda m, x: m.diff(x, axis=1),
    "beside a row": lambda m, x: x * m.arange(x.shape[1], dtype=x.dtype) + x[:, :1],
}


@pytest.mark.parametrize("shape", [(400, 50, 10), (100, 50, 4, 6)])
def test_these_gather_nothing(shape: tuple[int, ...]) -> None:
    for function in (lambda x: lg.max(x * x, axis=1), lambda x: lg.repeat(x, 3, axis=1)):
        assert "masked.gather" not in lg.compile(function).text("llvm", np.ones(shape, np.float32))


def blended(m: Any, table: Any, rows: Any, share: Any) -> Any:
    """Rows of a table between four others, as textures and grids of features have them."""
    return sum(share[:, k, None] * table[rows[:, k] + k % 2, rows[:, 3 - k]] for k in range(4))


@pytest.mark.parametrize("columns", [2, 3, 4, 5, 7, 8, 12])
@pytest.mark.parametrize("name", ["float32", "float64", "uint8"])
def test_rows_of_tables(columns: int, name: str) -> None:
    rng = np.random.default_rng(columns)
    table = rng.integers(0, 50, (9, 8, columns)).astype(name)
    rows, share = rng.integers(-8, 8, (1003, 4)).astype(np.int32), rng.integers(0, 4, (1003, 4)).astype(name)
    got = lg.compile(lambda *given: blended(lg, *given), device="cpu")(table, rows, share)
    np.testing.assert_array_equal(np.asarray(got), blended(np, table, rows, share))


@pytest.mark.parametrize("columns", [4, 8, 12, 16, 24])
def test_rows_of_tables_are_vectors(columns: int) -> None:
    """The number of a row is read once for all its elements: they lie side by side wherever it is."""
    table, rows = np.ones((64, 64, columns), np.float32), np.zeros((5000, 4), np.int32)
    f = lg.compile(lambda *given: blended(lg, *given), device="cpu")
    text = f.text("llvm", table, rows, np.ones((5000, 4), np.float32))
    assert not [line for line in text.splitlines() if " call " in line and "masked.gather" in line]
