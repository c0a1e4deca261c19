"""Program -> Artifact: kernels and driver in one LLVM module, one object."""

from __future__ import annotations

from collections.abc import Callable

from loopgrad.codegen.artifact import Artifact, StageTexts
from loopgrad.codegen.kernel.text import print_kernel
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.cpu.entry.entry import emit_entry
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.llvm import compile_module
from loopgrad.codegen.targets.cpu.module import emit_kernels
from loopgrad.codegen.targets.cpu.record import CpuProgramRecord, record

Make = Callable[[str], tuple[bytes, tuple[int, ...]]]
"""The object of a module's text, and the table that it takes."""


def own_code(text: str) -> tuple[bytes, tuple[int, ...]]:
    """An object of this text alone."""
    return compile_module(text, host_machine()), ()


def compile_program(program: Program, options: Options, make: Make = own_code) -> Artifact[CpuProgramRecord]:
    """Everything the `cpu` device needs to run `program` on this machine."""
    for kernel in program.kernels:
        verify_kernel(kernel)
    machine = host_machine()
    kernels, interfaces = emit_kernels(program.kernels, machine, options)
    text = "\n".join([kernels, emit_entry(program, interfaces)])
    stages = StageTexts({"kernel": lambda: "\n\n".join(map(print_kernel, program.kernels)), "llvm": lambda: text})
    code, table = make(text)
    return Artifact(record(program, interfaces, table), program.constants, code, stages)
