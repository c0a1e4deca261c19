"""Program -> Artifact: one code object (V5) with all its kernels, for one kind of AMD GPU.

Nothing of ROCm is needed: LLVM generates a relocatable object, the linker here makes it loadable. The code
holds no tables of constants, and kernels with memory of the workgroup run in compute-unit mode, which costs
nothing and lets simple emulators run it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.amdgpu.architectures import DEFAULT, architecture
from loopgrad.codegen.targets.amdgpu.assembler import AmdgpuAssembler
from loopgrad.codegen.targets.amdgpu.code_object import check, loadable
from loopgrad.codegen.targets.amdgpu.flavour import AMDGPU, FEATURES
from loopgrad.codegen.targets.amdgpu.intrinsics import check as check_functions
from loopgrad.codegen.targets.gpu.compile import compile_for
from loopgrad.codegen.targets.gpu.record import Module, ProgramRecord
from loopgrad.codegen.targets.llvm_gpu.backend import optimised, target_machine
from loopgrad.codegen.targets.llvm_gpu.image import LlvmImage

GROUP: Final = 256


def compile_program(
    program: Program, options: Options, target: str = DEFAULT, listing: bool = False
) -> Artifact[ProgramRecord]:
    """Everything a HIP device of that kind (such as gfx942) needs to run `program`; `listing`: with the text of
    the machine code, which costs a second run of the code generator."""
    image = AmdgpuImage(architecture(target), listing)
    artifact = compile_for(program, options, image)
    notes = (*artifact.program.notes, *image.notes)
    return replace(artifact, program=replace(artifact.program, notes=notes))


class AmdgpuImage(LlvmImage):
    """Linked code; `notes` say what the user should know of the linking."""

    def __init__(self, processor: str, listing: bool) -> None:
        super().__init__(AMDGPU, self._code, GROUP, AmdgpuAssembler)
        self.processor = processor
        self.listing = listing
        self.notes: Sequence[str] = ()

    def _code(self, text: str) -> tuple[bytes, Mapping[str, str]]:
        listing = {"amdgpu": assembly(text, self.processor)} if self.listing else {}
        if not self._functions:  # a program without kernels: there is nothing to link
            return b"", listing
        code, self.notes = loadable(relocatable(text, self.processor), self.processor)
        return code, listing

    def finish(self) -> tuple[list[Module], bytes, Mapping[str, str]]:
        rows, code, texts = super().finish()
        said = check(code, [row.entry for row in rows]) if rows else {}
        return [replace(row, shared=said[row.entry].group_memory) for row in rows], code, texts


@contextmanager
def lowered(text: str, processor: str) -> Iterator[tuple[Any, Any]]:
    """A target machine, and the optimised module, which it can take."""
    machine = target_machine(AMDGPU.triple, processor, FEATURES)
    with optimised(text, machine) as module:
        check_functions(f.name for f in module.functions if f.is_declaration)
        yield machine, module


def relocatable(text: str, processor: str) -> bytes:
    with lowered(text, processor) as (machine, module):
        return bytes(machine.emit_object(module))


def assembly(text: str, processor: str) -> str:
    """The machine code, readable."""
    with lowered(text, processor) as (machine, module):
        return str(machine.emit_assembly(module))
