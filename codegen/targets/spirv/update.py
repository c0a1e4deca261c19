"""The update kernel for Vulkan: its decisions are words that the host reads."""

from __future__ import annotations

from loopgrad.codegen.targets.gpu.support.update_kernel import emit_update
from loopgrad.codegen.targets.spirv.assembler import SpirvAssembler
from loopgrad.codegen.targets.spirv.features import Features


def update_module(features: Features) -> bytes:
    """A SPIR-V module."""
    b = SpirvAssembler(features, "update")
    emit_update(b)
    return b.finish()
