from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import types as T
from loopgrad.graph.errors import DTypeError, ShapeError


@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (0,)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8"])
def test_matmul_with_batches(apply, batch, dtype):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 5, (*batch, 2, 3)).astype(dtype)
    b = rng.integers(0, 5, (*batch, 3, 4)).astype(dtype)
    got = apply("matmul", a, b)
    assert got.dtype == a.dtype
    np.testing.assert_array_equal(got, np.einsum("...mk,...kn->...mn", a.astype(int), b.astype(int)))


def test_matmul_of_bfloat16_and_of_nothing(apply):
    x = np.ones((2, 3)).astype(T.bfloat16.np)
    assert apply("matmul", x, x.T).astype(float).tolist() == [[3, 3], [3, 3]]
    np.testing.assert_array_equal(apply("matmul", np.ones((2, 0)), np.ones((0, 3))), np.zeros((2, 3)))


def test_refusals(apply):
    x = np.ones((2, 3))
    for bad in (np.ones((2, 3)), np.ones(3), np.ones((1, 3, 2))):
        with pytest.raises(ShapeError, match="shapes"):
            apply("matmul", x, bad)
    with pytest.raises(DTypeError, match="one dtype"):
        apply("matmul", x, np.ones((3, 2), np.float32))
    with pytest.raises(DTypeError, match="matmul"):
        apply("matmul", x > 0, x.T > 0)


@pytest.mark.parametrize("dtype", [T.float16, T.bfloat16], ids=str)
def test_sums_of_16_bit_floats_may_stay_float32(apply, dtype):
    a, b = (np.full(shape, 1 + 2.0**-7).astype(dtype.np) for shape in ((2, 300), (300, 3)))
    got = apply("matmul", a, b, dtype=T.float32)
    np.testing.assert_array_equal(got, np.full((2, 3), 300 * (1 + 2.0**-7) ** 2, np.float32))
    np.testing.assert_array_equal(apply("matmul", a, b), got.astype(dtype.np))
    with pytest.raises(DTypeError, match="dtype=float32, in which it adds up"):
        apply("matmul", a, b, dtype=T.float64)
    with pytest.raises(DTypeError, match="dtype=float64, in which it adds up"):
        apply("matmul", np.ones((2, 3)), np.ones((3, 2)), dtype=T.float32)
