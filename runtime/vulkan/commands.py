"""Lists of dispatches and barriers, recorded through cffi and submitted any number of times."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from loopgrad.runtime.gpu.driver import LibraryCall, Push, Shared, Words
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.vulkan.gpu import STAGE_COMPUTE, Gpu
from loopgrad.runtime.vulkan.pipelines import VulkanPipeline

if TYPE_CHECKING:
    from loopgrad.runtime.vulkan.driver import VulkanDriver

BIND_COMPUTE: Final = 1
WORK_STAGES: Final = 0x800 | 0x1000  # compute shader, transfer
ALL_STAGES: Final = WORK_STAGES | 0x4000  # and the host
WORK_ACCESS: Final = 0x20 | 0x40 | 0x800 | 0x1000  # shader and transfer, reads and writes
ALL_ACCESS: Final = WORK_ACCESS | 0x2000 | 0x4000  # and the host's
RESET_COMMAND_BUFFER: Final = 2
SIMULTANEOUS_USE: Final = 4  # a list may be started again before it is done
PUSH: Final = struct.Struct("<Qqqqqq")
MOST_INLINE: Final = 1 << 16  # bytes of data in a command


class CommandBuffers:
    """The device's command buffers. One that was given back is used again when its last submission is done."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        info = gpu.api.struct("VkCommandPoolCreateInfo", flags=RESET_COMMAND_BUFFER, queueFamilyIndex=gpu.family)
        pool = gpu.made("vkCreateCommandPool", "VkCommandPool", info)
        self._allocate = gpu.api.struct("VkCommandBufferAllocateInfo", commandPool=pool, level=0, commandBufferCount=1)
        self._begin = gpu.api.struct("VkCommandBufferBeginInfo", flags=SIMULTANEOUS_USE)
        self.given: deque[tuple[int, Any]] = deque()

    def take(self) -> Any:
        """A VkCommandBuffer that is being recorded; the device's lock is held."""
        gpu = self._gpu
        buffer = self._idle()
        if buffer is None:
            out = gpu.ffi.new("VkCommandBuffer[1]")
            gpu.api.check(gpu.lib.vkAllocateCommandBuffers(gpu.device, self._allocate, out), "vkAllocateCommandBuffers")
            buffer = out[0]
        else:
            gpu.api.check(gpu.lib.vkResetCommandBuffer(buffer, 0), "vkResetCommandBuffer")
        gpu.api.check(gpu.lib.vkBeginCommandBuffer(buffer, self._begin), "vkBeginCommandBuffer")
        return buffer

    def _idle(self) -> Any:
        for _ in range(min(len(self.given), 2)):
            number, buffer = self.given.popleft()
            if self._gpu.timeline.done(number):
                return buffer
            self.given.append((number, buffer))
        return None


class VulkanCommands:
    """One command buffer. `last`: the number of the last submission that it was in; `labels` name its kernels."""

    def __init__(self, driver: VulkanDriver) -> None:
        self._driver = driver
        self.gpu = gpu = driver.gpu
        api, ffi = gpu.api, gpu.ffi
        self._barrier = api.struct("VkMemoryBarrier", srcAccessMask=WORK_ACCESS, dstAccessMask=WORK_ACCESS)
        self._last_barrier = api.struct("VkMemoryBarrier", srcAccessMask=ALL_ACCESS, dstAccessMask=ALL_ACCESS)
        self._push = ffi.new("char[]", PUSH.size)
        self._copy = ffi.new("VkBufferCopy*")
        self._bound: Any = None
        self._fenced = self._for_host = False  # the last command is a barrier; something was copied to the host
        self.buffer: Any = None
        self.last = self.count = 0
        self.labels: dict[str, None] = {}

    def begin(self) -> None:
        """Start anew; what was recorded is forgotten."""
        self.drop()
        self.buffer = self._driver.buffers.take()
        self._bound, self._fenced, self._for_host = None, False, self.gpu.unified
        self.last = self.count = 0
        self.labels = {}

    def drop(self) -> None:
        """Give the buffer back."""
        if self.buffer is not None:
            self._driver.buffers.given.append((self.last, self.buffer))
            self.buffer = None

    def call(self, call: LibraryCall, words: Words) -> None:
        raise AssertionError("there is no library")

    def end(self, again: bool = False) -> None:
        """What any later submission does comes after all of this; the host sees what it can see."""
        if self._for_host:
            self._fence(ALL_STAGES, self._last_barrier)
        elif not self._fenced:
            self.barrier()
        self.gpu.api.check(self.gpu.lib.vkEndCommandBuffer(self.buffer), "vkEndCommandBuffer")

    def dispatch(self, pipeline: VulkanPipeline, groups: int, push: Push) -> None:
        gpu, lib = self.gpu, self.gpu.lib
        if pipeline is not self._bound:
            lib.vkCmdBindPipeline(self.buffer, BIND_COMPUTE, pipeline.handle)
            self._bound = pipeline
            self.labels[pipeline.label] = None
        gpu.ffi.memmove(self._push, PUSH.pack(*push), PUSH.size)
        lib.vkCmdPushConstants(self.buffer, gpu.layout, STAGE_COMPUTE, 0, PUSH.size, self._push)
        lib.vkCmdDispatch(self.buffer, groups, 1, 1)
        self._counted()

    def _counted(self) -> None:
        self.count += 1
        self._fenced = False

    def barrier(self) -> None:
        """What comes after sees all that came before."""
        self._fence(WORK_STAGES, self._barrier)
        self._fenced = True

    def _fence(self, stages: int, barrier: Any) -> None:
        null = self.gpu.ffi.NULL
        self.gpu.lib.vkCmdPipelineBarrier(self.buffer, stages, stages, 0, 1, barrier, 0, null, 0, null)

    def copy(self, source: Allocation, target: Allocation, size: int, start: int = 0, into: int = 0) -> None:
        """`size` bytes from `start` on to those from `into` on."""
        self._copy.srcOffset, self._copy.dstOffset = source.offset + start, target.offset + into
        self._copy.size = size
        self.gpu.lib.vkCmdCopyBuffer(self.buffer, source.chunk.buffer, target.chunk.buffer, 1, self._copy)
        self._for_host |= target.chunk.host is not None
        self._counted()

    def write(self, target: Allocation, data: bytes) -> None:
        """At most MOST_INLINE bytes that are known while recording; a multiple of 4."""
        self.gpu.lib.vkCmdUpdateBuffer(self.buffer, target.chunk.buffer, target.offset, len(data), data)
        self._counted()

    def zero(self, target: Allocation, size: int) -> None:
        """A multiple of 4 bytes."""
        self.gpu.lib.vkCmdFillBuffer(self.buffer, target.chunk.buffer, target.offset, size, 0)
        self._counted()

    def repeat(self) -> None:
        """As `run` of what has run before."""
        self._driver.repeat(self)

    def run(self, uploads: Sequence[tuple[Shared, int]] = (), report: Shared | None = None) -> None:
        self._driver.start([self], uploads, report)

    def __del__(self) -> None:
        if getattr(self, "_driver", None) is not None:
            self.drop()
