"""The AMD GPUs that code is generated for, by LLVM's names (User Guide for AMDGPU Backend, "Processors")."""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.options import LANE_BYTES

# CDNA and GCN 5 run 64 work items as one wavefront, RDNA 32; nothing that is generated depends on it
WAVEFRONT: Final = {
    **dict.fromkeys(("gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"), 64),
    **dict.fromkeys(("gfx1010", "gfx1011", "gfx1012", "gfx1030", "gfx1031", "gfx1032", "gfx1034"), 32),
    **dict.fromkeys(("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152"), 32),
    **dict.fromkeys(("gfx1200", "gfx1201"), 32),
}
DEFAULT: Final = "gfx942"
SCRATCH: Final = 1 << 23  # bytes that a wavefront can address, but for some, on all but the newest


def architecture(name: str) -> str:
    """The processor of a target id such as gfx90a:sramecc+:xnack-, whose settings any code here runs under;
    ValueError where nothing is generated for it."""
    processor = name.partition(":")[0]
    if processor not in WAVEFRONT:
        raise ValueError(f"expected an AMD GPU of {', '.join(WAVEFRONT)}, got {name!r}")
    return processor


def lane_bytes(processor: str) -> int:
    """For the arrays of a lane by the schedule's estimate, which may be a third too small."""
    return min(SCRATCH // WAVEFRONT[processor] * 2 // 3, LANE_BYTES)
