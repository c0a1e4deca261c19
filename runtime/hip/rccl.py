"""Where RCCL is: with ROCm. It has NCCL's interface; `runtime/gpu/streams/collectives.py` calls it. Never run on AMD's
hardware."""

from __future__ import annotations

import ctypes
from typing import Any, Final

NAME: Final = "RCCL"
FILES: Final = ("librccl.so.1", "/opt/rocm/lib/librccl.so.1")


def load() -> Any | None:
    """The library, None where there is none."""
    for file in FILES:
        try:
            return ctypes.CDLL(file)
        except OSError:
            continue
    return None
