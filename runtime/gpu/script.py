"""Records a Program's steps for a driver, loops and branches included, so that one start runs all of it.

A loop becomes: an update that decides on the first pass, then a region whose body ends with an update that
lets carries change places and decides on the next pass. The condition of a `while` is recorded twice: before
the loop, and at the end of the body as if the carries had changed places already, which then needs no update
of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from loopgrad.codegen.targets.gpu.update_list import HEADER, LOOP, STACK, integer_kind
from loopgrad.runtime.gpu.flow import Condition, Entry, FlowRecorder, Region, Update
from loopgrad.runtime.gpu.placement import SLOTS
from loopgrad.runtime.gpu.program import Step, blocks

if TYPE_CHECKING:
    from loopgrad.runtime.gpu.machine import Machine

EMPTY_LIST: Final = 2  # words: no operations, no pairs
Pairs = Sequence[Sequence[int]]


LOOPS: Final = ("for", "while")


def recorded(steps: Sequence[Step], kinds: Sequence[str]) -> int:
    """How many steps of these kinds a recording has; those in the condition of a `while` count twice."""
    count = 0
    for step in steps:
        inner = [recorded(block, kinds) for block in blocks(step)]
        if step[0] == "while":
            inner.append(inner[0])
        count += sum(inner) + (step[0] in kinds)
    return count


class StateLayout:
    """Where things are in the state: the header, loops, stacks, decisions that the host reads, an update list that
    does nothing, symbols. Positions in words."""

    def __init__(self, steps: Sequence[Step], stacks: int, symbols: int) -> None:
        self.stacks = HEADER + LOOP * recorded(steps, LOOPS)
        self.answers = self.stacks + STACK * stacks
        self.nothing = self.answers + recorded(steps, (*LOOPS, "switch"))
        self.symbols = self.nothing + EMPTY_LIST
        self.size = self.symbols + symbols

    def loop(self, number: int) -> int:
        return HEADER + LOOP * number

    def stack(self, number: int) -> int:
        return self.stacks + STACK * number


class Script:
    """`machine` says what a launch needs; while this records, its recorder is `recorder`. `limits` has where
    each loop was written, by the number that a failed limit reports."""

    def __init__(self, machine: Machine, recorder: FlowRecorder, layout: StateLayout) -> None:
        self.machine, self.recorder, self.layout = machine, recorder, layout
        self.limits: list[Any] = []
        self._loops = 0
        self._checked: list[set[int]] = []  # per open loop, control symbols of kernels that may fail
        self._handlers: dict[str, Callable[..., None]] = {
            "launch": self.launch,
            "copy": machine.copy,
            "matmul": machine.matmul,
            "reserve": self.reserve,
            "push": self.push,
            "pop": self.pop,
            "for": self.for_loop,
            "while": self.while_loop,
            "switch": self.switch,
        }

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._handlers[step[0]](*step[1:])

    def launch(self, k: int, slots: Sequence[int], initials: Sequence[Sequence[Any]]) -> None:
        self.machine.launch(k, slots, initials)
        if self.machine.program.kernels[k].errors:
            for controls in self._checked:
                controls.add(self.machine.kernel_symbols[k])

    # positions

    def slot(self, number: int) -> int:
        return self.recorder.position(SLOTS + number)

    def kind(self, slot: int) -> int:
        return integer_kind(self.machine.program.slots[slot].type.dtype)

    def loop(self) -> int:
        """The record of one more loop."""
        self._loops += 1
        return self.layout.loop(self._loops - 1)

    def swap(self, update: Update, pairs: Pairs) -> None:
        for a, b in pairs:
            update.operations.swap(self.slot(a), self.slot(b))

    # steps

    def reserve(self, stack: int, depth: int) -> None:
        self.recorder.update().operations.room(self.layout.stack(stack), self.slot(depth), self.kind(depth))

    def push(self, stack: int, slot: int, target: int, module: int, lanes: int) -> None:
        top = self.machine.top_symbol(stack)
        self.recorder.update().operations.push(self.layout.stack(stack), self.recorder.position(top))
        self.machine.support(module, lanes, [SLOTS + slot, top])

    def pop(self, stack: int, slot: int) -> None:
        self.recorder.update().operations.pop(self.layout.stack(stack), self.slot(slot))

    def for_loop(self, count: int, index: int, body: Sequence[Step], rotate: Pairs, reverse: bool, loc: Any) -> None:
        loop, condition = self.loop(), Condition()
        before = self.recorder.update()
        before.operations.enter(loop, self.slot(count), self.kind(count))
        before.operations.next(loop, self.slot(index), self.kind(index), reverse)
        before.condition = condition
        with self.recorder.nested() as block:
            self.steps(body)
            after = self.recorder.update()
            self.swap(after, rotate)
            after.operations.next(loop, self.slot(index), self.kind(index), reverse)
            after.condition = condition
        self.region(condition, [block], [before, after])

    def while_loop(
        self, test: Sequence[Step], pred: int, body: Sequence[Step], rotate: Pairs, limit: int | None, loc: Any
    ) -> None:
        loop, condition, number = self.loop(), Condition(), len(self.limits)
        self.limits.append(loc)
        self._checked.append(set())
        self.recorder.update().operations.clear(loop)
        self.steps(test)
        before = self.recorder.update()
        before.condition = condition
        with self.recorder.nested() as block:
            self.steps(body)
            with self.recorder.swapped([(SLOTS + a, SLOTS + b) for a, b in rotate]):
                self.steps(test)
            after = self.recorder.update()
            self.swap(after, rotate)
            after.condition = condition
        controls = self._checked.pop()
        for update in (before, after):
            for control in sorted(controls):
                update.operations.watch(self.recorder.position(control))
            update.operations.test(loop, self.slot(pred), limit, number)
        self.region(condition, [block], [before, after])

    def switch(self, index: int, branches: Sequence[Sequence[Step]]) -> None:
        condition, recorded = Condition(), []
        before = self.recorder.update()
        before.operations.choose(self.slot(index), self.kind(index), len(branches))
        before.condition = condition
        for branch in branches:
            with self.recorder.nested() as block:
                self.steps(branch)
            recorded.append(block)
        self.region(condition, recorded, None)

    def region(self, condition: Condition, recorded: list[list[Entry]], deciding: list[Update] | None) -> None:
        self.recorder.block.append(Region(condition, recorded, deciding))
