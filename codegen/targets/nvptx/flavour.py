"""CUDA's way: special registers, bar.sync, global, constant and shared memory."""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.targets.llvm_gpu.flavour import Flavour, quick
from loopgrad.codegen.targets.nvptx.warp_matrices import SHAPES

NVPTX: Final = Flavour(
    triple="nvptx64-nvidia-cuda",
    entry="ptx_kernel ",
    memory="ptr addrspace(1)",
    local="ptr",
    constant="ptr addrspace(4)",
    workgroup="ptr addrspace(3)",
    device='syncscope("device") ',
    group='syncscope("block") ',
    local_id="call range(i32 0, {group}) i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
    group_id="call range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()",
    local_id_again='call i32 asm sideeffect "mov.u32 $0, %tid.x;", "=r"()',
    barrier=("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",),
    # what is chosen among arrays of a workgroup isn't looked up in a table: ptxas refuses their addresses there
    attributes='nounwind "no-jump-tables"="true" "nvvm.reqntid"="{group}"',
    # 4 workgroups of 256 on a multiprocessor: 64 registers each. The compiler takes 106 for a short loop where it
    # may; with half the lanes in flight a Zipf law's lanes take 1.11 times as long on an H200
    sorted_attributes='"nvvm.minctasm"="4"',
    # 128 registers. The gradient of 32 parameters takes 255 where it may, hence half the lanes; what it spills instead
    # lies outside of its loops but for a few loads: 1.25 times as long without on an H200
    summed_attributes='"nvvm.minctasm"="{groups}"',
    summed_group=64,  # fewer warps wait for the longest of theirs: 1.41 times as long with 256
    staged_attributes='"nvvm.minctasm"="{resident}"',
    recipe_attributes='"nvvm.maxnreg"="{registers}"',
    exchanges=True,
    group_vectors=True,
    unit_types=("f16", "b16", "tf32"),
    matrices=SHAPES,
    waits=True,  # from compute capability 7.0 on each invocation goes on by itself
    columns_group=1024,
    asked_memory=99 << 10,  # which all compute capabilities from 8.0 on have
    warpgroup_memory=227 << 10,
    fast_attributes='"denormal-fp-math-f32"="preserve-sign"',
    declarations="declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    "declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n"
    "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)",
    quick=quick(*(f"llvm.nvvm.{name}.approx.ftz.f" for name in ("sin", "cos", "ex2", "lg2"))),
)
