"""What a failed call reports in its context, as the exception the user gets."""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.targets.cpu.call_context import (
    CHECK,
    HEADER,
    HEAP_MEMORY,
    LOOP_LIMIT,
    STACK_CAPACITY,
    STACK_EMPTY,
    STACK_MEMORY,
)
from loopgrad.graph.errors import LoopgradError, LoopLimitError, StackCapacityError
from loopgrad.graph.location import describe
from loopgrad.graph.nodes import Location
from loopgrad.runtime.cpu.program import KernelRecord, ProgramRecord
from loopgrad.runtime.failures import failed_check


def failure(program: ProgramRecord, words: Sequence[int], threads: int, refused: tuple[int, int] | None) -> Exception:
    """The exception for the report in `words`. `refused` = (needed, available) of the last request
    for memory that was turned down."""
    code = words[HEADER["code"]]
    where, which = words[HEADER["where"]], words[HEADER["which"]]
    lane, detail = words[HEADER["lane"]], words[HEADER["detail"]]
    if code == STACK_CAPACITY:
        kernel = program.kernels[where]
        stack = kernel.stacks[which]
        needed, allocated = words[HEADER["needed"]], words[HEADER["allocated"]]
        return StackCapacityError(stack.name or kernel.name, stack.loc, lane, needed, allocated)
    if code == CHECK:
        kernel = program.kernels[where]
        return failed_check(kernel.errors[which], kernel.domain, lane, detail)
    if code == HEAP_MEMORY:
        return _heap_failure(program.kernels[where], words[HEADER["needed"]], threads, refused)
    if code == STACK_MEMORY:
        stack_record = program.stacks[where]
        needed = words[HEADER["needed"]] * stack_record.stride
        loop = stack_record.name.rpartition("/")[0] or stack_record.name
        return _memory_failure(f"loop {loop!r}", stack_record.loc, needed, refused, "")
    if code == LOOP_LIMIT:
        return LoopLimitError(detail, program.loops[where])
    if code == STACK_EMPTY:
        stack_record = program.stacks[where]
        return LoopgradError(f"stack {stack_record.name!r} of the compiled program was popped while empty: a bug")
    return LoopgradError(f"the compiled program returned the unknown code {code}: a bug")


def _heap_failure(
    kernel: KernelRecord, bytes_per_worker: int, threads: int, refused: tuple[int, int] | None
) -> MemoryError:
    loops = dict.fromkeys(stack.name.rpartition("/")[0] or stack.name for stack in kernel.stacks)
    names = ", ".join(name for name in loops if name) or kernel.name
    loc = next((stack.loc for stack in kernel.stacks if stack.loc is not None), None)
    workers = min(threads, max(kernel.chunks, 1))
    shared = f" ({workers} threads x {kernel.width} lanes in flight)"
    return _memory_failure(f"loop {names!r}", loc, bytes_per_worker * workers, refused, shared)


def _memory_failure(
    loop: str, loc: Location | None, needed: int, refused: tuple[int, int] | None, detail: str
) -> MemoryError:
    available = "what the system gives"
    if refused is not None:
        needed, free = max(needed, refused[0]), refused[1]
        available = f"{free:,} bytes available"
    text = (
        f"{loop}: expected its saved values to fit into {available}, needed {needed:,} bytes{detail}; "
        "give the loop a memory_budget, or make it shorter"
    )
    return MemoryError("\n".join(part for part in (text, describe(loc)) if part))
