"""One command buffer: dispatches and barriers, recorded through cffi and submitted any number of times."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from loopgrad.graph.types import DType
from loopgrad.runtime.gpu.driver import ProductShape, Push, Shared, Words
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.vulkan.gpu import STAGE_COMPUTE, Gpu
from loopgrad.runtime.vulkan.pipelines import Pipeline

BIND_COMPUTE: Final = 1
STAGES: Final = 0x800 | 0x1000 | 0x4000  # compute shader, transfer, host
ACCESS: Final = 0x20 | 0x40 | 0x800 | 0x1000 | 0x2000 | 0x4000  # shader, transfer and host reads and writes
RESET_COMMAND_BUFFER: Final = 2
PUSH: Final = struct.Struct("<Qqqqqq")


class Commands:
    """A pool with one command buffer in it."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        api, ffi = gpu.api, gpu.ffi
        info = api.struct("VkCommandPoolCreateInfo", flags=RESET_COMMAND_BUFFER, queueFamilyIndex=gpu.family)
        self._pool = gpu.made("vkCreateCommandPool", "VkCommandPool", info)
        self._array = ffi.new("VkCommandBuffer[1]")
        allocate = api.struct("VkCommandBufferAllocateInfo", commandPool=self._pool, level=0, commandBufferCount=1)
        api.check(gpu.lib.vkAllocateCommandBuffers(gpu.device, allocate, self._array), "vkAllocateCommandBuffers")
        self._buffer = self._array[0]
        self._begin_info = api.struct("VkCommandBufferBeginInfo")
        self._barrier = api.struct("VkMemoryBarrier", srcAccessMask=ACCESS, dstAccessMask=ACCESS)
        self._push = ffi.new("char[]", PUSH.size)
        self._copy = ffi.new("VkBufferCopy*")
        self._bound: Any = None
        self.count = 0

    def begin(self) -> None:
        """Start anew; what was recorded is forgotten."""
        self.gpu.api.check(self.gpu.lib.vkResetCommandBuffer(self._buffer, 0), "vkResetCommandBuffer")
        self.gpu.api.check(self.gpu.lib.vkBeginCommandBuffer(self._buffer, self._begin_info), "vkBeginCommandBuffer")
        self._bound = None
        self.count = 0

    def multiply(self, shape: ProductShape, dtype: DType, words: Callable[[], Words]) -> bool:
        """There is no library."""
        return False

    def end(self, again: bool = False) -> None:
        self.barrier()
        self.gpu.api.check(self.gpu.lib.vkEndCommandBuffer(self._buffer), "vkEndCommandBuffer")

    def dispatch(self, pipeline: Pipeline, groups: int, push: Push) -> None:
        gpu, lib = self.gpu, self.gpu.lib
        if pipeline is not self._bound:
            lib.vkCmdBindPipeline(self._buffer, BIND_COMPUTE, pipeline.handle)
            self._bound = pipeline
        gpu.ffi.memmove(self._push, PUSH.pack(*push), PUSH.size)
        lib.vkCmdPushConstants(self._buffer, gpu.layout, STAGE_COMPUTE, 0, PUSH.size, self._push)
        lib.vkCmdDispatch(self._buffer, groups, 1, 1)
        self.count += 1

    def barrier(self) -> None:
        """What comes after sees all that came before."""
        null = self.gpu.ffi.NULL
        self.gpu.lib.vkCmdPipelineBarrier(self._buffer, STAGES, STAGES, 0, 1, self._barrier, 0, null, 0, null)

    def copy(self, source: Allocation, target: Allocation, size: int) -> None:
        self._copy.srcOffset, self._copy.dstOffset, self._copy.size = source.offset, target.offset, size
        self.gpu.lib.vkCmdCopyBuffer(self._buffer, source.chunk.buffer, target.chunk.buffer, 1, self._copy)
        self.count += 1

    def write(self, target: Allocation, data: bytes) -> None:
        """A few bytes that are known while recording; a multiple of 4."""
        self.gpu.lib.vkCmdUpdateBuffer(self._buffer, target.chunk.buffer, target.offset, len(data), data)
        self.count += 1

    def run(self, uploads: Sequence[tuple[Shared, int]] = (), report: Shared | None = None) -> None:
        """Submit and wait. The device sees the host's words as they are."""
        with self.gpu.lock:
            self.gpu.submit(self._array)
            self.gpu.wait()

    def __del__(self) -> None:
        gpu = self.gpu
        if getattr(self, "_pool", None) is not None:
            gpu.lib.vkDestroyCommandPool(gpu.device, self._pool, gpu.ffi.NULL)
