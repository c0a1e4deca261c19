"""A `cuda:N` device."""

from __future__ import annotations

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.options import LONG_COLUMNS, Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.graph.primitives import attention
from loopgrad.graph.primitives.window_products import OF_CHANNELS
from loopgrad.runtime.cache import DiskCache, default_cache
from loopgrad.runtime.cpu.native_pool import wanted_threads
from loopgrad.runtime.cuda.api import CudaApi
from loopgrad.runtime.cuda.driver import CudaDriver
from loopgrad.runtime.gpu.device import GpuDevice
from loopgrad.runtime.mesh.communicator import Communicator, Memory


class CudaDevice(GpuDevice):
    """PTX serves every GPU that the driver knows; the driver assembles and caches it."""

    kind = "cuda"
    stages = ("graph", "kernel", "llvm", "ptx")
    routines = GpuDevice.routines.union(attention.ROWS, attention.OF_ALL, (LONG_COLUMNS,))

    def __init__(self, position: int, cache: DiskCache | None = None) -> None:
        kept = default_cache() if cache is None else cache
        self._api = CudaApi(position)
        self._streams = CudaDriver(self._api, kept)
        super().__init__(f"cuda:{position}", self._streams, kept)
        if self.warpgroups:
            self.routines = self.routines.union((OF_CHANNELS,))

    def collectives(self, communicator: Communicator) -> Memory | str:
        from loopgrad.runtime.cuda.nccl import NAME, load  # late: only several processes need it
        from loopgrad.runtime.gpu.streams.collectives import joined  # late, as above

        return joined(load, NAME, self._streams, self._api.identity(), communicator)

    @property
    def warpgroups(self) -> bool:
        """Whether it has matrix units of warpgroups that code is made for."""
        return self._api.warpgroups

    def target(self) -> tuple[str, ...]:
        import llvmlite  # late: only programs that run need it

        return ("nvptx", llvmlite.__version__, "warpgroups" * self.warpgroups)

    def emit(self, program: Program, options: Options) -> Artifact[ProgramRecord]:
        from loopgrad.codegen.targets.nvptx.target import compile_program  # late: a warm cache needs no emitter

        return compile_program(program, options, wanted_threads(), self.warpgroups)
