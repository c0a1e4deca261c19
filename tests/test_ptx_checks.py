"""ptxas sees what it is given, and what it rejects is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emitted_kernels import Emitted
from tests.ptx_checks import ARCHITECTURES, PtxAssembler, assembler

PTXAS = assembler()
pytestmark = pytest.mark.skipif(PTXAS is None, reason="ptxas (PyPI: nvidia-cuda-nvcc) is not installed")
WORDS = ", ".join(f"i64 %w{i}" for i in range(6))


def emitted(statement: str, test: str) -> Emitted:
    function = f"define ptx_kernel void @k0({WORDS}) #0 {{\nentry:\n  {statement}\n  ret void\n}}\n"
    return Emitted(function, [], Path(), test)


def test_good_kernels_are_accepted(tmp_path: Path) -> None:
    good = [emitted('call void asm sideeffect "membar.gl;", ""()', "a"), emitted("%x = add i64 %w0, %w1", "b")]
    assert PtxAssembler(PTXAS).judge(good, tmp_path) == []


def test_a_bad_kernel_is_named(tmp_path: Path) -> None:
    kernels = [emitted("%x = add i64 %w0, %w1", "a"), emitted('call void asm sideeffect "no such thing;", ""()', "b")]
    verdicts = PtxAssembler(PTXAS).judge(kernels, tmp_path)
    assert [text.partition(":")[0] for text in verdicts] == list(ARCHITECTURES["sm_80"])
    assert all("k1: emitted by b" in text for text in verdicts)
