"""`lg.fft` against NumPy: every length up to 64 and larger ones, dtypes, axes, norms, nothing at all, bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

RNG = np.random.default_rng(5)
NORMS = ("backward", "ortho", "forward", None)
TOLERANCES = {"float16": 1e-3, "float32": 1e-6, "complex64": 1e-6}
SAMPLE = (1, 4, 14, 17, 60, 211, 1331)
PRIMES = (127, 211, 331, 509)


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)


def near(results: list[Any], expected: list[Any], tolerance: float = 1e-14) -> None:
    """Within so much of the largest number of each result, where NumPy has computed it in more digits."""
    for got, wanted in zip(results, expected, strict=True):
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        size = max(float(np.abs(wanted).max(initial=0.0)), 1e-30)
        assert np.abs(np.asarray(got) - wanted).max(initial=0.0) <= tolerance * size, (got.shape, got.dtype)


def of_each_kind(m: Any, z: Any, norm: str | None = None) -> list[Any]:
    n = z.shape[-1]
    return [
        m.fft.fft(z, norm=norm), m.fft.ifft(z, norm=norm), m.fft.rfft(z.real, norm=norm),
        m.fft.ihfft(z.imag, norm=norm), m.fft.irfft(z, n, norm=norm), m.fft.hfft(z, n, norm=norm),
        m.fft.fft(z.real, norm=norm), m.fft.ifft(z.imag, norm=norm),
    ]  # fmt: skip


@pytest.mark.in_turns
@pytest.mark.parametrize("lengths", [range(1, 17), range(17, 65), PRIMES, (1000, 1024, 1331)], ids=str)
def test_every_length(device: str, lengths: Any) -> None:
    """With the numbers of several rows, and some kinds in float32. GPUs compile code for each length, so they take a
    sample."""
    on_host = device in ("cpu", "interpreter")
    for n in lengths if on_host else [n for n in SAMPLE if n in lengths]:
        z, norm, some = numbers(2, n), NORMS[n % 4], slice(n % 3, None, 3)
        kinds, narrow_kinds = (slice(None), some) if on_host else (some, slice(1))
        expected = of_each_kind(np, z, norm)
        made = of_each_kind(lg, lg.asarray(z), norm)[kinds]
        narrow = of_each_kind(lg, lg.asarray(z.astype(np.complex64)), norm)[narrow_kinds]
        lg.eval([made, narrow])
        near(made, expected[kinds])
        near(narrow, [of_32_bits(x) for x in expected[narrow_kinds]], 1e-6)


def of_32_bits(x: Any) -> Any:
    return x.astype(np.complex64 if x.dtype.kind == "c" else np.float32)


def test_long_ones(device: str) -> None:
    """On GPUs in two launches, and as a convolution by those."""
    for n, kinds in ((4096, [0]), (10007, [1]), (1 << 17, [2, 4])):
        z = numbers(n)
        made, expected = ([of_each_kind(m, x)[k] for k in kinds] for m, x in ((lg, lg.asarray(z)), (np, z)))
        lg.eval(made)
        near(made, expected)


PROGRAMS: list[Callable[[Any, Any], Any]] = [
    lambda m, z: m.fft.fft(z, 7, 0, "ortho"),
    lambda m, z: m.fft.ifft(z, 2, 1),
    lambda m, z: m.fft.rfft(z.real, n=9, axis=-2),
    lambda m, z: m.fft.irfft(z, axis=0),
    lambda m, z: m.fft.irfft(z, n=11, axis=0),
    lambda m, z: m.fft.hfft(z, axis=1),
    lambda m, z: m.fft.ihfft(z.real, axis=1, norm="forward"),
    lambda m, z: m.fft.fftn(z),
    lambda m, z: m.fft.fftn(z, axes=()),
    lambda m, z: m.fft.fftn(z, axes=(0, 0)),
    lambda m, z: m.fft.fftn(z.real, s=(3, 6), axes=(1, 0), norm="forward"),
    lambda m, z: m.fft.ifftn(z, s=(-1, 6), axes=(0, 1)),
    lambda m, z: m.fft.rfftn(z.real),
    lambda m, z: m.fft.rfftn(z.real, s=(4, 3), axes=(2, 0)),
    lambda m, z: m.fft.irfftn(z),
    lambda m, z: m.fft.irfftn(z, s=(4, 3), axes=(2, 0), norm="ortho"),
    lambda m, z: m.fft.fft2(z),
    lambda m, z: m.fft.ifft2(z, s=(2, 2)),
    lambda m, z: m.fft.rfft2(z.real, axes=(0, 1)),
    lambda m, z: m.fft.irfft2(z),
    lambda m, z: m.fft.fftshift(z),
    lambda m, z: m.fft.fftshift(z.real, axes=(0, 2)),
    lambda m, z: m.fft.ifftshift(z, axes=1),
    lambda m, z: m.fft.fft(z[:0]),
    lambda m, z: m.fft.irfft(z[:, :0]),
    lambda m, z: m.fft.fft(z[:, :0], n=3, axis=1),
    lambda m, z: m.fft.fft2(z[:1, :1, :1]),
]


def test_as_numpy_takes_them(device: str) -> None:
    z = numbers(3, 4, 5)
    made = [program(lg, lg.asarray(z)) for program in PROGRAMS]
    lg.eval(made)
    near(made, [program(np, z) for program in PROGRAMS])


@pytest.mark.in_turns
def test_dtypes(device: str) -> None:
    for dtype in ("bool", "int8", "uint64", "int32", "float16", "float32", "float64", "complex64", "complex128"):
        x = np.array([[1, 0, 1, 1, 0]]).astype(dtype)
        for name in ("fft", "ifft", "irfft", "hfft", "fftn", "irfft2", "fftshift"):
            check(getattr(lg.fft, name)(lg.asarray(x)), getattr(np.fft, name)(x), TOLERANCES.get(dtype))
        if "complex" not in dtype:
            check(lg.fft.rfft(lg.asarray(x)), np.fft.rfft(x), TOLERANCES.get(dtype))
    assert lg.fft.fft(lg.ones(3, dtype=lg.bfloat16)).dtype is lg.complex64


def test_what_is_not_finite_stays_in_its_row(device: str) -> None:
    z = numbers(3, 6)
    z[1, 2] = np.nan
    found = np.asarray(lg.fft.fft(lg.asarray(z)))
    near([found[[0, 2]]], [np.fft.fft(z[[0, 2]])])
    assert np.isnan(found[1]).all()


def test_frequencies() -> None:
    for n in (1, 2, 5, 8, np.int64(9)):
        for d in (1.0, 0.1, 3):
            check(lg.fft.fftfreq(n, d), np.fft.fftfreq(n, d))
            check(lg.fft.rfftfreq(n, d), np.fft.rfftfreq(n, d))
        check(lg.fft.ifftshift(lg.fft.fftshift(lg.arange(n))), np.arange(n))
        check(lg.fft.fftfreq(n, dtype=lg.float32), np.fft.fftfreq(n).astype(np.float32))


def test_errors_are_of_numpys_kinds() -> None:
    ones = np.ones((2, 3))
    for call in (np.fft, lg.fft):
        for bad in (lambda m: m.fft(ones, 0), lambda m: m.fft(ones, norm="x"), lambda m: m.irfft(ones[:, :1])):
            with pytest.raises(ValueError, match=r"[Ii]nvalid|expected"):
                bad(call)
        for bad in (lambda m: m.rfft(ones * 1j), lambda m: m.fft(ones, 2.0)):
            with pytest.raises(TypeError):
                bad(call)
    with pytest.raises(
        lg.ShapeError, match=r"irfft: expected a transform of at least 1 number(.|\n)*test_transforms.py"
    ):
        lg.fft.irfft(ones[:, :1])
