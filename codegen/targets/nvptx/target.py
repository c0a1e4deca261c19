"""Program -> Artifact: the PTX of all its kernels, for compute capability 8.0 and later.

PTX ISA 8.0 is what drivers since CUDA 12.0 read. The driver assembles the text for the GPU it finds, so one
artifact serves all of them. LLVM unrolls short loops: loads of several trips are then under way together, which
takes a third off the time of deep stacks on an H200.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.gpu.compile import compile_for
from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.codegen.targets.llvm_gpu.backend import optimised, target_machine
from loopgrad.codegen.targets.llvm_gpu.image import LlvmImage
from loopgrad.codegen.targets.nvptx.assembler import NvptxAssembler
from loopgrad.codegen.targets.nvptx.flavour import NVPTX

CPU: Final = "sm_80"
GROUP: Final = 256
# compute capability -> the PTX ISA that has it, 8.0 at least; LLVM ends the process where it is too old
PTX_VERSION: Final = {
    **dict.fromkeys(("sm_80", "sm_86", "sm_87", "sm_89", "sm_90"), 80),
    "sm_100": 86,
    "sm_103": 88,
    "sm_120": 87,
    "sm_121": 88,
}


def generate(text: str, cpu: str = CPU) -> tuple[bytes, Mapping[str, str]]:
    """PTX of a module."""
    machine = target_machine(NVPTX.triple, cpu, f"+ptx{PTX_VERSION[cpu]}")
    with optimised(text, machine) as module:
        ptx = str(machine.emit_assembly(module))
    return ptx.encode(), {"ptx": ptx}


def nvptx_image(cpu: str = CPU) -> LlvmImage:
    return LlvmImage(NVPTX, partial(generate, cpu=cpu), GROUP, NvptxAssembler)


def compile_program(program: Program, options: Options) -> Artifact[ProgramRecord]:
    """Everything a CUDA device needs to run `program`."""
    return compile_for(program, options, nvptx_image())
