"""Program -> Artifact: the PTX of all its kernels, for compute capability 8.0 and later.

PTX ISA 8.0 is what drivers since CUDA 12.0 read. The driver assembles the text for the GPU it finds, so one
artifact serves all of them. LLVM unrolls short loops: loads of several trips are then under way together, which
takes a third off the time of deep stacks on an H200.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.gpu.compile import compile_for
from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.codegen.targets.llvm_gpu.backend import bench, new_target_machine, optimised, target_machine, with_layout
from loopgrad.codegen.targets.llvm_gpu.image import PIECE, LlvmImage
from loopgrad.codegen.targets.llvm_threads import compiled
from loopgrad.codegen.targets.nvptx import warpgroup_units
from loopgrad.codegen.targets.nvptx.assembler import NvptxAssembler
from loopgrad.codegen.targets.nvptx.flavour import NVPTX

CPU: Final = "sm_80"
GROUP: Final = 256
# compute capability -> the PTX ISA that has it, 8.0 at least; LLVM ends the process where it is too old
PTX_VERSION: Final = {
    **dict.fromkeys(("sm_80", "sm_86", "sm_87", "sm_89", "sm_90", warpgroup_units.CPU), 80),
    "sm_100": 86,
    "sm_103": 88,
    "sm_120": 87,
    "sm_121": 88,
}


def generate(text: str, cpu: str = CPU) -> tuple[bytes, Mapping[str, str]]:
    """PTX of a module."""
    machine = target_machine(*_machine(cpu))
    with optimised(text, machine) as module:
        ptx = str(machine.emit_assembly(module))
    return ptx.encode(), {"ptx": ptx}


def _machine(cpu: str) -> tuple[str, str, str]:
    return NVPTX.triple, cpu, f"+ptx{PTX_VERSION[cpu]}"


def nvptx_image(cpu: str = CPU) -> LlvmImage:
    return LlvmImage(NVPTX, partial(generate, cpu=cpu), GROUP, NvptxAssembler)


def needed(text: str) -> str:
    """The compute capability that a module's instructions need."""
    return warpgroup_units.CPU if warpgroup_units.NAME in text else CPU


class PtxPieces(LlvmImage):
    """PTX in pieces, which so many threads make; whoever loads it may assemble them side by side. `warpgroups`: it is
    for a GPU that has matrix units of these, and then pieces with such instructions are for no other."""

    def __init__(self, threads: int, warpgroups: bool) -> None:
        super().__init__(NVPTX, _generate_needed, GROUP, NvptxAssembler, PIECE, warpgroups)
        self.threads = threads

    def generated(self, texts: Sequence[str]) -> tuple[list[bytes], Mapping[str, str]]:
        if len(texts) == 1:
            return super().generated(texts)
        codes = dict[str, bytes]()
        for cpu in sorted({needed(text) for text in texts}):
            codes |= self._side_by_side([text for text in texts if needed(text) == cpu], _machine(cpu))
        found = [codes[text] for text in texts]
        return found, {"ptx": b"\n".join(found).decode()}

    def _side_by_side(self, texts: Sequence[str], kind: tuple[str, str, str]) -> Mapping[str, bytes]:
        complete = [with_layout(text, target_machine(*kind)) for text in texts]
        codes = compiled(complete, lambda stack: bench(new_target_machine(*kind), stack), self.threads, assembly=True)
        return dict(zip(texts, codes, strict=True))


def _generate_needed(text: str) -> tuple[bytes, Mapping[str, str]]:
    return generate(text, needed(text))


def compile_program(
    program: Program, options: Options, threads: int = 1, warpgroups: bool = False
) -> Artifact[ProgramRecord]:
    """Everything a CUDA device needs to run `program`; `warpgroups`: one that has matrix units of these."""
    return compile_for(program, options, PtxPieces(threads, warpgroups))
