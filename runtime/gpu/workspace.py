"""The parts of a context that its executions work on. None of them is ever replaced by another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.runtime.gpu.bindings import Bindings
from loopgrad.runtime.gpu.capacities import Capacities
from loopgrad.runtime.gpu.driver import Driver
from loopgrad.runtime.gpu.ledger import Ledger
from loopgrad.runtime.gpu.loaded_program import LoadedProgram
from loopgrad.runtime.gpu.placement import CONTROL, Placement, place
from loopgrad.runtime.gpu.recorder import Recorder
from loopgrad.runtime.gpu.stack_heap import StackHeap


@dataclass(frozen=True, slots=True)
class Workspace:
    """`recorder`: the list of commands of the execution that there is; another one begins it anew. `ledger`: where
    calls may be entered instead of being waited for; its word is then the one that kernels mark. `reporting`: kernels
    that may have something to say in their control block. `adapt`: after a stack grew, commands are recorded again
    with the number of lanes in flight that suits the deeper stack."""

    loaded: LoadedProgram
    capacities: Capacities
    placement: Placement
    bindings: Bindings
    heap: StackHeap
    recorder: Recorder
    ledger: Ledger | None
    reporting: frozenset[int]
    adapt: bool

    @property
    def program(self) -> ProgramRecord:
        return self.loaded.program

    @property
    def driver(self) -> Driver:
        return self.loaded.driver

    def reports(self, launched: Iterable[int]) -> bool:
        """Whether one of these kernels reports that a stack was too small, which has grown then; raises what else they
        report."""
        placement = self.placement
        if not placement.control.any():
            return False
        return self.capacities.settle(placement.control, launched, placement.control_at, CONTROL)

    def settle(self, launched: Iterable[int]) -> bool:
        """As `reports`, and with that it has been dealt with."""
        if not self.placement.control.any():
            return False
        grew = self.reports(launched)
        self.clear()
        return grew

    def clear(self) -> None:
        """What kernels reported has been dealt with."""
        self.placement.shared.clear()
        if self.ledger is not None:
            self.ledger.clear()


def workspace(loaded: LoadedProgram, capacities: Capacities, adapt: bool) -> Workspace:
    program, driver = loaded.program, loaded.driver
    placement = place(driver, program, loaded.recordable and not program.straight)
    ledger = driver.ledger if defers(program) else None
    bindings = Bindings(loaded, placement, placement.shared.address if ledger is None else ledger.address)
    heap = StackHeap(loaded, capacities, placement, bindings.symbols)
    reporting = [k for k, kernel in enumerate(program.kernels) if kernel.stacks or kernel.errors or kernel.resumable]
    recorder = Recorder(driver, bindings.symbols)
    return Workspace(loaded, capacities, placement, bindings, heap, recorder, ledger, frozenset(reporting), adapt)


def defers(program: ProgramRecord) -> bool:
    """Whether all that a call may have to report are stacks that were too small."""
    return program.straight and not any(kernel.errors or kernel.resumable for kernel in program.kernels)
