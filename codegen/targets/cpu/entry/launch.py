"""`@run.kN`: one launch of a kernel, from stack capacities to the error check. Kernels that are `plain` have none,
unless rows of a table start them: the pool launches those (pool/launches.py).

    i32 @run.kN(ptr context, ptr params)    0 done, -1 a stack grew: launch again, else a code

A stack's capacity is the depth known before the launch or what earlier launches learned, whichever
is more, or the forced one. Memory for it is approved before it is allocated. After the launch, a
stack that needed more than it had either grows to the need just measured (with a little room, while
that is cheap, since trip counts drift) or, where the capacity is forced, is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp
from loopgrad.codegen.targets.cpu.entry.call_context import (
    CHECK,
    CONTROL_TAIL,
    HEADER,
    HEAP_MEMORY,
    INTERRUPTED,
    RESERVE_HEAP,
    STACK_CAPACITY,
    STOP_STARVED,
)
from loopgrad.codegen.targets.cpu.entry.stack_capacities import stack_table
from loopgrad.codegen.targets.cpu.interface import CpuKernelInterface
from loopgrad.graph.types import DType

COUNTED_ROWS: Final = (1 << 31) - 1  # of a loop whose depth isn't known before it runs


def fill_pattern(dtype: DType, value: Any) -> int:
    """The bits of one element of `dtype` that equals `value`."""
    return int.from_bytes(np.asarray(value).astype(dtype.np).tobytes(), "little")


def plain(interface: CpuKernelInterface) -> bool:
    """Whether the pool's own function launches the kernel, so that it needs none in its program."""
    return interface.chunks > 0 and not interface.stacks and not interface.cleared


def emit_runner(number: int, kernel: Kernel, interface: CpuKernelInterface, control: int, attributes: str = "") -> str:
    """The text of `@run.k<number>`; `control` is the word where the kernel's control block starts."""
    stacks = interface.stacks
    lines = [
        f"; {kernel.name}",
        f"define internal i32 @run.k{number}(ptr %context, ptr %params){attributes} {{",
        "entry:",
        f"  %control = getelementptr i64, ptr %context, i64 {control}",
        f"  %heap = getelementptr i64, ptr %context, i64 {HEADER['heap_base']}",
        f"  %error_p = getelementptr i64, ptr %control, i64 {2 * len(stacks) + 1}",
        "  store i64 0, ptr %error_p",
    ]
    if interface.interruptible:
        lines.append(f"  %own_p = getelementptr i64, ptr %control, i64 {2 * len(stacks) + CONTROL_TAIL - 1}")
        lines.append("  store ptr %context, ptr %own_p")
    if stacks:
        lines += _approval(number, len(stacks))
    else:
        lines += ["  br label %ready", "ready:"]
    bytes_name = "%bytes" if stacks else "0"
    if interface.cleared:
        lines += [
            f"  %first_p = getelementptr ptr, ptr %params, i64 {len(kernel.params)}",
            "  %first = load ptr, ptr %first_p",
            f"  call void @llvm.memset.p0.i64(ptr %first, i8 0, i64 {interface.cleared}, i1 false)",
        ]
    if interface.chunks:
        lines += _call(runner_word(kernel, interface), interface, bytes_name)
        lines += _interruption(number, len(stacks))
    if stacks:
        lines += _overflow(number, len(stacks))
    if interface.errors:
        lines += _errors(number, len(stacks))
    if interface.finish is not None:
        lines.append(f"  call void @{interface.finish}(ptr %params)")
    lines += ["  ret i32 0"]
    if interface.chunks or stacks:
        lines += ["poor:", *_memory_report(number, bytes_name, len(stacks))]
    tables = [stack_table(f"@drv.stacks.k{number}", stacks)] if stacks else []
    return "\n".join([*tables, *lines, "}", ""])


def _stacks(number: int, count: int) -> str:
    """The arguments by which functions of stack_capacities.py find a kernel's stacks."""
    return f"ptr %control, ptr @drv.stacks.k{number}, i64 {count}"


def _approval(number: int, count: int) -> list[str]:
    """Writes the control block, and asks the runtime before a heap may grow."""
    return [
        f"  %bytes = call i64 @drv.capacities(ptr %context, ptr %params, {_stacks(number, count)})",
        f"  %approved_p = getelementptr i64, ptr %context, i64 {HEADER['heap_approved']}",
        "  %approved = load i64, ptr %approved_p",
        "  %within = icmp sle i64 %bytes, %approved",
        "  br i1 %within, label %ready, label %ask",
        "ask:",
        f"  %refused = call i32 @drv.reserve(ptr %context, i64 {RESERVE_HEAP}, i64 %bytes)",
        "  %no = icmp ne i32 %refused, 0",
        "  br i1 %no, label %poor, label %granted",
        "granted:",
        "  store i64 %bytes, ptr %approved_p",
        "  br label %ready",
        "ready:",
    ]


def _memory_report(number: int, bytes_name: str, count: int, counting: bool = False) -> list[str]:
    """What was learned is dropped. `counting`: even more may be needed."""
    drop = [f"  call void @drv.drop({_stacks(number, count)})"] if count else []
    return [*drop, *_report(HEAP_MEMORY, number, str(int(counting)), "0", "0", bytes_name, bytes_name)]


