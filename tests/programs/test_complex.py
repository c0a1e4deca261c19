"""Complex arrays are held and moved; nothing computes with them, and a cast says so instead of guessing."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("source", [np.float64([1.0, 2.0]), np.int32([1, 2]), np.array([True, False])])
def test_a_cast_to_complex_is_refused(source: np.ndarray, dtype: str) -> None:
    with pytest.raises(lg.DTypeError, match="expected real dtypes"):
        lg.asarray(source).astype(dtype)


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool", "complex64"])
def test_a_cast_from_complex_is_refused(dtype: str) -> None:
    with pytest.raises(lg.DTypeError, match="expected real dtypes"):
        lg.asarray(np.array([1.0 + 2.0j])).astype(dtype)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_arrays_are_moved(device: str, dtype: str) -> None:
    z = (np.arange(6).reshape(2, 3) * (1.0 + 2.0j)).astype(dtype)
    moved = lg.concat([lg.asarray(z).T, lg.asarray(z).T[::-1]], axis=0)
    if dtype == "complex128" and device not in ("cpu", "interpreter"):
        with pytest.raises(lg.DTypeError, match="at most 64 bits"):
            np.asarray(moved)
        return
    assert np.array_equal(np.asarray(moved), np.concatenate([z.T, z.T[::-1]]))
