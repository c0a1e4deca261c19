"""Stacks inside kernels: growth and relaunch, forced capacities, memory, errors, several threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from loopgrad.codegen.kernel.nodes import Block, BufferParam, ErrorSite, Kernel, StackSlot
from loopgrad.codegen.program import ArraySlot, CopyStep, Initial, LaunchStep, Program, Residual
from loopgrad.codegen.targets.cpu.interface import CpuKernelInterface, StackInterface
from loopgrad.graph.errors import IndexRangeError, LoopLimitError
from loopgrad.graph.nodes import Location
from loopgrad.graph.types import TensorType, int64
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.cpu import memory
from loopgrad.runtime.cpu.executable import CpuExecutable
from loopgrad.runtime.failures import StackCapacityError

HERE = Location("model.py", 12, "step")
CHUNKS = 10
COUNT = TensorType((), int64)

# pushes count[0] rows (depth of the stack: one row is one i64) and pops them into total[chunk]
STACKED = """
define void @stacked(ptr %params, i64 %chunk, ptr %worker, ptr %control) {
entry:
  %count_p = load ptr, ptr %params
  %total_pp = getelementptr ptr, ptr %params, i64 1
  %total_p = load ptr, ptr %total_pp
  %n = load i64, ptr %count_p
  %capacity = load i64, ptr %control
  %heap = load ptr, ptr %worker
  %over = icmp sgt i64 %n, %capacity
  br i1 %over, label %report, label %push
report:
  %needed = getelementptr i64, ptr %control, i64 1
  %old = atomicrmw max ptr %needed, i64 %n seq_cst
  %lane = getelementptr i64, ptr %control, i64 2
  store i64 %chunk, ptr %lane
  ret void
push:
  %i = phi i64 [ 0, %entry ], [ %i2, %pushed ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %pushed, label %pop
pushed:
  %p = getelementptr i64, ptr %heap, i64 %i
  store i64 %i, ptr %p
  %i2 = add i64 %i, 1
  br label %push
pop:
  %k = phi i64 [ %n, %push ], [ %k2, %popped ]
  %sum = phi i64 [ 0, %push ], [ %sum2, %popped ]
  %some = icmp sgt i64 %k, 0
  br i1 %some, label %popped, label %out
popped:
  %k2 = sub i64 %k, 1
  %q = getelementptr i64, ptr %heap, i64 %k2
  %v = load i64, ptr %q
  %sum2 = add i64 %sum, %v
  br label %pop
out:
  %total = getelementptr i64, ptr %total_p, i64 %chunk
  store i64 %sum, ptr %total
  ret void
}
"""


def buffer(array: Any) -> Buffer:
    return Buffer(np.array(array, order="C"), "cpu")


def scalar(value: int) -> Buffer:
    return buffer(np.asarray(value, np.int64))


def slots(*kinds: tuple[TensorType, str]) -> tuple[ArraySlot, ...]:
    return tuple(ArraySlot(type, kind) for type, kind in kinds)


def stacked(known: bool, chunks: int = CHUNKS) -> tuple[Program, CpuKernelInterface]:
    slot = StackSlot(int64, 0 if known else None, "loop body", HERE)
    kernel = Kernel(
        "stacked", (chunks,), (BufferParam(int64, 1, "read"), BufferParam(int64, chunks, "write")), Block(), (slot,)
    )
    interface = CpuKernelInterface("stacked", None, chunks, 1, 1, False, (), (StackInterface(8, slot.depth_param),), 0)
    totals = TensorType((chunks,), int64)
    program = Program(
        slots((COUNT, "input"), (totals, "output")), (0,), (1,), (kernel,), (LaunchStep(0, (0, 1)),),
        residuals=(Residual("loop body", COUNT, "n", "not invertible", "kernel", HERE),),
    )  # fmt: skip
    return program, interface


def load_stacked(load: Any, known: bool, capacity: int | None = None) -> CpuExecutable:
    program, interface = stacked(known)
    executable: CpuExecutable = load(program, (interface,), STACKED, capacity)
    return executable


@pytest.mark.parametrize("known", [False, True])
def test_kernel_stacks_grow_to_the_need(load: Any, known: bool) -> None:
    executable = load_stacked(load, known)
    for n in (3, 1000, 5, 100_000, 7):
        (y,) = executable.run([scalar(n)])
        np.testing.assert_array_equal(y.array, n * (n - 1) // 2)
    replay = load_stacked(load, known).capture([scalar(10)])
    for n in (3, 1000, 5, 50_000):
        (y,) = replay.replay([scalar(n)])
        np.testing.assert_array_equal(y.array, n * (n - 1) // 2)
    stats = replay.stats()
    assert stats.replays == 4
    assert stats.growths == (0 if known else 2)
    informed = executable.capture([scalar(10)])
    informed.replay([scalar(90_000)])
    assert informed.stats().growths == 0
    depth = executable.plan().residuals[0].depth
    assert depth is not None
    assert depth >= 7


def test_a_forced_capacity_raises_and_the_next_call_works(load: Any) -> None:
    executable = load_stacked(load, known=False, capacity=16)
    with pytest.raises(StackCapacityError, match=r"loop body[\s\S]*model\.py:12") as caught:
        executable.run([scalar(17)])
    assert (caught.value.needed, caught.value.allocated) == (17, 16)
    assert 0 <= caught.value.lane < CHUNKS
    (y,) = executable.run([scalar(16)])
    assert y.array[0] == 120


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("depth", [1 << 30, 1 << 44, (1 << 63) - 1])
def test_a_stack_that_cannot_fit_raises_before_it_is_allocated(
    load: Any, known: bool, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = load_stacked(load, known)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 30)
    with pytest.raises(MemoryError, match=r"loop body.*(bytes available|system gives), needed [\d,]+ bytes"):
        executable.run([scalar(depth)])
    (y,) = executable.run([scalar(10)])
    assert y.array[0] == 45


def test_checks_name_site_lane_and_detail(load: Any) -> None:
    text = """
define void @checked(ptr %params, i64 %chunk, ptr %worker, ptr %control) {
  %count_p = load ptr, ptr %params
  %n = load i64, ptr %count_p
  %code = getelementptr i64, ptr %control, i64 1
  store i64 %n, ptr %code
  %lane = getelementptr i64, ptr %control, i64 2
  store i64 7, ptr %lane
  %detail = getelementptr i64, ptr %control, i64 3
  store i64 99, ptr %detail
  ret void
}
"""
    sites = (
        ErrorSite("index", "index {detail} is out of range in lane {lane}", HERE),
        ErrorSite("max_steps", "", HERE),
    )
    kernel = Kernel("checked", (3, 5), (BufferParam(int64, 1, "read"),), Block(), errors=sites)
    interface = CpuKernelInterface("checked", None, 1, 15, 1, False, (), (), 2)
    program = Program(
        slots((COUNT, "input"), (COUNT, "output")), (0,), (1,), (kernel,), (LaunchStep(0, (0,)), CopyStep(0, 1))
    )
    executable = load(program, (interface,), text)
    with pytest.raises(IndexRangeError, match=r"index 99 is out of range in lane \(1, 2\)\n\s+at model\.py:12"):
        executable.run([scalar(1)])
    with pytest.raises(LoopLimitError, match=r"max_steps=99[\s\S]*model\.py:12"):
        executable.run([scalar(2)])
    assert int(executable.run([scalar(0)])[0].array) == 0


def test_initials_are_applied_before_every_launch(load: Any) -> None:
    """total[c] += stacked sum, from an initial; a relaunch after growth must not add twice."""
    slot = StackSlot(int64, None, "s", HERE)
    text = (
        STACKED.replace(
            "  store i64 %sum, ptr %total\n",
            "  %t = load i64, ptr %total\n  %t2 = add i64 %t, %sum\n  store i64 %t2, ptr %total\n",
        )
        .replace("  ret void\npush:", "  br label %push\npush:")
        .replace("%i = phi i64 [ 0, %entry ]", "%i = phi i64 [ 0, %entry ], [ %n, %report ]")
    )
    kernel = Kernel("s", (4,), (BufferParam(int64, 1, "read"), BufferParam(int64, 4, "accumulate")), Block(), (slot,))
    interface = CpuKernelInterface("stacked", None, 4, 1, 1, True, (), (StackInterface(8, None),), 0)
    totals = TensorType((4,), int64)
    for initial, expected in ((Initial(None, 100), 100), (Initial(2), 7)):
        program = Program(
            slots((COUNT, "input"), (totals, "output"), (totals, "input")), (0, 2), (1,), (kernel,),
            (LaunchStep(0, (0, 1), ((1, initial),)),),
        )  # fmt: skip
        (y,) = load(program, (interface,), text).run([scalar(60), buffer(np.full(4, 7))])
        np.testing.assert_array_equal(y.array, expected + 60 * 59 // 2)


def test_calls_from_many_threads(load: Any) -> None:
    executable = load_stacked(load, known=False)
    wrong: list[str] = []

    def work(seed: int) -> None:
        for i in range(200):
            n = (seed * 37 + i * 11) % 3000
            (y,) = executable.run([scalar(n)])
            if not (y.array == n * (n - 1) // 2).all():
                wrong.append(f"{n}: {y.array}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
