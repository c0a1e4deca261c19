"""A `vulkan:N` device: graph -> cached or fresh SPIR-V -> executable."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.graph.key import key
from loopgrad.graph.nodes import Graph
from loopgrad.runtime.buffers import Buffer, host_buffer
from loopgrad.runtime.cache import DiskCache, default_cache, source_digest
from loopgrad.runtime.executable import Executable
from loopgrad.runtime.options import Options
from loopgrad.runtime.plan import MemoryStats
from loopgrad.runtime.vulkan.driver import api, usable
from loopgrad.runtime.vulkan.executable import VulkanExecutable
from loopgrad.runtime.vulkan.gpu import Gpu
from loopgrad.runtime.vulkan.memory import VulkanBuffer
from loopgrad.runtime.vulkan.probes import probed
from loopgrad.runtime.vulkan.program import read_program
from loopgrad.runtime.vulkan.resources import Memory, Resources

STAGES = ("graph", "kernel", "spirv")


class VulkanDevice:
    """`compiled` counts the programs that were not found in the disk cache."""

    kind = "vulkan"

    def __init__(self, position: int, cache: DiskCache | None = None) -> None:
        self.name = f"vulkan:{position}"
        self.gpu = Gpu(api(), usable(position))
        self.memory = Memory(self.gpu)
        self.gpu.features = probed(self.memory, self.gpu.features)
        self.cache = cache if cache is not None else default_cache()
        self.compiled = 0
        self._environment: tuple[str, ...] | None = None
        self._lock = threading.Lock()

    def put(self, array: np.ndarray[Any, Any], copy: bool = True) -> Buffer:
        dense = host_buffer(array, self.name, copy=False)
        return VulkanBuffer(self.memory.put(dense.array), self.name, dense.type)

    def get(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        assert isinstance(buffer, VulkanBuffer)
        known = None if buffer.copied is None else buffer.copied()
        if known is not None:
            return known
        array = self.memory.read(buffer.allocation, buffer.type)
        array.flags.writeable = False
        buffer.copied = weakref.ref(array)
        return array

    def compile(self, graph: Graph, options: Options) -> Executable:
        parts = ("program", key(graph).hex(), options.key(), *self.environment())
        artifact = self.cache.load(parts) if self.cache is not None else None
        origin = "found in the cache on disk"
        if artifact is None:
            artifact = compile_artifact(graph, options, self.gpu.features)
            self.compiled += 1
            origin = "compiled: no earlier program has this structure, these shapes and dtypes, and these options"
            if self.cache is not None:
                self.cache.store(parts, artifact)
        program = read_program(artifact.metadata)
        resources = Resources(self.memory, program, artifact.code, artifact.constants)

        def texts(stage: str) -> str:
            return stage_text(graph, options, self.gpu.features, stage)

        return VulkanExecutable(self.name, program, resources, texts, origin, options.stack_capacity)

    def memory_stats(self) -> MemoryStats:
        return MemoryStats(heap_bytes=self.memory.data.held)

    def environment(self) -> tuple[str, ...]:
        """Everything beside the graph that shapes code."""
        with self._lock:
            if self._environment is None:
                self._environment = ("spirv", self.gpu.features.key(), source_digest())
            return self._environment


def compile_artifact(graph: Graph, options: Options, features: Features) -> Artifact:
    """Schedule, lower and emit."""
    from loopgrad.codegen.pipeline import optimised  # late: a warm cache needs no scheduler
    from loopgrad.codegen.schedule import schedule  # late, as above
    from loopgrad.codegen.targets.spirv.target import compile_program  # late, as above

    return compile_program(optimised(schedule(graph, options)), options, features)


def stage_text(graph: Graph, options: Options, features: Features, stage: str) -> str:
    """The program in one of its forms; made again on demand."""
    if stage not in STAGES:
        raise ValueError(f"expected one of the stages {', '.join(STAGES)}, got {stage!r}")
    if stage == "graph":
        return str(graph)
    return compile_artifact(graph, options, features).texts[stage]
