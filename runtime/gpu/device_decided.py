"""Programs with loops and branches, recorded as a whole so that one start runs all of it.

Owns the recording (made again when lanes in flight change) and the stacks of whole tensors. Control blocks and the
state of loops are one piece of words: what a run needs is sent in one transfer, what it says comes back in one. Where
the device can't act on its decisions, SpeculativeWork foresees them. Where none is left, since all loops are written
out, and the last run had nothing to report, a run isn't waited for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from loopgrad.codegen.targets.gpu.support.update_list import (
    BASE,
    CAPACITY,
    EMPTY_STACK,
    LOOP_ERROR,
    LOOP_MADE,
    PEAK,
    STACK,
    STOP,
    STRIDE,
    VOID,
)
from loopgrad.graph.errors import LoopgradError, LoopLimitError
from loopgrad.runtime.failures import loop_names, memory_failure
from loopgrad.runtime.gpu import placement
from loopgrad.runtime.gpu.driver import Shared, Words, Work
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.gpu.placement import SLOTS, row_bytes
from loopgrad.runtime.gpu.region_recorder import Lists, RecordedRegion, RegionRecorder, tidy
from loopgrad.runtime.gpu.speculation import SpeculativeWork, StatePlace
from loopgrad.runtime.gpu.state_layout import StateLayout
from loopgrad.runtime.gpu.step_recorder import StepRecorder
from loopgrad.runtime.gpu.workspace import Workspace

BRIEF_SECONDS: Final = 0.01  # a run that takes longer is waited for, so that signals are seen in time


class ProgramGraph:
    """The program as one piece of work. `limits`, `launched`, `swapped`: as of StepRecorder. `quiet`: nothing in it is
    decided, and no kernel has anything to report."""

    def __init__(self, work: Workspace, layout: StateLayout) -> None:
        driver, self._shared, state = work.driver, work.placement.shared, work.placement.state_address
        self._recorder = RegionRecorder(driver, work.bindings.symbols, state, layout.symbols)
        steps = StepRecorder(work, self._recorder, layout)
        steps.steps(work.program.steps)
        self.limits, self.launched, self.swapped = steps.limits, tuple(steps.launched), steps.swapped
        decided = any(isinstance(entry, RecordedRegion) for entry in self._recorder.block)
        self.quiet = driver.endless_loops and work.reporting.isdisjoint(self.launched) and not decided
        lists = Lists(driver.update(), state, self._recorder.sources())
        items = lists.items(tidy(self._recorder.block, layout.symbols))
        self._new: list[tuple[Shared, int]] = []  # what the device hasn't seen
        self._lists = lists.store(driver)
        self._new.append((self._lists, len(lists.words)))
        graph = driver.graph(items, self._shared, state + 8 * STOP)
        if graph is None:
            lists.use(driver.update())  # another one by now, since a driver may have refused a graph
            void = (int(work.bindings.symbols[placement.VOID]) - self._shared.address) // 8
            first = work.placement.control.nbytes // 8
            place = StatePlace(self._shared, void, first, layout.answers, state + 8 * layout.nothing)
            graph = SpeculativeWork(driver, items, place)
        self._work: Work = graph

    def run(self, stacks: Sequence[int], waits: bool = True) -> None:
        """`stacks`: where each begins. Without waiting nothing is reported."""
        self._recorder.memories = stacks
        self._recorder.refresh()
        uploads = [(self._shared, len(self._shared.words)), *self._recorder.uploads(), *self._new]
        self._work.run(uploads, self._shared if waits else None)
        self._new = []


class DeviceDecided:
    """Implements Execution."""

    def __init__(self, work: Workspace) -> None:
        assert work.placement.state is not None
        self._work, self._layout = work, work.placement.state
        self._stacks: list[Allocation | None] = [None] * len(work.program.stacks)
        self._words: Words = work.placement.shared.words[work.placement.control.nbytes // 8 :]  # of the state
        work.recorder.restart()
        self._recording: ProgramGraph | None = None
        self._known_quiet: list[int] | None = None  # capacities with which it had nothing to say, and was brief
        self.recorded = False

    def run(self, inputs: Sequence[Allocation]) -> None:
        work = self._work
        while True:
            self._copy_shadowed()
            self.recorded = work.heap.reserve(keep=self.recorded)
            if self._recording is None or not self.recorded:
                self._recording, self.recorded, self._known_quiet = ProgramGraph(work, self._layout), True, None
            self._reserve_stacks()
            self._fill()
            stacks = [stack.address for stack in self._stacks if stack is not None]
            if self._known_quiet == work.capacities.tensors:
                self._recording.run(stacks, waits=False)
                work.bindings.swap(self._recording.swapped)
                return
            began = time.perf_counter()
            self._recording.run(stacks)
            if not self._grew(self._recording):
                self._raise_loop_failure(self._recording, int(self._words[LOOP_ERROR]), int(self._words[LOOP_MADE]))
                self._move()
                if self._recording.quiet and time.perf_counter() - began < BRIEF_SECONDS:
                    self._known_quiet = list(work.capacities.tensors)
                return
            self.recorded = work.heap.reserve(keep=self.recorded) and not work.adapt
            work.bindings.prepare(inputs)  # nothing that was computed is of use

    def release(self) -> None:
        self._stacks = [None] * len(self._stacks)

    # before a run

    def _copy_shadowed(self) -> None:
        recorder = self._work.recorder
        before = self._work.bindings.copy_shadowed(recorder)
        if recorder.commands.count:
            recorder.end(again=False)
            recorder.run(None)
            recorder.restart()
        before.clear()

    def _reserve_stacks(self) -> None:
        driver, capacities = self._work.driver, self._work.capacities
        for s, record in enumerate(self._work.program.stacks):
            size = (capacities.tensors[s] + 1) * row_bytes(record)
            held = self._stacks[s]
            if held is None or held.size < size:
                self._stacks[s] = None
                if not driver.ready(size) and size > driver.available():
                    capacities.forget()
                    raise memory_failure(loop_names([record.name]), record.loc, size, driver.available())
                self._stacks[s] = driver.take(size)

    def _fill(self) -> None:
        words, work = self._words, self._work
        work.placement.shared.words[:] = 0
        words[VOID] = work.bindings.symbols[placement.VOID]
        for s, record in enumerate(work.program.stacks):
            at, held = self._layout.stack(s), self._stacks[s]
            assert held is not None
            words[at + CAPACITY], words[at + BASE] = work.capacities.tensors[s], held.address
            words[at + STRIDE] = row_bytes(record)
        words[self._layout.symbols :] = work.bindings.symbols

    # after it

    def _grew(self, recording: ProgramGraph) -> bool:
        """Whether a stack was too small; raises what else kernels report."""
        work, capacities = self._work, self._work.capacities
        grew = work.reports(recording.launched)
        for s, record in enumerate(work.program.stacks):
            peak = int(self._words[self._layout.stack(s) + PEAK])
            work.bindings.peaks[s] = peak
            if peak > capacities.tensors[s]:
                capacities.grow_tensors(s, peak, record.element.nbytes, counts=not grew)
                grew = True
        return grew

    def _raise_loop_failure(self, recording: ProgramGraph, code: int, detail: int) -> None:
        if not code:
            return
        if code == EMPTY_STACK:
            record = self._work.program.stacks[(detail - self._layout.stacks) // STACK]
            raise LoopgradError(f"stack {record.name!r} of the compiled program was popped while empty: a bug")
        raise LoopLimitError(detail, recording.limits[code - 1])

    def _move(self) -> None:
        """Each slot's owner is whose memory the slot has now; slots in a stack keep theirs."""
        bindings = self._work.bindings
        owners = {owner.address: owner for owner in bindings.owners if owner is not None}
        first = self._layout.symbols + SLOTS
        for slot in self._work.program.moving:
            owner = owners.get(int(self._words[first + slot]))
            if owner is not None:
                bindings.owners[slot] = owner
