"""A `hip:N` device."""

from __future__ import annotations

from functools import partial

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.program import Program
from loopgrad.graph.nodes import Graph
from loopgrad.runtime.cache import DiskCache
from loopgrad.runtime.gpu.device import GpuDevice
from loopgrad.runtime.gpu.streams.driver import StreamDriver
from loopgrad.runtime.hip.api import HipApi
from loopgrad.runtime.options import Options


class HipDevice(GpuDevice):
    """A code object for exactly this processor."""

    kind = "hip"
    stages = ("graph", "kernel", "llvm", "amdgpu")

    def __init__(self, position: int, cache: DiskCache | None = None) -> None:
        api = HipApi(position)
        self.processor = api.processor
        super().__init__(f"hip:{position}", StreamDriver(api, partial(update_code, api.processor)), cache)

    def target(self) -> tuple[str, ...]:
        import llvmlite  # late: only programs that run need it

        return ("amdgpu", self.processor, llvmlite.__version__)

    def emit(self, program: Program, options: Options) -> Artifact:
        from loopgrad.codegen.targets.amdgpu.target import compile_program  # late: a warm cache needs no emitter

        return compile_program(program, options, self.processor)

    def stage_text(self, graph: Graph, options: Options, stage: str) -> str:
        if stage != "amdgpu":
            return super().stage_text(graph, options, stage)
        from loopgrad.codegen.pipeline import optimised  # late: a warm cache needs no scheduler
        from loopgrad.codegen.schedule import schedule  # late, as above
        from loopgrad.codegen.targets.amdgpu.target import compile_program  # late, as above

        program = optimised(schedule(graph, options))
        return compile_program(program, options, self.processor, listing=True).texts[stage]


def update_code(processor: str) -> tuple[bytes, str, int]:
    """The update kernel, whose decisions the host reads."""
    from loopgrad.codegen.targets.amdgpu.update import ENTRY, GROUP, update_code_object  # late: few programs need it

    return update_code_object(processor), ENTRY, GROUP
