"""Fourier transforms: many rows, one long row, images; lengths of small factors, and a prime."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import Program, named, normal, sizes

ROW = 1024
PRIME = 1009


def rows(n: int) -> Arrays:
    return named(x=normal((n, ROW))[0])


def prime_rows(n: int) -> Arrays:
    return named(x=normal((n, PRIME))[0])


def vector(n: int) -> Arrays:
    return named(x=normal((n,))[0])


def images(n: int) -> Arrays:
    return named(x=normal((8, n, n))[0])


def power(transform: Any) -> Any:
    """Of real numbers, by each frequency."""

    def spectrum(x: Any) -> Any:
        z = transform(x)
        return (z.real * z.real + z.imag * z.imag) / x.shape[-1]

    return spectrum


def written(name: str) -> Any:
    return lambda xp: lambda x: power(getattr(xp.fft, name))(x)


def by_hand(name: str) -> Any:
    return power(getattr(np.fft, name))


PROGRAMS = {
    "fft_rows": Program(
        f"power spectra of rows of {ROW:,}", sizes(2**10, 16, 2**14), rows, by_hand("rfft"), written("rfft"),
        needs="fft",
    ),
    "fft_prime": Program(
        f"power spectra of rows of {PRIME:,}, a prime", sizes(2**10, 16, 2**14), prime_rows, by_hand("rfft"),
        written("rfft"), needs="fft",
    ),
    "fft_long": Program(
        "power spectrum of one long row", sizes(2**20, 4096, 2**22), vector, by_hand("rfft"), written("rfft"),
        needs="fft",
    ),
    "fft_images": Program(
        "power spectra of 8 images", sizes(512, 32, 1024), images, by_hand("rfft2"), written("rfft2"), needs="fft",
    ),
}  # fmt: skip
