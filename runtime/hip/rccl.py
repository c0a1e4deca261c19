"""Where RCCL is: with ROCm. It has NCCL's interface; `runtime/gpu/streams/collectives.py` calls it. Never run on AMD's
hardware."""

from __future__ import annotations

from typing import Any, Final

from loopgrad.runtime.gpu.streams.vendor import opened

NAME: Final = "RCCL"
FILES: Final = ("librccl.so.1", "/opt/rocm/lib/librccl.so.1")


def load() -> Any | None:
    """The library, None where there is none."""
    return opened(FILES)
