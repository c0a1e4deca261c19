"""Runs one compiled kernel, chunk by chunk on one thread, as the driver would."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.targets.cpu.features import Machine, host_machine
from loopgrad.codegen.targets.cpu.interface import KernelInterface
from loopgrad.codegen.targets.cpu.llvm import compile_module
from loopgrad.codegen.targets.cpu.module import emit_kernels


@dataclass(frozen=True)
class Options:
    fast_math: bool = False
    sort_lanes: bool = True


class Control:
    """What a launch leaves in its control block."""

    def __init__(self, stacks: int, capacity: int) -> None:
        self.words = np.zeros(2 * stacks + 4, np.int64)
        self.words[:stacks] = capacity
        self.stacks = stacks

    @property
    def needed(self) -> list[int]:
        return [int(v) for v in self.words[self.stacks : 2 * self.stacks]]

    @property
    def overflow_lane(self) -> int:
        return int(self.words[2 * self.stacks])

    @property
    def error(self) -> tuple[int, int, int]:
        code, lane, detail = (int(v) for v in self.words[2 * self.stacks + 1 :])
        return code, lane, detail


class CompiledKernel:
    """A kernel loaded into this process."""

    def __init__(self, kernel: Kernel, options: Options | None = None, machine: Machine | None = None) -> None:
        from llvmlite import binding

        self.kernel = kernel
        machine = machine or host_machine()
        self.text, interfaces = emit_kernels([kernel], machine, options or Options())
        self.interface: KernelInterface = interfaces[0]
        code = compile_module(self.text, machine)
        builder = binding.JITLibraryBuilder().add_object_img(code).add_current_process()
        symbols = [self.interface.symbol] + ([self.interface.finish] if self.interface.finish else [])
        for symbol in symbols:
            builder.export_symbol(symbol)
        self.jit = binding.create_lljit_compiler()
        self.tracker = builder.link(self.jit, f"kernel{id(self)}")
        self.chunk = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(
            self.tracker[self.interface.symbol]
        )
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
        for c in order if order is not None else range(interface.chunks):
            self.chunk(pointers, c, worker, control.words.ctypes.data)
        if self.finish:
            self.finish(pointers)
        return control
