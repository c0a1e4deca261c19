"""Runs a Program's steps on a device: one machine per call in progress.

The first run is driven by the host, as a rule: kernels with stacks are looked at as soon as they ran, known depths
are read before. A program whose steps need no host is then recorded once; later runs write addresses into the
tables and start that list of commands again. Other programs stay host-driven, in batches between the points
where the host must look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from loopgrad.codegen.targets.gpu.interface import SCRATCH
from loopgrad.graph.errors import LoopgradError, LoopLimitError
from loopgrad.graph.nodes import Location
from loopgrad.graph.primitives import REFERENCE
from loopgrad.runtime.failures import loop_names, memory_failure
from loopgrad.runtime.gpu.driver import ProductShape, read
from loopgrad.runtime.gpu.failures import needs, unfinished
from loopgrad.runtime.gpu.flow_run import Flow
from loopgrad.runtime.gpu.learned import Learned
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.gpu.placement import CONTROL, SLOTS, SPARE, SUPPORT, VOID, ZERO, Placement, aligned
from loopgrad.runtime.gpu.program import DispatchRecord, KernelRecord, ProgramRecord, Step
from loopgrad.runtime.gpu.recorder import Recorder
from loopgrad.runtime.gpu.resources import Resources

BATCH: Final = 256  # dispatches between looks at signals and failures


class Machine(Placement):
    """`adapt`: after a stack grew the program is recorded again with the number of lanes in flight that suits
    the deeper stack."""

    def __init__(self, program: ProgramRecord, resources: Resources, learned: Learned, adapt: bool) -> None:
        super().__init__(program, resources, learned)
        self.adapt = adapt
        self.recorder = Recorder(self.driver, self.symbols)
        self.recording = False
        self.reported = False
        self.launched: dict[int, None] = {}
        self.looping = False  # something launched may have loops
        self.retired: list[Allocation | None] = []
        self.stacks: list[list[Allocation]] = [[] for _ in program.stacks]
        self.peaks = [0] * len(program.stacks)
        self.counters: dict[int, int] = {}  # indices of loops that run, by slot
        self.flow: Flow | None = None

    def place(self, slot: int, allocation: Allocation) -> None:
        """Let the slot be this memory; the memory it was lives on until the pending batch has run."""
        self.retired.append(self.owners[slot])
        self.owners[slot] = allocation
        self.symbols[SLOTS + slot] = allocation.address

    @property
    def deferrable(self) -> bool:
        """Whether the next run may be entered in the ledger."""
        known = self.learned.ran and self.learned.forced is None
        return self.ledger is not None and known and self.resources.recordable

    @property
    def foreseeable(self) -> bool:
        """Whether the first run is recorded too: it has no sizes to learn, and recorded loops need the host less."""
        program = self.program
        nothing = not (program.straight or program.stacks or program.kernel_stacks)
        return nothing and bool(self.driver.stepped)

    # one run

    def run(
        self, inputs: Sequence[Allocation], outputs: Sequence[Allocation] | None = None, later: bool = False
    ) -> list[Allocation]:
        """The outputs' memory, which may be given. `later`: start only, the ledger looks at the stacks."""
        try:
            self.prepare(inputs, outputs)
            if later:
                self.record()
                self.recorder.refresh()
                self.recorder.run(None)
            elif not self.resources.recordable or not (self.learned.ran or self.foreseeable):
                self.drive()
            elif self.program.straight:
                self.resubmit()
            else:
                self.replay(inputs)
        except BaseException:
            self.abandon()
            raise
        self.learned.ran = True
        results = [self.owners[slot] for slot in self.program.outputs]
        return [allocation for allocation in results if allocation is not None]

    def release(self) -> None:
        """Between runs only what was learned stays."""
        self.free()
        self.retired.clear()
        for stack in self.stacks:
            stack.clear()
        if self.flow is not None:
            self.flow.release()

    def abandon(self) -> None:
        """After a failure: nothing of the run stays."""
        self.recorder = Recorder(self.driver, self.symbols)
        self.clear()
        self.flow = None
        self.fixed = self.recording = False
        self.forget_launches()
        self.counters.clear()
        self.peaks = [0] * len(self.program.stacks)
        self.release()

    def drive(self) -> None:
        if self.fixed:
            self.recorder.restart()
            self.fixed = False
        self.shadow()
        self.steps(self.program.steps)
        self.flush()
        self.learned.know_rows(self.peaks)

    def shadow(self) -> None:
        """Inputs and constants that the program writes are copied first."""
        for slot in self.program.shadowed:
            source = self.owners[slot]
            assert source is not None
            size = self.program.slots[slot].type.nbytes
            self.place(slot, self.driver.take(size))
            target = self.owners[slot]
            assert target is not None
            if size:
                self.recorder.commands.copy(source, target, size)
                self.recorder.commands.barrier()

    def resubmit(self) -> None:
        while True:
            self.record()
            self.recorder.refresh()
            self.start()
            if self.settle():
                return
            self.fixed = self.fixed and not self.adapt

    def record(self) -> None:
        """The whole program in one list of commands."""
        if self.heap is None or not self.fixed or self.version != self.learned.version:
            self.reserve_heap()  # another machine of this program may have needed deeper stacks
        if self.fixed:
            return
        self.recording = True
        self.recorder.restart()
        self.forget_launches()
        self.steps(self.program.steps)
        self.recorder.end(again=True)
        self.recording = False
        self.fixed = True

    def replay(self, inputs: Sequence[Allocation]) -> None:
        """Loops and branches are recorded too."""
        while True:
            self.shadow()
            self.flush()
            self.reserve_heap()
            if self.flow is None or not self.fixed:
                self.flow, self.fixed = Flow(self), True
            if self.flow.run():
                return
            self.fixed = not self.adapt
            self.prepare(inputs)

    @contextmanager
    def recording_into(self, recorder: Recorder) -> Iterator[None]:
        """Launches go there meanwhile."""
        own, self.recorder, self.recording = self.recorder, recorder, True
        try:
            yield
        finally:
            self.recorder, self.recording = own, False

    def start(self, again: bool = False) -> None:
        """Run what was recorded; wait where a launch may have something to report. `again`: the control blocks are
        as the host left them."""
        stoppable = self.looping and not self.driver.endless_loops
        self.reported = stoppable or not self.reporting.isdisjoint(self.launched)
        self.recorder.run(self.control if self.reported else None, (self.control,) if again else ())

    def settle(self) -> bool:
        """Raise what the launches report; False where a stack grew and they must run again."""
        if not self.reported or not self.words.any():
            return True
        grew = self.learned.settle(self.words, self.launched, self.control_at, CONTROL)
        self.clear()
        if grew:
            self.reserve_heap()
        return not grew

    def clear(self) -> None:
        """What kernels reported has been dealt with."""
        self.control.clear()
        if self.ledger is not None:
            self.ledger.clear()

    def flush(self) -> bool:
        """Run the batch; False where a stack grew."""
        fine = not self.submit() or self.settle()
        self.retired.clear()
        self.forget_launches()
        return fine

    def forget_launches(self) -> None:
        self.launched.clear()
        self.looping = False

    def submit(self, again: bool = False) -> bool:
        """Run the batch, if there is one. `again`: as for `start`."""
        if not self.recorder.commands.count:
            return False
        self.recorder.end(again=False)
        self.start(again)
        self.recorder.restart()
        for slot, value in self.counters.items():
            self.symbols[SLOTS + slot] = self.recorder.word(value)
        self.retired.clear()
        return True

    # steps

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            _HANDLERS[step[0]](self, *step[1:])
            if self.recorder.commands.count > BATCH and not self.recording:
                self.flush()

    def launch(self, k: int, slots: Sequence[int], initials: Sequence[Sequence[Any]]) -> None:
        kernel = self.program.kernels[k]
        if kernel.stacks and not self.recording:
            self.know_depths(k, slots)
        while True:
            for source, slot, module, lanes in initials:
                arrays = [SLOTS + slot] if source is None else [SLOTS + source, SLOTS + slot]
                self.support(module, lanes, arrays)
            self.launch_once(k, kernel, slots)
            if kernel.rows:
                fine = self.continue_lanes(k, kernel, slots)
            else:
                fine = not kernel.stacks or self.recording or self.flush()
            if fine:
                return

    def continue_lanes(self, k: int, kernel: KernelRecord, slots: Sequence[int]) -> bool:
        """Launch again until no lane is left in the middle; False where a stack grew. A loop whose stack already needs
        more than there is ends."""
        self.submit()
        control, capacities = self.words[self.control_at[k] :], self.learned.capacities[k]
        while unfinished(control):
            needed = needs(control, kernel, capacities)
            rows = [needed.get(s, capacity) for s, capacity in enumerate(capacities)]
            if needed and self.learned.forced is None and self.hopeless(k, rows):
                raise self.refusal(k, rows)
            self.words[:CONTROL] = 0
            self.launch_once(k, kernel, slots, again=True)
            self.submit(again=True)
        fine = self.settle()
        self.forget_launches()
        return fine

    def know_depths(self, k: int, slots: Sequence[int]) -> None:
        """Read depths that were computed; make room for the largest."""
        self.flush()
        for s, stack in enumerate(self.program.kernels[k].stacks):
            if stack.depth_param is not None:
                self.learned.know(k, s, self.integer(slots[stack.depth_param]))
        self.reserve_heap()

    def launch_once(self, k: int, kernel: KernelRecord, slots: Sequence[int], again: bool = False) -> None:
        first = self.kernel_symbols[k]
        for dispatch in () if again else kernel.before:
            self.around(dispatch, first, slots)
        if kernel.lanes:
            stacks = range(first + 2 + len(kernel.scratch), first + 2 + len(kernel.scratch) + 2 * len(kernel.stacks))
            used = range(first + 2, first + 2 + kernel.own_scratch)
            entries = [SLOTS + slot for slot in slots]
            table = self.recorder.table([*entries, *used, first, VOID, ZERO, ZERO, first + 1, *stacks])
            pipeline = self.resources.pipeline(kernel.module)
            self.dispatch(k, kernel, pipeline, table)
            self.launched[k] = None
            self.looping |= kernel.loops or kernel.copies > 0
        for dispatch in kernel.after:
            self.around(dispatch, first, slots)

    def dispatch(self, k: int, kernel: KernelRecord, pipeline: Any, table: int) -> None:
        recorder, resident = self.recorder, self.residents[k]
        if kernel.copies:
            recorder.ordered(pipeline, kernel.lanes, table, kernel.copies, kernel.loops)
        elif kernel.tiles:
            groups = resident // pipeline.group if kernel.stacks else self.driver.filling(pipeline)
            recorder.tiled(pipeline, kernel.tiles, table, min(kernel.tiles, groups))
        elif kernel.stacks or kernel.rows:
            recorder.stacked(pipeline, kernel.lanes, table, resident or kernel.rows)
        else:
            recorder.plain(pipeline, kernel.lanes, table)

    def around(self, dispatch: DispatchRecord, first: int, slots: Sequence[int]) -> None:
        arrays = [first + 2 + at if kind == SCRATCH else SLOTS + slots[at] for kind, at in dispatch.arrays]
        self.support(dispatch.module, dispatch.lanes, arrays, dispatch.tiles)

    def support(self, module: int, lanes: int, arrays: Sequence[int], tiles: int = 0) -> None:
        if not lanes:
            return
        self.looping = True
        table = self.recorder.table([*arrays, SUPPORT, VOID, ZERO, ZERO, ZERO])
        pipeline = self.resources.pipeline(module)
        if tiles:
            self.recorder.tiled(pipeline, tiles, table, min(tiles, self.driver.filling(pipeline)))
        else:
            self.recorder.plain(pipeline, lanes, table)

    def copy(self, source: int, target: int, module: int, lanes: int) -> None:
        self.support(module, lanes, [SLOTS + source, SLOTS + target])

    def matmul(self, slots: Sequence[int], module: int, lanes: int, tiles: int, shape: Sequence[Any]) -> None:
        arrays, dtype = [SLOTS + slot for slot in slots], self.program.slots[slots[2]].type.dtype
        # a program that recordings hold with its loops has the same bits when it is driven
        library = self.program.straight or not self.resources.recordable
        if not (library and self.recorder.multiply(ProductShape(*shape), dtype, arrays)):
            self.support(module, lanes, arrays, tiles)

    def host(self, name: str, inputs: Sequence[int], outputs: Sequence[int], attrs: Sequence[Sequence[Any]]) -> None:
        self.flush()
        arrays = [self.array(slot) for slot in inputs]
        plain = {key: tuple(value) if isinstance(value, list) else value for key, value in attrs}
        with np.errstate(all="ignore"):
            results = REFERENCE[name](plain, *arrays)
        for slot, result in zip(outputs, results, strict=True):
            type = self.program.slots[slot].type
            owner = self.owners[slot]
            assert owner is not None
            self.driver.write(owner, np.ascontiguousarray(np.asarray(result, type.dtype.np)).reshape(type.shape))

    def array(self, slot: int) -> np.ndarray[Any, Any]:
        owner, type = self.owners[slot], self.program.slots[slot].type
        if slot in self.counters:
            return np.full(type.shape, self.counters[slot], type.dtype.np)
        assert owner is not None
        return read(self.driver, owner, type)

    def integer(self, slot: int) -> int:
        """The slot's only element; the batch has run."""
        return int(self.array(slot).reshape(-1)[0])

    def reserve(self, stack: int, depth: int) -> None:
        self.flush()
        record = self.program.stacks[stack]
        needed = max(self.integer(depth), 0) * aligned(max(record.type.nbytes, 1))
        available = self.driver.available()
        if needed > available:
            raise memory_failure(loop_names([record.name]), record.loc, needed, available)

    def push(self, stack: int, slot: int, target: int, module: int, lanes: int) -> None:
        record = self.program.stacks[stack]
        allocation = self.driver.take(record.type.nbytes)
        self.stacks[stack].append(allocation)
        self.peaks[stack] = max(self.peaks[stack], len(self.stacks[stack]))
        self.symbols[SPARE] = allocation.address
        self.support(module, lanes, [SLOTS + slot, SPARE])

    def pop(self, stack: int, slot: int) -> None:
        record = self.program.stacks[stack]
        if not self.stacks[stack]:
            raise LoopgradError(f"stack {record.name!r} of the compiled program was popped while empty: a bug")
        self.place(slot, self.stacks[stack].pop())

    def rotate(self, pairs: Sequence[Sequence[int]]) -> None:
        for a, b in pairs:
            self.owners[a], self.owners[b] = self.owners[b], self.owners[a]
            x, y = SLOTS + a, SLOTS + b
            self.symbols[x], self.symbols[y] = self.symbols[y], self.symbols[x]

    def for_loop(
        self, count: int, index: int, body: Sequence[Step], rotate: Sequence[Sequence[int]], reverse: bool, loc: Any
    ) -> None:
        self.flush()
        trips = self.integer(count)
        own = self.symbols[SLOTS + index]
        for trip in range(trips):
            self.count(index, trips - 1 - trip if reverse else trip)
            self.steps(body)
            self.rotate(rotate)
        if self.counters.pop(index, None) is not None:
            self.symbols[SLOTS + index] = own  # the slot serves other values after the loop

    def count(self, index: int, value: int) -> None:
        """Let the slot of a loop's index hold this number: as a word among the tables, which costs no command,
        or where its memory moves into other slots, by a write."""
        if index not in self.program.kept:
            self.counters[index] = value
            self.symbols[SLOTS + index] = self.recorder.word(value)
            return
        owner = self.owners[index]
        assert owner is not None
        self.recorder.commands.write(owner, np.asarray(value, self.program.slots[index].type.dtype.np).tobytes())
        self.recorder.commands.barrier()

    def while_loop(
        self, condition: Sequence[Step], pred: int, body: Sequence[Step], rotate: Any, limit: int | None, loc: Any
    ) -> None:
        made = 0
        while True:
            self.steps(condition)
            self.flush()
            if not self.integer(pred):
                return
            if limit is not None and made >= limit:
                raise LoopLimitError(made, None if loc is None else Location(*loc))
            self.steps(body)
            self.rotate(rotate)
            made += 1

    def switch(self, index: int, branches: Sequence[Sequence[Step]]) -> None:
        self.flush()
        chosen = min(max(self.integer(index), 0), len(branches) - 1)
        self.steps(branches[chosen])


_HANDLERS: Final[dict[str, Any]] = {
    "launch": Machine.launch,
    "copy": Machine.copy,
    "matmul": Machine.matmul,
    "host": Machine.host,
    "reserve": Machine.reserve,
    "push": Machine.push,
    "pop": Machine.pop,
    "for": Machine.for_loop,
    "while": Machine.while_loop,
    "switch": Machine.switch,
}
