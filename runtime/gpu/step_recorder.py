"""Records a Program's steps for a driver, loops and branches included, so that one start runs all of it.

A loop becomes: an update that decides on the first pass, then a region whose body ends with an update that
lets carries change places and decides on the next pass. The condition of a `while` is recorded twice: before
the loop, and at the end of the body as if the carries had changed places already, which then needs no update
of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loopgrad.codegen.targets.gpu.update_list import integer_kind
from loopgrad.runtime.gpu.control_flow import Condition
from loopgrad.runtime.gpu.launches import Initials, Launches
from loopgrad.runtime.gpu.placement import SLOTS
from loopgrad.runtime.gpu.program import Step
from loopgrad.runtime.gpu.region_recorder import Entry, Region, RegionRecorder, Update
from loopgrad.runtime.gpu.state_layout import StateLayout
from loopgrad.runtime.gpu.workspace import Workspace

Pairs = Sequence[Sequence[int]]


class StepRecorder:
    """`limits` has where each loop was written, by the number that a failed limit reports; `launched`: kernels."""

    def __init__(self, work: Workspace, recorder: RegionRecorder, layout: StateLayout) -> None:
        self._work, self._recorder, self._layout = work, recorder, layout
        self._launches = launches = Launches(work, recorder)
        self.limits: list[Any] = []
        self.launched = launches.launched
        self._loops = 0
        self._checked: list[set[int]] = []  # per open loop, control symbols of kernels that may fail
        self._handlers: dict[str, Callable[..., None]] = {
            "launch": self._launch,
            "copy": launches.copy,
            "matmul": launches.matmul,
            "reserve": self._reserve,
            "push": self._push,
            "pop": self._pop,
            "for": self._for_loop,
            "while": self._while_loop,
            "switch": self._switch,
        }

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._handlers[step[0]](*step[1:])

    def _launch(self, k: int, slots: Sequence[int], initials: Initials) -> None:
        self._launches.kernel(k, slots, initials)
        if self._work.program.kernels[k].errors:
            for controls in self._checked:
                controls.add(self._work.placement.kernels[k].control)

    # positions

    def _slot(self, number: int) -> int:
        return self._recorder.position(SLOTS + number)

    def _kind(self, slot: int) -> int:
        return integer_kind(self._work.program.slots[slot].type.dtype)

    def _loop(self) -> int:
        """The record of one more loop."""
        self._loops += 1
        return self._layout.loop(self._loops - 1)

    def _swap(self, update: Update, pairs: Pairs) -> None:
        for a, b in pairs:
            update.operations.swap(self._slot(a), self._slot(b))

    # steps

    def _reserve(self, stack: int, depth: int) -> None:
        self._recorder.update().operations.room(self._layout.stack(stack), self._slot(depth), self._kind(depth))

    def _push(self, stack: int, slot: int, target: int, module: int, lanes: int) -> None:
        top = self._work.placement.tops + stack
        self._recorder.update().operations.push(self._layout.stack(stack), self._recorder.position(top))
        self._launches.support(module, lanes, [SLOTS + slot, top])

    def _pop(self, stack: int, slot: int) -> None:
        self._recorder.update().operations.pop(self._layout.stack(stack), self._slot(slot))

    def _for_loop(self, count: int, index: int, body: Sequence[Step], rotate: Pairs, reverse: bool, loc: Any) -> None:
        loop, condition = self._loop(), Condition()
        before = self._recorder.update()
        before.operations.enter(loop, self._slot(count), self._kind(count))
        before.operations.next(loop, self._slot(index), self._kind(index), reverse)
        before.condition = condition
        with self._recorder.nested() as block:
            self.steps(body)
            after = self._recorder.update()
            self._swap(after, rotate)
            after.operations.next(loop, self._slot(index), self._kind(index), reverse)
            after.condition = condition
        self._region(condition, [block], [before, after])

    def _while_loop(
        self, test: Sequence[Step], pred: int, body: Sequence[Step], rotate: Pairs, limit: int | None, loc: Any
    ) -> None:
        loop, condition, number = self._loop(), Condition(), len(self.limits)
        self.limits.append(loc)
        self._checked.append(set())
        self._recorder.update().operations.clear(loop)
        self.steps(test)
        before = self._recorder.update()
        before.condition = condition
        with self._recorder.nested() as block:
            self.steps(body)
            with self._recorder.swapped([(SLOTS + a, SLOTS + b) for a, b in rotate]):
                self.steps(test)
            after = self._recorder.update()
            self._swap(after, rotate)
            after.condition = condition
        controls = self._checked.pop()
        for update in (before, after):
            for control in sorted(controls):
                update.operations.watch(self._recorder.position(control))
            update.operations.test(loop, self._slot(pred), limit, number)
        self._region(condition, [block], [before, after])

    def _switch(self, index: int, branches: Sequence[Sequence[Step]]) -> None:
        condition, recorded = Condition(), []
        before = self._recorder.update()
        before.operations.choose(self._slot(index), self._kind(index), len(branches))
        before.condition = condition
        for branch in branches:
            with self._recorder.nested() as block:
                self.steps(branch)
            recorded.append(block)
        self._region(condition, recorded, None)

    def _region(self, condition: Condition, recorded: list[list[Entry]], deciding: list[Update] | None) -> None:
        self._recorder.block.append(Region(condition, recorded, deciding))
