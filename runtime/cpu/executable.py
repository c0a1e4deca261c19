"""A compiled Program that can be called: one native call per run.

Calls from several threads each take a context of their own; the thread pool serves one of them at a
time and the others compute serially, with equal results.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

import numpy as np

from loopgrad.codegen.program import RoutineRow, RoutineStep
from loopgrad.codegen.steps import routine_row
from loopgrad.codegen.targets.cpu.entry.call_context import HEADER, INTERRUPTED, stack_stride
from loopgrad.codegen.targets.cpu.interface import TABLE
from loopgrad.codegen.targets.cpu.record import CpuProgramRecord
from loopgrad.graph.types import TensorType
from loopgrad.runtime.alive import Alive
from loopgrad.runtime.buffers import Buffer, check_inputs, equal_as_one
from loopgrad.runtime.cpu.call_code import MOST_BUFFERS, OFTEN, Run, call_code
from loopgrad.runtime.cpu.context import CallContext, owns_arena, release
from loopgrad.runtime.cpu.failures import failure
from loopgrad.runtime.cpu.host_calls import provider
from loopgrad.runtime.cpu.loader import Code
from loopgrad.runtime.cpu.memory import ARENAS, IDLE, RECYCLER, HostBlock, Spares
from loopgrad.runtime.cpu.native_pool import NativePool
from loopgrad.runtime.executable import Executable
from loopgrad.runtime.plan import BufferRow, Held, KernelRow, MemoryStats, Plan, ResidualRow
from loopgrad.runtime.replay import Recording

ENTRY: Final = "entry"
ENTRY_TYPE: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
ARENA_WORD: Final = HEADER["arena"]
LOADED_BYTES: Final = 1 << 16  # of a program beside its code and constants: its record, pages of its own, a context

ALIVE: Final[Alive[CpuExecutable]] = Alive()
Texts = Callable[[str], str]


class CpuExecutable(Executable):
    """`texts(stage)` recomputes a text form; `origin` says why or from where the code came."""

    device = "cpu"

    def __init__(
        self,
        program: CpuProgramRecord,
        code: bytes,
        constants: bytes,
        pool: NativePool,
        texts: Texts,
        origin: Sequence[str],
        forced_capacity: int | None = None,
    ) -> None:
        self.program = program
        self._code = Code(code, (ENTRY, TABLE) if program.table else (ENTRY,))
        if program.table:
            words = (ctypes.c_uint64 * len(program.table))(*program.table)
            ctypes.memmove(self._code.address(TABLE), words, ctypes.sizeof(words))
        self._size = LOADED_BYTES + 2 * len(code) + len(constants)
        self._entry = ENTRY_TYPE(self._code.address(ENTRY))
        self._pool = pool
        self._texts = texts
        self._origin = tuple(origin)
        self._forced = forced_capacity
        self._constants = HostBlock(len(constants))
        self._constants.fill(constants)
        self._contexts: Alive[CallContext] = Alive()
        self._free: list[CallContext] = []
        self._input_words = tuple(program.layout.word(slot) for slot in program.inputs)
        types = [[program.slots[slot].type for slot in slots] for slots in (program.inputs, program.outputs)]
        self._set_types(*types)
        ALIVE.add(self)

    def _set_types(self, inputs: Iterable[TensorType], outputs: Iterable[TensorType]) -> None:
        """What buffers are, of which the program knows only where their memory is."""
        program = self.program
        self.input_types = equal_as_one(inputs)
        self.output_types = tuple(outputs)
        self._input_places = tuple(zip(self._input_words, self.input_types, strict=True))
        made: dict[int, TensorType] = {}
        for slot, type in zip(program.outputs, self.output_types, strict=True):
            if program.slots[slot].kind == "output":
                made.setdefault(slot, type)
        self._made = tuple([(RECYCLER.spares(type), program.layout.word(slot)) for slot, type in made.items()])
        self._fixed = {slot: self._fixed_output(slot) for slot in set(program.outputs) - set(made)}
        self._plain = tuple(made) == program.outputs
        places = {slot: place for place, slot in enumerate(made)}
        self._order = tuple([places.get(slot, -1) for slot in program.outputs])
        self._calls = 0
        self._often: Run | None = None
        self.__dict__.pop("run", None)

    def showing(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> CpuExecutable:
        self._set_types(inputs, outputs)
        return self

    def _fixed_output(self, slot: int) -> Buffer | int:
        """An output that isn't computed: the position of an input, or a constant's buffer."""
        record = self.program.slots[slot]
        if record.kind == "input":
            return self.program.inputs.index(slot)
        assert record.constant is not None, f"slot {slot} is returned but is {record.kind}"
        return self._constant_buffer(record.type, record.constant)

    def _constant_buffer(self, type: TensorType, offset: int) -> Buffer:
        content = (ctypes.c_char * max(type.nbytes, 1)).from_address(self._constants.address + offset)
        array = np.frombuffer(content.raw[: type.nbytes], dtype=type.dtype.np).reshape(type.shape)
        return Buffer(array, "cpu", type)

    # running

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        if self._often is not None:  # for who holds the method
            return self._often(buffers)
        self._calls += 1
        if self._calls == OFTEN and (own := self._own_code()) is not None:
            self._often = self.__dict__["run"] = own
        places = self._input_places
        if len(places) != len(buffers):
            check_inputs(self.input_types, buffers, "cpu")
        context = self._take()
        words = context.words
        made: list[Buffer] = []
        try:
            for (word, type), buffer in zip(places, buffers):  # noqa: B905  # checked, and half the time
                if buffer._type is not type or buffer.device != "cpu":
                    check_inputs(self.input_types, buffers, "cpu")
                words[word] = buffer.address or buffer.locate()
            for spares, word in self._made:
                result = spares.take()
                words[word] = result.address
                made.append(result)
            if context.owns_arena:
                status = self._entry(context.address)
                if status:
                    self._raise(context, status)
            else:
                self.call(context)
        finally:
            self._free.append(context)
        return made if self._plain else self.arrange(buffers, made)

    def _own_code(self) -> Run | None:
        """Code that runs this program alone, where that is short."""
        inputs, made = self._input_places, self._made
        if not self._plain or len(inputs) + len(made) > MOST_BUFFERS or not owns_arena(self.program):
            return None
        return call_code(inputs, made, self._free, self.new_context, self._entry, self._raise)

    def run_at(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """As `run`, on elements at these addresses; the caller holds memory of the right sizes, and every output is
        computed."""
        assert self._plain, self.program.outputs
        context = self._take()
        words = context.words
        for word, address in zip(self._input_words, inputs, strict=True):
            words[word] = address
        for (_, word), address in zip(self._made, outputs, strict=True):
            words[word] = address
        try:
            self.call(context)
        finally:
            self._free.append(context)

    def call(self, context: CallContext) -> None:
        """Run the program on the pointers that are in the context; raises what it reports. A context
        whose call failed stays usable."""
        if context.owns_arena:
            status = self._entry(context.address)
        else:
            block = ARENAS.take(self.program.layout.arena.size)
            context.words[ARENA_WORD] = block.address
            try:
                status = self._entry(context.address)
            finally:
                ARENAS.give(block)
        if status:
            self._raise(context, status)

    def _raise(self, context: CallContext, status: int) -> None:
        if status == INTERRUPTED:
            context.raise_signal()
        raised, context.raised = context.raised, None
        if raised is not None:
            raise raised
        refused, context.refused = context.refused, None
        raise failure(self.program, context.words, self._pool.threads, refused)

    def _take(self) -> CallContext:
        try:
            return self._free.pop()
        except IndexError:
            return self.new_context()

    def new_context(self) -> CallContext:
        """A context that isn't shared with `run`; it starts with what the others have learned."""
        context = CallContext(self.program, self._pool, self._constants.address, self._forced)
        for other in self._contexts.members():
            context.learn(other)
        self._contexts.add(context)
        return context

    def arrange(self, inputs: Sequence[Buffer], made: Sequence[Buffer]) -> list[Buffer]:
        """All outputs in order: computed ones, inputs and constants that are returned as they are."""
        if self._plain:
            return list(made)
        results = []
        for slot, position, type in zip(self.program.outputs, self._order, self.output_types, strict=True):
            fixed = made[position] if position >= 0 else self._fixed[slot]
            buffer = fixed if isinstance(fixed, Buffer) else inputs[fixed]
            results.append(buffer if buffer.type == type else buffer.retyped(type))
        return results

    @property
    def input_words(self) -> tuple[int, ...]:
        return self._input_words

    @property
    def made(self) -> tuple[tuple[Spares, int], ...]:
        """Per computed output: where its memory comes from, and the word its pointer belongs in."""
        return self._made

    def record(self, buffers: Sequence[Buffer]) -> Recording:
        return CpuRecording(self, buffers)

    def release_idle(self) -> None:
        """Give back the stacks of contexts that no call is using."""
        idle = []
        with suppress(IndexError):  # other threads take contexts meanwhile
            while True:
                idle.append(self._free.pop())
        for context in idle:
            release(context.words, self.program.layout.stacks)
        self._free.extend(idle)

    # looking inside

    def plan(self) -> Plan:
        program = self.program
        kernels = tuple(
            KernelRow(
                k.name,
                k.domain,
                k.interface.chunks,
                k.interface.lanes_in_flight,
                len(k.stacks),
                k.launches,
                next((s.loc for s in k.stacks), None),
            )
            for k in program.kernels
        )
        buffers = tuple(
            BufferRow(i, slot.kind, str(slot.type), slot.type.nbytes, program.layout.arena.slots.get(i))
            for i, slot in enumerate(program.slots)
        )
        residuals = self._residual_rows()
        stack_bytes = sum(row.bytes for row in residuals)
        arena = program.layout.arena.size
        return Plan(self.device, kernels, buffers, residuals, program.notes, arena, stack_bytes, self._routine_rows())

    def _routine_rows(self) -> tuple[RoutineRow, ...]:
        slots = self.program.slots
        routines = [step for step in self.program.host_calls if isinstance(step, RoutineStep)]
        return tuple([routine_row(step, slots, *provider(step.name)) for step in routines])

    def _residual_rows(self) -> tuple[ResidualRow, ...]:
        """The largest of all contexts."""
        held, program = Held(), self.program
        for kernel in program.kernels:
            held.add_concurrent((stack.residual, None, 0) for stack in kernel.stacks)
        held.add_concurrent((record.residual, None, 0) for record in program.stacks)
        for context in self._contexts.members():
            for number, kernel in enumerate(program.kernels):
                workers = min(self._pool.threads, max(kernel.interface.chunks, 1))
                places = zip(context.rows(number), kernel.interface.stacks, kernel.stacks, strict=True)
                held.add_concurrent((s.residual, n, workers * n * place.row_bytes) for n, place, s in places)
            peaks = [int(context.words[word + 3]) for word in program.layout.stacks]
            held.add_concurrent(
                (r.residual, n, n * stack_stride(r.element)) for n, r in zip(peaks, program.stacks, strict=True)
            )
        return held.rows(program.residuals)

    def text(self, stage: str) -> str:
        return self._texts(stage)

    def explain(self) -> tuple[str, ...]:
        return (*self._origin, *map(str, self._routine_rows()), *self.program.notes)

    @property
    def host_bytes(self) -> int:
        return self._size

    def memory_stats(self) -> MemoryStats:
        program, contexts = self.program, self._contexts.members()
        heaps = [context.heap_bytes() * self._pool.threads for context in contexts]
        stacks = [(w, stack_stride(s.element)) for w, s in zip(program.layout.stacks, program.stacks, strict=True)]
        held = [context.words[word + 2] * stride for context in contexts for word, stride in stacks]
        peaks = [context.words[word + 3] * stride for context in contexts for word, stride in stacks]
        return MemoryStats(
            arena_bytes=self.program.layout.arena.size,
            heap_bytes=self._pool.heap_bytes(),
            heap_peak_bytes=max(heaps, default=0),
            program_stack_bytes=sum(held),
            program_stack_peak_bytes=sum(peaks),
        )


