"""Runs one compiled kernel, chunk by chunk on one thread, as the driver would."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loopgrad.codegen.kernel.interpret import interpret_kernel
from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.targets.cpu.entry.call_context import CONTROL_TAIL, HEADER_WORDS
from loopgrad.codegen.targets.cpu.features import Machine, host_machine
from loopgrad.codegen.targets.cpu.interface import CpuKernelInterface
from loopgrad.codegen.targets.cpu.llvm import compile_module
from loopgrad.codegen.targets.cpu.module import emit_kernels


@dataclass(frozen=True)
class Options:
    fast_math: bool = False
    sort_lanes: bool = True


RANGE = """
define void @chunk_range(ptr %params, i64 %first, i64 %last, ptr %worker, ptr %control) {
entry:
  %some = icmp slt i64 %first, %last
  br i1 %some, label %loop, label %done
loop:
  %c = phi i64 [ %first, %entry ], [ %next, %loop ]
  call void @k0(ptr %params, i64 %c, ptr %worker, ptr %control)
  %next = add i64 %c, 1
  %more = icmp slt i64 %next, %last
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


class Control:
    """What a launch leaves in its control block."""

    def __init__(self, stacks: int, capacity: int) -> None:
        self.words = np.zeros(2 * stacks + CONTROL_TAIL, np.int64)
        self.words[:stacks] = capacity
        self.context = np.zeros(HEADER_WORDS, np.int64)
        self.words[-1] = self.context.ctypes.data
        self.stacks = stacks

    @property
    def needed(self) -> list[int]:
        return [int(v) for v in self.words[self.stacks : 2 * self.stacks]]

    @property
    def overflow_lane(self) -> int:
        return int(self.words[2 * self.stacks])

    @property
    def error(self) -> tuple[int, int, int]:
        first = 2 * self.stacks + 1
        code, lane, detail = (int(v) for v in self.words[first : first + 3])
        return code, lane, detail


class CompiledKernel:
    """A kernel loaded into this process."""

    def __init__(self, kernel: Kernel, options: Options | None = None, machine: Machine | None = None) -> None:
        from llvmlite import binding

        self.kernel = kernel
        machine = machine or host_machine()
        self.text, interfaces = emit_kernels([kernel], machine, options or Options())
        self.interface: CpuKernelInterface = interfaces[0]
        code = compile_module(self.text + RANGE, machine)
        builder = binding.JITLibraryBuilder().add_object_img(code).add_current_process()
        symbols = ["chunk_range"] + ([self.interface.finish] if self.interface.finish else [])
        for symbol in symbols:
            builder.export_symbol(symbol)
        self.jit = binding.create_lljit_compiler(use_jit_link=True)  # as the loader; the other aborts on some machines
        self.tracker = builder.link(self.jit, f"kernel{id(self)}")
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        self.range = ctypes.CFUNCTYPE(None, pointer, word, word, pointer, pointer)(self.tracker["chunk_range"])
        self.finish = None
        if self.interface.finish:
            self.finish = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.tracker[self.interface.finish])

    def run(self, arrays: Sequence[np.ndarray], capacity: int = 128, order: Sequence[int] | None = None) -> Control:
        """Run all chunks (in `order`) on the arrays, in place."""
        interface = self.interface
        stacks = len(self.kernel.stacks)
        scratch = [np.full(n // 8 + 8, -1, np.int64) for n in interface.scratch]
        pointers = (ctypes.c_void_p * (len(arrays) + len(scratch)))(*[a.ctypes.data for a in [*arrays, *scratch]])
        control = Control(stacks, capacity)
        heap = np.zeros(sum(capacity * s.row_bytes + 64 for s in interface.stacks) + 64, np.uint8)
        base = (heap.ctypes.data + 63) & -64
        worker = (ctypes.c_int64 * 2)(base, 0)
        if order is None:
            self.range(pointers, 0, interface.chunks, worker, control.words.ctypes.data)
        for c in order or ():
            self.range(pointers, c, c + 1, worker, control.words.ctypes.data)
        if self.finish:
            self.finish(pointers)
        return control


def narrower(bits: int) -> Machine:
    """This machine without its longer vectors."""
    host = host_machine()
    off = {256: ("avx512",), 128: ("avx512", "avx2", "fma", "avx")}[bits]
    features = [f for f in host.features.split(",") if not f[1:].startswith(off)]
    names = [f[1:] for f in host.features.split(",") if f[1:].startswith(off)]
    cpu = {256: "haswell", 128: "x86-64"}[bits]
    flat = ",".join([*features, *[f"-{n}" for n in names]])
    return Machine(host.triple, cpu, flat, bits, False, bits == 256, 16)


def check(
    kernel: Kernel,
    arrays: Sequence[np.ndarray],
    options: Options | None = None,
    machine: Machine | None = None,
    **tolerance: float,
) -> Control:
    """The compiled kernel against the interpreter, every array."""
    wanted = [a.copy() for a in arrays]
    interpret_kernel(kernel, wanted)
    got = [a.copy() for a in arrays]
    control = CompiledKernel(kernel, options, machine).run(got)
    for i, (w, g) in enumerate(zip(wanted, got, strict=True)):
        if tolerance and w.dtype.kind == "f":
            np.testing.assert_allclose(g, w, err_msg=f"parameter {i}", **tolerance)
        else:
            np.testing.assert_array_equal(g, w, err_msg=f"parameter {i}")
    return control
