"""Bytes and integers of 16 bits: as many lanes as vectors have room for them, and NumPy's elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.targets.cpu.features import host_machine


def images(m: Any, u: Any, v: Any) -> list[Any]:
    """Arithmetic, comparisons, bits, rows in other orders, extremes, borders."""
    wide = m.pad(u > 100, ((1, 1), (1, 1)))
    return [
        u + v, u * v, m.where(u > v, u - v, v - u), (u >> 3) | (u << 2), u[:, ::-1], u[:, ::-3],
        u[::2, :80:2] + v[::2, 1:81:2], u.T ^ v.T, m.max(u, axis=0), m.max(u, axis=1), m.min(v),
        m.any(u > 250, axis=1), u // (v | 1), u // 3, u % 7,
        wide[:-2, 1:-1] | wide[2:, 1:-1] | wide[1:-1, :-2], m.roll(u, 1, 1),
        m.max(u[:, :80].reshape(-1, 40, 2), axis=2),
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("shape", [(37, 301), (3, 81)])
def test_as_in_numpy(dtype: str, shape: tuple[int, int]) -> None:
    info, rng = np.iinfo(dtype), np.random.default_rng(3)
    u, v = (rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype) for _ in range(2))
    if dtype.startswith("int"):
        v[v == -1] = 3  # the smallest number over it is no number
    found = lg.compile(lambda u, v: images(lg, u, v), device="cpu")(u, v)
    for number, (ours, wanted) in enumerate(zip(found, images(np, u, v), strict=True)):
        np.testing.assert_array_equal(np.asarray(ours), wanted, str(number))
        assert np.asarray(ours).dtype == wanted.dtype


def test_vectors_are_full() -> None:
    bits = host_machine().vector_bits
    for dtype, width in (("uint8", 8), ("int16", 16), ("int32", 32)):
        text = lg.compile(lambda x: x + x, device="cpu").text("llvm", np.zeros((40, 1000), dtype))
        assert f"add <{bits // width} x i{width}>" in text
