"""One Vulkan device as the machine sees it (runtime.gpu.driver).

Arrays live in device memory; on `unified` devices the host writes and reads it in place, on others through
a staging buffer. Words that the host often writes lie in host memory, where the device reads them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from loopgrad.codegen.targets.spirv.assembly import ENTRY_NAME
from loopgrad.codegen.targets.spirv.update import update_module
from loopgrad.graph.types import DType
from loopgrad.runtime.cache import DiskCache
from loopgrad.runtime.gpu.driver import ProductShape, Shared, Words
from loopgrad.runtime.gpu.memory import Allocation, Bytes, Heap
from loopgrad.runtime.vulkan.commands import Commands
from loopgrad.runtime.vulkan.driver import TYPE_CPU
from loopgrad.runtime.vulkan.gpu import Gpu
from loopgrad.runtime.vulkan.memory import DEVICE_LOCAL, HOST_CACHED, HOST_COHERENT, HOST_VISIBLE, Chunk, mapped
from loopgrad.runtime.vulkan.pipelines import Image, Pipeline, Pipelines

MAPPED: Final = HOST_VISIBLE | HOST_COHERENT
HEADROOM: Final = 0.9


class SharedWords:
    """Mapped memory: the device sees what the host writes."""

    def __init__(self, allocation: Allocation, count: int) -> None:
        self._allocation = allocation
        self.address = allocation.address
        content = mapped(allocation, 8 * count)
        assert content is not None
        self.words: Words = content.view(np.uint64)
        self.words[:] = 0

    def clear(self) -> None:
        self.words[:] = 0


class VulkanDriver:
    """Implements `Driver`. Every run waits, so nothing uses memory that is given back."""

    def __init__(self, gpu: Gpu, disk: DiskCache | None) -> None:
        self.gpu = gpu
        self.pipelines = Pipelines(gpu, disk)
        self.name, self.lock = gpu.name, gpu.lock
        shared = (DEVICE_LOCAL | MAPPED | HOST_CACHED, DEVICE_LOCAL | MAPPED, MAPPED)
        self.data = self._heap(shared if gpu.unified else (DEVICE_LOCAL,))
        self.host = self._heap((MAPPED | HOST_CACHED, MAPPED))
        self._transfers: Commands | None = None
        self._update: Pipeline | None = None

    def _heap(self, wanted: tuple[int, ...]) -> Heap:
        return Heap(lambda size: Chunk(self.gpu, size, wanted), lambda: f"{self.available():,} bytes are available")

    @property
    def endless_loops(self) -> bool:
        return self.gpu.features.endless_loops

    # memory

    @property
    def held(self) -> int:
        return self.data.held

    def take(self, size: int) -> Allocation:
        return self.data.take(size)

    def ready(self, size: int) -> bool:
        return self.data.ready(size)

    def write(self, allocation: Allocation, array: np.ndarray[Any, Any]) -> None:
        if not array.nbytes:
            return
        content = array.reshape(-1).view(np.uint8)
        place = mapped(allocation, array.nbytes)
        if place is not None:
            place[:] = content
            return
        staging = self.host.take(array.nbytes)
        staged = mapped(staging, array.nbytes)
        assert staged is not None
        staged[:] = content
        self._transfer(staging, allocation, array.nbytes)

    def fetch(self, allocation: Allocation, size: int) -> Bytes:
        if not size:
            return np.empty(0, np.uint8)
        place = mapped(allocation, size)
        if place is not None:
            return place.copy()
        staging = self.host.take(size)
        self._transfer(allocation, staging, size)
        staged = mapped(staging, size)
        assert staged is not None
        return staged.copy()

    def _transfer(self, source: Allocation, target: Allocation, size: int) -> None:
        with self.lock:
            if self._transfers is None:
                self._transfers = Commands(self.gpu)
            self._transfers.begin()
            self._transfers.copy(source, target, size)
            self._transfers.end()
            self._transfers.run()

    def shared(self, words: int) -> SharedWords:
        return SharedWords(self.host.take(8 * words), words)

    def available(self) -> int:
        memory = self.gpu.memory
        local = [memory.memoryHeaps[i].size for i in range(memory.memoryHeapCount) if memory.memoryHeaps[i].flags & 1]
        idle = self.data.idle()
        largest = int(max(local, default=0) * HEADROOM) - self.data.held + idle
        if self.gpu.kind == TYPE_CPU:  # such drivers report all memory of the machine
            free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            return min(int(free * HEADROOM) + idle, largest)
        return largest

    # work

    def update(self) -> Pipeline:
        if self._update is None:
            module = update_module(self.gpu.features)
            self._update = self.image(module).pipeline("update", ENTRY_NAME, self.gpu.features.group)
        return self._update

    def product(self, shape: ProductShape, dtype: DType) -> None:
        """No library."""

    @property
    def stepped(self) -> str:
        return "Vulkan's command buffers have no loops"

    def graph(self, items: Sequence[Any], report: Shared, stop: int) -> None:
        """None, as `stepped` says."""

    def image(self, code: bytes) -> Image:
        return self.pipelines.image(code)

    def commands(self) -> Commands:
        return Commands(self.gpu)

    def filling(self, pipeline: Pipeline) -> int:
        return self.gpu.max_groups

    def resident(self, pipeline: Pipeline, row_bytes: int) -> int:
        return max(self.gpu.features.resident // pipeline.group, 1)
