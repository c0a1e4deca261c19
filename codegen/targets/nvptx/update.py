"""The update kernel for CUDA: its conditions are those of a graph's conditional nodes, or words for the host.

`cudaGraphSetConditional` is a function of NVIDIA's device runtime; whoever loads it links libcudadevrt.a.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.support.update_kernel import emit_update
from loopgrad.codegen.targets.gpu.support.update_list import ENTRY, GROUP
from loopgrad.codegen.targets.llvm_gpu.assembler import LlvmAssembler
from loopgrad.codegen.targets.nvptx.flavour import NVPTX
from loopgrad.codegen.targets.nvptx.target import generate

SET_CONDITION: Final = "cudaGraphSetConditional"


def update_text(conditional: bool) -> str:
    """LLVM IR of the module with the kernel ENTRY, for workgroups of GROUP."""
    b = LlvmAssembler(NVPTX, ENTRY, GROUP)

    def set_condition(handle: Val, value: Val) -> None:
        narrow = b.inst("UConvert", "i32", value)
        b.call(SET_CONDITION, handle, narrow)

    emit_update(b, set_condition if conditional else None)
    attributes = f"attributes #0 = {{ {NVPTX.attributes.format(group=GROUP)} }}"
    parts = [f'target triple = "{NVPTX.triple}"', b.finish(0), NVPTX.declarations, *b.declarations, attributes]
    return "\n".join([*parts, "!0 = !{}", ""])


@cache
def update_ptx(conditional: bool) -> bytes:
    """PTX of the kernel."""
    return generate(update_text(conditional))[0]
