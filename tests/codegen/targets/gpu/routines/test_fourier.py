"""Factors, tables and launches of transforms on GPUs."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.targets.gpu.routines import fourier
from loopgrad.codegen.targets.gpu.routines.butterflies import ODD, radices


def test_factors() -> None:
    for n in range(1, 3000):
        found, left = radices(n), n
        for prime in (2, *ODD):
            while left % prime == 0:
                left //= prime
        assert (found is not None) == (left == 1), n
        assert found is None or prod(found) == n, n


@pytest.mark.parametrize("n", [17, 34, 101])
@pytest.mark.parametrize("inverse", [False, True])
def test_a_chirp_makes_a_transform(n: int, inverse: bool) -> None:
    x = np.cos(np.arange(n) ** 1.5) + 1j * np.sin(np.arange(n))
    longer = fourier.chirp_length(n)
    assert longer >= 2 * n - 1
    numbers = fourier.chirp(n, inverse)
    spectrum = np.fft.fft(x * numbers, longer) * fourier.chirp_spectrum(n, longer, inverse)
    found = (np.fft.ifft(spectrum, norm="forward")[:n]) * numbers
    expected = np.fft.ifft(x, norm="forward") if inverse else np.fft.fft(x)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_roots_are_exact_to_a_unit() -> None:
    k = np.arange(4096)
    angle = k.astype(np.longdouble) / 4096 * 8 * np.arctan(np.longdouble(1))
    found = fourier.roots(4096, k, inverse=True)
    assert np.abs(found - (np.cos(angle) + 1j * np.sin(angle))).max() < 2.5e-16


def test_the_plan_says_how(device: str) -> None:
    """GPUs do all lengths; the host says it is the host."""
    if device == "interpreter":
        pytest.skip("it has no plan")
    for n, how in ((60, "rows in memory"), (34, "chirp"), (1 << 16, "rows of parts")):
        with lg.options(libraries=False):
            (row,) = lg.compile(lg.fft.fft).plan(lg.zeros(n, dtype=lg.complex64)).routines
        assert (how if device != "cpu" else "pocketfft") in row.provider


def test_three_lengths_make_a_long_one(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a workgroup held little, and neighbours were always to be read together."""
    monkeypatch.setattr(fourier._Launches, "most", property(lambda _: 16))
    monkeypatch.setattr(fourier, "SECTOR", 1 << 20)
    z = (np.cos(np.arange(64.0) ** 1.5).reshape(2, 32) * (1 + 0.5j)).astype(np.complex64)
    with lg.options(libraries=False):
        compiled = lg.compile(lambda z: lg.fft.ifft(z, norm="ortho"))
        found = compiled(lg.asarray(z))
        (row,) = compiled.plan(lg.asarray(z)).routines if device != "interpreter" else [None]
    expected = np.fft.ifft(z.astype(np.complex128), norm="ortho")
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    if row is not None and device != "cpu":
        assert "rows of parts" in row.provider
