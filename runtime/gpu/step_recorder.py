"""Records a Program's steps for a driver, loops and branches included, so that one start runs all of it.

A loop becomes: an update that decides on the first pass, then a region whose body ends with an update that
lets carries change places and decides on the next pass. The condition of a `while` is recorded twice: before
the loop, and at the end of the body as if the carries had changed places already, which then needs no update
of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.program import (
    ForStep,
    LaunchStep,
    PopStep,
    PushStep,
    ReserveStep,
    SwitchStep,
    WhileStep,
)
from loopgrad.codegen.targets.gpu.support.update_list import integer_kind
from loopgrad.graph.nodes import Location
from loopgrad.runtime.gpu.control_flow import Condition
from loopgrad.runtime.gpu.launches import Launches
from loopgrad.runtime.gpu.placement import SLOTS, row_bytes
from loopgrad.runtime.gpu.region_recorder import Entry, RecordedRegion, RecordedUpdate, RegionRecorder
from loopgrad.runtime.gpu.state_layout import StateLayout
from loopgrad.runtime.gpu.step_walk import StepWalk
from loopgrad.runtime.gpu.workspace import Workspace
from loopgrad.runtime.gpu.written_out import written_out

Pairs = Sequence[tuple[int, int]]


class StepRecorder(StepWalk):
    """`limits` has where each loop was written, by the number that a failed limit reports; `launched`: kernels.
    Loops that are `written_out` are no regions; `swapped`: slots that change places in them, in order."""

    def __init__(self, work: Workspace, recorder: RegionRecorder, layout: StateLayout) -> None:
        self._work, self._recorder, self._layout = work, recorder, layout
        self._trips = written_out(work.program, work.loaded.integer)
        self._depths = [0] * len(work.program.stacks)  # in loops that are written out
        self._inside = False  # one of them
        super().__init__(Launches(work, recorder))
        self.limits: list[Location | None] = []
        self.launched = self._launches.launched
        self._loops = 0
        self.swapped: list[tuple[int, int]] = []
        self._checked: list[set[int]] = []  # per open loop, control symbols of kernels that may fail

    def launch(self, step: LaunchStep) -> None:
        super().launch(step)
        if self._work.program.kernels[step.kernel].errors:
            for controls in self._checked:
                controls.add(self._work.placement.kernels[step.kernel].control)

    # positions

    def _slot(self, number: int) -> int:
        return self._recorder.position(SLOTS + number)

    def _kind(self, slot: int) -> int:
        return integer_kind(self._work.program.slots[slot].type.dtype)

    def _loop(self) -> int:
        """The record of one more loop."""
        self._loops += 1
        return self._layout.loop(self._loops - 1)

    def _swap(self, update: RecordedUpdate, pairs: Pairs) -> None:
        for a, b in pairs:
            update.operations.swap(self._slot(a), self._slot(b))

    # steps

    def reserve(self, step: ReserveStep) -> None:
        operations, depth = self._recorder.update().operations, step.depth
        operations.room(self._layout.stack(step.stack), self._slot(depth), self._kind(depth))

    def push(self, step: PushStep) -> None:
        if self._inside:
            row = self._row(step.stack, self._depths[step.stack])
            self._depths[step.stack] += 1
            if step.in_place:
                self._recorder.aliases[SLOTS + step.slot] = row
            else:
                self._launches.supported(step.by, [SLOTS + step.slot, row])
            return
        if step.in_place:
            self._recorder.update().operations.push(self._layout.stack(step.stack), self._slot(step.slot))
            return
        top = self._work.placement.tops + step.stack
        self._recorder.update().operations.push(self._layout.stack(step.stack), self._recorder.position(top))
        self._launches.supported(step.by, [SLOTS + step.slot, top])

    def pop(self, step: PopStep) -> None:
        if self._inside:
            self._depths[step.stack] -= 1
            self._recorder.aliases[SLOTS + step.slot] = self._row(step.stack, self._depths[step.stack])
            return
        self._recorder.update().operations.pop(self._layout.stack(step.stack), self._slot(step.slot))

    def _row(self, stack: int, depth: int) -> int:
        """What stands for a row's address."""
        return self._recorder.place(stack, depth * row_bytes(self._work.program.stacks[stack]))

    def _write_out(self, step: ForStep, count: int) -> None:
        aliases = self._recorder.aliases
        before, self._inside = dict(aliases), True
        self._recorder.count_to(count)
        for trip in range(count):
            aliases[SLOTS + step.index] = self._recorder.number(count - 1 - trip if step.reverse else trip)
            self.steps(step.body)
            for a, b in [(SLOTS + a, SLOTS + b) for a, b in step.rotate]:
                aliases[a], aliases[b] = self._recorder.symbol(b), self._recorder.symbol(a)
        self._recorder.aliases, self._inside = before, False
        if count % 2 and step.rotate:
            self.swapped += step.rotate
            self._swap(self._recorder.update(), step.rotate)

    def for_loop(self, step: ForStep) -> None:
        if id(step) in self._trips:
            self._write_out(step, self._trips[id(step)])
            return
        loop, condition, index = self._loop(), Condition(), step.index
        before = self._recorder.update()
        before.operations.enter(loop, self._slot(step.count), self._kind(step.count))
        before.operations.next(loop, self._slot(index), self._kind(index), step.reverse)
        before.condition = condition
        with self._recorder.nested() as block:
            self.steps(step.body)
            after = self._recorder.update()
            self._swap(after, step.rotate)
            after.operations.next(loop, self._slot(index), self._kind(index), step.reverse)
            after.condition = condition
        self._region(condition, [block], [before, after])

    def while_loop(self, step: WhileStep) -> None:
        loop, condition, number = self._loop(), Condition(), len(self.limits)
        self.limits.append(step.loc)
        self._checked.append(set())
        self._recorder.update().operations.clear(loop)
        self.steps(step.condition)
        before = self._recorder.update()
        before.condition = condition
        with self._recorder.nested() as block:
            self.steps(step.body)
            with self._recorder.swapped([(SLOTS + a, SLOTS + b) for a, b in step.rotate]):
                self.steps(step.condition)
            after = self._recorder.update()
            self._swap(after, step.rotate)
            after.condition = condition
        controls = self._checked.pop()
        for update in (before, after):
            for control in sorted(controls):
                update.operations.watch(self._recorder.position(control))
            update.operations.test(loop, self._slot(step.pred), step.max_steps, number)
        self._region(condition, [block], [before, after])

    def switch(self, step: SwitchStep) -> None:
        condition, recorded = Condition(), []
        before = self._recorder.update()
        before.operations.choose(self._slot(step.index), self._kind(step.index), len(step.branches))
        before.condition = condition
        for branch in step.branches:
            with self._recorder.nested() as block:
                self.steps(branch)
            recorded.append(block)
        self._region(condition, recorded, None)

    def _region(self, condition: Condition, recorded: list[list[Entry]], deciding: list[RecordedUpdate] | None) -> None:
        self._recorder.block.append(RecordedRegion(condition, recorded, deciding))
