"""A stand-in for libamdhip64.so: every function jumps to Python, which plays a GPU of one device.

So hip-python's own calls, structs and pointers are exercised, from `hipGetDeviceCount` to the replay of a
graph, where there is no AMD GPU. Kernels are the simulator's machine code of this computer (tests.simulator);
AMD code objects can be loaded too, and their launches are only noted. Work is done at once, and its order
in a graph is checked to be that of the dependencies.
"""

from __future__ import annotations

import ctypes
import struct
import subprocess
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from loopgrad.codegen.targets.amdgpu import elf
from loopgrad.codegen.targets.amdgpu.notes import kernel_notes
from tests.simulator.driver import Image

ARGUMENTS = 12  # 64-bit ones that each function hands on
SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, INVALID_HANDLE, NOT_FOUND = 0, 1, 2, 400, 500
ROCM_7 = 70_051_831
ARCHITECTURE_OFFSET, PROPERTIES_BYTES = 1160, 1472  # of hipDeviceProp_tR0600
CAPACITY = 1 << 28
OUT, IN = POINTER(c_void_p), c_void_p


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32)]


class KernelNode(ctypes.Structure):
    """hipKernelNodeParams."""

    _fields_ = [("block", Dim3), ("extra", c_void_p), ("function", c_void_p), ("grid", Dim3),
                ("params", c_void_p), ("shared", c_uint)]  # fmt: skip


class MemsetNode(ctypes.Structure):
    """hipMemsetParams."""

    _fields_ = [("target", c_void_p), ("element", c_uint), ("height", c_size_t), ("pitch", c_size_t),
                ("value", c_uint), ("width", c_size_t)]  # fmt: skip


