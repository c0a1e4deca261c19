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
