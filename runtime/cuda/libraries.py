"""CUDA's libraries beside its driver: of the packages nvidia-cublas, nvidia-cufft, nvidia-cusolver, or the toolkit."""

from __future__ import annotations

from ctypes import c_int
from typing import Any, Final

from loopgrad.runtime.gpu.streams.vendor import Vendor, VendorLibrary, opened

# versions of the files, the latest first; several may be there for several toolkits
VERSIONS: Final = {"cublas": (13, 12), "cufft": (12, 11), "cusolver": (12, 11)}
NUMBERS: Final = {
    "plain": 0, "transposed": 1, "adjoint": 2, "left": 0, "right": 1, "lower": 0, "upper": 1, "any diagonal": 0,
    "unit diagonal": 1, "values": 0, "vectors": 1,
}  # fmt: skip


def load(name: str) -> Any:
    """The library, where there is one."""
    files = [f"lib{name}.so.{version}" for version in VERSIONS[name]]
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib  # late: only installed where CUDA is wanted

        path = load_nvidia_dynamic_lib(name).abs_path
        if path:
            files.insert(0, path)
    except (ImportError, RuntimeError, OSError, ValueError):  # too old a package, or nothing found
        pass
    return opened(files)


NVIDIA: Final = Vendor(
    VendorLibrary("cuFFT", "cufft", lambda: load("cufft")),
    VendorLibrary("cuSOLVER", "cusolverDn", lambda: load("cusolver")),
    VendorLibrary("cuBLAS", "cublas", lambda: load("cublas")),
    plan=c_int,
    numbers=NUMBERS,
    blas_version="_v2",
)
