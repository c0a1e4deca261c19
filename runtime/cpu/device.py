"""The `cpu` device: graph -> cached or fresh machine code -> executable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.options import FULL_PRECISION, Options
from loopgrad.codegen.program import HOST, MatmulStep
from loopgrad.codegen.steps import all_steps
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.products.products_interface import adds_alike
from loopgrad.codegen.targets.cpu.record import CpuProgramRecord
from loopgrad.graph.key import key
from loopgrad.graph.nodes import Graph, Noted
from loopgrad.graph.primitives import BY_HOST
from loopgrad.graph.structure import LeafOf
from loopgrad.graph.types import DType, TensorType
from loopgrad.runtime.buffers import Buffer, host_buffer
from loopgrad.runtime.cache import DiskCache, compiler_digest, default_cache
from loopgrad.runtime.cpu.common_code import CommonCode
from loopgrad.runtime.cpu.direct import DirectPrograms
from loopgrad.runtime.cpu.direct_notes import noted_program
from loopgrad.runtime.cpu.executable import CpuExecutable, held_by_all
from loopgrad.runtime.cpu.expanded import Expanded
from loopgrad.runtime.cpu.native_pool import NativePool, native_pool, wanted_threads
from loopgrad.runtime.cpu.other_extents import OtherExtents
from loopgrad.runtime.cpu.scheduling import await_scheduling
from loopgrad.runtime.cpu.shared_code import SharedCode, SharedCodeRecord
from loopgrad.runtime.executable import DirectProgram, NotedProgram
from loopgrad.runtime.plan import MemoryStats
from loopgrad.runtime.processes import child_safe_lock

if TYPE_CHECKING:
    from loopgrad.codegen.targets.cpu.target import Make

STAGES = ("graph", "kernel", "llvm", "asm")

COMPILED = "compiled: no earlier program has this structure, these shapes and dtypes, and these options"
SHARED = "not compiled: an earlier program of other shapes or numbers has machine code that takes them as inputs"


class CpuDevice:
    """Always there. `compiled` counts the programs for which machine code was made: neither the disk cache had any, nor
    could that of a program of other shapes be shared."""

    name = "cpu"
    kind = "cpu"
    reduces_shards = True

    def __init__(self, cache: DiskCache | None = None) -> None:
        self.cache = cache if cache is not None else default_cache()
        self.compiled = 0
        self._environment: tuple[str, ...] | None = None
        self._direct = DirectPrograms(Expanded(self.compile), self.pool)
        self._common = CommonCode(self._support_code, self.environment)
        self._shared = SharedCode(self._machine_code, self)
        self._extents = OtherExtents(self._shared, without_code)
        self._lock = child_safe_lock()

    def put(self, array: np.ndarray[Any, Any], copy: bool = True) -> Buffer:
        return host_buffer(array, self.name, copy)

    def get(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        return buffer.array

    def taken(self, buffer: Buffer) -> None:
        return None

    def lent(self, array: np.ndarray[Any, Any], type: TensorType) -> Buffer:
        return Buffer(array, self.name, type)

    def adds_rows_alike(self, rows: int, terms: int, columns: int, dtype: DType) -> bool:
        await_scheduling()
        from loopgrad.codegen.schedule.products import called, small_factor  # late: it emits

        in_lanes = not called(dtype, rows, terms, columns) or small_factor(terms, columns)
        return not in_lanes and adds_alike(rows, columns)

    def compile(self, graph: Graph, options: Options) -> CpuExecutable:
        outline = None if options.fast_math else self._extents.outline(graph, options)
        artifact = None if outline is None else self._extents.artifact(outline)
        if artifact is not None:
            return self.load(artifact, options, lambda stage: stage_text(graph, options, stage), SHARED)
        parts = ("program", key(graph).hex(), options.key(), *self.environment())
        artifact = self.cache.load(parts, CpuProgramRecord) if self.cache is not None else None
        if artifact is not None:
            origin = "found in the cache on disk"
        else:
            artifact, made = self._artifact(graph, options)
            if outline is not None:
                self._extents.scheduled(outline, graph, artifact)
            with self._lock:
                self.compiled += made
            origin = COMPILED if made else SHARED
            if self.cache is not None:
                self.cache.store(parts, artifact)
        return self.load(artifact, options, lambda stage: stage_text(graph, options, stage), origin)

    def _artifact(self, graph: Graph, options: Options) -> tuple[Artifact[CpuProgramRecord], bool]:
        """The program, and whether machine code was made for it."""
        if options.fast_math:  # bits may depend on what is known of numbers
            return compile_artifact(graph, options, lambda text: (self._machine_code(text), ())), True
        made = False

        def shared(text: str) -> tuple[bytes, tuple[int, ...]]:
            nonlocal made
            code, table, made = self._shared.code(text)
            return code, table

        return compile_artifact(graph, options, shared), made

    def load_shared(self, skeleton: str) -> Artifact[SharedCodeRecord] | None:
        if self.cache is None:
            return None
        return self.cache.load(("shared", skeleton, *self.environment()), SharedCodeRecord)

    def store_shared(self, skeleton: str, artifact: Artifact[SharedCodeRecord]) -> None:
        if self.cache is not None:
            self.cache.store(("shared", skeleton, *self.environment()), artifact)

    def direct(self, graph: Graph, options: Options) -> DirectProgram | None:
        return self._direct.program(graph, options)

    def noted(self, output: Noted, leaf_of: LeafOf, options: Options, together: bool) -> NotedProgram | None:
        return noted_program(self._direct, output, leaf_of, options, together)

    def load(
        self, artifact: Artifact[CpuProgramRecord], options: Options, texts: Callable[[str], str], origin: str
    ) -> CpuExecutable:
        """An executable of code that exists."""
        program = artifact.program
        notes = [origin]
        return CpuExecutable(
            program, artifact.code, artifact.constants, self.pool(), texts, notes, options.stack_capacity
        )

    def memory_stats(self) -> MemoryStats:
        return held_by_all(self.pool().heap_bytes())

    def finish(self) -> None:
        """Calls return when their work is done."""

    def pool(self) -> NativePool:
        """The process's thread pool; its code comes from the same cache."""
        return native_pool(self._support_code)

    def _machine_code(self, text: str) -> bytes:
        """Of a program, with that of the functions that other programs have as well."""
        return _machine_code(text, self._common.code)

    def _support_code(self, name: str, text: Callable[[], str]) -> bytes:
        parts = ("support", name, *self.environment())
        artifact = self.cache.load(parts, NoneType) if self.cache is not None else None
        if artifact is None:
            artifact = Artifact(None, b"", _machine_code(text()))
            if self.cache is not None:
                self.cache.store(parts, artifact)
        return artifact.code

    def environment(self) -> tuple[str, ...]:
        """Everything beside the graph that shapes code."""
        with self._lock:
            if self._environment is None:
                import llvmlite  # late: only programs that run need it

                machine = host_machine()
                self._environment = (repr(machine), llvmlite.__version__, compiler_digest())
            return self._environment


