"""Whether HIP can be used here and, where it can't, why in one line. Makes no context.

hip-python imports without ROCm; a call raises RuntimeError where the library is missing or, being old, lacks
the function.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from loopgrad.runtime.processes import FORKED, child_safe_lock, renewed_in_children

LIBRARY: Final = "libamdhip64.so"
NO_DEVICE: Final = 100
OLDEST: Final = 6  # the ROCm that has the device properties which hip-python reads
VERSION_UNIT: Final = 10_000_000

_lock = child_safe_lock()
_forked = False
_module: Any = None


class HipMissing(RuntimeError):
    """HIP can't be used here; the text says why in one line."""


def driver() -> Any:
    """The module hip of hip-python, with a device; HipMissing where there is none."""
    global _module
    with _lock:
        if _forked:
            raise HipMissing(FORKED)
        if _module is None:
            _module = _load()
        return _module


def _in_child() -> None:
    global _forked
    _forked = _forked or _module is not None


renewed_in_children(_in_child)


def _load() -> Any:
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        raise HipMissing(f"{LIBRARY} (the AMD ROCm runtime) not found") from None
    try:
        from hip import hip  # late: 0.2 s, and only installed where it is wanted
    except ImportError:
        raise HipMissing("the package 'hip-python' is not installed (pip install loopgrad[hip])") from None
    return _with_a_device(hip)


def _with_a_device(hip: Any) -> Any:
    try:
        status, count = hip.hipGetDeviceCount()
        version = int(hip.hipRuntimeGetVersion()[1]) // VERSION_UNIT
    except RuntimeError as failure:
        raise HipMissing(f"hip-python can't use {LIBRARY}: {one_line(failure)}") from None
    if status == NO_DEVICE or (not status and not count):
        raise HipMissing("the AMD ROCm runtime finds no device")
    if status:
        raise HipMissing(f"the AMD ROCm runtime can't be initialised: {text(status)}")
    if version < OLDEST:
        raise HipMissing(f"the AMD ROCm runtime is version {version}; update it to {OLDEST}.0 or later")
    return hip


def one_line(failure: Exception) -> str:
    return " ".join(str(failure).split())


def text(status: Any) -> str:
    """The driver's name for a status."""
    return getattr(status, "name", None) or f"status {int(status)}"


def usable(position: int) -> str:
    """The processor of the device of that number; HipMissing where it isn't there or no code is generated for it."""
    from loopgrad.codegen.targets.amdgpu.architectures import architecture  # late: LLVM's targets

    hip = driver()
    number = int(hip.hipGetDeviceCount()[1])
    if position >= number:
        raise HipMissing(f"there are only {number} HIP devices here")
    status, properties = hip.hipGetDeviceProperties(position)
    if status:
        raise HipMissing(f"HIP device {position} can't be used: {text(status)}")
    try:
        return architecture(string(properties.gcnArchName))
    except ValueError as unknown:
        raise HipMissing(f"HIP device {position}: {unknown}") from None


def string(value: Any) -> str:
    """What hip-python gives for a C string."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def device_count() -> tuple[int, str]:
    """How many devices there are and, where none can be used, why in one line."""
    reason = ""
    try:
        number = int(driver().hipGetDeviceCount()[1])
        for position in range(number):
            try:
                usable(position)
            except HipMissing as missing:
                reason = str(missing)
            else:
                return number, ""
    except HipMissing as missing:
        reason = str(missing)
    return 0, reason
