"""Program -> Artifact: kernels and driver in one LLVM module, one object."""

from __future__ import annotations

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.kernel.text import print_kernel
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.cpu.entry.entry import emit_entry
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.llvm import compile_module
from loopgrad.codegen.targets.cpu.module import emit_kernels
from loopgrad.codegen.targets.cpu.record import CpuProgramRecord, record


def compile_program(program: Program, options: Options) -> Artifact[CpuProgramRecord]:
    """Everything the `cpu` device needs to run `program` on this machine."""
    for kernel in program.kernels:
        verify_kernel(kernel)
    machine = host_machine()
    kernels, interfaces = emit_kernels(program.kernels, machine, options)
    text = "\n".join([kernels, emit_entry(program, interfaces)])
    stages = {"kernel": "\n\n".join(map(print_kernel, program.kernels)), "llvm": text}
    return Artifact(record(program, interfaces), program.constants, compile_module(text, machine), stages)
