"""Transforms by vector code of our own, beside NumPy's of float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime import host_fourier
from loopgrad.runtime.cpu import native_fourier
from loopgrad.runtime.cpu.device import CpuDevice

RNG = np.random.default_rng(5)
LENGTHS = (8, 10, 12, 14, 16, 27, 35, 36, 49, 64, 90, 96, 128, 210, 343, 512)


def near(found: Any, wanted: Any) -> None:
    eps = np.finfo(found.dtype).eps
    assert np.abs(found - wanted).max() <= 12 * eps * np.abs(wanted).max()


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_of_any_radix_in_rows_and_columns(dtype: Any, axis: int) -> None:
    """Forwards and backwards, to other memory and in place, of as many rows as vectors have lanes, more, and fewer."""
    along, done = CpuDevice().pool().fourier, set()
    for n in LENGTHS:
        for rows in (16, 37, 9):
            shape = [2, rows, n] if axis == 2 else [2, n, rows] if axis == 1 else [n, 2, rows]
            z = (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(dtype)
            for forward, reference in ((True, np.fft.fft), (False, np.fft.ifft)):
                result, held = np.full_like(z, np.nan), z.copy()
                scale = 0.5 if forward else 1 / n
                call = along("dft", axis, z, result, forward, scale)
                in_place = along("dft", axis, held, held, forward, scale)
                if call is None:
                    continue
                done.add(n)
                call()
                near(result, reference(z.astype(np.complex128), axis=axis) * (scale if forward else 1))
                assert in_place is not None
                in_place()
                np.testing.assert_array_equal(held, result)
    assert done == {*LENGTHS}


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_of_reals(dtype: Any, axis: int) -> None:
    """Of even length; the imaginary parts of a spectrum's ends don't count."""
    along, numbers, done = CpuDevice().pool().fourier, np.result_type(dtype, np.complex64), set()
    for n in (16, 18, 32, 60, 98, 128, 420, 1024):
        for rows in (16, 21):
            x = RNG.standard_normal((rows, n) if axis else (n, rows)).astype(dtype)
            wanted = np.fft.rfft(x.astype(np.float64), axis=axis)
            spectrum, back = np.full(wanted.shape, np.nan, numbers), np.full_like(x, np.nan)
            ways = [("real_dft", x, spectrum, True, 1.0), ("hermitian_dft", spectrum, back, False, 1 / n)]
            for kind, given, result, forward, scale in ways:
                call = along(kind, axis, given, result, forward, scale)
                if call is not None:
                    done.add((kind, n))
                    call()
                    near(result, wanted if forward else np.fft.irfft(spectrum, n, axis=axis))
                    spectrum[(slice(None), [0, -1]) if axis else [0, -1]] += 2j
    assert len(done) == 16


def test_what_is_left_to_others() -> None:
    """Large primes, odd lengths of reals, few rows, what lies apart in memory."""
    along = CpuDevice().pool().fourier
    z = np.ones((32, 32), np.complex64)
    cases: list[tuple[str, int, Any, Any]] = [
        ("dft", 1, np.ones((32, 22), np.complex64), np.ones((32, 22), np.complex64)),
        ("dft", 1, z[:1], z[:1].copy()),
        ("dft", 1, np.ones((32, 64), np.complex64)[:, ::2], z.copy()),
        ("real_dft", 1, np.ones((32, 33), np.float32), np.ones((32, 17), np.complex64)),
    ]
    for kind, axis, given, result in cases:
        assert along(kind, axis, given, result, True, 1.0) is None
    assert native_fourier.radices_of(1) is None


@pytest.mark.parametrize("columns", [22, 32])
def test_parts_of_programs(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """By native code alone, or along 22 columns by pocketfft, to the same bits of any number of threads."""
    monkeypatch.setattr(host_fourier, "WORTH_A_PART", 1000)
    host_fourier.planned.cache_clear()
    x = RNG.standard_normal((20, 32, columns)).astype(np.float32)
    program = lg.compile(lambda x: lg.fft.irfftn(lg.fft.rfftn(x) * 2.0, x.shape), device="cpu")
    pool = CpuDevice().pool()
    usual, found = pool.threads, []
    try:
        for threads in (1, 5):
            pool.set_threads(threads)
            found.append(np.asarray(program(x)))
    finally:
        pool.set_threads(usual)
        host_fourier.planned.cache_clear()
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], 2 * x, atol=1e-5)
