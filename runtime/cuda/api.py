"""CUDA's driver API as a `StreamApi`: one device, its primary context (which other libraries share), one stream.

cuda.bindings takes plain integers for addresses, and answers with a tuple that begins with the status. Where
a launch or a replay is one call, this is all that the host does.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from loopgrad.runtime.cuda.found import capability, text, usable
from loopgrad.runtime.cuda.found import driver as loaded_driver
from loopgrad.runtime.gpu.streams.api import StreamFailure

OUT_OF_MEMORY: Final = 2
NOT_READY: Final = 600
NON_BLOCKING: Final = 1
WITHOUT_TIMING: Final = 2
PORTABLE: Final = 1
LOG_BYTES: Final = 1 << 14
MOST_GROUPS: Final = (1 << 31) - 1


class CudaFunction(NamedTuple):
    """A kernel, and the bytes of a workgroup's memory that its launches ask for."""

    handle: Any
    asked: int


class CudaApi:
    """Implements `StreamApi`. `stream`, `context` are handles as integers, for other libraries."""

    group_limit = MOST_GROUPS
    graph_size = 1

    def __init__(self, position: int) -> None:
        self.cuda = cuda = loaded_driver()
        self.device = device = usable(position)
        self.name = self._get(cuda.cuDeviceGetName(128, device), "the device's name").split(b"\0")[0].decode()
        attributes = cuda.CUdevice_attribute
        self.multiprocessors = self._attribute(attributes.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        self.cache_bytes = self._attribute(attributes.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
        self._context = self._get(cuda.cuDevicePrimaryCtxRetain(device), "making a context")
        self.context = int(self._context)
        before = self.enter()
        self._stream = self._get(cuda.cuStreamCreate(NON_BLOCKING), "making a stream")
        self.stream = int(self._stream)
        self._aside = self._get(cuda.cuStreamCreate(NON_BLOCKING), "making a stream")  # for what can't wait
        self._ordering: Any = None  # an event between streams
        self._poked = self.pin(8)  # now, since taking pinned memory waits for work under way
        self.leave(before)

    @property
    def warpgroups(self) -> bool:
        """Whether it has matrix units of warpgroups that we know: later compute capabilities have other ones."""
        return capability(self.cuda, self.device) == (9, 0)

    def _attribute(self, attribute: Any) -> int:
        return int(self._get(self.cuda.cuDeviceGetAttribute(attribute, self.device), "reading an attribute"))

    def _get(self, answer: tuple[Any, ...], what: str) -> Any:
        """The value of an answer."""
        if answer[0]:
            self._refuse(answer[0], what)
        return answer[1] if len(answer) > 1 else None

    def _refuse(self, status: Any, what: str) -> None:
        message = f"{what}: {text(self.cuda, status)}"
        if status == OUT_OF_MEMORY:
            raise MemoryError(message)
        raise StreamFailure(message)

    def identity(self) -> bytes:
        """What tells the GPU from others, of other machines too."""
        return bytes(self._get(self.cuda.cuDeviceGetUuid(self.device), "the device's identity").bytes)

    # context

    def enter(self) -> Any:
        cuda = self.cuda
        before = cuda.cuCtxGetCurrent()[1]
        if int(before) == self.context:
            return None
        self._get(cuda.cuCtxSetCurrent(self._context), "entering the context")
        return before

    def leave(self, before: Any) -> None:
        if before is not None and int(before):
            self.cuda.cuCtxSetCurrent(before)

    # memory

    def allocate(self, size: int) -> int:
        return int(self._get(self.cuda.cuMemAlloc(size), "taking device memory"))

    def free(self, address: int) -> None:
        self._get(self.cuda.cuMemFree(address), "freeing device memory")

    def available(self) -> int:
        return int(self._get(self.cuda.cuMemGetInfo(), "asking for free memory"))

    def pin(self, size: int) -> int:
        return int(self._get(self.cuda.cuMemHostAlloc(size, PORTABLE), "taking pinned memory"))

    def unpin(self, address: int) -> None:
        self._get(self.cuda.cuMemFreeHost(address), "freeing pinned memory")

    # work on the stream

    def upload(self, target: int, source: int, size: int) -> None:
        status = self.cuda.cuMemcpyHtoDAsync(target, source, size, self._stream)[0]
        if status:
            self._refuse(status, "copying to the device")

    def download(self, target: int, source: int, size: int) -> None:
        status = self.cuda.cuMemcpyDtoHAsync(target, source, size, self._stream)[0]
        if status:
            self._refuse(status, "copying to the host")

    def copy(self, target: int, source: int, size: int) -> None:
        status = self.cuda.cuMemcpyDtoDAsync(target, source, size, self._stream)[0]
        if status:
            self._refuse(status, "copying on the device")

    def fill(self, target: int, value: int, count: int) -> None:
        status = self.cuda.cuMemsetD32Async(target, value, count, self._stream)[0]
        if status:
            self._refuse(status, "filling memory")

    def launch(self, function: CudaFunction, groups: int, group: int, params: int) -> None:
        handle, asked = function
        status = self.cuda.cuLaunchKernel(handle, groups, 1, 1, group, 1, 1, asked, self._stream, params, 0)[0]
        if status:
            self._refuse(status, "launching a kernel")

    def idle(self) -> bool:
        status = self.cuda.cuStreamQuery(self._stream)[0]
        if status and status != NOT_READY:
            self._refuse(status, "waiting for the device")
        return not status

    def synchronize(self) -> None:
        self._get(self.cuda.cuStreamSynchronize(self._stream), "waiting for the device")

    def make_event(self) -> Any:
        return self._get(self.cuda.cuEventCreate(WITHOUT_TIMING), "making an event")

    def record(self, event: Any, stream: int | None = None) -> None:
        self._get(self.cuda.cuEventRecord(event, self._stream if stream is None else stream), "recording an event")

    def follow(self, event: Any) -> None:
        self._get(self.cuda.cuStreamWaitEvent(self._stream, event, 0), "letting the stream wait")

    def make_stream(self) -> int:
        answer = self.cuda.cuCtxGetStreamPriorityRange()
        self._get(answer, "asking for priorities")
        first = answer[2]
        return int(self._get(self.cuda.cuStreamCreateWithPriority(NON_BLOCKING, first), "making a stream"))

    def wait(self, event: Any) -> None:
        self._get(self.cuda.cuEventSynchronize(event), "waiting for an event")

    def order(self, before: int, after: int) -> None:
        if self._ordering is None:
            self._ordering = self.make_event()
        self._get(self.cuda.cuEventRecord(self._ordering, before), "recording an event on a stream")
        self._get(self.cuda.cuStreamWaitEvent(after, self._ordering, 0), "letting a stream wait")

    def settle(self) -> None:
        self._get(self.cuda.cuCtxSynchronize(), "waiting for all streams")

    def poke(self, target: int, value: int) -> None:
        ctypes.c_uint64.from_address(self._poked).value = value
        self._get(self.cuda.cuMemcpyHtoDAsync(target, self._poked, 8, self._aside), "copying to the device")
        while self.cuda.cuStreamQuery(self._aside)[0] == NOT_READY:  # a blocking wait hung beside a running graph
            pass

    # code

    def load(self, image: bytes) -> Any:
        answer = self.cuda.cuModuleLoadData(image + b"\0")
        if not answer[0]:
            return answer[1]
        log = self._log(image)
        kernel = blamed(image, log)
        where = f" of kernel {kernel}" if kernel else ""
        return self._refuse(answer[0], f"the driver refused the code{where}; {log.strip()}" if log else "loading code")

    def _log(self, image: bytes) -> str:
        """What the driver's assembler says about an image that it refuses."""
        options = self.cuda.CUjit_option
        log = bytearray(LOG_BYTES)
        keys = [options.CU_JIT_ERROR_LOG_BUFFER, options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        self.cuda.cuModuleLoadDataEx(image + b"\0", len(keys), keys, [log, LOG_BYTES])
        return log.split(b"\0")[0].decode(errors="replace")

    def unload(self, module: Any) -> None:
        self._get(self.cuda.cuModuleUnload(module), "unloading code")

    def function(self, module: Any, entry: str, asked: int) -> CudaFunction:
        found = self._get(self.cuda.cuModuleGetFunction(module, entry.encode()), f"looking for kernel {entry}")
        if asked:
            largest = self.cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._get(self.cuda.cuFuncSetAttribute(found, largest, asked), f"asking for {asked} bytes of a workgroup")
        return CudaFunction(found, asked)

    def occupancy(self, function: CudaFunction, group: int) -> int:
        answer = self.cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(function.handle, group, function.asked)
        return int(self._get(answer, "asking for the occupancy"))

    # graphs

    def make_graph(self) -> Any:
        return self._get(self.cuda.cuGraphCreate(0), "making a graph")

    def add_launch(
        self, graph: Any, after: Sequence[Any], function: CudaFunction, groups: int, group: int, params: int
    ) -> Any:
        node = self.cuda.CUDA_KERNEL_NODE_PARAMS()
        node.func = function.handle
        node.gridDimX, node.gridDimY, node.gridDimZ = groups, 1, 1
        node.blockDimX, node.blockDimY, node.blockDimZ = group, 1, 1
        node.sharedMemBytes = function.asked
        node.kernelParams = params
        return self._get(self.cuda.cuGraphAddKernelNode(graph, list(after), len(after), node), "adding a kernel")

    def add_copy(self, graph: Any, after: Sequence[Any], target: int, source: int, size: int) -> Any:
        node = self._transfer(source, size)
        node.dstMemoryType = self.cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
        node.dstDevice = target
        return self._add_transfer(graph, after, node)

    def add_download(self, graph: Any, after: Sequence[Any], target: int, source: int, size: int) -> Any:
        node = self._transfer(source, size)
        node.dstMemoryType = self.cuda.CUmemorytype.CU_MEMORYTYPE_HOST
        node.dstHost = target
        return self._add_transfer(graph, after, node)

    def _transfer(self, source: int, size: int) -> Any:
        node = self.cuda.CUDA_MEMCPY3D()
        node.srcMemoryType = self.cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
        node.srcDevice = source
        node.WidthInBytes, node.Height, node.Depth = size, 1, 1
        return node

    def _add_transfer(self, graph: Any, after: Sequence[Any], node: Any) -> Any:
        answer = self.cuda.cuGraphAddMemcpyNode(graph, list(after), len(after), node, self._context)
        return self._get(answer, "adding a copy")

    def add_fill(self, graph: Any, after: Sequence[Any], target: int, value: int, count: int) -> Any:
        node = self.cuda.CUDA_MEMSET_NODE_PARAMS()
        node.dst, node.value, node.elementSize = target, value, 4
        node.width, node.height = count, 1
        answer = self.cuda.cuGraphAddMemsetNode(graph, list(after), len(after), node, self._context)
        return self._get(answer, "adding a fill")

    def add_empty(self, graph: Any) -> Any:
        return self._get(self.cuda.cuGraphAddEmptyNode(graph, [], 0), "adding a node")

    def make_condition(self, graph: Any) -> int:
        handle = self._get(self.cuda.cuGraphConditionalHandleCreate(graph, self._context, 0, 0), "making a condition")
        return int(handle)

    def add_loop(self, graph: Any, after: Sequence[Any], condition: int) -> tuple[Any, Any]:
        kind = self.cuda.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_WHILE
        node, (body,) = self._add_conditional(graph, after, condition, kind, 1)
        return node, body

    def add_branches(self, graph: Any, after: Sequence[Any], condition: int, count: int) -> tuple[Any, Sequence[Any]]:
        kind = self.cuda.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_SWITCH
        return self._add_conditional(graph, after, condition, kind, count)

    def _add_conditional(
        self, graph: Any, after: Sequence[Any], condition: int, kind: Any, count: int
    ) -> tuple[Any, Sequence[Any]]:
        """The node and its graphs, which belong to it."""
        cuda = self.cuda
        node = cuda.CUgraphNodeParams()
        node.type = cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        node.conditional.handle = cuda.CUgraphConditionalHandle(condition)
        node.conditional.type, node.conditional.size = kind, count
        node.conditional.ctx = self._context
        answer = cuda.cuGraphAddNode(graph, list(after), None, len(after), node)
        made = self._get(answer, "adding a loop or branches")
        return made, [cuda.CUgraph(int(inner)) for inner in node.conditional.phGraph_out]

    def capture(self, work: Callable[[], None]) -> Any:
        """A graph of all that `work` puts on the stream, which isn't done now: the way for what libraries start."""
        cuda = self.cuda
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._get(cuda.cuStreamBeginCapture(self._stream, mode), "capturing a stream")
        try:
            work()
        except BaseException:
            status, graph = cuda.cuStreamEndCapture(self._stream)
            if not status and int(graph):
                self.destroy_graph(graph)
            raise
        return self._get(cuda.cuStreamEndCapture(self._stream), "capturing a stream")

    def instantiate(self, graph: Any) -> Any:
        return self._get(self.cuda.cuGraphInstantiate(graph, 0), "making a graph ready")

    def launch_graph(self, executable: Any) -> None:
        status = self.cuda.cuGraphLaunch(executable, self._stream)[0]
        if status:
            self._refuse(status, "launching a graph")

    def destroy_graph(self, graph: Any) -> None:
        self._get(self.cuda.cuGraphDestroy(graph), "destroying a graph")

    def destroy_executable(self, executable: Any) -> None:
        self._get(self.cuda.cuGraphExecDestroy(executable), "destroying a graph")


def blamed(image: bytes, log: str) -> str:
    """The kernel that the first line number of an assembler's log lies in; empty where there is none."""
    found = re.search(r"line (\d+)", log)
    if found is None:
        return ""
    before = image.decode(errors="replace").splitlines()[: int(found[1])]
    entries = [match[1] for line in before for match in [re.search(r"\.entry\s+([\w$]+)", line)] if match]
    return entries[-1] if entries else ""
