"""Comparing a loopgrad function with its NumPy namesake: values, shapes and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

import loopgrad as lg

TOGETHER: Final = 16  # one program of so many rows is compiled in half the time that they take alone


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


def unlike_numpy(
    rows: Sequence[str], ours: Callable[[str], Sequence[Any]], numpys: Callable[[str], Sequence[Any]], rtol: float
) -> Iterator[str]:
    """The rows for which the two functions don't give the same arrays, and how they differ. `rtol` is of 64 bits."""
    for start in range(0, len(rows), TOGETHER):
        found: dict[str, Sequence[Any]] = {}
        for row in rows[start : start + TOGETHER]:
            try:
                found[row] = ours(row)
            except Exception as error:
                yield _difference(row, error)
        with suppress(Exception):  # the row whose evaluation fails does so again by itself
            lg.eval(list(found.values()))
        for row, results in found.items():
            wanted = numpys(row)
            try:
                assert len(results) == len(wanted), (len(results), len(wanted))
                for got, expected in zip(results, wanted, strict=True):
                    check(got, expected, 3e-6 if np.asarray(expected).dtype in (np.float32, np.complex64) else rtol)
            except Exception as error:
                yield _difference(row, error)


def _difference(row: str, error: Exception) -> str:
    return f"{row}: {type(error).__name__} {str(error).strip()[:300]}"
