"""Launches that write what a loop over whole tensors saves into the rows of its stacks, where it was copied.

    z = x @ w                                     the next rows of the stacks are z and r
    h' = k0(z, h)                          ->     z = x @ w
    push z to stack 0; push h to stack 1          h', r = k0(z, h), h

A slot that one step makes, and that only steps after it in its block read, is the row (`PushStep.in_place`). Of any
other, such as a carry of the loop, a launch of as many lanes stores each lane's element once more; where there is none,
the push remains a copy. Rows are taken at the beginning of the block, or behind the last step that knows the stack: so
launches meet without a step between them, and a recorded loop takes the rows where it decides on the pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from loopgrad.codegen.kernel.linear_index import linear
from loopgrad.codegen.kernel.nodes import BufferParam, Kernel, KOp, KValue
from loopgrad.codegen.kernel.rebuild import Rebuilder
from loopgrad.codegen.program import (
    ArraySlot,
    CopyStep,
    LaunchStep,
    MatmulStep,
    PopStep,
    Program,
    PushStep,
    ReserveStep,
    Step,
)
from loopgrad.codegen.steps import all_steps, changed_by, launches, named, rotated, slot_uses, with_blocks
from loopgrad.codegen.targets.gpu.lanes.row_layouts import own_element
from loopgrad.codegen.targets.gpu.lanes.slot_versions import begun
from loopgrad.graph.types import int64

MOST_PASSED: Final = 32  # steps between a push and the launch that does it


def with_stack_rows(program: Program) -> Program:
    """See the module's text."""
    if not any(isinstance(step, PushStep) for step in all_steps(program.steps)):
        return program
    return _RowsOfStacks(program).run()


