"""The machine that code is made for: what of its features LLVM is told."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.targets.cpu.features import machine_from

X86 = "x86_64-unknown-linux-gnu"


def test_beside_avx_no_instruction_has_only_the_old_form():
    machine = machine_from(X86, "znver3", {"avx": True, "avx2": True, "fma": True, "sse4a": True})
    assert "-sse4a" in machine.features.split(",")
    assert "+avx2" in machine.features.split(",")


def test_without_avx_they_stay():
    assert "+sse4a" in machine_from(X86, "amdfam10", {"sse2": True, "sse4a": True}).features.split(",")
    assert "sse4a" not in machine_from(X86, "haswell", {"avx": True, "avx2": True, "fma": True}).features


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16])
def test_columns_of_bytes(dtype):
    """Neighbouring lanes' elements are put together by shuffles, which LLVM made of such instructions."""
    x = np.random.default_rng(0).integers(0, 100, (1000, 8)).astype(dtype)
    f = lg.compile(lambda x: sum((x[:, i] != x[:, j]).astype(lg.int32) for i in range(8) for j in range(i)))
    np.testing.assert_array_equal(
        np.asarray(f(x)), sum((x[:, i] != x[:, j]).astype(int) for i in range(8) for j in range(i))
    )
    with lg.default_device("cpu"):
        code = f.text("asm", lg.asarray(x))
    assert "insertq" not in code
    assert "extrq" not in code
