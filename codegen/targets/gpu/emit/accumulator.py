"""What a way of writing elements that several lanes write has to say: see accumulate, which chooses one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, walk
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Accumulation, Emitter
from loopgrad.codegen.targets.gpu.emit.instructions import Instructions


@dataclass(frozen=True, slots=True)
class Accumulator(ABC):
    """How lanes in any order write parameter `param`. `blocks`: the scratch blocks that it needs."""

    blocks: ClassVar[int] = 0

    param: int

    @abstractmethod
    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        """Combine x with element `index`, as the operation says; `block` is the first scratch block."""

    def begun(self, kernel: Kernel, i: Instructions, scratch: Sequence[Val], block: int) -> Accumulation:
        """What lanes add to, in the code of one kernel, whose first instructions go before all lanes."""
        return self

    def idle(self, e: Emitter, block: int) -> Val | None:
        """See Accumulation."""
        return None

    @abstractmethod
    def way(self, kernel: Kernel) -> str:
        """For people: how it is done."""


def contributions(block: Block, param: int) -> int | None:
    """The most that a lane adds to the parameter; None where that isn't known."""
    total = 0
    for op in block.ops:
        if op.opcode == "accumulate" and op.attrs["param"] == param:
            total += 1
        inner = [contributions(b, param) for b in op.blocks]
        if op.opcode in ("for", "while"):
            inner = [None if count != 0 else 0 for count in inner]
        for count in inner:
            if count is None:
                return None
            total += count
    return total


def writers(kernel: Kernel, param: int) -> list[KOp]:
    return [op for op in walk(kernel.body) if op.opcode == "accumulate" and op.attrs["param"] == param]
