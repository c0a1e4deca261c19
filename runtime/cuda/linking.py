"""Links the update kernel with NVIDIA's device runtime, where `cudaGraphSetConditional` is.

The library libcudadevrt.a comes with the package nvidia-cuda-runtime, with torch's packages, and with the
toolkit. nvJitLink links where it is installed, the driver's own linker elsewhere.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
from typing import Any, Final

from loopgrad.runtime.cuda.found import CudaMissing, dotted, text

LIBRARY: Final = "libcudadevrt.a"
PACKAGES: Final = "nvidia/*/lib/" + LIBRARY
TOOLKIT: Final = (f"lib64/{LIBRARY}", f"lib/{LIBRARY}", f"targets/*/lib/{LIBRARY}")
NO_NVJITLINK: Final = "not found (pip install nvidia-nvjitlink)"
OWN_TARGET: Final = b".target sm_90a"  # of code for one compute capability alone
OLDEST_DRIVER: Final = 12080  # loops since 12.4, branches since 12.8


def check_driver(cuda: Any) -> None:
    """CudaMissing where the driver has no loops in graphs."""
    version = int(cuda.cuDriverGetVersion()[1])
    if version < OLDEST_DRIVER:
        raise CudaMissing(
            f"the NVIDIA driver is for CUDA {dotted(version)}, and loops in graphs need {dotted(OLDEST_DRIVER)}"
        )


def device_runtime() -> str:
    """Where the library is; CudaMissing where it isn't."""
    try:
        from cuda.pathfinder import find_static_lib  # late: only installed where CUDA is wanted

        return str(find_static_lib("cudadevrt"))
    except (ImportError, RuntimeError):  # too old a package, or nothing found
        pass
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    patterns = [os.path.join(folder, PACKAGES) for folder in sys.path if folder]
    patterns += [os.path.join(home, place) for home in (*homes, "/usr/local/cuda*") for place in TOOLKIT]
    for pattern in patterns:
        found = sorted(glob.glob(pattern))
        if found:
            return found[-1]
    raise CudaMissing(f"{LIBRARY} not found (pip install nvidia-cuda-runtime)")


def link(cuda: Any, ptx: bytes, library: str, capability: tuple[int, int]) -> bytes:
    """A cubin of the PTX and the library; CudaMissing where neither linker makes one."""
    try:
        return by_nvjitlink(ptx, library, capability)
    except CudaMissing as first:
        try:
            return by_driver(cuda, ptx, library)
        except CudaMissing as second:
            raise CudaMissing(f"the update kernel can't be linked: nvJitLink: {first}; driver: {second}") from None


def nvjitlink_version() -> tuple[int, int]:
    """Of the library; CudaMissing where there is none."""
    try:
        from cuda.bindings import nvjitlink  # late, as above

        major, minor = nvjitlink.version()
    except (ImportError, RuntimeError):  # cuda.bindings raises both for a library that isn't there
        raise CudaMissing(NO_NVJITLINK) from None
    return int(major), int(minor)


def by_nvjitlink(ptx: bytes, library: str | None, capability: tuple[int, int]) -> bytes:
    """A cubin of the PTX, and of the library where one is named. Other threads run while it is made."""
    try:
        from cuda.bindings import nvjitlink  # late, as above

        options = [f"-arch=sm_{capability[0]}{capability[1]}{'a' * (OWN_TARGET in ptx)}"]
        linker = nvjitlink.create(len(options), options)
    except (ImportError, RuntimeError):  # as above
        raise CudaMissing(NO_NVJITLINK) from None
    try:
        nvjitlink.add_data(linker, nvjitlink.InputType.PTX, ptx, len(ptx), "kernels")
        if library is not None:
            nvjitlink.add_file(linker, nvjitlink.InputType.LIBRARY, library)
        nvjitlink.complete(linker)
        code = bytearray(nvjitlink.get_linked_cubin_size(linker))
        nvjitlink.get_linked_cubin(linker, code)
        return bytes(code)
    except nvjitlink.nvJitLinkError as failure:
        raise CudaMissing(str(failure).strip()) from None
    finally:
        nvjitlink.destroy(linker)


def by_driver(cuda: Any, ptx: bytes, library: str) -> bytes:
    """Needs a current context."""
    kinds = cuda.CUjitInputType
    status, state = cuda.cuLinkCreate(0, [], [])
    _check(cuda, status)
    try:
        source = ptx + b"\0"
        _check(cuda, cuda.cuLinkAddData(state, kinds.CU_JIT_INPUT_PTX, source, len(source), b"update", 0, [], [])[0])
        _check(cuda, cuda.cuLinkAddFile(state, kinds.CU_JIT_INPUT_LIBRARY, library.encode(), 0, [], [])[0])
        status, code, size = cuda.cuLinkComplete(state)
        _check(cuda, status)
        return ctypes.string_at(int(code), int(size))
    finally:
        cuda.cuLinkDestroy(state)


def _check(cuda: Any, status: Any) -> None:
    if status:
        raise CudaMissing(text(cuda, status))
