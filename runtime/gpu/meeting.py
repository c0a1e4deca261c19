"""Programs of a mesh without loops and branches, whose devices exchange memory: recorded pieces, collectives between.

Later runs at the same addresses start both again as they are. Kernels that may report something are in no such program:
what they say would come after others were sent their results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from loopgrad.codegen.program import RoutineStep, Step
from loopgrad.graph.primitives.collectives import Engine, memory_engine
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.gpu.pieces import RecordedPiece, stretches
from loopgrad.runtime.gpu.workspace import Workspace

MOVES: Final[Mapping[str, Callable[..., None]]] = {
    "all_gather": Engine.gather_memory, "all_to_all": Engine.exchange_memory, "all_sum": Engine.sum_memory
}  # fmt: skip


class MemoryCollective:
    """A collective on the device's memory, behind the work that was started: nobody waits. Only the order of tokens,
    the first operand and result, matters, not what they are."""

    def __init__(self, work: Workspace, step: RoutineStep) -> None:
        slots = work.program.slots
        self._owner = work.bindings.owner
        self._inputs, self._outputs = step.inputs[1:], step.outputs[1:]
        self._name, self._attrs = MOVES[step.name].__name__, dict(step.attrs)
        self._types = [slots[slot].type for slot in self._inputs]
        self._sources: Sequence[int] = ()
        self._targets: Sequence[int] = ()

    def run(self) -> None:
        self._sources = [self._owner(slot).address for slot in self._inputs]
        self._targets = [self._owner(slot).address for slot in self._outputs]
        self.repeat()

    def repeat(self) -> None:
        """Where the arrays lay before."""
        move: Any = getattr(memory_engine(), self._name)
        move(self._attrs, self._types, self._sources, self._targets)


class Meeting:
    """Implements Execution."""

    def __init__(self, work: Workspace) -> None:
        self._work = work
        self._parts: list[RecordedPiece | MemoryCollective] = []

    @property
    def recorded(self) -> bool:
        return bool(self._parts)

    def run(self, inputs: Sequence[Allocation]) -> None:
        work = self._work
        if not self._parts:
            self._parts = [_part(work, steps) for steps in stretches(work.program)]
        for part in self._parts:
            part.run()

    def repeat(self) -> None:
        """As the run before, with all arrays where they lay."""
        for part in self._parts:
            part.repeat()

    def release(self) -> None:
        """Commands hold no memory of the run."""


def _part(work: Workspace, steps: Sequence[Step]) -> RecordedPiece | MemoryCollective:
    first = steps[0]
    if isinstance(first, RoutineStep) and first.by_host:
        return MemoryCollective(work, first)
    return RecordedPiece(work, steps)
