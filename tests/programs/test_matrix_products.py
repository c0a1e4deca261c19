"""Products of matrices large enough for a device's library: every dtype, batched, transposed, differentiated.

The elements are -1, 0 or 1, so every sum is a small integer, which each dtype holds exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg

M, K, N = 96, 130, 110  # more than 2^20 multiplications
DTYPES = [lg.float32, lg.float64, lg.float16, lg.bfloat16]


def ones(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(-1, 2, shape).astype(np.float64)


def given(array: np.ndarray, dtype: Any) -> Any:
    return lg.astype(lg.asarray(array), dtype)


def seen(tensor: Any) -> np.ndarray:
    return np.asarray(lg.astype(tensor, lg.float64))


def skip_halves_without_a_library(device: str, dtype: Any) -> None:
    if device.startswith("simulator") and dtype is lg.float16:
        pytest.skip("the host's conversions of float16 are in a library that the simulator doesn't link")


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("turned", ["plain", "left", "right", "both"])
def test_product_and_gradient(compiled_device: str, dtype: Any, turned: str) -> None:
    skip_halves_without_a_library(compiled_device, dtype)
    left, right, weights = ones(M, K), ones(K, N), ones(M, N)
    a = given(left.T if turned in ("left", "both") else left, dtype)
    b = given(right.T if turned in ("right", "both") else right, dtype)

    def product(a: Any, b: Any) -> Any:
        return lg.matmul(a.T if turned in ("left", "both") else a, b.T if turned in ("right", "both") else b)

    value, pull = lg.vjp(product, a, b)
    assert value.dtype is dtype
    np.testing.assert_array_equal(seen(value), left @ right)
    da, db = pull(given(weights, dtype))
    np.testing.assert_array_equal(seen(da).T if turned in ("left", "both") else seen(da), weights @ right.T)
    np.testing.assert_array_equal(seen(db).T if turned in ("right", "both") else seen(db), left.T @ weights)


@pytest.mark.costly
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shapes", [((6, 40, 70), (6, 70, 80)), ((2, 3, 40, 70), (70, 80)), ((40, 70), (6, 70, 80))])
def test_batches(compiled_device: str, dtype: Any, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    skip_halves_without_a_library(compiled_device, dtype)
    left, right = (ones(*shape) for shape in shapes)
    np.testing.assert_array_equal(seen(lg.matmul(given(left, dtype), given(right, dtype))), left @ right)


@pytest.mark.parametrize("dtype", [lg.bfloat16, lg.float16], ids=str)
@pytest.mark.parametrize("shape", [(30, 500, 20), (1, 500, 20), (3, 9, 4)])
def test_sums_of_16_bit_floats_are_rounded_once(compiled_device: str, dtype: Any, shape: tuple[int, int, int]) -> None:
    """Terms that cancel: what is left counts less than a digit of what was added up."""
    skip_halves_without_a_library(compiled_device, dtype)
    m, k, n = shape
    rng = np.random.default_rng(k)
    a, b = given(rng.normal(size=(m, k)), dtype), given(rng.normal(size=(k, n)), dtype)
    exact = seen(a) @ seen(b)
    rounding = 2.0 ** (-8 if dtype is lg.bfloat16 else -11)
    assert (np.abs(seen(a @ b) - exact) <= np.abs(exact) * rounding + 2e-5).all()


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [lg.float32, lg.float64], ids=str)
def test_a_product_between_other_steps_is_replayed(compiled_device: str, dtype: Any) -> None:
    left, right = ones(M, K), ones(K, N)

    def program(a: Any, b: Any) -> Any:
        return lg.sum(lg.matmul(a + 1, b) * 2, axis=0)

    recorded = lg.compile(program).capture(given(left, dtype), given(right, dtype))
    for factor in (1, 2, -3):
        got = recorded.replay(given(left * factor, dtype), given(right, dtype))
        np.testing.assert_array_equal(seen(got), np.sum((left * factor + 1) @ right * 2, axis=0))


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [lg.float32, lg.float64, lg.int32], ids=str)
@pytest.mark.parametrize(
    "shapes",
    [
        ((5000, 3, 3), (5000, 3, 3)), ((5000, 4, 2), (5000, 2, 3)), ((5000, 6, 6), (5000, 6, 1)),
        ((5001, 3), (3, 3)), ((5001, 10), (10, 1)), ((5001, 16), (16, 8)), ((9001, 17), (17, 2)),
        ((4097, 12), (12, 16)),
    ],
)  # fmt: skip
def test_many_small_products_and_gradient(
    compiled_device: str, dtype: Any, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    """Whole products, or rows of one, are made by a lane each; with what is computed of them, and before them."""
    left, right = (ones(*shape) for shape in shapes)
    a, b = given(left, dtype), given(right, dtype)
    expected = left @ right
    np.testing.assert_array_equal(seen(lg.compile(lambda a, b: (a + 1) @ b * 2 - 1)(a, b)), (left + 1) @ right * 2 - 1)
    if dtype is lg.int32:
        return
    da, db = lg.grad(lambda a, b: lg.sum(lg.square(a @ b)), argnums=(0, 1))(a, b)
    np.testing.assert_array_equal(seen(da), 2 * expected @ np.swapaxes(right, -1, -2))
    np.testing.assert_array_equal(seen(db), 2 * np.swapaxes(left, -1, -2) @ expected)


def test_products_of_halves_are_summed_in_float32(compiled_device: str) -> None:
    """In 16 bits a sum of ones ends at 2048."""
    skip_halves_without_a_library(compiled_device, lg.float16)
    a = lg.ones((8, 4096), dtype=lg.float16)
    np.testing.assert_array_equal(seen(a @ a.T), np.full((8, 8), 4096.0))
