"""Numbers at which functions of complex numbers are difficult, and how far results are from NumPy's."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

PARTS: Final = (0.0, 1.0, 0.5, 3.0, np.inf)


def grid(dtype: str) -> Array:
    """Every pair of parts of either sign: zeros, ones, ordinary, huge, tiny and infinite numbers, and NaN."""
    limits = np.finfo(dtype)
    sizes = [*PARTS, float(limits.max) * 0.6, float(limits.tiny) * 2, float(limits.eps)]
    parts = np.array([*sizes, *(-s for s in sizes), np.nan], limits.dtype)
    return paired(*np.meshgrid(parts, parts, indexing="ij"))


def ordinary(dtype: str, count: int = 2000, spread: float = 3.0) -> Array:
    """Numbers at random, of many sizes."""
    rng = np.random.default_rng(3)
    sizes = np.exp(rng.normal(scale=spread, size=(2, count)))
    re, im = (rng.normal(size=(2, count)) * sizes).astype(np.finfo(dtype).dtype)
    return paired(re, im)


def paired(re: Array, im: Array) -> Array:
    """re + i im, without the arithmetic that turns infinities into NaN."""
    z = np.empty(re.shape, np.result_type(re.dtype, np.complex64))
    z.real, z.imag = re, im
    return z.ravel()


def bits_differ(got: Array, expected: Array) -> Array:
    """Where a part isn't the same: signs of zeros count, those of NaN don't."""
    wrong = np.zeros(got.shape, bool)
    for a, b in ((got.real, expected.real), (got.imag, expected.imag)):
        same = (a == b) & (np.signbit(a) == np.signbit(b))
        wrong |= ~(same | (np.isnan(a) & np.isnan(b)))
    return wrong


def kinds_differ(got: Array, expected: Array) -> Array:
    """Where a part is NaN, infinite, zero or of a sign that the other one's isn't."""
    wrong = np.zeros(got.shape, bool)
    for a, b in ((got.real, expected.real), (got.imag, expected.imag)):
        same = (np.isnan(a) == np.isnan(b)) & (np.isinf(a) == np.isinf(b)) & ((a == 0) == (b == 0))
        wrong |= ~(same & (np.isnan(b) | (np.signbit(a) == np.signbit(b))))
    return wrong


def distance(got: Array, expected: Array) -> float:
    """The largest distance of finite results, in units of the last place of the larger part."""
    finite = np.isfinite(expected) & np.isfinite(got)
    got, expected = got[finite], expected[finite]
    with np.errstate(all="ignore"):
        larger = np.maximum(abs(expected.real), abs(expected.imag))
        apart = np.maximum(abs(got.real - expected.real), abs(got.imag - expected.imag))
        return float(np.max(apart / np.spacing(larger), initial=0.0))
