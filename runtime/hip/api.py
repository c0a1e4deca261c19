"""HIP as a `StreamApi`: one device, its primary context, one stream.

hip-python takes plain integers for addresses, and answers with a tuple that begins with the status.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from loopgrad.runtime.gpu.streams.api import StreamFailure
from loopgrad.runtime.hip.found import driver as loaded_driver
from loopgrad.runtime.hip.found import string, text, usable

OUT_OF_MEMORY: Final = 2
NOT_READY: Final = 600
NON_BLOCKING: Final = 1
WITHOUT_TIMING: Final = 2
PORTABLE: Final = 1
FIRST: Final = -1  # of priorities: what it says of their range is under development
MOST_GROUPS: Final = (1 << 32) // 1024 - 1  # a launch has less than 2^32 work items


class HipApi:
    """Implements `StreamApi`. `processor` is LLVM's name of the GPU, `stream` a handle as an integer."""

    group_limit = MOST_GROUPS
    graph_size = 3  # as on CUDA before it was measured there: not measured

    def __init__(self, position: int) -> None:
        self.position = position
        self.processor = usable(position)
        self.hip = hip = loaded_driver()
        self.kind = hip.hipMemcpyKind
        self._images: dict[int, bytes] = {}  # by module: HIP reads them where they are, as long as it is loaded
        self.name = string(self._get(hip.hipGetDeviceProperties(position), "the device's name").name)
        attributes = hip.hipDeviceAttribute_t
        self.multiprocessors = self._attribute(attributes.hipDeviceAttributeMultiprocessorCount)
        self.cache_bytes = self._attribute(attributes.hipDeviceAttributeL2CacheSize)
        before = self.enter()
        self._stream = self._get(hip.hipStreamCreateWithFlags(NON_BLOCKING), "making a stream")
        self.stream = address(self._stream)
        self._ordering: Any = None  # an event between streams
        self.leave(before)

    def _attribute(self, attribute: Any) -> int:
        return int(self._get(self.hip.hipDeviceGetAttribute(attribute, self.position), "reading an attribute"))

    def _get(self, answer: tuple[Any, ...], what: str) -> Any:
        """The first value of an answer."""
        if answer[0]:
            self._refuse(answer[0], what)
        return answer[1] if len(answer) > 1 else None

    def _refuse(self, status: Any, what: str) -> None:
        message = f"{what}: {text(status)}"
        if status == OUT_OF_MEMORY:
            raise MemoryError(message)
        raise StreamFailure(message)

    def identity(self) -> bytes:
        """What tells the GPU from others of this machine."""
        found = self._get(self.hip.hipGetDeviceProperties(self.position), "the device's identity")
        return f"{found.pciDomainID}:{found.pciBusID}:{found.pciDeviceID}".encode()

    # context

    def enter(self) -> Any:
        before = self._get(self.hip.hipGetDevice(), "asking for the device")
        if before == self.position:
            return None
        self._get(self.hip.hipSetDevice(self.position), "entering the device")
        return before

    def leave(self, before: Any) -> None:
        if before is not None:
            self.hip.hipSetDevice(before)

    # memory

    def allocate(self, size: int) -> int:
        return address(self._get(self.hip.hipMalloc(size), "taking device memory"))

    def free(self, address: int) -> None:
        self._get(self.hip.hipFree(address), "freeing device memory")

    def available(self) -> int:
        return int(self._get(self.hip.hipMemGetInfo(), "asking for free memory"))

    def pin(self, size: int) -> int:
        return address(self._get(self.hip.hipHostMalloc(size, PORTABLE), "taking pinned memory"))

    def unpin(self, address: int) -> None:
        self._get(self.hip.hipHostFree(address), "freeing pinned memory")

    # work on the stream

    def upload(self, target: int, source: int, size: int) -> None:
        self._transfer(target, source, size, self.kind.hipMemcpyHostToDevice, "copying to the device")

    def download(self, target: int, source: int, size: int) -> None:
        self._transfer(target, source, size, self.kind.hipMemcpyDeviceToHost, "copying to the host")

    def copy(self, target: int, source: int, size: int) -> None:
        self._transfer(target, source, size, self.kind.hipMemcpyDeviceToDevice, "copying on the device")

    def _transfer(self, target: int, source: int, size: int, kind: Any, what: str) -> None:
        status = self.hip.hipMemcpyAsync(target, source, size, kind, self._stream)[0]
        if status:
            self._refuse(status, what)

    def fill(self, target: int, value: int, count: int) -> None:
        status = self.hip.hipMemsetD32Async(target, signed(value), count, self._stream)[0]
        if status:
            self._refuse(status, "filling memory")

    def launch(self, function: Any, groups: int, group: int, params: int) -> None:
        status = self.hip.hipModuleLaunchKernel(
            function, groups, 1, 1, group, 1, 1, 0, self._stream, params, None
        )[0]  # fmt: skip
        if status:
            self._refuse(status, "launching a kernel")

    def idle(self) -> bool:
        status = self.hip.hipStreamQuery(self._stream)[0]
        if status and status != NOT_READY:
            self._refuse(status, "waiting for the device")
        return not status

    def synchronize(self) -> None:
        self._get(self.hip.hipStreamSynchronize(self._stream), "waiting for the device")

    def make_event(self) -> Any:
        return self._get(self.hip.hipEventCreateWithFlags(WITHOUT_TIMING), "making an event")

    def record(self, event: Any, stream: int | None = None) -> None:
        self._get(self.hip.hipEventRecord(event, self._stream if stream is None else stream), "recording an event")

    def follow(self, event: Any) -> None:
        self._get(self.hip.hipStreamWaitEvent(self._stream, event, 0), "letting the stream wait")

    def make_stream(self) -> int:
        return address(self._get(self.hip.hipStreamCreateWithPriority(NON_BLOCKING, FIRST), "making a stream"))

    def wait(self, event: Any) -> None:
        self._get(self.hip.hipEventSynchronize(event), "waiting for an event")

    def order(self, before: int, after: int) -> None:
        if self._ordering is None:
            self._ordering = self.make_event()
        self._get(self.hip.hipEventRecord(self._ordering, before), "recording an event on a stream")
        self._get(self.hip.hipStreamWaitEvent(after, self._ordering, 0), "letting a stream wait")

    def settle(self) -> None:
        self._get(self.hip.hipDeviceSynchronize(), "waiting for all streams")

    # code

    def load(self, image: bytes) -> Any:
        module = self._get(self.hip.hipModuleLoadData(image), f"loading code for {self.processor}")
        self._images[address(module)] = image
        return module

    def unload(self, module: Any) -> None:
        self._get(self.hip.hipModuleUnload(module), "unloading code")
        self._images.pop(address(module), None)

    def function(self, module: Any, entry: str, asked: int) -> Any:
        assert not asked, "code for AMD has the memory of its workgroups"
        return self._get(self.hip.hipModuleGetFunction(module, entry.encode()), f"looking for kernel {entry}")

    def occupancy(self, function: Any, group: int) -> int:
        answer = self.hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(function, group, 0)
        return int(self._get(answer, "asking for the occupancy"))

    # graphs

    def make_graph(self) -> Any:
        return self._get(self.hip.hipGraphCreate(0), "making a graph")

    def add_launch(self, graph: Any, after: Sequence[Any], function: Any, groups: int, group: int, params: int) -> Any:
        node = self.hip.hipKernelNodeParams()
        node.func = function
        for dims, size in ((node.gridDim, groups), (node.blockDim, group)):
            dims.x, dims.y, dims.z = size, 1, 1
        node.sharedMemBytes = 0
        node.kernelParams = params
        answer = self.hip.hipGraphAddKernelNode(graph, handles(after), len(after), node)
        return self._get(answer, "adding a kernel")

    def add_copy(self, graph: Any, after: Sequence[Any], target: int, source: int, size: int) -> Any:
        return self._add_transfer(graph, after, target, source, size, self.kind.hipMemcpyDeviceToDevice)

    def add_download(self, graph: Any, after: Sequence[Any], target: int, source: int, size: int) -> Any:
        return self._add_transfer(graph, after, target, source, size, self.kind.hipMemcpyDeviceToHost)

    def _add_transfer(self, graph: Any, after: Sequence[Any], target: int, source: int, size: int, kind: Any) -> Any:
        answer = self.hip.hipGraphAddMemcpyNode1D(graph, handles(after), len(after), target, source, size, kind)
        return self._get(answer, "adding a copy")

    def add_fill(self, graph: Any, after: Sequence[Any], target: int, value: int, count: int) -> Any:
        node = self.hip.hipMemsetParams()
        node.dst, node.value, node.elementSize = target, value & 0xFFFFFFFF, 4
        node.width, node.height, node.pitch = count, 1, 0
        return self._get(self.hip.hipGraphAddMemsetNode(graph, handles(after), len(after), node), "adding a fill")

    def instantiate(self, graph: Any) -> Any:
        return self._get(self.hip.hipGraphInstantiateWithFlags(graph, 0), "making a graph ready")

    def launch_graph(self, executable: Any) -> None:
        status = self.hip.hipGraphLaunch(executable, self._stream)[0]
        if status:
            self._refuse(status, "launching a graph")

    def destroy_graph(self, graph: Any) -> None:
        self._get(self.hip.hipGraphDestroy(graph), "destroying a graph")

    def destroy_executable(self, executable: Any) -> None:
        self._get(self.hip.hipGraphExecDestroy(executable), "destroying a graph")


def address(handle: Any) -> int:
    """What a pointer of hip-python points at."""
    found = handle.as_c_void_p()
    return int(getattr(found, "value", found) or 0)


def handles(nodes: Sequence[Any]) -> Any:
    """A C array of handles, or None for none."""
    return (ctypes.c_void_p * len(nodes))(*[address(node) for node in nodes]) if nodes else None


def signed(word: int) -> int:
    """A 32-bit word as a C int."""
    return word - (1 << 32) if word >> 31 & 1 else word
