"""Pairs of neighbours read and written by vectors: every length, remainder and direction, and what looks like pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg

PROGRAMS: list[Callable[[Any, Any], Any]] = [
    lambda _xp, z: z * z + z,
    lambda xp, z: xp.conj(z)[::-1] - 1j,
    lambda _xp, z: z.real * 2 + z.imag,
    lambda xp, z: xp.stack([z.imag, z.real, z.real + 1], axis=-1),
    lambda xp, z: xp.stack([z.real, z.imag], axis=-1)[..., ::-1] * 2,
    lambda xp, z: xp.where(z.imag > 0, z, 1j * z)[1:],
    lambda xp, z: xp.sum(z, axis=-1),
    lambda _xp, z: z.reshape(-1)[1::2] + z.reshape(-1)[: z.size // 2],
    lambda xp, z: xp.stack([z, z[::-1] * 2], axis=-1),
    lambda _xp, z: z[::-2, ...] * 1j if z.shape[0] > 1 else z * 1j,
]


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_lengths_and_directions(dtype: str) -> None:
    rng = np.random.default_rng(0)
    with lg.options(direct=False):
        for shape in ((1,), (2,), (7,), (16,), (33,), (64,), (1000,), (3, 5), (8, 64), (1 << 14,)):
            z = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
            made = [program(lg, lg.asarray(z)) for program in PROGRAMS]
            lg.eval(made)
            for number, (got, program) in enumerate(zip(made, PROGRAMS, strict=True)):
                np.testing.assert_allclose(got, program(np, z), 2e-6, 2e-6, err_msg=f"{number} {shape}")


def test_pairs_are_vectors() -> None:
    """Neither a gather nor a scatter is left."""
    z = lg.asarray(np.ones(1 << 12, np.complex64))
    for program in PROGRAMS[:3]:
        text = lg.compile(lambda z, program=program: program(lg, z)).text("llvm", z)
        assert "masked.gather" not in text
        assert "masked.scatter" not in text


def test_lanes_of_loops_read_and_write_pairs() -> None:
    """Under masks: lanes that have ended don't write, and what they would read may not be there."""
    z = np.linspace(0.1, 1.5, 77) * np.exp(1j * np.arange(77))
    with lg.options(direct=False):
        got = lg.while_loop(lambda v: lg.abs(v) < 4.0, lambda v: v * (1.2 + 0.4j), lg.asarray(z))
        table = lg.fori_loop(0, lg.arange(77) % 5, lambda _, v: v + lg.asarray(z)[::-1] * 2, lg.asarray(z))
    expected = z.copy()
    while (running := abs(expected) < 4.0).any():
        expected[running] *= 1.2 + 0.4j
    np.testing.assert_allclose(got, expected)
    np.testing.assert_allclose(table, z + (np.arange(77) % 5) * z[::-1] * 2)
