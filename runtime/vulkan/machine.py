"""Runs a Program's steps on a device: one machine per call in progress.

The first run is driven by the host: kernels with stacks are looked at as soon as they ran, known depths are
read before. A program whose steps need no host is then recorded once; later runs write addresses into the
tables and submit that command buffer again. Other programs stay host-driven, in batches between the points
where the host must look.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from loopgrad.codegen.targets.spirv.interface import SCRATCH, control_bytes
from loopgrad.graph.errors import LoopgradError, LoopLimitError
from loopgrad.graph.nodes import Location
from loopgrad.graph.primitives import REFERENCE
from loopgrad.runtime.vulkan.failures import memory_failure
from loopgrad.runtime.vulkan.learned import Learned
from loopgrad.runtime.vulkan.memory import Allocation
from loopgrad.runtime.vulkan.program import DispatchRecord, KernelRecord, ProgramRecord, Step
from loopgrad.runtime.vulkan.recorder import Recorder
from loopgrad.runtime.vulkan.resources import Resources

ALIGNMENT: Final = 256
BATCH: Final = 256  # dispatches between looks at signals and failures
CONTROL: Final = 64  # control blocks are aligned to this
ZERO, VOID, SUPPORT, SPARE, SLOTS = 0, 1, 2, 3, 4  # symbols; those of the slots begin at SLOTS


def aligned(size: int, alignment: int = ALIGNMENT) -> int:
    return -(-size // alignment) * alignment


class Machine:
    """`owners[slot]` is the memory of a slot that has its own, or of an input."""

    def __init__(self, program: ProgramRecord, resources: Resources, learned: Learned) -> None:
        self.program, self.resources, self.learned = program, resources, learned
        self.gpu = resources.gpu
        self.owners: list[Allocation | None] = [None] * len(program.slots)
        self._plan_symbols()
        self._plan_memory()
        self.symbols = np.zeros(self.symbol_count, np.uint64)
        self.control = resources.host.take(self.control_size)
        self.words = self.control.host(self.control_size)
        base = self.control.address
        self.symbols[VOID], self.symbols[SUPPORT] = base, base + CONTROL
        for k, first in enumerate(self.kernel_symbols):
            self.symbols[first] = base + self.control_at[k]
            self.symbols[first + 1] = self.resident(program.kernels[k])
        self.recorder = Recorder(self.gpu, resources.host, self.symbols)
        self.recorded = False
        self.recording = False
        self.launched: dict[int, None] = {}
        self.retired: list[Allocation | None] = []
        self.stacks: list[list[Allocation]] = [[] for _ in program.stacks]
        self.arena: Allocation | None = None
        self.heap: Allocation | None = None
        self.peaks = [0] * len(program.stacks)

    # layout

    def _plan_symbols(self) -> None:
        self.kernel_symbols = []
        count = SLOTS + len(self.program.slots)
        for kernel in self.program.kernels:
            self.kernel_symbols.append(count)
            count += 2 + len(kernel.scratch) + 2 * len(kernel.stacks)
        self.symbol_count = count

    def _plan_memory(self) -> None:
        """Offsets in the arena: slots without memory of their own, then scratch that all kernels share."""
        size, self.arena_slots = 0, []
        for number, slot in enumerate(self.program.slots):
            if slot.kind == "temp" and number not in self.program.owned:
                self.arena_slots.append((SLOTS + number, size))
                size += aligned(max(slot.type.nbytes, 1))
        self.scratch_at: list[tuple[int, int]] = []
        end = size
        for kernel, first in zip(self.program.kernels, self.kernel_symbols, strict=True):
            offset = size
            for i, block in enumerate(kernel.scratch):
                self.scratch_at.append((first + 2 + i, offset))
                offset += aligned(block)
            end = max(end, offset)
        self.arena_size = end
        self.control_at, place = [], 2 * CONTROL
        for kernel in self.program.kernels:
            self.control_at.append(place)
            place += aligned(control_bytes(len(kernel.stacks)), CONTROL)
        self.control_size = place

    def resident(self, kernel: KernelRecord) -> int:
        """Invocations of a kernel with stacks, and so the width of a row."""
        group, features = self.gpu.features.group, self.gpu.features
        wanted = kernel.copies or min(kernel.lanes, features.resident)
        return aligned(max(wanted, 1), group)

    def place(self, slot: int, allocation: Allocation) -> None:
        """Let the slot be this memory; the memory it was lives on until the pending batch has run."""
        self.retired.append(self.owners[slot])
        self.owners[slot] = allocation
        self.symbols[SLOTS + slot] = allocation.address

    # one run

    def run(self, inputs: Sequence[Allocation]) -> list[Allocation]:
        """The outputs' memory."""
        self.prepare(inputs)
        try:
            if not self.program.straight or not self.learned.ran:
                self.drive()
            else:
                self.resubmit()
        except BaseException:
            self.abandon()
            raise
        self.learned.ran = True
        results = [self.owners[slot] for slot in self.program.outputs]
        return [allocation for allocation in results if allocation is not None]

    def prepare(self, inputs: Sequence[Allocation]) -> None:
        """Memory for this run."""
        program, data = self.program, self.resources.data
        if self.arena_size and self.arena is None:
            self.arena = data.take(self.arena_size)
            base = self.arena.address
            for symbol, offset in (*self.arena_slots, *self.scratch_at):
                self.symbols[symbol] = base + offset
        for slot, allocation in zip(program.inputs, inputs, strict=True):
            self.owners[slot] = allocation
            self.symbols[SLOTS + slot] = allocation.address
        for number, slot_record in enumerate(program.slots):
            if slot_record.constant is not None:
                self.owners[number] = allocation = self.resources.constant(slot_record)
                self.symbols[SLOTS + number] = allocation.address
            elif number in program.owned and slot_record.kind != "input":
                self.owners[number] = allocation = data.take(slot_record.type.nbytes)
                self.symbols[SLOTS + number] = allocation.address
        self.words[:] = 0

    def release(self) -> None:
        """Between runs only what was learned stays."""
        self.owners = [None] * len(self.program.slots)
        self.retired.clear()
        self.arena = None
        self.heap = None
        for stack in self.stacks:
            stack.clear()

    def abandon(self) -> None:
        self.recorder = Recorder(self.gpu, self.resources.host, self.symbols)
        self.recorded = self.recording = False
        self.launched.clear()
        self.release()

    def drive(self) -> None:
        if self.recorded:
            self.recorder.restart()
            self.recorded = False
        self.shadow()
        self.steps(self.program.steps)
        self.flush()

    def shadow(self) -> None:
        """Inputs and constants that the program writes are copied first."""
        for slot in self.program.shadowed:
            source = self.owners[slot]
            assert source is not None
            size = self.program.slots[slot].type.nbytes
            self.place(slot, self.resources.data.take(size))
            target = self.owners[slot]
            assert target is not None
            if size:
                self.recorder.commands.copy(source, target, size)
                self.recorder.commands.barrier()

    def resubmit(self) -> None:
        self.record()
        self.recorder.refresh()
        while True:
            self.recorder.run()
            if self.settle():
                return
            self.recorder.refresh()

    def record(self) -> None:
        """The whole program in one command buffer."""
        if self.heap is None:
            self.reserve_heap()
        if self.recorded:
            return
        self.recording = True
        self.recorder.restart()
        self.steps(self.program.steps)
        self.recorder.end()
        self.recording = False
        self.recorded = True

    def settle(self) -> bool:
        """Raise what the launches report; False where a stack grew and they must run again."""
        grew = self.learned.settle(self.words, self.launched, self.control_at, CONTROL)
        self.words[:] = 0
        if grew:
            self.reserve_heap()
        return not grew

    def flush(self) -> bool:
        """Run the batch; False where a stack grew."""
        if self.recorder.commands.count or self.retired:
            self.recorder.end()
            self.recorder.run()
            self.recorder.restart()
        self.retired.clear()
        fine = self.settle()
        self.launched.clear()
        return fine

    def reserve_heap(self) -> None:
        """A heap for the largest kernel, and where each stack lies in it."""
        size = max((self._heap_layout(k, 0) for k in range(len(self.program.kernels))), default=0)
        if self.heap is None or self.heap.size < size:
            self.heap = None
            self.heap = self.resources.stack_heap(self.program, self.learned, size)
        for k in range(len(self.program.kernels)):
            self._heap_layout(k, self.heap.address)

    def _heap_layout(self, k: int, base: int) -> int:
        kernel, offset = self.program.kernels[k], 0
        first = self.kernel_symbols[k] + 2 + len(kernel.scratch)
        for s, stack in enumerate(kernel.stacks):
            capacity = self.learned.capacities[k][s]
            self.symbols[first + 2 * s] = base + offset
            self.symbols[first + 2 * s + 1] = capacity
            offset += aligned(capacity * self.resident(kernel) * stack.itemsize)
        return offset

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
            if not kernel.stacks or self.recording or self.flush():
                return

    def know_depths(self, k: int, slots: Sequence[int]) -> None:
        """Read depths that were computed; make room for the largest."""
        self.flush()
        for s, stack in enumerate(self.program.kernels[k].stacks):
            if stack.depth_param is not None:
                self.learned.know(k, s, self.integer(slots[stack.depth_param]))
        self.reserve_heap()

    def launch_once(self, k: int, kernel: KernelRecord, slots: Sequence[int]) -> None:
        first = self.kernel_symbols[k]
        for dispatch in kernel.before:
            self.around(dispatch, first, slots)
        if kernel.lanes:
            stacks = range(first + 2 + len(kernel.scratch), first + 2 + len(kernel.scratch) + 2 * len(kernel.stacks))
            used = range(first + 2, first + 2 + kernel.own_scratch)
            entries = [SLOTS + slot for slot in slots]
            table = self.recorder.table([*entries, *used, first, VOID, ZERO, ZERO, first + 1, *stacks])
            pipeline = self.resources.pipeline(kernel.module)
            if kernel.copies:
                self.recorder.ordered(pipeline, kernel.lanes, table, kernel.copies, kernel.loops)
            elif kernel.stacks:
                self.recorder.stacked(pipeline, kernel.lanes, table, self.resident(kernel))
            else:
                self.recorder.plain(pipeline, kernel.lanes, table)
            self.launched[k] = None
        for dispatch in kernel.after:
            self.around(dispatch, first, slots)

    def around(self, dispatch: DispatchRecord, first: int, slots: Sequence[int]) -> None:
        arrays = [first + 2 + at if kind == SCRATCH else SLOTS + slots[at] for kind, at in dispatch.arrays]
        self.support(dispatch.module, dispatch.lanes, arrays)

    def support(self, module: int, lanes: int, arrays: Sequence[int]) -> None:
        if lanes:
            table = self.recorder.table([*arrays, SUPPORT, VOID, ZERO, ZERO, ZERO])
            self.recorder.plain(self.resources.pipeline(module), lanes, table)

    def copy(self, source: int, target: int, module: int, lanes: int) -> None:
        self.support(module, lanes, [SLOTS + source, SLOTS + target])

    def matmul(self, slots: Sequence[int], module: int, lanes: int) -> None:
        self.support(module, lanes, [SLOTS + slot for slot in slots])

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
            self.resources.write(owner, np.ascontiguousarray(np.asarray(result, type.dtype.np)).reshape(type.shape))

    def array(self, slot: int) -> np.ndarray[Any, Any]:
        owner, type = self.owners[slot], self.program.slots[slot].type
        assert owner is not None
        return self.resources.read(owner, type)

    def integer(self, slot: int) -> int:
        """The slot's only element; the batch has run."""
        return int(self.array(slot).reshape(-1)[0])

    def reserve(self, stack: int, depth: int) -> None:
        self.flush()
        record = self.program.stacks[stack]
        needed = max(self.integer(depth), 0) * aligned(max(record.type.nbytes, 1))
        available = self.resources.available()
        if needed > available:
            raise memory_failure(f"loop {record.name!r}", record.loc, needed, available)

    def push(self, stack: int, slot: int, target: int, module: int, lanes: int) -> None:
        record = self.program.stacks[stack]
        allocation = self.resources.data.take(record.type.nbytes)
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
        dtype = self.program.slots[index].type.dtype
        for trip in range(trips):
            k = trips - 1 - trip if reverse else trip
            owner = self.owners[index]
            assert owner is not None
            self.recorder.commands.write(owner, np.asarray(k, dtype.np).tobytes())
            self.recorder.commands.barrier()
            self.steps(body)
            self.rotate(rotate)

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
