"""A `hip:N` device."""

from __future__ import annotations

from functools import partial

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.codegen.targets.gpu.support.update_list import ENTRY, GROUP
from loopgrad.graph.nodes import Graph
from loopgrad.runtime.cache import DiskCache, default_cache, kept_code
from loopgrad.runtime.gpu.device import GpuDevice
from loopgrad.runtime.gpu.streams.driver import StreamDriver
from loopgrad.runtime.hip.api import HipApi
from loopgrad.runtime.hip.libraries import AMD
from loopgrad.runtime.mesh.communicator import Communicator, Memory


class HipDevice(GpuDevice):
    """A code object for exactly this processor."""

    kind = "hip"
    stages = ("graph", "kernel", "llvm", "amdgpu")

    def __init__(self, position: int, cache: DiskCache | None = None) -> None:
        api = HipApi(position)
        self.processor = api.processor
        kept = default_cache() if cache is None else cache
        self._api = api
        self._streams = StreamDriver(api, partial(update_code, api.processor, kept), AMD)
        super().__init__(f"hip:{position}", self._streams, kept)

    def collectives(self, communicator: Communicator) -> Memory | str:
        from loopgrad.runtime.gpu.streams.collectives import joined  # late: only several processes need it
        from loopgrad.runtime.hip.rccl import NAME, load  # late, as above

        return joined(load, NAME, self._streams, self._api.identity(), communicator)

    def lane_bytes(self) -> int:
        from loopgrad.codegen.targets.amdgpu.architectures import lane_bytes  # late: a warm cache needs no scheduler

        return lane_bytes(self.processor)

    def target(self) -> tuple[str, ...]:
        import llvmlite  # late: only programs that run need it

        return ("amdgpu", self.processor, llvmlite.__version__)

    def emit(self, program: Program, options: Options) -> Artifact[ProgramRecord]:
        from loopgrad.codegen.targets.amdgpu.target import compile_program  # late: a warm cache needs no emitter

        return compile_program(program, options, self.processor)

    def stage_text(self, graph: Graph, options: Options, stage: str) -> str:
        if stage != "amdgpu":
            return super().stage_text(graph, options, stage)
        from loopgrad.codegen.targets.amdgpu.target import compile_program  # late: a warm cache needs no emitter

        return compile_program(self.program(graph, options), options, self.processor, listing=True).texts[stage]


def update_code(processor: str, cache: DiskCache | None) -> tuple[bytes, str, int]:
    """The update kernel, whose decisions the host reads."""

    def make() -> bytes:
        from loopgrad.codegen.targets.amdgpu.update import update_code_object  # late: a warm cache needs no emitter

        return update_code_object(processor)

    return kept_code(cache, ("update kernel", processor), make), ENTRY, GROUP
