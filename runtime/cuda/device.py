"""A `cuda:N` device."""

from __future__ import annotations

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.runtime.cache import DiskCache, default_cache
from loopgrad.runtime.cuda.api import CudaApi
from loopgrad.runtime.cuda.driver import CudaDriver
from loopgrad.runtime.gpu.device import GpuDevice


class CudaDevice(GpuDevice):
    """PTX serves every GPU that the driver knows; the driver assembles and caches it."""

    kind = "cuda"
    stages = ("graph", "kernel", "llvm", "ptx")

    def __init__(self, position: int, cache: DiskCache | None = None) -> None:
        kept = default_cache() if cache is None else cache
        super().__init__(f"cuda:{position}", CudaDriver(CudaApi(position), kept), kept)

    def target(self) -> tuple[str, ...]:
        import llvmlite  # late: only programs that run need it

        return ("nvptx", llvmlite.__version__)

    def emit(self, program: Program, options: Options) -> Artifact[ProgramRecord]:
        from loopgrad.codegen.targets.nvptx.target import compile_program  # late: a warm cache needs no emitter

        return compile_program(program, options)
