"""A GPU as a device of loopgrad: graph -> cached or fresh code -> executable.

A kind of device subclasses it with its driver and its target.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from math import prod
from typing import Any, ClassVar, Final

import numpy as np

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.options import IN_COLUMNS, LANE_BYTES, SCANS, Options, OwnProducts
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.graph.key import key
from loopgrad.graph.nodes import Graph, Node, Noted
from loopgrad.graph.primitives import factorisations, fourier, window_products
from loopgrad.graph.structure import LeafOf
from loopgrad.graph.types import DType
from loopgrad.runtime.buffers import Buffer, host_buffer
from loopgrad.runtime.cache import DiskCache, compiler_digest, default_cache
from loopgrad.runtime.executable import Executable
from loopgrad.runtime.gpu.driver import Driver, ProductTask, put, read
from loopgrad.runtime.gpu.executable import GpuExecutable, Revise
from loopgrad.runtime.gpu.loaded_program import LoadedProgram
from loopgrad.runtime.gpu.memory import GpuBuffer
from loopgrad.runtime.mesh.communicator import Communicator, Memory
from loopgrad.runtime.plan import MemoryStats
from loopgrad.runtime.processes import child_safe_lock, lost_in_children


class GpuDevice(ABC):
    """`compiled` counts the programs that were not found in the disk cache. `stages`: text forms of a program;
    `routines`: those that its own kernels do and others' can't."""

    kind: ClassVar[str]
    stages: ClassVar[tuple[str, ...]]
    routines: frozenset[str] = frozenset((IN_COLUMNS, SCANS, *window_products.ROWS))

    def __init__(self, name: str, driver: Driver, cache: DiskCache | None = None) -> None:
        self.name = name
        self.driver = driver
        lost_in_children(driver)
        self.cache = cache if cache is not None else default_cache()
        self.compiled = 0
        self._environment: tuple[str, ...] | None = None
        self._lock = child_safe_lock()

    @abstractmethod
    def target(self) -> tuple[str, ...]:
        """What of this device shapes code: part of every cache key."""

    @abstractmethod
    def emit(self, program: Program, options: Options) -> Artifact[ProgramRecord]:
        """The target's code."""

    def emit_continued(self, program: Program, options: Options) -> Artifact[ProgramRecord]:
        """Code whose kernels end before the driver would stop their loops, to be launched again."""
        return self.emit(program, options)

    def put(self, array: np.ndarray[Any, Any], copy: bool = True) -> Buffer:
        dense = host_buffer(array, self.name, copy=False)
        return GpuBuffer(put(self.driver, dense.array), self.name, dense.type)

    def get(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        assert isinstance(buffer, GpuBuffer)
        known = None if buffer.copied is None else buffer.copied()
        if known is not None:
            return known
        array = read(self.driver, buffer.allocation, buffer.type)
        array.flags.writeable = False
        buffer.copied = weakref.ref(array)
        return array

    def lane_bytes(self) -> int:
        """For the arrays of a lane, as scheduling estimates them."""
        return LANE_BYTES

    def collectives(self, communicator: Communicator) -> Memory | str:
        """What moves this device's memory between processes, each of which calls this; or why there is nothing."""
        return "nothing else moves the memory of these devices"

    def direct(self, graph: Graph, options: Options) -> None:
        return None  # its operations one by one would be as many launches

    def noted(self, output: Noted, leaf_of: LeafOf, options: Options, together: bool) -> None:
        return None  # as above

    def taken(self, buffer: Buffer) -> None:
        return None

    lent: Final = None
    reduces_shards = True

    def adds_rows_alike(self, rows: int, terms: int, columns: int, dtype: DType) -> bool:
        return False  # libraries choose by shape

    def compile(self, graph: Graph, options: Options) -> Executable:
        artifact, found = self.artifact(graph, options)
        origin = "found in the cache on disk"
        if not found:
            origin = "compiled: no earlier program has this structure, these shapes and dtypes, and these options"

        def texts(stage: str) -> str:
            return self.stage_text(graph, options, stage)

        def revise() -> LoadedProgram:
            return self.loaded(self.artifact(graph, options, continued=True)[0], options)

        return self.load(artifact, options, texts, origin, None if self.driver.endless_loops else revise)

    def artifact(self, graph: Graph, options: Options, continued: bool = False) -> tuple[Artifact[ProgramRecord], bool]:
        """The program's code, and whether it was on disk. `continued`: as for `emit_continued`."""
        kind = "continued program" if continued else "program"
        called = [f"{name} by {library}" for name, library in self.libraries(graph, options).items()]
        parts = (kind, key(graph).hex(), options.key(), *called, *self.environment())
        parts = (*parts, f"own products: {self.own_products(graph, options).value}")
        known = self.cache.load(parts, ProgramRecord) if self.cache is not None else None
        if known is not None:
            return known, True
        made = self.compile_artifact(graph, options, continued)
        with self._lock:
            self.compiled += 1
        if self.cache is not None:
            self.cache.store(parts, made)
        return made, False

    def load(
        self, artifact: Artifact[ProgramRecord], options: Options, texts: Any, origin: str, revise: Revise | None = None
    ) -> GpuExecutable:
        """An executable of code that exists. `revise` gives other code, where the driver stops loops."""
        return GpuExecutable(self.name, self.loaded(artifact, options), texts, origin, options.stack_capacity, revise)

    def loaded(self, artifact: Artifact[ProgramRecord], options: Options) -> LoadedProgram:
        return LoadedProgram(self.driver, artifact.program, artifact.code, artifact.constants, options)

    def libraries(self, graph: Graph, options: Options) -> Mapping[str, str]:
        """Routines that the program calls a library for, and its name. A library is loaded when it may be of use."""
        found: dict[str, str] = {}
        for family in (fourier.ROWS, factorisations.ROWS) if options.libraries else ():
            if any_node(graph, family):
                found.update(self.driver.libraries(family))
        return found

    def own_products(self, graph: Graph, options: Options) -> OwnProducts:
        """Which products of matrices are our kernels' (see `LoadedProgram`): all, unless a library has one that is
        beside all loops; those of a program with loops even then."""
        products = [node for node in graph.nodes if node.op == "matmul"] if options.libraries else []
        with self.driver.lock:
            called = any(self.driver.product(_task(node, options)) for node in products)
        return OwnProducts.IN_LOOPS if called else OwnProducts.ALL

    def finish(self) -> None:
        self.driver.finish()

    def memory_stats(self) -> MemoryStats:
        return MemoryStats(heap_bytes=self.driver.held)

    def environment(self) -> tuple[str, ...]:
        """Everything beside the graph that shapes code."""
        with self._lock:
            if self._environment is None:
                self._environment = (*self.target(), compiler_digest())
            return self._environment

    def compile_artifact(self, graph: Graph, options: Options, continued: bool = False) -> Artifact[ProgramRecord]:
        """Schedule, lower and emit."""
        program = self.program(graph, options)
        return self.emit_continued(program, options) if continued else self.emit(program, options)

    def program(self, graph: Graph, options: Options) -> Program:
        """The graph, scheduled and lowered."""
        from loopgrad.codegen.pipeline import build_program  # late: a warm cache needs no scheduler

        called, own = self.libraries(graph, options), self.own_products(graph, options)
        return build_program(
            graph, options, called, lane_bytes=self.lane_bytes(), own_products=own, routines=self.routines
        )

    def stage_text(self, graph: Graph, options: Options, stage: str) -> str:
        """The program in one of its forms; made again on demand."""
        if stage not in self.stages:
            raise ValueError(f"expected one of the stages {', '.join(self.stages)}, got {stage!r}")
        if stage == "graph":
            return str(graph)
        return self.compile_artifact(graph, options).texts[stage]


def _task(product: Node, options: Options) -> ProductTask:
    *batch, m, n = product.results[0].shape
    factor, result = product.operands[0], product.results[0]
    sides = (prod(batch), m, factor.shape[-1], n)
    return ProductTask(*sides, False, False, factor.dtype, result.dtype, options.matmul_precision)


def any_node(graph: Graph, names: Container[str]) -> bool:
    """Whether there is such an operation, inside of regions or outside."""
    return any(node.op in names or any(any_node(region, names) for region in node.regions) for node in graph.nodes)
