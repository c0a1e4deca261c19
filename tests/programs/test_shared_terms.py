"""Products of matrices and few rows or columns, where own kernels do them: in loops, and where no library is called.

The elements are small integers, so that every sum is exact in any order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import loopgrad as lg

SHAPES = [
    ((1, 1500), (1500, 37)),
    ((301, 203), (203,)),
    ((1500,), (1500, 37)),
    ((3, 1027), (1027, 33)),
    ((33, 1027), (1027, 5)),
    ((2, 3, 129, 130), (130, 1)),
    ((3, 1, 130), (3, 130, 129)),
    ((70000,), (70000,)),
    ((5, 9001), (9001, 5)),
    ((40, 0), (0, 1)),
    ((0, 1000), (1000,)),
]


def whole(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    found = rng.integers(-4, 5, shape).astype(dtype)
    return found + 1j * rng.integers(-4, 5, shape) if dtype == "complex128" else found


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_products(compiled_device: str, left: tuple[int, ...], right: tuple[int, ...], dtype: str) -> None:
    """As they are, and with either operand transposed in memory."""
    a, b = whole(left, dtype), whole(right, dtype)
    for turn_a in (False, True)[: len(left)]:
        for turn_b in (False, True)[: len(right)]:
            x = np.ascontiguousarray(np.swapaxes(a, -1, -2)) if turn_a else a
            y = np.ascontiguousarray(np.swapaxes(b, -1, -2)) if turn_b else b

            def product(x: Any, y: Any, turn_a: bool = turn_a, turn_b: bool = turn_b) -> Any:
                return (lg.matrix_transpose(x) if turn_a else x) @ (lg.matrix_transpose(y) if turn_b else y)

            got = np.asarray(lg.compile(product)(lg.asarray(x), lg.asarray(y)))
            np.testing.assert_array_equal(got, a @ b)
            assert got.dtype == a.dtype


def descent(x: Any, y: Any, w: Any) -> Any:
    return lg.fori_loop(0, 4, lambda _, w: w - 0.01 * (x.T @ (lg.sigmoid(x @ w) - y)), w)


def descent_in_numpy(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    for _ in range(4):
        w = w - 0.01 * (x.T @ (1 / (1 + np.exp(-(x @ w))) - y))
    return w


@pytest.mark.in_turns
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-12)])
def test_in_a_loop(compiled_device: str, dtype: str, tolerance: float) -> None:
    rng = np.random.default_rng(1)
    x, y, w = (a.astype(dtype) for a in (rng.normal(size=(519, 67)), rng.random(519), rng.normal(size=67) / 9))
    got = np.asarray(lg.compile(descent)(*map(lg.asarray, (x, y, w))))
    np.testing.assert_allclose(got, descent_in_numpy(x, y, w), rtol=tolerance, atol=tolerance)


@pytest.mark.in_turns
def test_derivative_of_a_loop(compiled_device: str) -> None:
    rng = np.random.default_rng(2)
    x, y, w, v = rng.normal(size=(519, 67)), rng.random(519), rng.normal(size=67) / 9, rng.normal(size=67)
    x_, y_, w_ = map(lg.asarray, (x, y, w))
    gradient = np.asarray(lg.grad(lambda w: lg.sum(descent(x_, y_, w) ** 2))(w_))
    step = 1e-5
    ahead, behind = (np.sum(descent_in_numpy(x, y, w + s * step * v) ** 2) for s in (1, -1))
    np.testing.assert_allclose(gradient @ v, (ahead - behind) / (2 * step), rtol=1e-6)


def test_lanes_share_the_terms_of_a_loop(compiled_device: str) -> None:
    """Both products of a trip are kernels with a lane for each of their terms."""
    if compiled_device == "cpu":
        pytest.skip("whose routines multiply")
    given = [lg.zeros(shape, dtype=lg.float32) for shape in ((519, 67), (519,), (67,))]
    domains = [math.prod(kernel.domain) for kernel in lg.compile(descent).plan(*given).kernels]
    assert domains.count(519 * 67) >= 2


@pytest.mark.in_turns
@pytest.mark.parametrize("few", [1, 3, 7])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_matrices_of_pairs(compiled_device: str, dtype: str, few: int) -> None:
    """What all pairs of points give, times few columns: by rows, by columns, and of a batch, none of it stored."""
    x, y = whole((131,), dtype), whole((77,), dtype)
    by_rows, by_columns, columns = whole((77, few), dtype), whole((131, few), dtype), whole((77, 3), dtype)

    def program(x: Any, y: Any, by_rows: Any, by_columns: Any, columns: Any) -> list[Any]:
        made = x[:, None] * y - 2
        each = made[:, :, None] + columns
        one_by_one = (made[:, None, :] @ each)[:, 0]
        picture = (x[:, None, None] + x[:3, None]) * y
        return [
            made @ by_rows,
            made.T @ by_columns,
            by_rows.T @ made.T,
            one_by_one,
            made.sum(axis=1),
            picture @ by_rows,
        ]

    given = (x, y, by_rows, by_columns, columns)
    found = lg.compile(program)(*map(lg.asarray, given))
    for got, expected in zip(found, program(*given), strict=True):
        np.testing.assert_array_equal(np.asarray(got), expected)


def test_infinite_elements_of_pairs(compiled_device: str) -> None:
    """Times nothing they are no numbers, as in any product."""
    x, y, z = np.ones(300, np.float32), np.ones(200, np.float32), np.zeros((200, 2), np.float32)
    x[17], z[:, 1] = np.inf, 1
    found = np.asarray(lg.compile(lambda x, y, z: (x[:, None] * y) @ z)(*map(lg.asarray, (x, y, z))))
    expected = np.where(np.arange(300)[:, None] == 17, [np.nan, np.inf], [0, 200])
    np.testing.assert_array_equal(found, expected)
