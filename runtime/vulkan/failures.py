"""What control blocks say after a submission, as exceptions and as needs for larger stacks."""

from __future__ import annotations

from loopgrad.codegen.targets.spirv.interface import (
    ERROR_CODE,
    ERROR_DETAIL,
    ERROR_LANE,
    NEEDED,
    OVERFLOW_LANE,
    TRUNCATED,
)
from loopgrad.graph.errors import LoopgradError, StackCapacityError
from loopgrad.graph.location import describe
from loopgrad.graph.nodes import Location
from loopgrad.runtime.failures import failed_check
from loopgrad.runtime.vulkan.memory import Bytes
from loopgrad.runtime.vulkan.program import KernelRecord


def word(control: Bytes, offset: int, size: int = 4) -> int:
    return int.from_bytes(control[offset : offset + size].tobytes(), "little", signed=size == 8)


def truncated(control: Bytes) -> bool:
    return word(control, TRUNCATED) != 0


def truncation(kernel: KernelRecord | None, device: str) -> LoopgradError:
    """The error for a loop that the driver ended on its own."""
    loc = None if kernel is None else next((s.loc for s in kernel.stacks if s.loc is not None), None)
    name = "a kernel" if kernel is None else f"kernel {kernel.name}"
    text = (
        f"{name}: expected its loops to run to their own end, got one that the driver of {device} stopped while its "
        "condition still held (such drivers count the trips of all loops of a lane together, to 65,535); run it on "
        "another device, or make the loops shorter"
    )
    return LoopgradError("\n".join(part for part in (text, describe(loc)) if part))


def needs(control: Bytes, kernel: KernelRecord, capacities: list[int]) -> dict[int, int]:
    """Stacks that overflowed -> the rows they needed."""
    rows = [word(control, NEEDED + 4 * s) for s in range(len(kernel.stacks))]
    return {s: need for s, need in enumerate(rows) if need > capacities[s]}


def capacity_failure(control: Bytes, kernel: KernelRecord, s: int, needed: int, allocated: int) -> Exception:
    stack = kernel.stacks[s]
    lane = word(control, OVERFLOW_LANE, 8)
    return StackCapacityError(stack.name or kernel.name, stack.loc, lane, needed, allocated)


def check_failure(control: Bytes, kernel: KernelRecord) -> Exception | None:
    """The error of the check that failed, if one did."""
    code = word(control, ERROR_CODE)
    if not code:
        return None
    return failed_check(
        kernel.errors[code - 1], kernel.domain, word(control, ERROR_LANE, 8), word(control, ERROR_DETAIL, 8)
    )


def heap_failure(kernel: KernelRecord, needed: int, available: int, lanes: int) -> MemoryError:
    names = ", ".join(dict.fromkeys(s.name for s in kernel.stacks if s.name)) or kernel.name
    loc = next((s.loc for s in kernel.stacks if s.loc is not None), None)
    return memory_failure(f"loop {names!r}", loc, needed, available, f" ({lanes} lanes in flight)")


def memory_failure(loop: str, loc: Location | None, needed: int, available: int, detail: str = "") -> MemoryError:
    text = (
        f"{loop}: expected its saved values to fit into {available:,} bytes available, needed {needed:,} "
        f"bytes{detail}; give the loop a memory_budget, or make it shorter"
    )
    return MemoryError("\n".join(part for part in (text, describe(loc)) if part))
