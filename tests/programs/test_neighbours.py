"""Sums over neighbours that are looked up, on every device, beside NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg


def pulled(m: Any, x: Any, near: Any) -> Any:
    apart = x[near] - x[:, None]
    square = m.sum(apart * apart, axis=-1, keepdims=True)
    return m.sum(m.exp(-square) / (square + 1) * apart, axis=1)


def points(count: int, neighbours: int, width: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(count)
    near = rng.integers(-max(count, 1), max(count, 1), (count, neighbours)).astype(np.int32)
    return rng.normal(size=(count, width)).astype(dtype), near


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("count", "neighbours", "width"),
    [(9001, 8, 3), (3500, 20, 3), (2111, 33, 2), (4200, 16, 3), (300, 100, 3), (0, 16, 3), (4200, 16, 4)],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_sums(compiled_device: str, count: int, neighbours: int, width: int, dtype: str) -> None:
    x, near = points(count, neighbours, width, dtype)
    got = np.asarray(lg.compile(lambda x, near: pulled(lg, x, near))(lg.asarray(x), lg.asarray(near)))
    error = {"float16": 2e-2, "float32": 1e-5, "float64": 1e-13}[dtype]
    np.testing.assert_allclose(got, pulled(np, x.astype(np.float64), near), error, error)
    assert got.dtype == x.dtype


@pytest.mark.in_turns
def test_nan_stays_with_those_who_look_it_up(compiled_device: str) -> None:
    x, near = points(4200, 16, 3, "float32")
    x[7] = np.nan
    got = np.asarray(lg.compile(lambda x, near: pulled(lg, x, near))(lg.asarray(x), lg.asarray(near)))
    want = (np.arange(4200) == 7) | (near % 4200 == 7).any(1)
    np.testing.assert_array_equal(np.isnan(got).any(1), want)