def _machine_code(text: str, common: Callable[[str], bytes] | None = None) -> bytes:
    from loopgrad.codegen.targets.cpu.llvm import compile_side_by_side  # late: a warm cache needs no compiler

    return compile_side_by_side(text, host_machine(), wanted_threads(), common)


def compile_artifact(graph: Graph, options: Options, make: Make | None = None) -> Artifact[CpuProgramRecord]:
    """Schedule, lower and emit; `make` gives machine code for the text."""
    await_scheduling()
    from loopgrad.codegen.pipeline import build_program  # late: a warm cache needs no scheduler
    from loopgrad.codegen.schedule.transforms import ANY_AXES  # late, as above
    from loopgrad.codegen.targets.cpu.target import compile_program, own_code  # late, as above

    by_host = dict.fromkeys((*BY_HOST, ANY_AXES), HOST)
    program = build_program(graph, options, by_host, in_order=True, wide_products=True)
    if options.matmul_precision != FULL_PRECISION and any(isinstance(s, MatmulStep) for s in all_steps(program.steps)):
        note = f"matmul_precision={options.matmul_precision!r}: products keep all digits on this device"
        program = replace(program, notes=(*program.notes, note))
    return compile_program(program, options, make or own_code)


def without_code(graph: Graph, options: Options) -> Artifact[CpuProgramRecord]:
    """As above, whose machine code is none."""
    return compile_artifact(graph, options, lambda _: (b"", ()))


def stage_text(graph: Graph, options: Options, stage: str) -> str:
    """The program in one of its forms; made again on demand, since nobody else needs the text."""
    if stage not in STAGES:
        raise ValueError(f"expected one of the stages {', '.join(STAGES)}, got {stage!r}")
    if stage == "graph":
        return str(graph)
    if stage == "asm":
        from loopgrad.codegen.targets.cpu.llvm import assembly  # late, as above

        return assembly(compile_artifact(graph, options).texts["llvm"], host_machine())
    return compile_artifact(graph, options).texts[stage]
