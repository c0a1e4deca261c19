"""`@run.kN`: one launch of a kernel, from stack capacities to the error check.

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
from loopgrad.codegen.targets.cpu.interface import CpuKernelInterface, StackInterface
from loopgrad.graph.types import DType

ROWS_LIMIT: Final = 1 << 40  # more can't be allocated; keeps byte counts far from 64 bits
COUNTED_ROWS: Final = (1 << 31) - 1  # of a loop whose depth isn't known before it runs
ROOM_BYTES: Final = 1 << 26  # above this a stack grows to the exact need


def fill_pattern(dtype: DType, value: Any) -> int:
    """The bits of one element of `dtype` that equals `value`."""
    return int.from_bytes(np.asarray(value).astype(dtype.np).tobytes(), "little")


def emit_runner(number: int, kernel: Kernel, interface: CpuKernelInterface, control: int) -> str:
    """The text of `@run.k<number>`; `control` is the word where the kernel's control block starts."""
    stacks = interface.stacks
    lines = [
        f"; {kernel.name}",
        f"define internal i32 @run.k{number}(ptr %context, ptr %params) {{",
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
        lines += _capacities(stacks)
        lines += _approval(number, stacks)
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
        lines += _call(_runner_word(kernel, interface), interface, bytes_name)
        lines += _interruption(number, stacks)
    if stacks:
        lines += _overflow(number, stacks)
    if interface.errors:
        lines += _errors(number, len(stacks))
    if interface.finish is not None:
        lines.append(f"  call void @{interface.finish}(ptr %params)")
    lines += ["  ret i32 0"]
    if interface.chunks:
        lines += ["poor:", *_memory_report(number, bytes_name, stacks)]
    return "\n".join([*lines, "}", ""])


def _capacities(stacks: tuple[StackInterface, ...]) -> list[str]:
    """Sets %cap.s and %bytes."""
    forced = f"getelementptr i64, ptr %context, i64 {HEADER['forced_capacity']}"
    lines = [f"  %forced_p = {forced}", "  %forced = load i64, ptr %forced_p", "  %is_forced = icmp sge i64 %forced, 0"]
    total = "0"
    for s, stack in enumerate(stacks):
        lines += [f"  %cap_p.{s} = getelementptr i64, ptr %control, i64 {s}", f"  %old.{s} = load i64, ptr %cap_p.{s}"]
        want = f"%old.{s}"
        if stack.depth_param is not None:
            lines += _known_depth(s, stack.depth_param)
            want = f"%want.{s}"
        lines += [
            f"  %chosen.{s} = select i1 %is_forced, i64 %forced, i64 {want}",
            f"  %huge.{s} = icmp sgt i64 %chosen.{s}, {ROWS_LIMIT}",
            f"  %cap.{s} = select i1 %huge.{s}, i64 {ROWS_LIMIT}, i64 %chosen.{s}",
            f"  %raw.{s} = mul i64 %cap.{s}, {stack.row_bytes}",
            f"  %up.{s} = add i64 %raw.{s}, 63",
            f"  %size.{s} = and i64 %up.{s}, -64",
            f"  %total.{s} = add i64 {total}, %size.{s}",
        ]
        total = f"%total.{s}"
    return [*lines, f"  %bytes = add i64 {total}, 0"]


def _known_depth(s: int, param: int) -> list[str]:
    return [
        f"  %depth_pp.{s} = getelementptr ptr, ptr %params, i64 {param}",
        f"  %depth_p.{s} = load ptr, ptr %depth_pp.{s}",
        f"  %depth.{s} = load i64, ptr %depth_p.{s}",
        f"  %deeper.{s} = icmp sgt i64 %depth.{s}, %old.{s}",
        f"  %want.{s} = select i1 %deeper.{s}, i64 %depth.{s}, i64 %old.{s}",
    ]


def _approval(number: int, stacks: tuple[StackInterface, ...]) -> list[str]:
    """Asks the runtime before a heap may grow, then writes the control block."""
    lines = [
        f"  %approved_p = getelementptr i64, ptr %context, i64 {HEADER['heap_approved']}",
        "  %approved = load i64, ptr %approved_p",
        "  %within = icmp sle i64 %bytes, %approved",
        "  br i1 %within, label %ready, label %ask",
        "ask:",
        f"  %refused = call i32 @drv.reserve(ptr %context, i64 {RESERVE_HEAP}, i64 %bytes)",
        "  %no = icmp ne i32 %refused, 0",
        "  br i1 %no, label %denied, label %granted",
        "denied:",
        *_memory_report(number, "%bytes", stacks),
        "granted:",
        "  store i64 %bytes, ptr %approved_p",
        "  br label %ready",
        "ready:",
    ]
    for s in range(len(stacks)):
        lines += [
            f"  store i64 %cap.{s}, ptr %cap_p.{s}",
            f"  %need_p.{s} = getelementptr i64, ptr %control, i64 {len(stacks) + s}",
            f"  store i64 0, ptr %need_p.{s}",
        ]
    return lines


def _memory_report(
    number: int, bytes_name: str, stacks: tuple[StackInterface, ...], counting: bool = False
) -> list[str]:
    """What was learned is dropped, so that the next call starts small. `counting`: even more may be needed."""
    drop = [f"  store i64 0, ptr %cap_p.{s}" for s in range(len(stacks))]
    label = len(drop)
    name = f"%report.{'d' if bytes_name == '%bytes' else 'z'}{label}"
    return [*drop, *_report(name, HEAP_MEMORY, number, str(int(counting)), "0", "0", bytes_name, bytes_name)]


def _report(
    name: str, code: int, where: int, which: str, lane: str, detail: str, needed: str, allocated: str
) -> list[str]:
    return [
        f"  call i32 @drv.report(ptr %context, i32 {code}, i64 {where}, i64 {which}, i64 {lane}, i64 {detail}, "
        f"i64 {needed}, i64 {allocated})",
        f"  ret i32 {code}",
    ]


def _runner_word(kernel: Kernel, interface: CpuKernelInterface) -> int:
    """Straight code has short chunks; how long a loop takes isn't known."""
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


def _interruption(number: int, stacks: tuple[StackInterface, ...]) -> list[str]:
    """What an interrupted kernel leaves isn't looked at. One that ended since its stacks needed more than there was
    goes on where there is more by now."""
    lines = [
        f"  %stop_p = getelementptr i64, ptr %context, i64 {HEADER['stop']}",
        "  %stop = load atomic i64, ptr %stop_p monotonic, align 8",
        "  %ended = icmp ne i64 %stop, 0",
        "  br i1 %ended, label %halt, label %whole",
        "halt:",
    ]
    if stacks:
        lines += _starvation(number, stacks)
    return [*lines, *_report("%h", INTERRUPTED, number, "0", "0", "0", "0", "0"), "whole:"]


def _starvation(number: int, stacks: tuple[StackInterface, ...]) -> list[str]:
    lines = [
        f"  %hungry = icmp eq i64 %stop, {STOP_STARVED}",
        "  br i1 %hungry, label %starved, label %interrupted",
        "starved:",
        "  store atomic i64 0, ptr %stop_p monotonic, align 8",
    ]
    total = "0"
    for s, stack in enumerate(stacks):
        lines += [
            f"  %want_rows.{s} = load i64, ptr %need_p.{s}",
            f"  %most_rows.{s} = call i64 @llvm.smax.i64(i64 %want_rows.{s}, i64 %cap.{s})",
            f"  %want_bytes.{s} = mul i64 %most_rows.{s}, {stack.row_bytes}",
            f"  %want_total.{s} = add i64 {total}, %want_bytes.{s}",
        ]
        total = f"%want_total.{s}"
    return [
        *lines,
        f"  %short = call i32 @drv.reserve(ptr %context, i64 {RESERVE_HEAP}, i64 {total})",
        "  %lack = icmp ne i32 %short, 0",
        "  br i1 %lack, label %starving, label %whole",
        "starving:",
        *_memory_report(number, total, stacks, counting=True),
        "interrupted:",
    ]


def _overflow(number: int, stacks: tuple[StackInterface, ...]) -> list[str]:
    lines, any_over, which, need, had = [], "false", "0", "0", "0"
    for s in range(len(stacks)):
        lines += [
            f"  %need.{s} = load i64, ptr %need_p.{s}",
            f"  %over.{s} = icmp sgt i64 %need.{s}, %cap.{s}",
            f"  %any.{s} = or i1 {any_over}, %over.{s}",
            f"  %which.{s} = select i1 %over.{s}, i64 {s}, i64 {which}",
            f"  %needed.{s} = select i1 %over.{s}, i64 %need.{s}, i64 {need}",
            f"  %had.{s} = select i1 %over.{s}, i64 %cap.{s}, i64 {had}",
        ]
        any_over, which, need, had = f"%any.{s}", f"%which.{s}", f"%needed.{s}", f"%had.{s}"
    lines += [
        f"  br i1 {any_over}, label %over, label %fits",
        "over:",
        "  br i1 %is_forced, label %forced_over, label %grow",
        "forced_over:",
        f"  %lane_p = getelementptr i64, ptr %control, i64 {2 * len(stacks)}",
        "  %lane = load i64, ptr %lane_p",
        *_report("%r", STACK_CAPACITY, number, which, "%lane", "0", need, had),
        "grow:",
        *_uncountable(number, stacks),
    ]
    for s, stack in enumerate(stacks):
        lines += [
            f"  %absurd.{s} = icmp sgt i64 %need.{s}, {ROWS_LIMIT}",
            f"  %exact.{s} = select i1 %absurd.{s}, i64 {ROWS_LIMIT}, i64 %need.{s}",
            f"  %quarter.{s} = lshr i64 %exact.{s}, 2",
            f"  %roomy.{s} = add i64 %exact.{s}, %quarter.{s}",
            f"  %cheap.{s} = icmp slt i64 %roomy.{s}, {max(ROOM_BYTES // max(stack.row_bytes, 1), 1)}",
            f"  %goal.{s} = select i1 %cheap.{s}, i64 %roomy.{s}, i64 %exact.{s}",
            f"  %next.{s} = select i1 %over.{s}, i64 %goal.{s}, i64 %cap.{s}",
            f"  store i64 %next.{s}, ptr %cap_p.{s}",
        ]
    return [*lines, "  call void @drv.grew(ptr %context)", "  ret i32 -1", "fits:"]


def _uncountable(number: int, stacks: tuple[StackInterface, ...]) -> list[str]:
    """Refuses a loop of unknown depth that pushed more often than lanes, which count trips in 32 bits, can tell."""
    unknown = [s for s, stack in enumerate(stacks) if stack.depth_param is None]
    if not unknown:
        return []
    lines, any_vast, total = [], "false", "0"
    for s in unknown:
        lines += [
            f"  %vast.{s} = icmp sgt i64 %need.{s}, {COUNTED_ROWS}",
            f"  %any_vast.{s} = or i1 {any_vast}, %vast.{s}",
            f"  %vast_rows.{s} = call i64 @llvm.smin.i64(i64 %need.{s}, i64 {ROWS_LIMIT})",
            f"  %vast_bytes.{s} = mul i64 %vast_rows.{s}, {stacks[s].row_bytes}",
            f"  %vast_total.{s} = add i64 {total}, %vast_bytes.{s}",
        ]
        any_vast, total = f"%any_vast.{s}", f"%vast_total.{s}"
    return [
        *lines,
        f"  br i1 {any_vast}, label %uncountable, label %countable",
        "uncountable:",
        *_memory_report(number, total, stacks),
        "countable:",
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
        *_report("%e", CHECK, number, "%site", "%error_lane", "%error_detail", "0", "0"),
        "sound:",
    ]
