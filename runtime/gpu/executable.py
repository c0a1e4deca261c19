"""A compiled Program that can be called on a GPU, and its recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from loopgrad.codegen.steps import launches
from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.runtime.buffers import Buffer, check_inputs, equal_as_one
from loopgrad.runtime.executable import Executable
from loopgrad.runtime.gpu.capacities import Capacities
from loopgrad.runtime.gpu.context import GpuContext
from loopgrad.runtime.gpu.direct_calls import DirectCalls
from loopgrad.runtime.gpu.failures import StoppedLoopError
from loopgrad.runtime.gpu.ledger import Ledger, complete, require
from loopgrad.runtime.gpu.loaded_program import LoadedProgram
from loopgrad.runtime.gpu.memory import Allocation, GpuBuffer
from loopgrad.runtime.plan import BufferRow, Held, KernelRow, MemoryStats, Plan, ResidualRow
from loopgrad.runtime.replay import Recording

Texts = Callable[[str], str]
Revise = Callable[[], LoadedProgram]
CONTINUED = (
    "compiled again, since the driver stops long loops: kernels end before that, and the host launches them again"
)
CALLED = "replay: the host drives loops and branches, since libraries do routines in them"
HOST_DRIVEN = (
    "replay: library routines run on the host, so loops and branches around them are driven by the host too; "
    "outside of loops what is launched between is recorded"
)
MEETS = (
    "replay: the host drives loops and branches, since processes meet in the program; where their devices exchange "
    "memory, it starts what it has recorded of a trip, collectives among it"
)
LIBRARY = "replay: the host drives loops and branches, since a library computes the large products of matrices in them"
FORESEEN = "replay: the host reads the decisions on loops and branches over whole arrays, many passes at a time"


class GpuExecutable(Executable):
    """Calls from several threads take turns on the device's one queue or stream."""

    def __init__(
        self,
        device: str,
        loaded: LoadedProgram,
        texts: Texts,
        origin: str,
        forced: int | None,
        revise: Revise | None = None,
    ) -> None:
        self.device = device
        self.loaded = loaded
        program = loaded.program
        self.input_types = equal_as_one(program.slots[slot].type for slot in program.inputs)
        self.output_types = tuple(program.slots[slot].type for slot in program.outputs)
        self.capacities = Capacities(program, forced, loaded.driver.name)
        self._revise = revise
        self._texts = texts
        self._origin = origin
        self._context: GpuContext | None = None
        self._direct = DirectCalls(loaded, self.capacities) if DirectCalls.suit(loaded, self.capacities) else None
        self._heap_peak = 0

    @property
    def program(self) -> ProgramRecord:
        return self.loaded.program

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        check_inputs(self.input_types, buffers, self.device)
        with self.loaded.driver.lock:
            if (results := self.run_directly(buffers)) is not None:
                return results
            if self._context is None:
                self._context = self.context(adapt=True)
            self._context, results = self.submit(self._context, buffers)
            self._context.release()
            return results

    def run_directly(self, buffers: Sequence[Buffer]) -> list[Buffer] | None:
        """The results of a call that needs nothing but addresses (see DirectCalls); None where it needs more, or memory
        is another library's. The device's lock is held."""
        direct, driver = self._direct, self.loaded.driver
        if direct is None:
            return None
        inputs = [buffer.allocation for buffer in cast("Sequence[GpuBuffer]", buffers)]
        ledger = driver.ledger
        if ledger is not None:
            if ledger.empty and not direct.has_stacks:
                ledger = None
            elif ledger.full:
                ledger.settle()
        for a in inputs:
            if type(a) is not Allocation or a.failure is not None:
                return None
        allocations = direct.run(inputs, ledger)
        if allocations is None:
            return None
        if direct.heap_bytes > self._heap_peak:
            self._heap_peak = direct.heap_bytes
        for allocation in allocations:
            driver.made(allocation)
        device = self.device
        return [GpuBuffer(a, device, type) for a, type in zip(allocations, self.output_types, strict=True)]

    def context(self, adapt: bool) -> GpuContext:
        return GpuContext(self.loaded, self.capacities, adapt)

    def submit(self, context: GpuContext, buffers: Sequence[Buffer]) -> tuple[GpuContext, list[Buffer]]:
        """A call that isn't waited for, if only stacks that are too small could go wrong, and memory of others isn't
        read, which may have changed when it is done again. Any other call comes after what was entered before."""
        ledger, inputs = self.loaded.driver.ledger, [allocation_of(buffer) for buffer in buffers]
        if ledger is None:
            return self.call_continued(context, buffers, inputs)
        later = context.deferrable and all(isinstance(a, Allocation) for a in inputs)
        if ledger.full or not later:
            ledger.settle()
        require(inputs)
        try:
            if later and (self.program.kernel_stacks or not ledger.empty):
                return context, self.call(context, buffers, inputs, ledger)
            return self.call_continued(context, buffers, inputs)
        except MemoryError:
            if not ledger.settle():
                raise
        return self.call_continued(context, buffers, inputs)  # what only the ledger held is free now

    def call_continued(
        self, context: GpuContext, buffers: Sequence[Buffer], inputs: Sequence[Allocation]
    ) -> tuple[GpuContext, list[Buffer]]:
        """As `call`; where the driver stopped a loop, by code that ends before that and is continued. Gives the
        context that is the right one from then on."""
        try:
            return context, self.call(context, buffers, inputs)
        except StoppedLoopError:
            if context.program is self.program and not self._revised():
                raise
        context = self.context(context.adapt)
        return context, self.call(context, buffers, inputs)

    def _revised(self) -> bool:
        """Take other code for this program, where there is any."""
        if self._revise is None:
            return False
        self.loaded, self._direct = self._revise(), None
        self.capacities = Capacities(self.program, self.capacities.forced, self.capacities.device)
        self._revise = None
        return True

    def call(
        self,
        context: GpuContext,
        buffers: Sequence[Buffer],
        inputs: Sequence[Allocation],
        ledger: Ledger | None = None,
    ) -> list[Buffer]:
        """One run on this context, of these buffers and their memory, entered in the ledger if one is given; the
        device's lock is held."""
        if ledger is None:
            allocations = context.run(inputs)
        else:
            ledger.begin()
            allocations = context.run(inputs, later=True)
            ledger.add(context, inputs, allocations)
        for allocation in allocations:
            self.loaded.driver.made(allocation)
        self._heap_peak = max(self._heap_peak, context.heap_bytes)
        given = dict(zip(inputs, buffers, strict=True))
        made: list[Buffer] = []
        for allocation, type in zip(allocations, self.output_types, strict=True):
            known = given.get(allocation)
            made.append(known if known is not None else GpuBuffer(allocation, self.device, type))
        return made

    def record(self, buffers: Sequence[Buffer]) -> Recording:
        return GpuRecording(self, buffers)

    # looking inside

    def look(self) -> None:
        """Know what the calls that were started have to say."""
        driver = self.loaded.driver
        with driver.lock:
            complete(driver)

    def plan(self) -> Plan:
        with self.loaded.driver.lock:  # a call of another thread may bring other code, and learns
            self.look()
            return self._plan()

    def _plan(self) -> Plan:
        program = self.program
        counts = launches(program.steps)
        kernels = tuple(
            KernelRow(
                k.name,
                k.domain,
                -(-k.lanes // self.width(number)),
                self.width(number),
                len(k.stacks),
                counts[number],
                next((s.loc for s in k.stacks), None),
            )
            for number, k in enumerate(program.kernels)
        )
        buffers = tuple(
            BufferRow(i, slot.kind, str(slot.type), slot.type.nbytes, None) for i, slot in enumerate(program.slots)
        )
        residuals = self._residual_rows()
        arena = 0 if self._context is None else self._context.arena_bytes
        notes = self.notes()
        stack_bytes = sum(row.bytes for row in residuals)
        return Plan(
            f"{self.device} ({self.loaded.driver.name})",
            kernels,
            buffers,
            residuals,
            notes,
            arena,
            stack_bytes,
            program.routines,
        )

    def notes(self) -> tuple[str, ...]:
        """What the user should know: of the program, of products, of who decides on loops."""
        return (*self.program.notes, *self.loaded.precision_notes(), *self._deciding())

    def _deciding(self) -> tuple[str, ...]:
        program, why = self.program, self.loaded.driver.host_decides
        if program.continued:
            return (CONTINUED,)
        if program.straight:
            return ()
        if not self.loaded.recordable:
            if program.meets:
                return (MEETS,)
            return (LIBRARY if program.recordable else HOST_DRIVEN if program.asks_host else CALLED,)
        return (f"{FORESEEN}: {why}",) if why else ()

    def width(self, k: int) -> int:
        """Lanes in flight of a kernel, as far as that is known before it ran."""
        kernel = self.program.kernels[k]
        return max(min(kernel.lanes, kernel.copies or self.capacities.residents[k] or kernel.lanes), 1)

    def _residual_rows(self) -> tuple[ResidualRow, ...]:
        held, program, ran = Held(), self.program, self.capacities.ran
        for k, (kernel, capacities) in enumerate(zip(program.kernels, self.capacities.kernels, strict=True)):
            rows = [n if ran else None for n in capacities]
            width = self.width(k)
            held.add_concurrent(
                (s.residual, n, (n or 0) * width * s.itemsize) for n, s in zip(rows, kernel.stacks, strict=True)
            )
        peaks = [None] * len(program.stacks) if self._context is None or not ran else self._context.peaks
        pairs = zip(peaks, program.stacks, strict=True)
        held.add_concurrent((r.residual, n, (n or 0) * r.element.nbytes) for n, r in pairs)
        return held.rows(program.residuals)

    def text(self, stage: str) -> str:
        return self._texts(stage)

    def explain(self) -> tuple[str, ...]:
        return (self._origin, *map(str, self.program.routines), *self.notes())

    def memory_stats(self) -> MemoryStats:
        self.look()
        peaks = [] if self._context is None else self._context.peaks
        saved = sum(peak * s.element.nbytes for peak, s in zip(peaks, self.program.stacks, strict=False))
        return MemoryStats(
            arena_bytes=0 if self._context is None else self._context.arena_bytes,
            heap_bytes=self.loaded.driver.held,
            heap_peak_bytes=self._heap_peak,
            program_stack_peak_bytes=saved,
        )

    @property
    def host_bytes(self) -> int:
        return self.loaded.host_bytes


def allocation_of(buffer: Buffer) -> Allocation:
    assert isinstance(buffer, GpuBuffer)
    return buffer.allocation


class GpuRecording(Recording):
    """A context with memory of its own; a replay is one submission where no step needs the host."""

    def __init__(self, executable: GpuExecutable, buffers: Sequence[Buffer]) -> None:
        self._executable = executable
        self._before = executable.capacities.growths
        with executable.loaded.driver.lock:
            self._context = executable.context(adapt=False)
        self._inputs = list(buffers)
        self._outputs: list[Buffer] = []
        self.submit()
        if executable.loaded.recordable and not self._context.recorded:
            self.submit()  # what ran first was driven by the host; this records
        self._before = executable.capacities.growths

    def bind(self, buffers: Sequence[Buffer]) -> None:
        self._inputs = list(buffers)

    def submit(self) -> None:
        with self._executable.loaded.driver.lock:
            made = self._executable.run_directly(self._inputs)
            if made is not None:
                self._outputs = made
                return
            self._context, self._outputs = self._executable.submit(self._context, self._inputs)
            self._context.part()

    def settle(self) -> bool:
        return True  # the context grows stacks and submits again by itself, or the ledger has it do so

    def outputs(self) -> list[Buffer]:
        """Not kept here: where the caller doesn't either, the next replay writes to the same addresses."""
        given, self._outputs = self._outputs, []
        return given

    def growths(self) -> int:
        self._executable.look()
        return self._executable.capacities.growths - self._before