class CpuRecording(Recording):
    """A context with its inputs in place: a replay is one native call."""

    def __init__(self, executable: CpuExecutable, buffers: Sequence[Buffer]) -> None:
        self._executable = executable
        self._context = executable.new_context()
        self._inputs: list[Buffer] = []
        self._made: list[Buffer] = []
        self.bind(buffers)
        self.submit()

    def bind(self, buffers: Sequence[Buffer]) -> None:
        self._inputs = list(buffers)
        words = self._context.words
        for word, buffer in zip(self._executable.input_words, self._inputs):  # noqa: B905  # checked, and half the time
            words[word] = buffer.address or buffer.locate()

    def submit(self) -> None:
        self._made = []
        made: list[Buffer] = []
        words = self._context.words
        for spares, word in self._executable.made:
            buffer = spares.take()
            words[word] = buffer.address
            made.append(buffer)
        self._executable.call(self._context)
        self._made = made

    def settle(self) -> bool:
        return True  # the entry grows stacks and launches again by itself

    def outputs(self) -> list[Buffer]:
        return self._executable.arrange(self._inputs, self._made)

    def growths(self) -> int:
        return self._context.growths()


def held_by_all(pool_bytes: int) -> MemoryStats:
    """What all programs of the process hold; they share arenas, spare results and the pool's stack heaps."""
    each = [executable.memory_stats() for executable in ALIVE.members()]
    return MemoryStats(
        arena_bytes=ARENAS.idle_bytes(),
        heap_bytes=pool_bytes,
        heap_peak_bytes=max([s.heap_peak_bytes for s in each], default=0),
        program_stack_bytes=sum([s.program_stack_bytes for s in each]),
        program_stack_peak_bytes=sum([s.program_stack_peak_bytes for s in each]),
        spare_bytes=RECYCLER.held_bytes(),
    )


def _release_executables() -> None:
    for executable in ALIVE.members():
        executable.release_idle()


IDLE.append(_release_executables)
