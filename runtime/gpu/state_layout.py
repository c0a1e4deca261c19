"""Where things are in the state of a recorded program with loops and branches, which the update kernel works on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.codegen.program import ForStep, Step, SwitchStep, WhileStep
from loopgrad.codegen.steps import blocks
from loopgrad.codegen.targets.gpu.support.update_list import HEADER, LOOP, STACK

EMPTY_LIST: Final = 2  # words: no operations, no pairs
LOOPS: Final = (ForStep, WhileStep)


def recorded(steps: Sequence[Step], kinds: tuple[type, ...]) -> int:
    """How many steps of these kinds a recording has; those in the condition of a `while` count twice."""
    count = 0
    for step in steps:
        inner = [recorded(block, kinds) for block in blocks(step)]
        if isinstance(step, WhileStep):
            inner.append(inner[0])
        count += sum(inner) + isinstance(step, kinds)
    return count


class StateLayout:
    """The header, loops, stacks, decisions that the host reads, an update list that does nothing, symbols. Positions
    in words; never changed."""

    def __init__(self, steps: Sequence[Step], stacks: int, symbols: int) -> None:
        self.stacks = HEADER + LOOP * recorded(steps, LOOPS)
        self.answers = self.stacks + STACK * stacks
        self.nothing = self.answers + recorded(steps, (*LOOPS, SwitchStep))
        self.symbols = self.nothing + EMPTY_LIST
        self.size = self.symbols + symbols

    def loop(self, number: int) -> int:
        return HEADER + LOOP * number

    def stack(self, number: int) -> int:
        return self.stacks + STACK * number