class _RowsOfStacks:
    def __init__(self, program: Program) -> None:
        self.program, self.kernels, self.slots = program, list(program.kernels), list(program.slots)
        steps = list(all_steps(program.steps))
        self.uses = slot_uses(program)
        self.launched = launches(program.steps)
        self.rotating = frozenset([slot for step in steps for slot in rotated(step)])

    def run(self) -> Program:
        steps = self.block(self.program.steps)
        return replace(self.program, slots=tuple(self.slots), kernels=tuple(self.kernels), steps=steps)

    def block(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        done = [with_blocks(step, self.block) for step in steps]
        for push in [step for step in done if isinstance(step, PushStep)]:
            if self.slots[push.slot].type.nbytes:
                done = self.made_there(push, done) or self.stored_twice(push, done) or done
        return tuple(done)

    # ---- a value that is made in the row

    def made_there(self, push: PushStep, steps: list[Step]) -> list[Step] | None:
        """Without the copy, where one step of the block makes the slot and only later ones read it."""
        slot, users = push.slot, [i for i, step in enumerate(steps) if push.slot in named(step)]
        if self.slots[slot].kind != "temp" or slot in self.rotating or self.uses[slot] != len(users):
            return None
        first = users[0]
        maker, between = steps[first], steps[first + 1 : _place(push, steps)]
        if not isinstance(maker, LaunchStep | MatmulStep) or slot not in begun(maker, self.kernels):
            return None
        if self.changed(steps[first + 1 :], slot) or _knows(between, push.stack):
            return None
        rest = [step for step in steps[first:] if step is not push]
        return [*_taking(replace(push, in_place=True), steps[:first]), *rest]

    # ---- a value that a launch stores once more

    def stored_twice(self, push: PushStep, steps: list[Step]) -> list[Step] | None:
        """Without the copy, where a launch after the push, or else before it, has a lane for each element."""
        here = _place(push, steps)
        for place in self.around(push, here, steps):
            step, first = steps[place], min(place, here)
            kernel = self.storing(step, push.slot, place < here) if isinstance(step, LaunchStep) else None
            if kernel is not None and isinstance(step, LaunchStep):
                row = len(self.slots)
                self.slots.append(ArraySlot(self.slots[push.slot].type, "temp"))
                launch = self.launch(step, kernel, push.slot, row)
                rest = [launch if s is step else s for s in steps[first:] if s is not push]
                return [*_taking(replace(push, slot=row, in_place=True), steps[:first]), *rest]
        return None

    def around(self, push: PushStep, here: int, steps: Sequence[Step]) -> Iterator[int]:
        """The steps that see the value, and between which and the push nobody touches the stack."""
        later = range(here + 1, min(here + MOST_PASSED, len(steps)))
        for way in (later, reversed(range(max(here - MOST_PASSED, 0), here))):
            for place in way:
                if _knows([steps[place]], push.stack):
                    break
                yield place
                if self.changed([steps[place]], push.slot):
                    break

    def storing(self, step: LaunchStep, slot: int, after: bool) -> Kernel | None:
        """The launch's kernel, with a parameter more in which it stores the elements of the slot (behind one for the
        slot, where it had none). `after`: the elements as the launch leaves them."""
        kernel = self.kernels[step.kernel]
        if kernel.stages or kernel.running or kernel.stacks or kernel.errors or kernel.arrays:
            return None
        if prod(kernel.domain) != self.slots[slot].type.size or step.slots.count(slot) > 1:
            return None
        if any(start.source == slot for _, start in step.initials):
            return None
        place = step.slots.index(slot) if slot in step.slots else len(step.slots)
        made = _StoredTwice(kernel, place, self.slots[slot])
        return made.run() if not self.changed([step], slot) or (after and made.stored is not None) else None

    def launch(self, step: LaunchStep, kernel: Kernel, slot: int, row: int) -> LaunchStep:
        number = step.kernel
        if self.launched[number] > 1:  # others go on with the kernel as it was
            self.launched[number] -= 1
            number = len(self.kernels)
            self.launched[number] = 1
            self.kernels.append(kernel)
        self.kernels[number] = kernel
        read = () if slot in step.slots else (slot,)
        return replace(step, kernel=number, slots=(*step.slots, *read, row))

    # ---- what steps do

    def changed(self, steps: Iterable[Step], slot: int) -> bool:
        """Whether some step may write the slot, or let it be other memory."""
        return any(slot in named(step) and self.changes(step, slot) for step in all_steps(tuple(steps)))

    def changes(self, step: Step, slot: int) -> bool:
        match step:
            case LaunchStep():
                return slot in changed_by(step, self.kernels)
            case CopyStep():
                return step.target == slot
            case MatmulStep():
                return step.out == slot
            case PushStep():
                return step.in_place
            case ReserveStep():
                return False
            case _:
                return True


def _place(push: PushStep, steps: Sequence[Step]) -> int:
    return next(i for i, step in enumerate(steps) if step is push)


def _knows(steps: Iterable[Step], stack: int) -> bool:
    """Whether some step works on the stack."""
    kinds = (ReserveStep, PushStep, PopStep)
    return any(isinstance(step, kinds) and step.stack == stack for step in all_steps(tuple(steps)))


def _taking(push: PushStep, before: Sequence[Step]) -> list[Step]:
    """These steps, and as early as can be the one that takes a row."""
    first = len(before)
    while first and not _knows(before[first - 1 : first], push.stack):
        first -= 1
    return [*before[:first], push, *before[first:]]


class _StoredTwice(Rebuilder):
    """A kernel that stores each lane's element of parameter `place` in one more. `stored`: where it writes `place`
    itself, the one operation that does."""

    def __init__(self, kernel: Kernel, place: int, slot: ArraySlot) -> None:
        super().__init__(kernel)
        self.place, self.dtype, self.size = place, slot.type.dtype, slot.type.size
        touching = [op for op in kernel.body.ops if op.attrs.get("param") == place]
        forms, own = linear(kernel), own_element(kernel.domain)
        self.own = [op for op in touching if forms.get(op.operands[0]) == own]
        one = len(touching) == 1 == len(self.own) and touching[0].opcode == "store"
        self.stored = touching[0] if one else None

    def run(self) -> Kernel:
        kernel = super().run()
        params = list(kernel.params)
        if self.place == len(params):
            params.append(BufferParam(self.dtype, self.size, "read"))
        params.append(BufferParam(params[self.place].dtype, self.size, "write"))
        index, value = self.element(kernel.body.ops)
        kernel.body.ops.append(KOp("store", (index, value), (), {"param": len(params) - 1}))
        return replace(kernel, params=tuple(params))

    def element(self, ops: list[KOp]) -> tuple[KValue, KValue]:
        """The lane's index and element; what the kernel lacks for them is added to its operations."""
        if self.stored is not None:
            index, value = self.stored.operands
            return self.env[index], self.env[value]
        loaded = [op for op in self.own if op.opcode == "load"]
        if loaded:
            return self.env[loaded[0].operands[0]], self.env[loaded[0].results[0]]
        ops.append(KOp("const", (), (int64,), {"value": 0}))
        index = ops[-1].results[0]
        for argument, extent in zip(self.kernel.body.arguments, self.kernel.domain, strict=True):
            ops.append(KOp("const", (), (int64,), {"value": extent}))
            ops.append(KOp("mul", (index, ops[-1].results[0]), (int64,)))
            ops.append(KOp("add", (ops[-1].results[0], self.env[argument]), (int64,)))
            index = ops[-1].results[0]
        ops.append(KOp("load", (index,), (self.dtype,), {"param": self.place}))
        return index, ops[-1].results[0]
