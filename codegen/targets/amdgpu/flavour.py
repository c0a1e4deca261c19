"""AMD's way: amdgpu_kernel, numbered address spaces, s_barrier between fences, code object V5.

The six launch words are all that a kernel takes: no implicit arguments, none of the queue's pointers.
"""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.targets.llvm_gpu.flavour import Flavour, quick

_UNUSED: Final = (
    "completion-action", "default-queue", "dispatch-id", "dispatch-ptr", "heap-ptr", "hostcall-ptr",
    "implicitarg-ptr", "lds-kernel-id", "multigrid-sync-arg", "queue-ptr", "workgroup-id-y", "workgroup-id-z",
    "workitem-id-y", "workitem-id-z",
)  # fmt: skip

# 16-bit values in the low half of a register each, as before LLVM 20: halves of their own would need registers of
# the lower 128 and moves, and disassemblers and emulators know them less well
FEATURES: Final = "-real-true16"

AMDGPU: Final = Flavour(
    triple="amdgcn-amd-amdhsa",
    entry="amdgpu_kernel ",
    memory="ptr addrspace(1)",
    local="ptr addrspace(5)",
    constant="ptr addrspace(4)",
    workgroup="ptr addrspace(3)",
    device='syncscope("agent") ',
    group='syncscope("workgroup") ',
    local_id="call range(i32 0, {group}) i32 @llvm.amdgcn.workitem.id.x()",
    group_id="call range(i32 0, 2147483647) i32 @llvm.amdgcn.workgroup.id.x()",
    barrier=(
        'fence syncscope("workgroup") release',
        "call void @llvm.amdgcn.s.barrier()",
        'fence syncscope("workgroup") acquire',
    ),
    attributes='nounwind "uniform-work-group-size"="true" '
    '"amdgpu-flat-work-group-size"="{group},{group}" "amdgpu-implicitarg-num-bytes"="0" '
    '"amdgpu-promote-alloca-to-vector-max-regs"="0" '  # arrays in registers are looked up lane by lane
    + " ".join(f'"amdgpu-no-{name}"' for name in _UNUSED),
    fast_attributes='"denormal-fp-math-f32"="preserve-sign"',
    shared_attributes=f'"target-features"="+cumode,{FEATURES}"',
    declarations="declare i32 @llvm.amdgcn.workitem.id.x()\n"
    "declare i32 @llvm.amdgcn.workgroup.id.x()\n"
    "declare void @llvm.amdgcn.s.barrier()\n"
    "!llvm.module.flags = !{!1000}\n"
    '!1000 = !{i32 1, !"amdhsa_code_object_version", i32 500}',
    atomic_float=", !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0, !amdgpu.ignore.denormal.mode !0",
    # what v_sin_f32 and its like compute; LLVM adds the reduction to one turn
    quick=quick("llvm.sin.f32", "llvm.cos.f32", "llvm.exp2.f32", "llvm.log2.f32"),
)
