"""Programs whose steps the host walks: it looks at what kernels report, counts trips and decides on branches.

Owns the batch of commands, which is run where the host must look, the stacks of whole tensors, and the counters of
loops that run. Kernels with stacks are looked at as soon as they ran; depths that are known are read before. From the
second run on, what needs no host between is recorded (`pieces`); in loops where devices exchange memory in the program,
from the second trip on, collectives among it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from loopgrad.codegen.program import (
    ForStep,
    LaunchStep,
    PopStep,
    PushStep,
    ReserveStep,
    RoutineStep,
    Step,
    SwitchStep,
    WhileStep,
)
from loopgrad.codegen.steps import all_steps, named
from loopgrad.codegen.targets.gpu.interface import KernelInterface
from loopgrad.codegen.targets.gpu.record import change_under_way
from loopgrad.graph.errors import LoopgradError, LoopLimitError
from loopgrad.graph.primitives import PRIMITIVES, REFERENCE
from loopgrad.graph.primitives.collectives import is_started, memory_engine
from loopgrad.runtime.failures import loop_names, memory_failure
from loopgrad.runtime.gpu.driver import read
from loopgrad.runtime.gpu.failures import needs, unfinished
from loopgrad.runtime.gpu.launches import Launches
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.gpu.pieces import SHORTEST, Stretch, stretches
from loopgrad.runtime.gpu.placement import CONTROL, SLOTS, SPARE, aligned
from loopgrad.runtime.gpu.recorded_exchange import FIRST, engine_of_call, moved
from loopgrad.runtime.gpu.step_walk import StepWalk
from loopgrad.runtime.gpu.workspace import Workspace

BATCH: Final = 256  # dispatches between looks at signals and failures


class HostDriven(StepWalk):
    """Implements Execution."""

    recorded = False

    def __init__(self, work: Workspace) -> None:
        self._work, self._program, self._driver = work, work.program, work.driver
        self._capacities, self._bindings = work.capacities, work.bindings
        self._recorder = work.recorder
        self._recorder.restart()
        super().__init__(Launches(work, self._recorder))
        self._retired: list[Allocation | None] = []  # what slots were until the batch has run
        self._stacks: list[list[Allocation]] = [[] for _ in work.program.stacks]
        self._counters: dict[int, int] = {}  # indices of loops that run, by slot
        self._exchanges = self._program.meets and memory_engine() is not None
        self._parts: dict[int, list[Stretch | Step]] = {}  # of steps that have run, which the program holds

    def run(self, inputs: Sequence[Allocation]) -> None:
        self._retired += self._bindings.copy_shadowed(self._recorder)
        try:
            self.steps(self._program.steps)
        finally:
            if self._exchanges:
                engine_of_call().join_all()  # also where this fails: the memory is others' then
        self._flush()
        self._capacities.know_tensors(self._bindings.peaks)

    def steps(self, steps: Sequence[Step]) -> None:
        whole = steps is self._program.steps
        parts = self._parts.get(id(steps))
        if parts is None or not (whole or self._exchanges):
            self._parts[id(steps)] = []
            super().steps(steps)
            return
        if not parts:
            found = stretches(self._program, steps, self._exchanges, SHORTEST if whole else 1)
            parts += [Stretch(self._work, part) if isinstance(part, list) else part for part in found]
        for part in parts:
            if isinstance(part, Stretch):
                self._flush()
                part.run()
            else:
                self.step(part)

    def release(self) -> None:
        self._retired.clear()
        for stack in self._stacks:
            stack.clear()

    # batches

    def _flush(self) -> bool:
        """Run the batch; False where a stack grew."""
        reports = self._submit()
        fine = not (reports and self._grew())
        self._retired.clear()
        self._launches.forget()
        return fine

    def _submit(self, again: bool = False) -> bool:
        """Run the batch, if there is one; whether it may have something to report, and was waited for. `again`: the
        control blocks are as the host left them."""
        if not self._recorder.commands.count:
            return False
        shared, reports = self._work.placement.shared, self._launches.may_report
        self._recorder.end(again=False)
        self._recorder.run(shared if reports else None, (shared,) if again else ())
        self._recorder.restart()
        for slot, value in self._counters.items():
            self._bindings.symbols[SLOTS + slot] = self._recorder.word(value)
        self._retired.clear()
        return reports

    def _grew(self) -> bool:
        grew = self._work.settle(self._launches.launched)
        if grew:
            self._work.heap.reserve()
        return grew

    def _start_early(self) -> None:
        """After a trip: what a library computes takes so long that the device goes on with it while the host walks the
        next one."""
        if self._recorder.called and not self._launches.may_report:
            self._flush()

    # launches

    def step(self, step: Step) -> None:
        super().step(step)
        if self._recorder.commands.count > BATCH:
            self._flush()

    def launch(self, step: LaunchStep) -> None:
        k, slots = step.kernel, step.slots
        kernel = self._program.kernels[k]
        if kernel.stacks:
            self._know_depths(k, slots)
        while True:
            self._launches.kernel(step)
            if kernel.resumable and self._continue_lanes(k, kernel, slots):
                return
            if not kernel.resumable and (not kernel.stacks or self._flush()):
                return

    def _know_depths(self, k: int, slots: Sequence[int]) -> None:
        """Read depths that were computed; make room for the largest."""
        self._flush()
        for s, stack in enumerate(self._program.kernels[k].stacks):
            if stack.depth_param is not None:
                self._capacities.know(k, s, self._integer(slots[stack.depth_param]))
        self._work.heap.reserve()

    def _continue_lanes(self, k: int, kernel: KernelInterface, slots: Sequence[int]) -> bool:
        """Launch again until no lane is left in the middle; False where a stack grew. A loop whose stack already needs
        more than there is ends."""
        placement, heap, capacities = self._work.placement, self._work.heap, self._capacities.kernels[k]
        reports, control = self._submit(), placement.control[placement.control_at[k] :]
        while unfinished(control):
            needed = needs(control, kernel, capacities)
            rows = [needed.get(s, capacity) for s, capacity in enumerate(capacities)]
            if needed and self._capacities.forced is None and heap.is_hopeless(k, rows):
                raise heap.refusal(k, rows)
            placement.control[:CONTROL] = 0
            self._launches.once(k, slots, again=True)
            reports = self._submit(again=True)
        fine = not (reports and self._grew())
        self._launches.forget()
        return fine

    # slots

    def _array(self, slot: int) -> np.ndarray[Any, Any]:
        type = self._program.slots[slot].type
        if slot in self._counters:
            return np.full(type.shape, self._counters[slot], type.dtype.np)
        return read(self._driver, self._bindings.owner(slot), type)

    def _integer(self, slot: int) -> int:
        """The slot's only element; the batch has run."""
        return int(self._array(slot).reshape(-1)[0])

    def host_call(self, step: RoutineStep) -> None:
        self._flush()
        attrs = dict(step.attrs)
        if self._exchanges and PRIMITIVES[step.name].collective:
            self._exchange(step, attrs)
            return
        arrays = [self._array(slot) for slot in (step.inputs[:1] if is_started(attrs) else step.inputs)]
        with np.errstate(all="ignore"):
            results = REFERENCE[step.name](attrs, *arrays)
        for slot, result in zip(step.outputs, results, strict=True):
            type = self._program.slots[slot].type
            dense = np.ascontiguousarray(np.asarray(result, type.dtype.np)).reshape(type.shape)
            self._driver.write(self._bindings.owner(slot), dense)

    def _exchange(self, step: RoutineStep, attrs: dict[str, Any]) -> None:
        """A collective on the memory of devices; one that is under way is joined."""
        engine = engine_of_call()
        if is_started(attrs):
            engine.join(attrs)
            return
        engine.meet(attrs)
        if not change_under_way(step):
            engine.join_all()  # collectives are in one order on all devices
        slots = (*step.inputs[FIRST:], *(step.scratch or step.outputs[FIRST:]))
        moved(self._program, step, [self._bindings.owner(slot).address for slot in slots])

    # stacks of whole tensors

    def reserve(self, step: ReserveStep) -> None:
        self._flush()
        record = self._program.stacks[step.stack]
        needed = max(self._integer(step.depth), 0) * aligned(max(record.element.nbytes, 1))
        available = self._driver.available()
        if needed > available:
            raise memory_failure(loop_names([record.name]), record.loc, needed, available)

    def push(self, step: PushStep) -> None:
        rows, peaks = self._stacks[step.stack], self._bindings.peaks
        allocation = self._driver.take(self._program.stacks[step.stack].element.nbytes)
        rows.append(allocation)
        peaks[step.stack] = max(peaks[step.stack], len(rows))
        if step.in_place:
            self._bindings.symbols[SLOTS + step.slot] = allocation.address
            return
        self._bindings.symbols[SPARE] = allocation.address
        self._launches.supported(step.by, [SLOTS + step.slot, SPARE])

    def pop(self, step: PopStep) -> None:
        record, rows = self._program.stacks[step.stack], self._stacks[step.stack]
        if not rows:
            raise LoopgradError(f"stack {record.name!r} of the compiled program was popped while empty: a bug")
        self._retired.append(self._bindings.bind(step.slot, rows.pop()))

    # loops and branches

    def for_loop(self, step: ForStep) -> None:
        self._flush()
        trips, index = self._integer(step.count), step.index
        own = self._bindings.symbols[SLOTS + index]
        counts = trips and any(index in named(inner) for inner in all_steps(step.body))
        for trip in range(trips):
            if counts:
                self._count(index, trips - 1 - trip if step.reverse else trip)
            self.steps(step.body)
            self._bindings.swap(step.rotate)
            self._start_early()
        if self._counters.pop(index, None) is not None:
            self._bindings.symbols[SLOTS + index] = own  # the slot serves other values after the loop

    def _count(self, index: int, value: int) -> None:
        """Let the slot of a loop's index hold this number: as a word among the tables, which costs no command,
        or where its memory moves into other slots, by a write."""
        if self._exchanges:  # at an address that stays, behind what reads the number before
            self._flush()
            type = self._program.slots[index].type
            self._driver.write(self._bindings.owner(index), np.full(type.shape, value, type.dtype.np))
            return
        if index not in self._program.moved:
            self._counters[index] = value
            self._bindings.symbols[SLOTS + index] = self._recorder.word(value)
            return
        content = np.asarray(value, self._program.slots[index].type.dtype.np).tobytes()
        self._recorder.commands.write(self._bindings.owner(index), content)
        self._recorder.commands.barrier()

    def while_loop(self, step: WhileStep) -> None:
        made = 0
        while True:
            self.steps(step.condition)
            self._flush()
            if not self._integer(step.pred):
                return
            if step.max_steps is not None and made >= step.max_steps:
                raise LoopLimitError(made, step.loc)
            self.steps(step.body)
            self._bindings.swap(step.rotate)
            made += 1

    def switch(self, step: SwitchStep) -> None:
        self._flush()
        chosen = min(max(self._integer(step.index), 0), len(step.branches) - 1)
        self.steps(step.branches[chosen])
