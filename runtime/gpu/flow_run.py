"""A recorded program with loops and branches: its memory, its runs, and what a run left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopgrad.codegen.targets.gpu.update_list import (
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
from loopgrad.graph.nodes import Location
from loopgrad.runtime.failures import loop_names, memory_failure
from loopgrad.runtime.gpu import placement
from loopgrad.runtime.gpu.driver import Shared
from loopgrad.runtime.gpu.flow import FlowRecorder, Lists, tidy
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.gpu.placement import CONTROL, SLOTS, aligned
from loopgrad.runtime.gpu.script import Script, StateLayout
from loopgrad.runtime.gpu.stepped import StatePlace, SteppedWork

if TYPE_CHECKING:
    from loopgrad.runtime.gpu.machine import Machine


class Flow:
    """Control blocks and state are one piece of words: what a run needs is sent in one transfer, what it says
    comes back in one. The machine's control blocks move there."""

    def __init__(self, machine: Machine) -> None:
        program, driver = machine.program, machine.driver
        self.machine = machine
        self.layout = StateLayout(program.steps, len(program.stacks), len(machine.symbols))
        control = machine.control_size // 8
        self.shared: Shared = driver.shared(control + self.layout.size)
        machine.use_control(self.shared)
        self.words = self.shared.words[control:]
        self.state = self.shared.address + machine.control_size
        self.recorder = FlowRecorder(driver, machine.symbols, self.state, self.layout.symbols)
        self.stacks: list[Allocation | None] = [None] * len(program.stacks)
        script = Script(machine, self.recorder, self.layout)
        machine.forget_launches()
        with machine.recording_into(self.recorder):
            script.steps(program.steps)
        self.limits = script.limits
        self.launched = tuple(machine.launched)
        lists = Lists(driver.update(), self.state, self.recorder.sources())
        self.items = lists.items(tidy(self.recorder.block, self.layout.symbols))
        self.lists = lists.store(driver)
        self._new: list[tuple[Shared, int]] = [(self.lists, len(lists.words))]
        self.work = driver.graph(self.items, self.shared, self.state + 8 * STOP) or self._stepped(lists)

    def _stepped(self, lists: Lists) -> SteppedWork:
        """For a driver that refused a graph, the update kernel may be another one by now."""
        lists.use(self.machine.driver.update())
        machine, layout = self.machine, self.layout
        void = (int(machine.symbols[placement.VOID]) - self.shared.address) // 8
        nothing = self.state + 8 * layout.nothing
        place = StatePlace(self.shared, void, machine.control_size // 8, layout.answers, nothing)
        return SteppedWork(machine.driver, self.items, place)

    def run(self) -> bool:
        """One run; False where a stack grew and it must be done again. Then, and after a failure, nothing that
        it computed is of use."""
        self._reserve_stacks()
        self._fill()
        self.recorder.refresh()
        uploads = [(self.shared, len(self.shared.words)), *self.recorder.uploads(), *self._new]
        self.work.run(uploads, self.shared)
        self._new = []
        if not self._settle():
            return False
        self._move()
        return True

    def release(self) -> None:
        """Between runs no stack is kept."""
        self.stacks = [None] * len(self.stacks)

    # before a run

    def _reserve_stacks(self) -> None:
        for s, record in enumerate(self.machine.program.stacks):
            size = (self.machine.learned.rows[s] + 1) * aligned(max(record.type.nbytes, 1))
            held = self.stacks[s]
            if held is None or held.size < size:
                self.stacks[s] = None
                driver = self.machine.driver
                if not driver.ready(size) and size > driver.available():
                    self.machine.learned.forget()
                    raise memory_failure(loop_names([record.name]), record.loc, size, driver.available())
                self.stacks[s] = driver.take(size)

    def _fill(self) -> None:
        words, machine = self.words, self.machine
        self.shared.words[:] = 0
        words[VOID] = machine.symbols[placement.VOID]
        for s, record in enumerate(machine.program.stacks):
            at, held = self.layout.stack(s), self.stacks[s]
            assert held is not None
            words[at + CAPACITY], words[at + BASE] = machine.learned.rows[s], held.address
            words[at + STRIDE] = aligned(max(record.type.nbytes, 1))
        words[self.layout.symbols :] = machine.symbols

    # after it

    def _settle(self) -> bool:
        machine, learned = self.machine, self.machine.learned
        grew = False
        if machine.words.any():
            grew = learned.settle(machine.words, self.launched, machine.control_at, CONTROL)
        for s, record in enumerate(machine.program.stacks):
            peak = int(self.words[self.layout.stack(s) + PEAK])
            machine.peaks[s] = peak
            if peak > learned.rows[s]:
                learned.grow_rows(s, peak, record.type.nbytes, counts=not grew)
                grew = True
        if grew:
            machine.reserve_heap()
            return False
        self._raise_loop_failure(int(self.words[LOOP_ERROR]), int(self.words[LOOP_MADE]))
        return True

    def _raise_loop_failure(self, code: int, detail: int) -> None:
        if not code:
            return
        if code == EMPTY_STACK:
            record = self.machine.program.stacks[(detail - self.layout.stacks) // STACK]
            raise LoopgradError(f"stack {record.name!r} of the compiled program was popped while empty: a bug")
        loc = self.limits[code - 1]
        raise LoopLimitError(detail, None if loc is None else Location(*loc))

    def _move(self) -> None:
        """Each slot's owner is whose memory the slot has now; slots in a stack keep theirs."""
        machine = self.machine
        owners = {owner.address: owner for owner in machine.owners if owner is not None}
        first = self.layout.symbols + SLOTS
        for slot in machine.program.moving:
            owner = owners.get(int(self.words[first + slot]))
            if owner is not None:
                machine.owners[slot] = owner
