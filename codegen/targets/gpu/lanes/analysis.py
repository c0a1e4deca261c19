"""What a kernel's body is made of, as far as the layout of its lanes depends on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel, KOp, KValue, walk
from loopgrad.codegen.kernel.opcodes import OPCODES

SMALL: Final = 200  # the weight of a lane whose values are few


def shared_params(kernel: Kernel) -> dict[int, set[str]]:
    """Parameters whose elements several lanes may write -> the kinds of accumulation."""
    found: dict[int, set[str]] = {}
    for op in walk(kernel.body):
        if op.opcode == "accumulate" and not op.attrs["exclusive"]:
            found.setdefault(op.attrs["param"], set()).add(op.attrs["kind"])
    return found


def shares_all(kernel: Kernel, param: int) -> bool:
    """Whether any lane may write any of its elements that is written."""
    return not any(
        op.opcode == "accumulate" and op.attrs["param"] == param and op.attrs["exclusive"] for op in walk(kernel.body)
    )


def straight(kernel: Kernel) -> bool:
    """Whether a lane is a plain list of operations, without stacks."""
    return not any(op.blocks or op.opcode in ("push", "pop") for op in kernel.body.ops)


def weight(kernel: Kernel) -> int:
    """About the number of instructions that a lane is in code; 1 at least."""
    return weight_of(walk(kernel.body))


def weight_of(ops: Iterable[KOp]) -> int:
    """As `weight`, of these operations by themselves."""
    total = 1
    for op in ops:
        floats = bool(op.operands) and op.operands[0].dtype.is_float
        total += OPCODES[op.opcode].weight if floats else 1
    return total


def small(kernel: Kernel) -> bool:
    """Whether a lane needs few registers by all appearances."""
    return not doubles(kernel) and weight(kernel) <= SMALL


def doubles(kernel: Kernel) -> bool:
    """Whether a lane has floats of more than 32 bits."""
    return any(v.dtype.is_float and v.dtype.bits > 32 for op in walk(kernel.body) for v in op.results)


def at_random(index: KValue) -> bool:
    """Whether it is made of what is in memory alone, rather than of the lane's own number as well."""
    seen: set[KValue] = set()
    waiting = [index]
    while waiting:
        value = waiting.pop()
        if value.op is None:
            return False
        if value not in seen and value.op.opcode != "load":
            seen.add(value)
            waiting += value.op.operands
    return True
