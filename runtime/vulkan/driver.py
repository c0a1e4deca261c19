"""One Vulkan device as executions see it (runtime.gpu.driver).

Arrays live in device memory; on `unified` devices the host writes and reads it in place, on others through
staging memory of the host.

Circle: the driver's parts, `runtime/vulkan/commands.py`, `runtime/vulkan/shared_words.py` and
`runtime/vulkan/transfers.py`, each hold the driver that made them, for its lock, its queue and its memory.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

import numpy as np

from loopgrad.codegen.program import NO_LIBRARIES
from loopgrad.codegen.targets.spirv.features import ENTRY_NAME
from loopgrad.runtime.cache import DiskCache, kept_code
from loopgrad.runtime.gpu.driver import ProductTask, RoutineTask, Shared
from loopgrad.runtime.gpu.ledger import Ledger, complete
from loopgrad.runtime.gpu.memory import Allocation, Bytes, Heap, Piece
from loopgrad.runtime.vulkan.api import TYPE_CPU
from loopgrad.runtime.vulkan.commands import CommandBuffers, VulkanCommands
from loopgrad.runtime.vulkan.gpu import Gpu
from loopgrad.runtime.vulkan.memory import DEVICE_LOCAL, HOST_CACHED, HOST_COHERENT, HOST_VISIBLE, VulkanChunk, mapped
from loopgrad.runtime.vulkan.pipelines import Pipelines, VulkanImage, VulkanPipeline
from loopgrad.runtime.vulkan.shared_words import VulkanSharedWords
from loopgrad.runtime.vulkan.timeline import Timeline
from loopgrad.runtime.vulkan.transfers import PART, Transfers

MAPPED: Final = HOST_VISIBLE | HOST_COHERENT
HEADROOM: Final = 0.9
MOST_GROUPS: Final = 1 << 12  # fill large devices


class HostHeap(Heap):
    """Memory that the host writes while work is under way: a piece that nobody holds waits for the submissions that
    may still use it."""

    def __init__(self, timeline: Timeline, make: Callable[[int], VulkanChunk], describe: Callable[[], str]) -> None:
        super().__init__(make, describe)
        self._timeline = timeline
        self._resting: deque[tuple[int, deque[Piece]]] = deque()

    def collect(self) -> None:
        if self.given:
            given, self.given = self.given, deque()
            self._resting.append((self._timeline.submitted, given))
        while self._resting and self._timeline.done(self._resting[0][0]):
            self.free(self._resting.popleft()[1])


class VulkanDriver:
    """Implements `Driver`. Work is started and not waited for (see timeline), but for kernels that may report more than
    the ledger sees."""

    ledger: Ledger | None = None

    def __init__(self, gpu: Gpu, disk: DiskCache | None) -> None:
        self.gpu, self.disk = gpu, disk
        self.pipelines = Pipelines(gpu, disk)
        self.name, self.lock = gpu.name, gpu.lock
        self.buffers = CommandBuffers(gpu)
        self.transfers = Transfers(self)
        shared = (DEVICE_LOCAL | MAPPED | HOST_CACHED, DEVICE_LOCAL | MAPPED, MAPPED)
        kinds = shared if gpu.unified else (DEVICE_LOCAL,)
        self.data = Heap(lambda size: VulkanChunk(gpu, size, kinds, self.settle), self._describe)
        wanted = (MAPPED | HOST_CACHED, MAPPED)
        self.host = HostHeap(gpu.timeline, lambda size: VulkanChunk(gpu, size, wanted, self.settle), self._describe)
        self._update: VulkanPipeline | None = None

    def _describe(self) -> str:
        return f"{self.available():,} bytes are available"

    @property
    def endless_loops(self) -> bool:
        return self.gpu.features.endless_loops

    @property
    def code_growth(self) -> int:
        return 40 if self.gpu.kind == TYPE_CPU else 8  # lavapipe keeps its compiler's forms of every pipeline

    # memory

    @property
    def held(self) -> int:
        return self.data.held

    def take(self, size: int) -> Allocation:
        self.gpu.timeline.require()
        with self.lock:
            return self.data.take(size)

    def take_each(self, pieces: Sequence[int]) -> list[Allocation]:
        self.gpu.timeline.require()
        return self.data.take_each(pieces)

    def ready(self, size: int) -> bool:
        with self.lock:
            return self.data.ready(size)

    def write(self, allocation: Allocation, array: np.ndarray[Any, Any]) -> None:
        """In place where the host sees the memory and no work can still use what it was before."""
        if not array.nbytes:
            return
        content = array.reshape(-1).view(np.uint8)
        place = mapped(allocation, array.nbytes)
        with self.lock:
            if place is None or self.transfers.pending or not self.gpu.timeline.done(self.gpu.timeline.submitted):
                self.transfers.upload(allocation, content)
            else:
                place[:] = content

    def made(self, allocation: Allocation) -> None:
        allocation.made = self.gpu.timeline.submitted + self.transfers.pending

    def fetch(self, allocation: Allocation, size: int) -> Bytes:
        if not size:
            return np.empty(0, np.uint8)
        with self.lock:
            complete(self, allocation)
            place = mapped(allocation, size)
            if place is None:
                return self._download(allocation, size)
            timeline = self.gpu.timeline
            made = timeline.submitted + self.transfers.pending if allocation.made is None else allocation.made
            if made > timeline.submitted:
                self.flush()
            timeline.wait(made)
            return place.copy()

    def _download(self, source: Allocation, size: int) -> Bytes:
        """In parts: one is copied out of staging memory while the next one is on its way."""
        result = np.empty(size, np.uint8)
        under_way: list[tuple[int, int, Allocation]] = []
        for start in [*range(0, size, PART), size]:
            if start < size:
                under_way.append((start, *self._part(source, start, min(PART, size - start))))
            if len(under_way) == 2 or (start == size and under_way):
                begin, number, staging = under_way.pop(0)
                self.gpu.timeline.wait(number)
                count = min(PART, size - begin)
                staged = mapped(staging, count)
                assert staged is not None
                result[begin : begin + count] = staged
        return result

    def _part(self, source: Allocation, start: int, size: int) -> tuple[int, Allocation]:
        """Bytes on their way to the host: the number of the submission, and where they arrive."""
        staging, commands = self.host.take(size), VulkanCommands(self)
        commands.begin()
        commands.copy(source, staging, size, start=start)
        commands.end()
        return self.start([commands], (), None), staging

    def shared(self, words: int) -> VulkanSharedWords:
        return VulkanSharedWords(self, words)

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

    def start(
        self, work: Sequence[VulkanCommands], uploads: Sequence[tuple[Shared, int]], report: Shared | None
    ) -> int:
        """The number of the submission."""
        assert report is None or isinstance(report, VulkanSharedWords)
        with self.lock:
            self.gpu.timeline.throttle()
            for shared, count in uploads:
                assert isinstance(shared, VulkanSharedWords)
                shared.upload(count)
            lists = [*self.transfers.take(), *work]
            if report is not None:
                lists.append(report.report())
            labels = {label: None for commands in work for label in commands.labels}
            number = self.gpu.timeline.submit([commands.buffer for commands in lists], labels)
            for commands in lists:
                commands.last = number
            self.transfers.submitted()
            if report is not None:
                self.gpu.timeline.wait(number)
                report.arrived()
            return number

    def repeat(self, commands: VulkanCommands) -> None:
        """Start a list that was started before; the lock is held."""
        if self.transfers.pending:
            self.start((commands,), (), None)
            return
        self.gpu.timeline.throttle()
        commands.last = self.gpu.timeline.submit((commands.buffer,), commands.labels)

    def flush(self) -> None:
        """Submit what waits for a submission."""
        if self.transfers.pending:
            self.start((), (), None)

    def settle(self) -> None:
        """Until nothing can use any memory but what is held. Signal handlers run afterwards."""
        with self.lock:
            if self.gpu.timeline.lost is None:
                self.flush()
                self.gpu.timeline.send()
        self.gpu.lib.vkDeviceWaitIdle(self.gpu.device)

    def finish(self) -> None:
        with self.lock:
            complete(self)
            self.flush()
            self.gpu.timeline.idle()

    def update(self) -> VulkanPipeline:
        if self._update is None:
            module = self.code("update kernel", self._update_code)
            self._update = self.image(module).pipeline("update", ENTRY_NAME, self.gpu.features.group)
        return self._update

    def code(self, name: str, make: Callable[[], bytes]) -> bytes:
        """A module of that name for this device, which belongs to no program; from the disk where it is there."""
        return kept_code(self.disk, (name, "spirv", self.gpu.features.key()), make)

    def _update_code(self) -> bytes:
        from loopgrad.codegen.targets.spirv.update import update_module  # late: a warm cache needs no emitter

        return update_module(self.gpu.features)

    def libraries(self, family: Container[str]) -> Mapping[str, str]:
        return NO_LIBRARIES

    def routine(self, task: RoutineTask) -> None:
        """No library."""

    def product(self, task: ProductTask) -> None:
        """No library."""

    @property
    def host_decides(self) -> str:
        return "Vulkan's command buffers have no loops"

    def graph(self, items: Sequence[Any], report: Shared, stop: int) -> None:
        """None, as `host_decides` says."""

    def image(self, code: bytes) -> VulkanImage:
        return self.pipelines.image(code)

    def images(self, codes: Sequence[bytes]) -> Sequence[VulkanImage]:
        return list(map(self.image, codes))

    def commands(self) -> VulkanCommands:
        return VulkanCommands(self)

    def filling(self, pipeline: VulkanPipeline, streams: bool = False) -> int:
        """Workgroups that stay and loop, but one for each tile of a stream: starting one for every few lanes takes
        longer than what they do (a scatter of 2^20 into 2^22 numbers 77 us on an H200, 40 so)."""
        return self.gpu.max_groups if streams else min(self.gpu.max_groups, MOST_GROUPS)

    def resident(self, pipeline: VulkanPipeline, row_bytes: int) -> int:
        return max(self.gpu.features.resident // pipeline.group, 1)
