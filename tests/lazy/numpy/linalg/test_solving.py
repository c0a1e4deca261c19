"""`lg.linalg.solve` and its like against NumPy: batches, dtypes, sizes without elements, bad input."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

RNG = np.random.default_rng(5)


def matrices(*shape: int, dtype: str = "float64") -> np.ndarray:
    return (RNG.standard_normal(shape) + 2 * np.eye(shape[-1])).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 5, 5), (70, 4, 4), (3, 0, 0), (0, 3, 3), (2, 20, 20)], ids=str)
def test_shapes_and_dtypes(device: str, shape: tuple[int, ...], dtype: str) -> None:
    """One matrix, batches, what lanes do and what a library does, nothing."""
    a, b = matrices(*shape, dtype=dtype), RNG.standard_normal((*shape[:-1], 2)).astype(dtype)
    positive = a @ a.swapaxes(-1, -2) + np.eye(shape[-1], dtype=dtype)
    tolerance = 2e-3 if dtype == "float32" else 1e-10
    check(lg.linalg.solve(lg.asarray(a), lg.asarray(b)), np.linalg.solve(a, b), tolerance)
    check(lg.linalg.inv(lg.asarray(a)), np.linalg.inv(a), tolerance)
    check(lg.linalg.cholesky(lg.asarray(positive)), np.linalg.cholesky(positive), tolerance)


def test_as_numpy_takes_them(device: str) -> None:
    a, b = matrices(2, 3, 3), RNG.standard_normal(3)
    check(lg.linalg.solve(a, b), np.linalg.solve(a, b))
    check(lg.linalg.solve(a[0], RNG.standard_normal((4, 3, 1))).shape, (4, 3, 1))
    check(lg.linalg.solve([[2, 1], [1, 3]], [1, 2]), np.linalg.solve([[2, 1], [1, 3]], [1, 2]))
    upper = np.linalg.cholesky(a @ a.swapaxes(1, 2)).swapaxes(1, 2)
    check(lg.linalg.cholesky(a @ a.swapaxes(1, 2), upper=True), upper)
    read = np.array([[4.0, np.nan], [2.0, 5.0]])
    check(lg.linalg.cholesky(read), np.linalg.cholesky(read))
    assert isinstance(np.linalg.solve(lg.asarray(a), b), lg.Tensor)


def test_without_a_factorisation(device: str) -> None:
    """A matrix of a batch doesn't hurt the others."""
    a = matrices(3, 3, 3)
    positive = a @ a.swapaxes(1, 2)
    indefinite = np.stack([positive[0], -positive[1], np.full((3, 3), np.nan)])
    factors = np.asarray(lg.linalg.cholesky(indefinite))
    np.testing.assert_allclose(factors[0], np.linalg.cholesky(positive[0]))
    assert np.isnan(factors[1:]).all()
    singular = np.stack([a[0], np.ones((3, 3)), a[2]])
    x = np.asarray(lg.linalg.solve(singular, np.arange(3.0)))
    np.testing.assert_allclose(x[[0, 2]], np.linalg.solve(a[[0, 2]], np.arange(3.0)))
    assert not np.isfinite(x[1]).all()


def test_errors_are_of_numpys_kinds() -> None:
    for call in (np.linalg, lg.linalg):
        for bad in (lambda m: m.solve(np.ones((2, 3)), np.ones(2)), lambda m: m.cholesky(np.ones(3))):
            with pytest.raises(np.linalg.LinAlgError):
                bad(call)
        with pytest.raises(ValueError, match=r"rows|mismatch"):
            call.solve(np.eye(2), np.ones(3))
        with pytest.raises(TypeError):
            call.inv(np.eye(2, dtype=np.float16))
    with pytest.raises(lg.linalg.LinAlgError, match=r"solve: expected square matrices(.|\n)*test_solving.py"):
        lg.linalg.solve(np.ones((2, 3)), np.ones(2))
