"""The update kernel for AMD GPUs: its decisions are words that the host reads, since HIP's graphs don't decide."""

from __future__ import annotations

from functools import cache

from loopgrad.codegen.targets.amdgpu.assembler import AmdgpuAssembler
from loopgrad.codegen.targets.amdgpu.code_object import check, loadable
from loopgrad.codegen.targets.amdgpu.flavour import AMDGPU
from loopgrad.codegen.targets.amdgpu.target import relocatable
from loopgrad.codegen.targets.gpu.support.update_kernel import emit_update
from loopgrad.codegen.targets.gpu.support.update_list import ENTRY, GROUP


def update_text() -> str:
    """LLVM IR of the module with the kernel ENTRY, for workgroups of GROUP."""
    b = AmdgpuAssembler(AMDGPU, ENTRY, GROUP)
    emit_update(b)
    attributes = f"attributes #0 = {{ {AMDGPU.attributes.format(group=GROUP)} }}"
    parts = [f'target triple = "{AMDGPU.triple}"', b.finish(0), AMDGPU.declarations, *b.declarations, attributes]
    return "\n".join([*parts, "!0 = !{}", ""])


@cache
def update_code_object(processor: str) -> bytes:
    code, _ = loadable(relocatable(update_text(), processor), processor)
    check(code, [ENTRY])
    return code
