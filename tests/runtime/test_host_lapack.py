"""One small matrix by itself is factorised to the bits of one among others, by any thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from loopgrad.runtime import host_lapack
from loopgrad.runtime.openblas import library
from tests.programs.same_bits import same_bits

DTYPES = ["float32", "float64", "complex64", "complex128"]
SHAPES = [(1, 1), (2, 2), (3, 5), (5, 3), (8, 8), (33, 1), (1, 7), (128, 128)]
pytestmark = pytest.mark.skipif(library() is None, reason="NumPy brings no OpenBLAS of its own here")


def _matrix(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=shape)
    return (a + 1j * rng.normal(size=shape) if dtype.startswith("complex") else a).astype(dtype)


def _as_of_many(
    routine: Callable[..., tuple[Any, ...]], attrs: dict[str, Any], *operands: np.ndarray[Any, Any]
) -> None:
    alone = routine(attrs, operands, 2)
    among = routine(attrs, [np.stack([x, x]) for x in operands], 2)
    for x, both in zip(alone, among, strict=True):
        assert same_bits(x, both[0])
        assert same_bits(x, both[1])
        assert x.shape == both.shape[1:]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_lu(shape: tuple[int, int], dtype: str) -> None:
    a = _matrix(shape, dtype)
    _as_of_many(host_lapack.lu, {}, a)
    _as_of_many(host_lapack.lu, {}, np.asfortranarray(a))
    _as_of_many(host_lapack.lu, {}, a[::-1])
    a[:, -1] = a[:, 0]  # singular
    _as_of_many(host_lapack.lu, {}, a)
    a[0, 0] = np.nan  # which row comes first then OpenBLAS decides by where the matrix lies
    assert np.isnan(host_lapack.lu({}, [a], 2)[0]).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 5, 129])
@pytest.mark.parametrize("k", [1, 3, 130])
@pytest.mark.parametrize("turned", [False, True])
def test_solve_factored(n: int, k: int, dtype: str, turned: bool) -> None:
    a, b = _matrix((n, n), dtype), _matrix((n, k), dtype, 1)
    packed, _, rows = host_lapack.lu({}, [a], 2)
    _as_of_many(host_lapack.solve_factored, {"transpose": turned}, a, packed, rows, b)
    (x,) = host_lapack.solve_factored({"transpose": turned}, [a, packed, rows, b], 2)
    digits = 1e-2 if np.finfo(a.dtype).bits == 32 else 1e-9
    np.testing.assert_allclose((a.T if turned else a) @ x, b, rtol=digits, atol=digits)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_cholesky(n: int, dtype: str) -> None:
    a = _matrix((n, n), dtype)
    positive = a @ a.conj().T + n * np.eye(n, dtype=dtype)
    _as_of_many(host_lapack.cholesky, {}, positive)
    (factor,) = host_lapack.cholesky({}, [positive], 2)
    assert same_bits(factor, np.tril(factor))
    for wrong in (-positive, np.full_like(positive, np.nan)):
        _as_of_many(host_lapack.cholesky, {}, wrong)
        assert np.isnan(host_lapack.cholesky({}, [wrong], 2)[0]).all()


def test_results_are_their_own_memory_in_all_threads() -> None:
    matrices = [_matrix((4, 4), "float64", seed) for seed in range(200)]
    alone = [[x.copy() for x in host_lapack.lu({}, [a], 1)] for a in matrices]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda a: host_lapack.lu({}, [a], 1), matrices * 4))
    for expected, results in zip(alone * 4, found, strict=True):
        for x, y in zip(expected, results, strict=True):
            assert same_bits(x, y)
