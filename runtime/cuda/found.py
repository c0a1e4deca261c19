"""Whether CUDA can be used here and, where it can't, why in one line. Makes no context."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from loopgrad.runtime.processes import FORKED, child_safe_lock, renewed_in_children

OLDEST_DRIVER: Final = 12000  # reads PTX ISA 8.0
OLDEST_CAPABILITY: Final = (8, 0)
NO_DEVICE: Final = 100

_lock = child_safe_lock()
_forked = False
_driver: Any = None


class CudaMissing(RuntimeError):
    """CUDA can't be used here; the text says why in one line."""


def driver() -> Any:
    """The initialised module cuda.bindings.driver; CudaMissing where there is none."""
    global _driver
    with _lock:
        if _forked:
            raise CudaMissing(FORKED)
        if _driver is None:
            _driver = _load()
        return _driver


def _in_child() -> None:
    global _forked
    _forked = _forked or _driver is not None


renewed_in_children(_in_child)


def _load() -> Any:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise CudaMissing("libcuda.so.1 (the NVIDIA driver) not found") from None
    try:
        from cuda.bindings import driver  # late: 60 ms, and only installed where it is wanted
    except ImportError:
        raise CudaMissing("the package 'cuda-bindings' is not installed (pip install loopgrad[cuda])") from None
    status = driver.cuInit(0)[0]
    if status == NO_DEVICE:
        raise CudaMissing("the NVIDIA driver finds no device")
    if status:
        raise CudaMissing(f"the NVIDIA driver can't be initialised: {text(driver, status)}")
    version = int(driver.cuDriverGetVersion()[1])
    if version < OLDEST_DRIVER:
        raise CudaMissing(
            f"the NVIDIA driver is for CUDA {dotted(version)}; update it to {dotted(OLDEST_DRIVER)} or later"
        )
    return driver


def dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def text(driver: Any, status: Any) -> str:
    """The driver's name and words for a status."""
    names = [driver.cuGetErrorName(status)[1], driver.cuGetErrorString(status)[1]]
    name, words = [n.decode() if isinstance(n, bytes) else str(n or "") for n in names]
    return f"{name or int(status)} ({words})" if words else name or str(int(status))


def usable(position: int) -> Any:
    """The CUdevice of that number; CudaMissing where it isn't there or too old."""
    cuda = driver()
    number = int(cuda.cuDeviceGetCount()[1])
    if position >= number:
        raise CudaMissing(f"there are only {number} CUDA devices here")
    status, device = cuda.cuDeviceGet(position)
    if status:
        raise CudaMissing(f"CUDA device {position} can't be used: {text(cuda, status)}")
    found = capability(cuda, device)
    if found < OLDEST_CAPABILITY:
        raise CudaMissing(
            f"CUDA device {position} has compute capability {found[0]}.{found[1]}, and "
            f"{OLDEST_CAPABILITY[0]}.{OLDEST_CAPABILITY[1]} or later is needed"
        )
    return device


def capability(cuda: Any, device: Any) -> tuple[int, int]:
    attributes = cuda.CUdevice_attribute
    wanted = (
        attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    )
    major, minor = (int(cuda.cuDeviceGetAttribute(attribute, device)[1]) for attribute in wanted)
    return major, minor


def device_count() -> tuple[int, str]:
    """How many devices there are and, where none can be used, why in one line."""
    try:
        number = int(driver().cuDeviceGetCount()[1])
        if not number:
            return 0, "the NVIDIA driver finds no device"
        for position in range(number):
            try:
                usable(position)
            except CudaMissing as missing:
                if position == number - 1:
                    return 0, str(missing)
            else:
                return number, ""
    except CudaMissing as missing:
        return 0, str(missing)
    return 0, "the NVIDIA driver finds no device"
