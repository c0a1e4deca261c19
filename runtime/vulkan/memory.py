"""Device memory: few large driver allocations, cut into pieces of power-of-two sizes that are used again.

An `Allocation` returns by itself when nobody holds it. Nothing on the device can still use it then: who
submits work holds its memory until the work is done.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any, Final

import numpy as np

from loopgrad.graph.types import TensorType
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.vulkan.gpu import Gpu

SMALLEST: Final = 256
CHUNK: Final = 1 << 24
LARGEST_PIECE: Final = 1 << 22
DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT, HOST_CACHED = 1, 2, 4, 8
USAGE: Final = 0x1 | 0x2 | 0x20 | 0x20000  # transfer source and target, storage, device address
DEVICE_ADDRESS_FLAG: Final = 2
WHOLE: Final = 0xFFFFFFFFFFFFFFFF

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Chunk:
    """One VkBuffer with memory of its own."""

    def __init__(self, gpu: Gpu, size: int, wanted: tuple[int, ...]) -> None:
        api, lib, ffi = gpu.api, gpu.lib, gpu.ffi
        self.gpu, self.size = gpu, size
        info = api.struct("VkBufferCreateInfo", size=size, usage=USAGE)
        self.buffer = gpu._made("vkCreateBuffer", "VkBuffer", info)
        needs = ffi.new("VkMemoryRequirements*")
        lib.vkGetBufferMemoryRequirements(gpu.device, self.buffer, needs)
        kind, flags = memory_kind(gpu, needs.memoryTypeBits, wanted)
        extra = api.struct("VkMemoryAllocateFlagsInfo", flags=DEVICE_ADDRESS_FLAG)
        allocate = api.struct("VkMemoryAllocateInfo", pNext=extra, allocationSize=needs.size, memoryTypeIndex=kind)
        try:
            self.memory = gpu._made("vkAllocateMemory", "VkDeviceMemory", allocate)
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


class Allocation:
    """Some bytes of a chunk."""

    __slots__ = ("_home", "address", "chunk", "offset", "size")

    def __init__(self, home: Heap, chunk: Chunk, offset: int, size: int) -> None:
        self._home, self.chunk, self.offset, self.size = home, chunk, offset, size
        self.address = chunk.address + offset

    def host(self, size: int) -> Bytes:
        """The first bytes, where the host sees them."""
        assert self.chunk.host is not None
        return self.chunk.host[self.offset : self.offset + size]

    def __del__(self) -> None:
        self._home.given.append((self.chunk, self.offset, self.size))


class Heap:
    """Allocations of one kind of memory."""

    def __init__(self, gpu: Gpu, wanted: tuple[int, ...]) -> None:
        self._gpu = gpu
        self._wanted = wanted
        self._free: dict[int, list[tuple[Chunk, int]]] = {}
        self._lock = threading.Lock()
        self.given: deque[tuple[Chunk, int, int]] = deque()
        self.held = 0

    def take(self, size: int) -> Allocation:
        """At least `size` bytes, aligned to 256; MemoryError where there are none."""
        wanted = SMALLEST
        while wanted < size and wanted < LARGEST_PIECE:
            wanted *= 2
        if size > wanted:
            wanted = -(-size // CHUNK) * CHUNK
        with self._lock:
            self._collect()
            pieces = self._free.get(wanted)
            if not pieces:
                pieces = self._free[wanted] = self._cut(wanted)
            chunk, offset = pieces.pop()
        return Allocation(self, chunk, offset, wanted)

    def _cut(self, size: int) -> list[tuple[Chunk, int]]:
        whole = size if size > LARGEST_PIECE else max(size, min(CHUNK, size * 64))
        try:
            chunk = Chunk(self._gpu, whole, self._wanted)
        except MemoryError:
            self._release_large()
            chunk = Chunk(self._gpu, whole, self._wanted)
        self.held += whole
        return [(chunk, offset) for offset in range(0, whole, size)]

    def _collect(self) -> None:
        while self.given:
            chunk, offset, size = self.given.popleft()
            self._free.setdefault(size, []).append((chunk, offset))
        if sum(size * len(pieces) for size, pieces in self._free.items() if size > LARGEST_PIECE) > self.held // 2:
            self._release_large()

    def _release_large(self) -> None:
        """Give whole chunks back to the driver."""
        for size in [s for s in self._free if s > LARGEST_PIECE]:
            for chunk, _ in self._free.pop(size):
                chunk.destroy()
                self.held -= size


class VulkanBuffer(Buffer):
    """A tensor's elements in device memory. `copied` is the copy on the host, while somebody holds it."""

    __slots__ = ("allocation", "copied")

    def __init__(self, allocation: Allocation, device: str, type: TensorType) -> None:
        super().__init__(EMPTY, device, type)
        self.allocation = allocation
        self.copied: weakref.ref[np.ndarray[Any, Any]] | None = None
        self.address = allocation.address


EMPTY: Final = np.empty(0, np.uint8)
EMPTY.flags.writeable = False
