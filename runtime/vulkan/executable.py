"""A compiled Program that can be called on a Vulkan device, and its recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopgrad.runtime.buffers import Buffer, check_inputs
from loopgrad.runtime.executable import Executable
from loopgrad.runtime.plan import BufferRow, KernelRow, MemoryStats, Plan, ResidualRow
from loopgrad.runtime.replay import Recording
from loopgrad.runtime.vulkan.learned import Learned
from loopgrad.runtime.vulkan.machine import Machine
from loopgrad.runtime.vulkan.memory import Allocation, VulkanBuffer
from loopgrad.runtime.vulkan.program import KernelRecord, ProgramRecord
from loopgrad.runtime.vulkan.resources import Resources

Texts = Callable[[str], str]
HOST_DRIVEN = "replay: steps that the host decides (loops, branches, library calls) are driven again, not resubmitted"


class VulkanExecutable(Executable):
    """Calls from several threads take turns on the device's one queue."""

    def __init__(
        self, device: str, program: ProgramRecord, resources: Resources, texts: Texts, origin: str, forced: int | None
    ) -> None:
        self.device = device
        self.program = program
        self.input_types = tuple(program.slots[slot].type for slot in program.inputs)
        self.output_types = tuple(program.slots[slot].type for slot in program.outputs)
        self.resources = resources
        self.learned = Learned(program, forced, resources.gpu.name)
        self._texts = texts
        self._origin = origin
        self._machine: Machine | None = None
        self._heap_peak = 0

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        check_inputs(self.input_types, buffers, self.device)
        with self.resources.gpu.lock:
            if self._machine is None:
                self._machine = Machine(self.program, self.resources, self.learned)
            machine = self._machine
            results = self.call(machine, buffers)
            machine.release()
            return results

    def call(self, machine: Machine, buffers: Sequence[Buffer]) -> list[Buffer]:
        """One run on this machine; the device's lock is held."""
        allocations = machine.run([allocation_of(buffer) for buffer in buffers])
        if machine.heap is not None:
            self._heap_peak = max(self._heap_peak, machine.heap.size)
        given = {buffer.allocation: buffer for buffer in buffers if isinstance(buffer, VulkanBuffer)}
        made: list[Buffer] = []
        for allocation, type in zip(allocations, self.output_types, strict=True):
            known = given.get(allocation)
            made.append(known if known is not None else VulkanBuffer(allocation, self.device, type))
        return made

    def record(self, buffers: Sequence[Buffer]) -> Recording:
        return VulkanRecording(self, buffers)

    # looking inside

    def plan(self) -> Plan:
        program, gpu = self.program, self.resources.gpu
        kernels = tuple(
            KernelRow(
                k.name,
                k.domain,
                -(-k.lanes // max(self.width(k), 1)),
                self.width(k),
                len(k.stacks),
                next((s.loc for s in k.stacks), None),
            )
            for k in program.kernels
        )
        buffers = tuple(
            BufferRow(i, slot.kind, str(slot.type), slot.type.nbytes, None) for i, slot in enumerate(program.slots)
        )
        residuals = self._residual_rows()
        arena = 0 if self._machine is None else self._machine.arena_size
        notes = self.notes()
        stack_bytes = sum(row.bytes for row in residuals)
        return Plan(f"{self.device} ({gpu.name})", kernels, buffers, residuals, notes, arena, stack_bytes)

    def notes(self) -> tuple[str, ...]:
        return self.program.notes if self.program.straight else (*self.program.notes, HOST_DRIVEN)

    def width(self, kernel: KernelRecord) -> int:
        """Lanes in flight."""
        features = self.resources.gpu.features
        limit = kernel.copies or (features.resident if kernel.stacks else kernel.lanes)
        return max(min(kernel.lanes, limit), 1)

    def _residual_rows(self) -> tuple[ResidualRow, ...]:
        found: dict[str, tuple[int | None, int]] = {}
        for k, kernel in enumerate(self.program.kernels):
            for s, stack in enumerate(kernel.stacks):
                depth = self.learned.depths[k][s]
                size = (depth or 0) * self.width(kernel) * stack.itemsize
                if stack.name not in found or size >= found[stack.name][1]:
                    found[stack.name] = (depth, size)
        for s, record in enumerate(self.program.stacks):
            if self._machine is not None and self.learned.ran:
                depth = self._machine.peaks[s]
                found[record.name] = (depth, depth * record.type.nbytes)
        rows = []
        for r in self.program.residuals:
            depth, size = found.get(r.name, (None, 0))
            rows.append(ResidualRow(r.name, str(r.type), r.formula, depth, size, r.place, r.reason, r.loc))
        return tuple(rows)

    def text(self, stage: str) -> str:
        return self._texts(stage)

    def explain(self) -> tuple[str, ...]:
        return (self._origin, *self.notes())

    def memory_stats(self) -> MemoryStats:
        peaks = [] if self._machine is None else self._machine.peaks
        saved = sum(peak * s.type.nbytes for peak, s in zip(peaks, self.program.stacks, strict=False))
        return MemoryStats(
            arena_bytes=0 if self._machine is None else self._machine.arena_size,
            heap_bytes=self.resources.data.held,
            heap_peak_bytes=self._heap_peak,
            program_stack_peak_bytes=saved,
        )


def allocation_of(buffer: Buffer) -> Allocation:
    assert isinstance(buffer, VulkanBuffer)
    return buffer.allocation


class VulkanRecording(Recording):
    """A machine with memory of its own; a replay of a straight program is one submission."""

    def __init__(self, executable: VulkanExecutable, buffers: Sequence[Buffer]) -> None:
        self._executable = executable
        self._before = executable.learned.growths
        with executable.resources.gpu.lock:
            self._machine = Machine(executable.program, executable.resources, executable.learned)
        self._inputs = list(buffers)
        self._outputs: list[Buffer] = []
        self.submit()
        self._before = executable.learned.growths

    def bind(self, buffers: Sequence[Buffer]) -> None:
        self._inputs = list(buffers)

    def submit(self) -> None:
        with self._executable.resources.gpu.lock:
            self._outputs = self._executable.call(self._machine, self._inputs)

    def settle(self) -> bool:
        return True  # the machine grows stacks and submits again by itself

    def outputs(self) -> list[Buffer]:
        return self._outputs

    def growths(self) -> int:
        return self._executable.learned.growths - self._before
