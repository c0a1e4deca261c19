"""Comparing a loopgrad function with its NumPy namesake: values, shapes and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

import loopgrad as lg


def check(result: Any, expected: Any, rtol: float | None = None) -> None:
    """Equal shape and dtype, and values equal up to rounding."""
    expected = np.asarray(expected)
    got = np.asarray(result)
    assert got.dtype == expected.dtype, (got.dtype, expected.dtype)
    assert got.shape == expected.shape, (got.shape, expected.shape)
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, expected)
    else:
        tolerance = rtol if rtol is not None else (2e-6 if got.dtype.itemsize == 4 else 1e-12)
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def tensors(*arrays: Any) -> list[lg.Tensor]:
    return [lg.asarray(a) for a in arrays]


def both(name: str, *arrays: Any, numpy_name: str | None = None, rtol: float | None = None, **options: Any) -> None:
    """`lg.name(*arrays)` against `np.name(*arrays)`."""
    with np.errstate(all="ignore"):
        expected = getattr(np, numpy_name or name)(*arrays, **options)
    check(getattr(lg, name)(*tensors(*arrays), **options), expected, rtol)
