"""Memory of a device as executables use it, and the pipelines and constants of one executable."""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np

from loopgrad.graph.types import TensorType
from loopgrad.runtime.vulkan.commands import Commands
from loopgrad.runtime.vulkan.driver import TYPE_CPU
from loopgrad.runtime.vulkan.failures import heap_failure
from loopgrad.runtime.vulkan.gpu import Gpu
from loopgrad.runtime.vulkan.learned import Learned
from loopgrad.runtime.vulkan.memory import (
    DEVICE_LOCAL,
    HOST_CACHED,
    HOST_COHERENT,
    HOST_VISIBLE,
    Allocation,
    Bytes,
    Heap,
)
from loopgrad.runtime.vulkan.program import ProgramRecord, SlotRecord

MAPPED: Final = HOST_VISIBLE | HOST_COHERENT
HEADROOM: Final = 0.9
LARGEST_HEAP: Final = 1 << 62


class Memory:
    """`data` is where tensors live, `host` what the host writes often (tables, control blocks, staging)."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        shared = (DEVICE_LOCAL | MAPPED | HOST_CACHED, DEVICE_LOCAL | MAPPED, MAPPED)
        self.data = Heap(gpu, shared if gpu.unified else (DEVICE_LOCAL,))
        self.host = Heap(gpu, (MAPPED | HOST_CACHED, MAPPED))
        self._commands: Commands | None = None

    def put(self, array: np.ndarray[Any, Any]) -> Allocation:
        allocation = self.data.take(array.nbytes)
        self.write(allocation, array)
        return allocation

    def write(self, allocation: Allocation, array: np.ndarray[Any, Any]) -> None:
        """Copy a dense array to the device."""
        if not array.nbytes:
            return
        content = array.reshape(-1).view(np.uint8)
        if allocation.chunk.host is not None:
            allocation.host(array.nbytes)[:] = content
            return
        staging = self.host.take(array.nbytes)
        staging.host(array.nbytes)[:] = content
        self._transfer(staging, allocation, array.nbytes)

    def read(self, allocation: Allocation, type: TensorType) -> np.ndarray[Any, Any]:
        """A copy of the elements on the host."""
        return self.bytes(allocation, type.nbytes).view(type.dtype.np).reshape(type.shape)

    def bytes(self, allocation: Allocation, size: int) -> Bytes:
        if not size:
            return np.empty(0, np.uint8)
        if allocation.chunk.host is not None:
            return allocation.host(size).copy()
        staging = self.host.take(size)
        self._transfer(allocation, staging, size)
        return staging.host(size).copy()

    def _transfer(self, source: Allocation, target: Allocation, size: int) -> None:
        with self.gpu.lock:
            if self._commands is None:
                self._commands = Commands(self.gpu)
            self._commands.begin()
            self._commands.copy(source, target, size)
            self._commands.end()
            self._commands.run()

    def available(self) -> int:
        """Bytes that may still be allocated."""
        memory = self.gpu.memory
        local = [memory.memoryHeaps[i].size for i in range(memory.memoryHeapCount) if memory.memoryHeaps[i].flags & 1]
        largest = int(max(local, default=0) * HEADROOM) - self.data.held
        if self.gpu.kind == TYPE_CPU:  # such drivers report all memory of the machine
            free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            return min(int(free * HEADROOM), largest)
        return largest


class Resources:
    """One executable's part."""

    def __init__(self, memory: Memory, program: ProgramRecord, code: bytes, constants: bytes) -> None:
        self.memory = memory
        self.gpu, self.data, self.host = memory.gpu, memory.data, memory.host
        self._program, self._code = program, code
        self._constants = constants
        self._pipelines: dict[int, Any] = {}
        self._placed: dict[int, Allocation] = {}

    def pipeline(self, module: int) -> Any:
        """The module's pipeline, made when first needed."""
        known = self._pipelines.get(module)
        if known is None:
            record = self._program.modules[module]
            known = self._pipelines[module] = self.gpu.pipeline(self._code[record.offset : record.offset + record.size])
        return known

    def constant(self, slot: SlotRecord) -> Allocation:
        assert slot.constant is not None
        placed = self._placed.get(slot.constant)
        if placed is None:
            content = np.frombuffer(self._constants, np.uint8, slot.type.nbytes, slot.constant)
            placed = self._placed[slot.constant] = self.memory.put(content)
        return placed

    def write(self, allocation: Allocation, array: np.ndarray[Any, Any]) -> None:
        self.memory.write(allocation, array)

    def read(self, allocation: Allocation, type: TensorType) -> np.ndarray[Any, Any]:
        return self.memory.read(allocation, type)

    def available(self) -> int:
        return self.memory.available()

    def stack_heap(self, program: ProgramRecord, learned: Learned, size: int) -> Allocation:
        """A stack heap; MemoryError that names the loop where there is no room."""
        available = self.memory.available()
        if size <= min(available, LARGEST_HEAP):
            try:
                return self.data.take(size)
            except MemoryError:
                available = min(available, size - 1)
        deepest = max(range(len(program.kernels)), key=lambda k: max(learned.capacities[k], default=0))
        kernel = program.kernels[deepest]
        learned.forget()
        raise heap_failure(kernel, size, available, min(kernel.lanes, self.gpu.features.resident))

    def __del__(self) -> None:
        for pipeline in getattr(self, "_pipelines", {}).values():
            self.gpu.destroy_pipeline(pipeline)