def _report(code: int, where: int, which: str, lane: str, detail: str, needed: str, allocated: str) -> list[str]:
    return [
        f"  call i32 @drv.report(ptr %context, i32 {code}, i64 {where}, i64 {which}, i64 {lane}, i64 {detail}, "
        f"i64 {needed}, i64 {allocated})",
        f"  ret i32 {code}",
    ]


def runner_word(kernel: Kernel, interface: CpuKernelInterface) -> int:
    """The word of the context that has what goes through the chunks. Straight code has short ones; how long a loop
    takes isn't known."""
    if interface.serial:
        return HEADER["serial_run"]
    straight = not any(op.opcode in ("for", "while") for op in _operations(kernel.body))
    return HEADER["pool_run_short" if straight else "pool_run"]


def _operations(block: Block) -> Iterator[KOp]:
    for op in block.ops:
        yield op
        for inner in op.blocks:
            yield from _operations(inner)


def _call(word: int, interface: CpuKernelInterface, bytes_name: str) -> list[str]:
    return [
        f"  %run_p = getelementptr i64, ptr %context, i64 {word}",
        "  %run = load ptr, ptr %run_p",
        f"  %failed = call i32 %run(ptr @{interface.symbol}, ptr %params, ptr %control, i64 {interface.chunks}, "
        f"i64 {bytes_name}, ptr %heap)",
        "  %lacking = icmp ne i32 %failed, 0",
        "  br i1 %lacking, label %poor, label %ran",
        "ran:",
    ]


def _interruption(number: int, count: int) -> list[str]:
    """What an interrupted kernel leaves isn't looked at. One that ended since its stacks needed more than there was
    goes on where there is more by now."""
    lines = [
        f"  %stop_p = getelementptr i64, ptr %context, i64 {HEADER['stop']}",
        "  %stop = load atomic i64, ptr %stop_p monotonic, align 8",
        "  %ended = icmp ne i64 %stop, 0",
        "  br i1 %ended, label %halt, label %whole",
        "halt:",
    ]
    if count:
        lines += [
            f"  %hungry = icmp eq i64 %stop, {STOP_STARVED}",
            "  br i1 %hungry, label %starved, label %interrupted",
            "starved:",
            "  store atomic i64 0, ptr %stop_p monotonic, align 8",
            f"  %want = call i64 @drv.wanted({_stacks(number, count)})",
            f"  %short = call i32 @drv.reserve(ptr %context, i64 {RESERVE_HEAP}, i64 %want)",
            "  %lack = icmp ne i32 %short, 0",
            "  br i1 %lack, label %starving, label %whole",
            "starving:",
            *_memory_report(number, "%want", count, counting=True),
            "interrupted:",
        ]
    return [*lines, *_report(INTERRUPTED, number, "0", "0", "0", "0", "0"), "whole:"]


def _overflow(number: int, count: int) -> list[str]:
    return [
        f"  %over = call i64 @drv.over({_stacks(number, count)})",
        "  %enough = icmp slt i64 %over, 0",
        "  br i1 %enough, label %fits, label %more",
        "more:",
        f"  %forced_p = getelementptr i64, ptr %context, i64 {HEADER['forced_capacity']}",
        "  %forced = load i64, ptr %forced_p",
        "  %is_forced = icmp sge i64 %forced, 0",
        "  br i1 %is_forced, label %forced_over, label %grow",
        "forced_over:",
        f"  %lane_p = getelementptr i64, ptr %control, i64 {2 * count}",
        "  %lane = load i64, ptr %lane_p",
        "  %had_p = getelementptr i64, ptr %control, i64 %over",
        "  %had = load i64, ptr %had_p",
        f"  %need_p = getelementptr i64, ptr %had_p, i64 {count}",
        "  %need = load i64, ptr %need_p",
        *_report(STACK_CAPACITY, number, "%over", "%lane", "0", "%need", "%had"),
        "grow:",
        f"  %vast = call i64 @drv.vast({_stacks(number, count)}, i64 {COUNTED_ROWS})",
        "  %uncounted = icmp sge i64 %vast, 0",
        "  br i1 %uncounted, label %uncountable, label %countable",
        "uncountable:",  # a loop of unknown depth pushed more often than lanes, which count trips in 32 bits, can tell
        *_memory_report(number, "%vast", count),
        "countable:",
        f"  call void @drv.grow({_stacks(number, count)})",
        "  call void @drv.grew(ptr %context)",
        "  ret i32 -1",
        "fits:",
    ]


def _errors(number: int, stacks: int) -> list[str]:
    return [
        "  %error = load i64, ptr %error_p",
        "  %wrong = icmp ne i64 %error, 0",
        "  br i1 %wrong, label %failure, label %sound",
        "failure:",
        "  %site = sub i64 %error, 1",
        f"  %error_lane_p = getelementptr i64, ptr %control, i64 {2 * stacks + 2}",
        "  %error_lane = load i64, ptr %error_lane_p",
        f"  %error_detail_p = getelementptr i64, ptr %control, i64 {2 * stacks + 3}",
        "  %error_detail = load i64, ptr %error_detail_p",
        *_report(CHECK, number, "%site", "%error_lane", "%error_detail", "0", "0"),
        "sound:",
    ]
