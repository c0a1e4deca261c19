"""What one caller runs a Program with: a placement and bindings of its own, and the execution that suits the next run.

The first run is driven by the host, as a rule: kernels with stacks are looked at as soon as they ran, known depths
are read before. A program whose steps need no host is then recorded once, and later runs start what was recorded.
Other programs stay host-driven, in batches between the points where the host must look, and recorded pieces. On an
H200 loops over whole tensors take twice as long host-driven, a call of one small kernel 1.3 times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.graph.primitives.collectives import memory_engine
from loopgrad.runtime.gpu.bindings import NOTHING
from loopgrad.runtime.gpu.capacities import Capacities
from loopgrad.runtime.gpu.device_decided import DeviceDecided
from loopgrad.runtime.gpu.driver import Driver
from loopgrad.runtime.gpu.execution import Execution
from loopgrad.runtime.gpu.host_driven import HostDriven
from loopgrad.runtime.gpu.loaded_program import LoadedProgram
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.gpu.recorded import Recorded
from loopgrad.runtime.gpu.recorded_exchange import RecordedExchange
from loopgrad.runtime.gpu.workspace import workspace


class GpuContext:
    """One call at a time, under the device's lock. `adapt`: as of Workspace. `runs`: how often commands were given
    addresses."""

    def __init__(self, loaded: LoadedProgram, capacities: Capacities, adapt: bool) -> None:
        self._loaded, self._capacities = loaded, capacities
        self._work = workspace(loaded, capacities, adapt)
        self._execution: Execution | None = None
        self.runs = 0

    @property
    def program(self) -> ProgramRecord:
        return self._loaded.program

    @property
    def driver(self) -> Driver:
        return self._loaded.driver

    @property
    def adapt(self) -> bool:
        return self._work.adapt

    # how it runs

    def _suited(self) -> type[HostDriven] | type[Recorded] | type[DeviceDecided] | type[RecordedExchange]:
        """How the next run goes."""
        if self.program.exchanges and memory_engine() is not None:
            return RecordedExchange
        if not self._loaded.recordable or not (self._capacities.ran or self._foreseeable):
            return HostDriven
        return Recorded if self.program.straight else DeviceDecided

    @property
    def _foreseeable(self) -> bool:
        """Whether the first run is recorded too: it has no sizes to learn, and recorded loops need the host less."""
        nothing = not (self.program.straight or self.program.stacks or self.program.kernel_stacks)
        return nothing and bool(self.driver.host_decides)

    def _next(self) -> Execution:
        """An execution of the kind that suits; one of another kind is given up, with what it had recorded."""
        suited = self._suited()
        if not isinstance(self._execution, suited):
            self._execution = None
            self._execution = suited(self._work)
        return self._execution

    @property
    def deferrable(self) -> bool:
        """Whether the next run may be entered in the ledger."""
        known = self._capacities.ran and self._capacities.forced is None
        return self._work.ledger is not None and known and self._loaded.recordable

    @property
    def recorded(self) -> bool:
        """Whether the next run starts commands that are recorded already."""
        return self._execution is not None and self._execution.recorded

    # runs

    def run(
        self,
        inputs: Sequence[Allocation],
        given: Mapping[int, Allocation | None] = NOTHING,
        later: bool = False,
        arena: Allocation | None = None,
    ) -> list[Allocation]:
        """The outputs' memory. That of slots may be given, as may the arena's. `later`, for what is `deferrable`: start
        only, the ledger looks at the stacks."""
        self.runs += 1
        try:
            self._work.bindings.prepare(inputs, given, arena)
            execution = self._next()
            if later:
                assert isinstance(execution, Recorded)
                execution.start()
            else:
                execution.run(inputs)
        except BaseException:
            self._abandon()
            raise
        self._capacities.ran = True
        return self._work.bindings.results

    def repeat(self) -> None:
        """Start what was recorded once more: all arrays lie where they lay. The device's lock is held."""
        assert isinstance(self._execution, Recorded | RecordedExchange)
        self._execution.repeat()

    def move(self, addresses: Sequence[int]) -> None:
        """Start what was recorded, of a program without stacks: its arrays lie at these addresses (as of Bindings). Who
        calls holds the memory; as does the device's lock."""
        assert isinstance(self._execution, Recorded)
        self._work.bindings.move(addresses)
        self._execution.start()

    def _abandon(self) -> None:
        """After a failure: nothing of the run stays."""
        self._execution = None
        self._work.clear()
        self._work.bindings.peaks[:] = [0] * len(self.program.stacks)
        self.release()

    def release(self) -> None:
        """Between runs only what was learned stays."""
        self._work.bindings.free()
        self._work.heap.free()
        if self._execution is not None:
            self._execution.release()

    def part(self) -> None:
        """Hold the outputs no longer."""
        self._work.bindings.part()

    def clear_reports(self) -> None:
        """So that the next run says anew what it needs."""
        self._work.placement.shared.clear()

    # statistics

    @property
    def arena_bytes(self) -> int:
        return self._work.placement.arena_size

    @property
    def heap_bytes(self) -> int:
        """Of the stacks inside kernels, as long as the context isn't released."""
        return self._work.heap.size

    @property
    def heap_address(self) -> int:
        """Where they lie, 0 where there are none."""
        return self._work.heap.address

    @property
    def peaks(self) -> Sequence[int]:
        """How deep each stack of whole tensors became."""
        return self._work.bindings.peaks
