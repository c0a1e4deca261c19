"""ROCm's libraries beside its runtime: hipFFT, hipSOLVER and hipBLAS, whose functions are those of CUDA's libraries.
They come with ROCm; their numbers for enumerations are those of rocBLAS."""

from __future__ import annotations

from ctypes import c_void_p
from typing import Any, Final

from loopgrad.runtime.gpu.streams.vendor import Vendor, VendorLibrary, opened

VERSIONS: Final = {"hipblas": (3, 2), "hipfft": (0,), "hipsolver": (1, 0)}
NUMBERS: Final = {
    "plain": 111, "transposed": 112, "adjoint": 113, "left": 141, "right": 142, "lower": 122, "upper": 121,
    "any diagonal": 131, "unit diagonal": 132, "values": 201, "vectors": 202,
}  # fmt: skip


def load(name: str) -> Any:
    """The library, where there is one."""
    return opened([f"lib{name}.so", *[f"lib{name}.so.{version}" for version in VERSIONS[name]]])


AMD: Final = Vendor(
    VendorLibrary("hipFFT", "hipfft", lambda: load("hipfft")),
    VendorLibrary("hipSOLVER", "hipsolverDn", lambda: load("hipsolver")),
    VendorLibrary("hipBLAS", "hipblas", lambda: load("hipblas")),
    plan=c_void_p,
    numbers=NUMBERS,
    blas_version="",
)
