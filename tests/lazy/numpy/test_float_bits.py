"""Neighbours, distances and exponents of floats against NumPy, bit for bit, and bits as other dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import loopgrad as lg


def ends(dtype: str) -> np.ndarray:
    """Where the bits of floats turn over."""
    limits = np.finfo(dtype)
    positive = [0.0, 1.0, 1.5, 3e-3, 1e4, limits.max, limits.tiny, limits.smallest_subnormal, limits.tiny / 2, np.inf]
    return np.array([*positive, *np.negative(positive), np.nan], dtype)


def same(got: lg.Tensor, wanted: np.ndarray) -> None:
    found = np.asarray(got)
    assert found.dtype == wanted.dtype
    both_nan = np.isnan(found) & np.isnan(wanted)
    wrong = ~(((found == wanted) & (np.signbit(found) == np.signbit(wanted))) | both_nan)
    assert not wrong.any(), (found[wrong], wanted[wrong])


def flushes(dtype: str) -> bool:
    """Whether the device takes subnormal numbers for 0, be it in comparisons alone (docs/devices.md)."""
    subnormal = lg.asarray(np.full(3, np.finfo(dtype).tiny / 8, dtype))
    return not bool(np.all(np.asarray(subnormal * 2.0)) and np.all(np.asarray(subnormal > 0.0)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_neighbours_and_exponents(device: str, dtype: str) -> None:
    x = ends(dtype)
    if flushes(dtype):
        x = x[(np.abs(x) > np.finfo(dtype).tiny * 2) | np.isnan(x)]
    first, second = (a.ravel() for a in np.meshgrid(x, x))
    with np.errstate(all="ignore"):
        if not flushes(dtype):
            same(lg.nextafter(lg.asarray(first), lg.asarray(second)), np.nextafter(first, second))
        apart = first != 0
        first, second = first[apart], second[apart]
        same(lg.nextafter(lg.asarray(first), lg.asarray(second)), np.nextafter(first, second))
        same(lg.spacing(lg.asarray(x)), np.spacing(x))
        fraction, exponent = np.frexp(x)
    found = lg.frexp(lg.asarray(x))
    same(found[0], fraction)
    assert found[1].dtype == np.int32
    np.testing.assert_array_equal(np.asarray(found[1]), np.where(np.isfinite(x), exponent, 0))


def test_halves_neighbours(device: str) -> None:
    """In numbers of float16 that NumPy gets right (0 beside -0.0 and spacing below 0 it doesn't), and of bfloat16."""
    x = ends("float16")
    x = x[(x != 0) & ~np.isnan(x)]
    for target in (-np.inf, 1.0, np.inf):
        with np.errstate(all="ignore"):
            same(lg.nextafter(lg.asarray(x), lg.asarray(target, dtype=lg.float16)), np.nextafter(x, np.float16(target)))
    y = np.array([1.0, -1.0, 0.0, 3.0], ml_dtypes.bfloat16)
    wanted = np.nextafter(y, ml_dtypes.bfloat16(2.0))
    np.testing.assert_array_equal(np.asarray(lg.nextafter(lg.asarray(y), 2.0)), wanted)


def test_bits_as_other_dtypes(device: str) -> None:
    rng = np.random.default_rng(0)
    for source, target in (
        ("float32", "int32"), ("float64", "uint64"), ("float16", "int16"), ("int64", "float64"), ("uint32", "float32"),
        ("int16", "float16"), ("uint8", "int8"),
    ):  # fmt: skip
        x = rng.integers(-100, 100, 37).astype(source)  # no bits of NaN
        np.testing.assert_array_equal(np.asarray(lg.bitcast_convert_type(lg.asarray(x), target)), x.view(target))
    halves = np.array([1.5, -2.0, 0.0], ml_dtypes.bfloat16)
    there = lg.bitcast_convert_type(lg.asarray(halves), lg.int16)
    np.testing.assert_array_equal(np.asarray(there), halves.view(np.int16))
    np.testing.assert_array_equal(np.asarray(lg.bitcast_convert_type(there + 0, lg.bfloat16)), halves)
    for dtype in (lg.float32, lg.bool_, lg.complex128):
        with pytest.raises(lg.DTypeError, match=r"64 bits|float elements"):
            lg.bitcast_convert_type(lg.ones(2), dtype)
    x = lg.zeros(3)
    bits = x.view(lg.int64)
    bits[1] = 1
    x[2] = 1.0
    assert (x.tolist(), bits.tolist()) == ([0.0, 5e-324, 1.0], [0, 1, 1023 << 52])
    one_bit = lg.vmap(lambda row: lg.bitcast_convert_type(row, lg.int64) & 1)(lg.asarray([[1.0], [5e-324]]))
    assert one_bit.tolist() == [[0], [1]]


def test_derivatives(device: str) -> None:
    x = lg.asarray([1.0, 0.0, -0.0, 3.0])
    assert lg.grad(lambda x: lg.sum(lg.nextafter(x, 2.0)))(x).tolist() == [1.0] * 4
    assert lg.grad(lambda y: lg.sum(lg.nextafter(x, y)))(x).tolist() == [0.0] * 4
    assert lg.grad(lambda x: lg.sum(lg.frexp(x)[0]))(lg.asarray([1.0, 8.0, 3.0])).tolist() == [0.5, 0.0625, 0.25]
