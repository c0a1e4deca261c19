"""Program -> Artifact: one SPIR-V module per kernel and support kernel, one after the other in `code`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from loopgrad.codegen.artifact import Artifact, StageTexts
from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.gpu.assembler import WARP
from loopgrad.codegen.targets.gpu.compile import compile_for
from loopgrad.codegen.targets.gpu.emit.kernel import emit_kernel
from loopgrad.codegen.targets.gpu.interface import SubgroupShapes
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry, LaneMapping
from loopgrad.codegen.targets.gpu.record import Module, ProgramRecord
from loopgrad.codegen.targets.spirv.assembler import SpirvAssembler
from loopgrad.codegen.targets.spirv.features import ENTRY_NAME, Features
from loopgrad.codegen.targets.spirv.listing import listing

FULL: Final = Features()
# NVIDIA's driver gives workgroups less memory beside each other than CUDA does: Newton's iteration of 2^24 lanes takes
# 404 us on an H200 with 16, 209 with 8, 149 with 4 (134 by CUDA, with 8); a Pareto law's lanes 1.02 times those of 8
SORTED_LANES: Final = 4


class SpirvImage:
    """Modules one after the other."""

    def __init__(self, features: Features, continued: bool = False) -> None:
        self.features, self.continued = features, continued
        self._codes: list[bytes] = []
        self._modules: list[Module] = []
        self._size = 0

    @property
    def geometry(self) -> Geometry:
        f = self.features
        return Geometry(
            f.tile_group,
            f.workgroup_memory,
            columns_group=f.columns_group,
            resumable=f.resident if self.continued else 0,
            wide=f.int64_atomics,
            exchanges=f.neighbours >= WARP,
            sorted_lanes=SORTED_LANES,
            own_bytes=f.own_bytes,
            matrices=SubgroupShapes(f.neighbours, f.matrices),
            unit_types=tuple([order.type for order in f.fragments]),
        )

    def add(self, kernel: Kernel, fast: bool, plan: LaneMapping) -> None:
        group = plan.group or self.features.group
        b = SpirvAssembler(self.features, kernel.name, group, plan.matrix_units)
        emit_kernel(kernel, b, fast, plan)
        code = b.finish()
        self._codes.append(code)
        self._modules.append(Module(kernel.name, self._size, len(code), ENTRY_NAME, group))
        self._size += len(code)

    def finish(self) -> tuple[list[Module], bytes, Mapping[str, str]]:
        return self._modules, b"".join(self._codes), StageTexts({"spirv": self._text})

    def _text(self) -> str:
        pairs = zip(self._modules, self._codes, strict=True)
        return "\n\n".join([f"; {module.name}\n{listing(code)}" for module, code in pairs])


def compile_program(
    program: Program, options: Options, features: Features = FULL, continued: bool = False
) -> Artifact[ProgramRecord]:
    """Everything a Vulkan device with these features needs to run `program`. `continued`: kernels end before a
    driver would stop their loops, and are continued by further launches."""
    return compile_for(program, options, SpirvImage(features, continued))
