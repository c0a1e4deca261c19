"""Invocations of a workgroup that wait for each other, as coroutines of one thread. As threads they waited at a barrier
of the system's, and spent most of their time there.

All run up to their first barrier, one after the other, then all up to their second, and so on, in the order of their
numbers or against it: a pipeline takes both in turn. So what lacks a barrier finds the same in every run of a test. A
kernel waits by the function whose address is the first word of its `barrier`.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable, Sequence
from ctypes import c_int32, c_int64, c_void_p
from functools import cache
from typing import Any

from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.llvm import compile_module
from loopgrad.runtime.cpu.loader import Code

STACK = 1 << 20  # bytes; code that isn't optimised keeps all that it computes
CONTEXT = 8 << 10  # bytes, more than a ucontext_t has; its link and its stack are at these places in glibc's
LINK, STACK_START, STACK_SIZE = 8, 16, 32

WAIT = "call void @meet(ptr %barrier)"
DECLARATIONS = """define internal void @meet(ptr %barrier) {
  %wait = load ptr, ptr %barrier
  call void %wait(ptr %barrier)
  ret void
}"""

_SOURCE = f"""%workgroup = type {{ ptr, ptr, ptr, ptr, [6 x i64], ptr, i32, i32, i32, i32 }}
declare i32 @getcontext(ptr)
declare i32 @swapcontext(ptr, ptr)
declare void @makecontext(ptr, ptr, i32, ...)

define private ptr @context(ptr %w, i32 %place) {{
  %field = getelementptr %workgroup, ptr %w, i32 0, i32 1
  %contexts = load ptr, ptr %field
  %found = getelementptr [{CONTEXT} x i8], ptr %contexts, i32 %place
  ret ptr %found
}}

define void @wait(ptr %w) {{
  %place = getelementptr %workgroup, ptr %w, i32 0, i32 6
  %field = getelementptr %workgroup, ptr %w, i32 0, i32 7
  %now = load i32, ptr %place
  %count = load i32, ptr %field
  %after = add i32 %now, 1
  %next = urem i32 %after, %count
  store i32 %next, ptr %place
  %mine = call ptr @context(ptr %w, i32 %now)
  %other = call ptr @context(ptr %w, i32 %next)
  call i32 @swapcontext(ptr %mine, ptr %other)
  ret void
}}

define private void @member(i32 %low, i32 %high) {{
  %lower = zext i32 %low to i64
  %upper = zext i32 %high to i64
  %shifted = shl i64 %upper, 32
  %address = or i64 %lower, %shifted
  %w = inttoptr i64 %address to ptr
  %all = load %workgroup, ptr %w
  %run = extractvalue %workgroup %all, 3
{"".join(f"  %w{n} = extractvalue %workgroup %all, 4, {n}" + chr(10) for n in range(6))}
  %shared = extractvalue %workgroup %all, 5
  %now = extractvalue %workgroup %all, 6
  %count = extractvalue %workgroup %all, 7
  %groups = extractvalue %workgroup %all, 8
  %backwards = extractvalue %workgroup %all, 9
  %after = add i32 %now, 1
  %from_end = sub i32 %count, %after
  %turned = icmp ne i32 %backwards, 0
  %id = select i1 %turned, i32 %from_end, i32 %now
  %end = add i32 %id, 1
  call void %run({"".join(f"i64 %w{n}, " for n in range(6))}i32 %groups, i32 %id, i32 %end, ptr %shared, ptr %w)
  %place = getelementptr %workgroup, ptr %w, i32 0, i32 6
  store i32 %after, ptr %place
  ret void
}}

define void @start(ptr %w) {{
entry:
  %all = load %workgroup, ptr %w
  %stacks = extractvalue %workgroup %all, 2
  %count = extractvalue %workgroup %all, 7
  %address = ptrtoint ptr %w to i64
  %low = trunc i64 %address to i32
  %shifted = lshr i64 %address, 32
  %high = trunc i64 %shifted to i32
  br label %each
each:
  %i = phi i32 [ 0, %entry ], [ %next, %each ]
  %next = add i32 %i, 1
  %context = call ptr @context(ptr %w, i32 %i)
  call i32 @getcontext(ptr %context)
  %link = getelementptr i8, ptr %context, i32 {LINK}
  %following = call ptr @context(ptr %w, i32 %next)
  store ptr %following, ptr %link
  %stack = getelementptr [{STACK} x i8], ptr %stacks, i32 %i
  %stack_start = getelementptr i8, ptr %context, i32 {STACK_START}
  store ptr %stack, ptr %stack_start
  %stack_size = getelementptr i8, ptr %context, i32 {STACK_SIZE}
  store i64 {STACK}, ptr %stack_size
  call void (ptr, ptr, i32, ...) @makecontext(ptr %context, ptr @member, i32 2, i32 %low, i32 %high)
  %more = icmp slt i32 %next, %count
  br i1 %more, label %each, label %run
run:
  %own = call ptr @context(ptr %w, i32 %count)
  %first = call ptr @context(ptr %w, i32 0)
  call i32 @swapcontext(ptr %own, ptr %first)
  ret void
}}
"""


class Workgroup(ctypes.Structure):
    """What a kernel is given as its barrier: `place` is the number of the coroutine that runs, of `count`."""

    _fields_ = (
        ("wait", c_void_p), ("contexts", c_void_p), ("stacks", c_void_p), ("run", c_void_p), ("words", c_int64 * 6),
        ("shared", c_void_p), ("place", c_int32), ("count", c_int32), ("groups", c_int32), ("backwards", c_int32),
    )  # fmt: skip


class _Memory(threading.local):
    """The stacks and contexts of so many coroutines, for the thread that runs them."""

    count = 0

    def of(self, count: int) -> tuple[int, int]:
        if count > self.count:
            self._stacks, self._contexts = mmap.mmap(-1, count * STACK), mmap.mmap(-1, (count + 1) * CONTEXT)
            self.count = count
            self.addresses = _address(self._stacks), _address(self._contexts)
            libc = ctypes.CDLL(None)
            for i in range(count):  # what needs more ends the process
                libc.mprotect(c_void_p(self.addresses[0] + i * STACK), ctypes.c_size_t(mmap.PAGESIZE), 0)
        return self.addresses


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


_memory = _Memory()


@cache
def _code() -> tuple[Code, Callable[[Any], None]]:
    machine = host_machine()
    code = Code(compile_module(f'target triple = "{machine.triple}"\n{_SOURCE}', machine), ["start", "wait"])
    return code, ctypes.CFUNCTYPE(None, c_void_p)(code.address("start"))


def run(kernel: int, words: Sequence[int], groups: int, count: int, shared: int, backwards: bool) -> None:
    """Run these workgroups of `count` invocations of the kernel at that address."""
    code, start = _code()
    stacks, contexts = _memory.of(count)
    wait = code.address("wait")
    start(ctypes.byref(Workgroup(wait, contexts, stacks, kernel, tuple(words), shared, 0, count, groups, backwards)))