def build(names: Sequence[str], folder: Path, linker: str) -> Path:
    """The library: each function calls the pointer in its place of `table` with twelve words."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    words = ", ".join(f"i64 %a{i}" for i in range(ARGUMENTS))
    lines = [f"@table = global [{len(names)} x ptr] zeroinitializer"]
    for i, name in enumerate(names):
        lines.append(
            f"define i64 @{name}({words}) {{\n  %p = getelementptr ptr, ptr @table, i64 {i}\n"
            f"  %f = load ptr, ptr %p\n  %r = call i64 %f({words})\n  ret i64 %r\n}}"
        )
    module = binding.parse_assembly("\n".join(lines))
    machine = binding.Target.from_default_triple().create_target_machine(reloc="pic", codemodel="small")
    source, library = folder / "stand_in.o", folder / "libamdhip64.so"
    source.write_bytes(machine.emit_object(module))
    subprocess.run([linker, "-shared", "-soname", library.name, source, "-o", library], check=True)
    return library


class StandIn:
    """What the functions do. `launches` are (kernel, groups, group, the six words); `calls` counts by name."""

    def __init__(self, folder: Path, linker: str) -> None:
        self.rows: dict[str, tuple[Callable[..., int], tuple[Any, ...]]] = {
            "hipGetDeviceCount": (self.device_count, (POINTER(c_int),)),
            "hipRuntimeGetVersion": (self.version, (POINTER(c_int),)),
            "hipGetDevice": (self.get_device, (POINTER(c_int),)),
            "hipSetDevice": (self.set_device, (c_int,)),
            "hipGetDevicePropertiesR0600": (self.properties, (IN, c_int)),
            "hipDeviceGetAttribute": (self.attribute, (POINTER(c_int), c_int, c_int)),
            "hipMalloc": (self.allocate, (OUT, c_size_t)),
            "hipFree": (self.free, (IN,)),
            "hipHostMalloc": (lambda out, size, _: self.allocate(out, size), (OUT, c_size_t, c_uint)),
            "hipHostFree": (self.free, (IN,)),
            "hipMemGetInfo": (self.memory, (POINTER(c_size_t), POINTER(c_size_t))),
            "hipStreamCreateWithFlags": (lambda out, _: self.make(out, "stream"), (OUT, c_uint)),
            "hipStreamCreateWithPriority": (lambda out, *_: self.make(out, "stream"), (OUT, c_uint, c_int)),
            "hipStreamQuery": (self.known, (IN,)),
            "hipStreamSynchronize": (self.known, (IN,)),
            "hipMemcpyAsync": (self.copy, (IN, IN, c_size_t, c_int, IN)),
            "hipMemsetD32Async": (self.fill, (IN, c_int, c_size_t, IN)),
            "hipEventCreateWithFlags": (lambda out, _: self.make(out, "event"), (OUT, c_uint)),
            "hipEventRecord": (lambda event, stream: self.known(event) or self.stream(stream), (IN, IN)),
            "hipStreamWaitEvent": (lambda stream, event, _: self.stream(stream) or self.known(event), (IN, IN, c_uint)),
            "hipDeviceSynchronize": (lambda: SUCCESS, ()),
            "hipEventSynchronize": (self.known, (IN,)),
            "hipModuleLoadData": (self.load, (OUT, IN)),
            "hipModuleUnload": (self.unload, (IN,)),
            "hipModuleGetFunction": (self.function, (OUT, IN, ctypes.c_char_p)),
            "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor": (
                self.occupancy,
                (POINTER(c_int), IN, c_int, c_size_t),
            ),
            "hipModuleLaunchKernel": (self.launch, (IN, *[c_uint] * 7, IN, IN, IN)),
            "hipGraphCreate": (lambda out, _: self.make(out, []), (OUT, c_uint)),
            "hipGraphAddKernelNode": (self.add_kernel, (OUT, IN, IN, c_size_t, POINTER(KernelNode))),
            "hipGraphAddMemcpyNode1D": (self.add_copy, (OUT, IN, IN, c_size_t, IN, IN, c_size_t, c_int)),
            "hipGraphAddMemsetNode": (self.add_fill, (OUT, IN, IN, c_size_t, POINTER(MemsetNode))),
            "hipGraphInstantiateWithFlags": (self.instantiate, (OUT, IN, c_uint64)),
            "hipGraphLaunch": (self.launch_graph, (IN, IN)),
            "hipGraphDestroy": (self.forget, (IN,)),
            "hipGraphExecDestroy": (self.forget, (IN,)),
        }
        self.calls = dict.fromkeys(self.rows, 0)
        self.launches: list[tuple[str, int, int, tuple[int, ...]]] = []
        self.objects: dict[int, Any] = {}
        self.blocks: dict[int, Any] = {}
        self.images: list[tuple[int, bytes]] = []  # AMD code objects: where they lie, and what they were
        self.device = 1  # the thread's own: another one, as a library that came before may leave it
        self.failures: list[BaseException] = []
        self.library = ctypes.CDLL(str(build(list(self.rows), folder, linker)))
        table = (c_void_p * len(self.rows)).in_dll(self.library, "table")
        self._alive = []
        for i, (name, (play, types)) in enumerate(self.rows.items()):
            callback = ctypes.CFUNCTYPE(c_uint64, *types)(self._guarded(name, play))
            self._alive.append(callback)
            table[i] = ctypes.cast(callback, c_void_p).value

    def _guarded(self, name: str, play: Callable[..., int]) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls[name] += 1
            try:
                return play(*arguments) or SUCCESS
            except BaseException as failure:  # a callback of C can't raise
                self.failures.append(failure)
                return INVALID_VALUE

        return call

    # handles

    def make(self, out: Any, thing: Any) -> int:
        handle = 0x10_0000 + 0x100 * len(self.objects)
        self.objects[handle] = thing
        out[0] = handle
        return SUCCESS

    def known(self, handle: int | None) -> int:
        return SUCCESS if handle in self.objects else INVALID_HANDLE

    def stream(self, handle: int | None) -> int:
        return self.known(handle) if handle else SUCCESS  # the legacy default stream is always there

    def forget(self, handle: int) -> int:
        self.objects[handle] = None
        return SUCCESS

    # devices

    def device_count(self, out: Any) -> int:
        out[0] = 2
        return SUCCESS

    def version(self, out: Any) -> int:
        out[0] = ROCM_7
        return SUCCESS

    def get_device(self, out: Any) -> int:
        out[0] = self.device
        return SUCCESS

    def set_device(self, device: int) -> int:
        self.device = device
        return SUCCESS

    def properties(self, out: int, device: int) -> int:
        ctypes.memset(out, 0, PROPERTIES_BYTES)
        ctypes.memmove(out, b"Stand-in", 8)
        name = (b"gfx90a:sramecc+:xnack-", b"gfx803")[device]
        ctypes.memmove(out + ARCHITECTURE_OFFSET, name, len(name))
        return SUCCESS

    def attribute(self, out: Any, attribute: int, device: int) -> int:
        out[0] = 3
        return SUCCESS

    # memory

    def allocate(self, out: Any, size: int) -> int:
        if size > CAPACITY:
            return OUT_OF_MEMORY
        memory = ctypes.create_string_buffer(b"\xa5" * 64, size + 256)
        place = -(-ctypes.addressof(memory) // 256) * 256
        self.blocks[place] = memory
        out[0] = place
        return SUCCESS

    def free(self, address: int) -> int:
        del self.blocks[address]
        return SUCCESS

    def memory(self, free: Any, total: Any) -> int:
        free[0], total[0] = CAPACITY, 2 * CAPACITY
        return SUCCESS

    def copy(self, target: int, source: int, size: int, kind: int, stream: int | None = None) -> int:
        assert kind in (1, 2, 3)  # to the device, to the host, on the device
        assert self.device == 0
        ctypes.memmove(target, source, size)
        return SUCCESS

    def fill(self, target: int, value: int, count: int, stream: int | None = None) -> int:
        ctypes.memmove(target, struct.pack("<I", value & 0xFFFFFFFF) * count, 4 * count)
        return SUCCESS

    # code

    def load(self, out: Any, image: int) -> int:
        header = ctypes.string_at(image, 64)
        table, size, count = (*struct.unpack_from("<Q", header, 40), *struct.unpack_from("<HH", header, 58))
        code = ctypes.string_at(image, table + size * count)
        machine = struct.unpack_from("<H", header, 18)[0]
        if machine != elf.MACHINE:
            return self.make(out, Image(code))
        self.images.append((image, code))
        return self.make(out, set(kernel_notes(elf.read(code))))

    def unload(self, module: int) -> int:
        if isinstance(self.objects[module], set):
            self.images.clear()  # one of them may go now
        return self.forget(module)

    def function(self, out: Any, module: int, name: bytes) -> int:
        loaded, entry = self.objects[module], name.decode()
        for image, code in self.images:  # HIP may read it at any time
            assert ctypes.string_at(image, len(code)) == code
        if isinstance(loaded, set):
            return self.make(out, entry) if entry in loaded else NOT_FOUND
        return self.make(out, (entry, loaded))

    def occupancy(self, out: Any, function: int, group: int, shared: int) -> int:
        out[0] = 2
        return SUCCESS

    def launch(self, function: int, *rest: Any) -> int:
        groups, grid_y, grid_z, group, block_y, block_z, shared, _, params, extra = rest
        assert (grid_y, grid_z, block_y, block_z, shared, extra) == (1, 1, 1, 1, 0, None)
        self.run(self.objects[function], groups, group, self.words(params))
        return SUCCESS

    def words(self, params: int) -> tuple[int, ...]:
        """The arguments behind an array of pointers."""
        pointers = (c_void_p * 6).from_address(params)
        return tuple([ctypes.c_int64.from_address(pointer).value for pointer in pointers])

    def run(self, function: Any, groups: int, group: int, words: tuple[int, ...]) -> None:
        entry = function if isinstance(function, str) else function[0]
        self.launches.append((entry, groups, group, words))
        if not isinstance(function, str):
            function[1].pipeline(entry, entry, group).dispatch(groups, words)

    # graphs: a node is (its work, the nodes before it)

    def _add(self, out: Any, graph: int, after: int | None, count: int, work: Callable[[], Any]) -> int:
        before = list((c_void_p * count).from_address(after)) if count else []
        assert all(handle in self.objects for handle in before)
        self.make(out, None)
        self.objects[graph].append((out[0], before, work))
        return SUCCESS

    def add_kernel(self, out: Any, graph: int, after: int, count: int, node: Any) -> int:
        """The arguments are read now, as HIP does."""
        given = node.contents
        function, groups, group, words = given.function, given.grid.x, given.block.x, self.words(given.params)
        assert (given.grid.y, given.grid.z, given.block.y, given.block.z, given.shared, given.extra) == (
            1,
            1,
            1,
            1,
            0,
            None,
        )
        kernel = self.objects[function]
        return self._add(out, graph, after, count, lambda: self.run(kernel, groups, group, words))

    def add_copy(self, out: Any, graph: int, after: int, count: int, *rest: Any) -> int:
        return self._add(out, graph, after, count, lambda: self.copy(*rest))

    def add_fill(self, out: Any, graph: int, after: int, count: int, node: Any) -> int:
        given = node.contents
        assert (given.element, given.height) == (4, 1)
        target, value, width = given.target, given.value, given.width
        return self._add(out, graph, after, count, lambda: self.fill(target, value, width))

    def instantiate(self, out: Any, graph: int, flags: int) -> int:
        return self.make(out, list(self.objects[graph]))

    def launch_graph(self, executable: int, stream: int) -> int:
        done: set[int] = set()
        for handle, before, work in self.objects[executable]:
            assert done.issuperset(before)
            work()
            done.add(handle)
        return SUCCESS
