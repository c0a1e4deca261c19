"""Memory as this driver gives it: buffers with a device address, mapped where the host can see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from loopgrad.runtime.gpu.memory import Allocation, Bytes
from loopgrad.runtime.vulkan.gpu import Gpu

DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT, HOST_CACHED = 1, 2, 4, 8
USAGE: Final = 0x1 | 0x2 | 0x20 | 0x20000  # transfer source and target, storage, device address
DEVICE_ADDRESS_FLAG: Final = 2
WHOLE: Final = 0xFFFFFFFFFFFFFFFF


class VulkanChunk:
    """One VkBuffer with memory of its own, which the driver is told: NVIDIA's then maps it by larger pages (reads at
    random places of 16 MB take 37 us in place of 72 on an H200). `settle` waits for all work that may use it."""

    def __init__(self, gpu: Gpu, size: int, wanted: tuple[int, ...], settle: Callable[[], None]) -> None:
        api, lib, ffi = gpu.api, gpu.lib, gpu.ffi
        self.gpu, self.size, self._settle = gpu, size, settle
        info = api.struct("VkBufferCreateInfo", size=size, usage=USAGE)
        self.buffer = gpu.made("vkCreateBuffer", "VkBuffer", info)
        needs = ffi.new("VkMemoryRequirements*")
        lib.vkGetBufferMemoryRequirements(gpu.device, self.buffer, needs)
        kind, flags = memory_kind(gpu, needs.memoryTypeBits, wanted)
        alone = api.struct("VkMemoryDedicatedAllocateInfo", buffer=self.buffer)
        extra = api.struct("VkMemoryAllocateFlagsInfo", pNext=alone, flags=DEVICE_ADDRESS_FLAG)
        allocate = api.struct("VkMemoryAllocateInfo", pNext=extra, allocationSize=needs.size, memoryTypeIndex=kind)
        try:
            self.memory = gpu.made("vkAllocateMemory", "VkDeviceMemory", allocate)
        except MemoryError:
            lib.vkDestroyBuffer(gpu.device, self.buffer, ffi.NULL)
            raise
        api.check(lib.vkBindBufferMemory(gpu.device, self.buffer, self.memory, 0), "vkBindBufferMemory")
        place = api.struct("VkBufferDeviceAddressInfo", buffer=self.buffer)
        self.address = int(lib.vkGetBufferDeviceAddress(gpu.device, place))
        self.host: Bytes | None = self._map() if flags & HOST_VISIBLE else None

    def _map(self) -> Bytes:
        gpu = self.gpu
        out = gpu.ffi.new("void**")
        gpu.api.check(gpu.lib.vkMapMemory(gpu.device, self.memory, 0, WHOLE, 0, out), "vkMapMemory")
        return np.frombuffer(gpu.ffi.buffer(out[0], self.size), np.uint8)

    def destroy(self) -> None:
        gpu, null = self.gpu, self.gpu.ffi.NULL
        self._settle()
        self.host = None
        gpu.lib.vkDestroyBuffer(gpu.device, self.buffer, null)
        gpu.lib.vkFreeMemory(gpu.device, self.memory, null)


def memory_kind(gpu: Gpu, allowed: int, wanted: tuple[int, ...]) -> tuple[int, int]:
    """The first memory type with all flags of the first wish that any has."""
    types = [gpu.memory.memoryTypes[i].propertyFlags for i in range(gpu.memory.memoryTypeCount)]
    for flags in wanted:
        for i, has in enumerate(types):
            if allowed >> i & 1 and has & flags == flags:
                return i, int(has)
    raise MemoryError(f"{gpu.name} has no memory of the kinds {wanted}")


def mapped(allocation: Allocation, size: int) -> Bytes | None:
    """The first bytes, where the host sees them."""
    host: Bytes | None = allocation.chunk.host
    return None if host is None else host[allocation.offset : allocation.offset + size]
