"""What a failed call reports in its context, as the exception the user gets."""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.targets.cpu.entry.call_context import (
    CHECK,
    HEADER,
    HEAP_MEMORY,
    LOOP_LIMIT,
    STACK_CAPACITY,
    STACK_EMPTY,
    STACK_MEMORY,
    stack_stride,
)
from loopgrad.codegen.targets.cpu.record import CpuProgramRecord, KernelRecord
from loopgrad.graph.errors import LoopgradError, LoopLimitError
from loopgrad.runtime.failures import StackCapacityError, failed_check, loop_names, memory_failure


def failure(
    program: CpuProgramRecord, words: Sequence[int], threads: int, refused: tuple[int, int] | None
) -> Exception:
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
        return _heap_failure(program.kernels[where], words[HEADER["needed"]], threads, refused, bool(which))
    if code == STACK_MEMORY:
        stack_record = program.stacks[where]
        needed, available = request(words[HEADER["needed"]] * stack_stride(stack_record.element), refused)
        return memory_failure(loop_names([stack_record.name]), stack_record.loc, needed, available)
    if code == LOOP_LIMIT:
        return LoopLimitError(detail, program.loops[where])
    if code == STACK_EMPTY:
        stack_record = program.stacks[where]
        return LoopgradError(f"stack {stack_record.name!r} of the compiled program was popped while empty: a bug")
    return LoopgradError(f"the compiled program returned the unknown code {code}: a bug")


def _heap_failure(
    kernel: KernelRecord, bytes_per_worker: int, threads: int, refused: tuple[int, int] | None, counting: bool
) -> MemoryError:
    """`counting`: the loop was ended before it had counted all that it needs."""
    names = loop_names(stack.name for stack in kernel.stacks) or kernel.name
    loc = next((stack.loc for stack in kernel.stacks if stack.loc is not None), None)
    workers = min(threads, max(kernel.interface.chunks, 1))
    shared = f" ({workers} threads x {kernel.interface.lanes_in_flight} lanes in flight)"
    needed, available = request(bytes_per_worker * workers, refused)
    return memory_failure(names, loc, needed, available, shared, counting)


def request(needed: int, refused: tuple[int, int] | None) -> tuple[int, int | None]:
    """What was needed and what was there, as far as that is known."""
    return (needed, None) if refused is None else (max(needed, refused[0]), refused[1])
