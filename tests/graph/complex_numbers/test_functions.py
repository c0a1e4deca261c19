"""Functions of complex numbers beside NumPy's: the same special values, and results within some units in the last place
of the larger part."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pytest

import loopgrad as lg
from tests.graph.complex_numbers.special_values import Array, distance, grid, kinds_differ, ordinary

# how far from NumPy, whose own functions are wrong by up to three units
FUNCTIONS: Final[dict[str, float]] = {
    "abs": 2, "sign": 3, "sqrt": 3, "square": 4, "reciprocal": 1, "exp": 4, "exp2": 4, "expm1": 6, "log": 3, "log2": 4,
    "log10": 4, "sinh": 4, "cosh": 4, "tanh": 6, "sin": 4, "cos": 4, "tan": 6, "asin": 6, "acos": 5, "atan": 5,
    "asinh": 6, "acosh": 5, "atanh": 6, "angle": 2, "conj": 0, "real": 0, "imag": 0, "isnan": 0, "isinf": 0,
    "isfinite": 0, "iscomplex": 0, "isreal": 0, "nan_to_num": 0, "round": 0, "positive": 0, "negative": 0,
    "logical_not": 0,
}  # fmt: skip
TINY: Final = {"square"}  # of which NumPy rounds one term less, where the machine has fused operations


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_functions_as_numpy(dtype: str) -> None:
    special = grid(dtype)
    others = np.concatenate([ordinary(dtype), ordinary(dtype, spread=0.3)])
    for name, bound in FUNCTIONS.items():
        with np.errstate(all="ignore"):
            for z in (special, others):
                got, expected = getattr(lg, name)(lg.asarray(z)), getattr(np, name)(z)
                assert got.dtype == expected.dtype, name
                a, b = _complex(got.numpy()), _complex(expected)
                wrong = np.flatnonzero(kinds_differ(a, b))
                if name not in TINY:
                    assert not wrong.size, (name, z[wrong[0]], a[wrong[0]], b[wrong[0]])
                assert distance(a, b) <= bound, name


def _complex(x: Array) -> Array:
    return x if x.dtype.kind == "c" else x.astype(np.result_type(x.dtype, np.complex64))


def test_logarithm_of_1_plus_keeps_its_digits() -> None:
    """NumPy's loses them where 1 + z does."""
    some = np.array([1e-200 + 1e-170j, -1e-3 + 3e-2j, 1e300j, -2.0 + 0j])
    for z in (ordinary("complex128", spread=0.3) * 1e-3, some):
        wide = z.astype(np.clongdouble)
        x, y = wide.real, wide.imag
        with np.errstate(all="ignore"):
            size = np.log1p(np.where(abs(x) < 0.5, x * (2 + x) + y * y, np.hypot(1 + x, y) ** 2 - 1)) / 2
        size = np.where(abs(z) < 0.5, size, np.log(np.hypot(1 + x, y)))
        expected = (size + 1j * np.arctan2(y, 1 + x)).astype(complex)
        np.testing.assert_allclose(lg.log1p(lg.asarray(z)), expected, 2e-15, 0)
    for name in ("log1p",):
        special = grid("complex128")
        with np.errstate(all="ignore"):
            got, expected = getattr(lg, name)(lg.asarray(special)).numpy(), getattr(np, name)(special)
        for a, b in ((got.real, expected.real), (got.imag, expected.imag)):
            np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
            np.testing.assert_array_equal(np.isinf(a), np.isinf(b))


def test_the_logarithm_near_the_unit_circle() -> None:
    angles = np.linspace(-3.1, 3.1, 400)
    z = (1 + np.array([1e-15, -1e-12, 3e-9, 1e-5])[:, None]) * np.exp(1j * angles)
    excess = [float(Fraction(x) ** 2 + Fraction(y) ** 2 - 1) for x, y in zip(z.real.flat, z.imag.flat, strict=True)]
    np.testing.assert_allclose(lg.log(lg.asarray(z)).real.ravel(), np.log1p(excess) / 2, 4e-16)
    np.testing.assert_allclose(lg.log(lg.asarray(z)), np.log(z), 3e-16, 3e-16)


POWERS: Final[list[Callable[[Any, Any], Any]]] = [
    *[lambda _xp, z, n=n: z**n for n in (0, 1, 2, 3, 7, -1, -2, 0.5, 2.5, 1j, 2 - 1j, -0.5)],
    lambda xp, z: xp.power(z, z[::-1]),
    lambda xp, z: xp.power(2.0, z),
    lambda xp, z: xp.power(z, xp.asarray(np.arange(z.size) % 9 - 4.0)),
    lambda _xp, z: (-1.5) ** z,
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_powers_as_numpy(dtype: str) -> None:
    z = np.concatenate([ordinary(dtype, 300, 0.7), np.array([0, 1, -1, 1j, -1j, 2, -0.5], dtype)])
    for number, power in enumerate(POWERS):
        with np.errstate(all="ignore"):
            got, expected = power(lg, lg.asarray(z)), power(np, z)
        assert got.dtype == expected.dtype, number
        bound = 3e-4 if dtype == "complex64" else 1e-12
        scale = np.maximum(abs(expected), np.finfo(dtype).tiny)
        with np.errstate(all="ignore"):
            apart = abs(got.numpy() - expected) / scale
        same = (got.numpy() == expected) | (np.isnan(got.numpy()) & np.isnan(expected)) | ~np.isfinite(expected)
        assert (same | (apart < bound)).all(), (number, z[~(same | (apart < bound))][:3])


def test_powers_of_zero_and_of_whole_exponents() -> None:
    base = np.array([0j, 0j, 0j, 0j, 0j, 2 + 1j, 2 + 1j, np.inf, -1 + 0j])
    exponent = np.array([0j, 2 + 0j, 1j, -1 + 0j, 2 + 1j, 3 + 0j, -2 + 0j, 0j, 2 + 0j])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(lg.power(lg.asarray(base), lg.asarray(exponent)), base**exponent, 1e-15)
