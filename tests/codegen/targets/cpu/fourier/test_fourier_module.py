"""The module of Fourier transforms for machines with narrower vectors, and without sums and products in one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.fourier.fourier_interface import RADICES
from loopgrad.codegen.targets.cpu.fourier.fourier_module import fourier_ir
from loopgrad.codegen.targets.cpu.llvm import compile_module
from loopgrad.runtime.cpu.native_fourier import NativeFourier


@pytest.mark.parametrize("bits", [128, 256])
def test_every_radix_in_narrow_vectors(bits: int) -> None:
    """float64 in the narrower ones, which are two lanes."""
    dtype, suffix = (np.complex128, "f64") if bits == 128 else (np.complex64, "f32")
    narrow = replace(host_machine(), vector_bits=bits, features="")
    code = compile_module(fourier_ir(narrow, suffix), host_machine())
    native, rng = NativeFourier(lambda _name, _text: code, lambda *_: None), np.random.default_rng(1)
    for n in [*[r * 8 for r in RADICES], 5 * 7]:
        z = (rng.standard_normal((9, n)) + 1j * rng.standard_normal((9, n))).astype(dtype)
        for x, axis in ((z, 1), (np.ascontiguousarray(z.T), 0)):
            result = np.full_like(x, np.nan)
            call = native("dft", axis, x, result, True, 1.0)
            assert call is not None
            call()
            wanted = np.fft.fft(x.astype(np.complex128), axis=axis)
            assert np.abs(result - wanted).max() <= 10 * np.finfo(dtype).eps * np.abs(wanted).max()
