"""What control blocks say after a submission, as exceptions and as needs for larger stacks."""

from __future__ import annotations

from loopgrad.codegen.targets.gpu.interface import (
    ERROR_CODE,
    ERROR_DETAIL,
    ERROR_LANE,
    MOST_ROWS,
    NEEDED,
    OVERFLOW_LANE,
    TRUNCATED,
    UNFINISHED,
    KernelInterface,
)
from loopgrad.graph.errors import LoopgradError
from loopgrad.graph.location import located
from loopgrad.runtime.failures import StackCapacityError, failed_check, loop_names, memory_failure
from loopgrad.runtime.gpu.memory import Bytes


def word(control: Bytes, offset: int, size: int = 4) -> int:
    return int.from_bytes(control[offset : offset + size].tobytes(), "little", signed=size == 8)


class StoppedLoopError(LoopgradError):
    """The driver ended a loop on its own."""


def truncated(control: Bytes) -> bool:
    return word(control, TRUNCATED) & 1 != 0


def unfinished(control: Bytes) -> bool:
    """Whether lanes were left in the middle; the mark goes."""
    left = word(control, TRUNCATED) & UNFINISHED != 0
    if left:
        control[TRUNCATED] -= UNFINISHED
    return left


def truncation(kernel: KernelInterface | None, device: str) -> StoppedLoopError:
    """The error for a loop that the driver ended on its own."""
    loc = None if kernel is None else next((s.loc for s in kernel.stacks if s.loc is not None), None)
    name = "a kernel" if kernel is None else f"kernel {kernel.name}"
    text = (
        f"{name}: expected its loops to run to their own end, got one that the driver of {device} stopped while its "
        "condition still held (such drivers count the trips of all loops of a lane together, to 65,535); run it on "
        "another device, or make the loops shorter"
    )
    return StoppedLoopError(located(text, loc))


def needs(control: Bytes, kernel: KernelInterface, capacities: list[int]) -> dict[int, int]:
    """Stacks that overflowed -> the rows they needed; MOST_ROWS + 1 where these couldn't be counted."""
    rows = [min(word(control, NEEDED + 4 * s), MOST_ROWS + 1) for s in range(len(kernel.stacks))]
    return {s: need for s, need in enumerate(rows) if need > capacities[s]}


def capacity_failure(control: Bytes, kernel: KernelInterface, s: int, needed: int, allocated: int) -> Exception:
    stack = kernel.stacks[s]
    lane = word(control, OVERFLOW_LANE, 8)
    return StackCapacityError(stack.name or kernel.name, stack.loc, lane, needed, allocated)


def check_failure(control: Bytes, kernel: KernelInterface) -> Exception | None:
    """The error of the check that failed, if one did."""
    code = word(control, ERROR_CODE)
    if not code:
        return None
    return failed_check(
        kernel.errors[code - 1], kernel.domain, word(control, ERROR_LANE, 8), word(control, ERROR_DETAIL, 8)
    )


def heap_failure(
    kernel: KernelInterface, needed: int, available: int, lanes: int, counting: bool = False
) -> MemoryError:
    """`counting`: a loop was ended before it had counted all that it needs."""
    names = loop_names(stack.name for stack in kernel.stacks) or kernel.name
    loc = next((s.loc for s in kernel.stacks if s.loc is not None), None)
    return memory_failure(names, loc, needed, available, f" ({lanes} lanes in flight)", counting)
