"""Loads of rows that lie far apart ask for what is read next; others don't, and results are what they were."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg

LARGE, SMALL = (600, 600), (300, 300)  # float64: 2.9 MB, 0.7


@pytest.mark.parametrize(
    ("shape", "axis", "asks"), [(LARGE, 0, True), (LARGE, 1, False), (SMALL, 0, False)], ids=["far", "near", "small"]
)
def test_maxima_over_the_first_axis_of_large_arrays_ask_ahead(shape: tuple[int, int], axis: int, asks: bool) -> None:
    largest = lg.compile(lambda x: lg.max(x, axis=axis))
    x = np.random.default_rng(0).standard_normal(shape)
    np.testing.assert_array_equal(largest(x), x.max(axis=axis))
    assert ("@llvm.prefetch" in largest.text("llvm", x)) is asks
