"""Programs of a mesh with one collective and without loops and branches, whose devices exchange memory: one list of
commands, in which the collective is a library's call.

A call starts with the collective's message, which brings errors: nothing can fail before it is started, since kernels
that may report something are in no such program. What was recorded is then started as a whole, on streams as a graph.
So it is in the first call, too: what one process still has, another one may have forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from loopgrad.codegen.program import RoutineStep
from loopgrad.graph.primitives.collectives import ENGINE, Engine, memory_engine
from loopgrad.graph.types import TensorType
from loopgrad.runtime.gpu.driver import LibraryCall, Words
from loopgrad.runtime.gpu.launches import Launches
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.gpu.placement import SLOTS
from loopgrad.runtime.gpu.recorder import Recorder
from loopgrad.runtime.gpu.step_walk import StepWalk
from loopgrad.runtime.gpu.workspace import Workspace

FIRST: Final = 1  # operand and result of a collective that isn't a token, of which only the order matters


def engine_of_call() -> Engine:
    found = memory_engine()
    assert found is not None, "programs run so where there is one"
    return found


def moved(program: Any, step: RoutineStep, addresses: Sequence[int]) -> None:
    """Put a collective behind the work that was started, on the memory at its operands' and results' addresses. One
    that only starts is beside what comes."""
    types: list[TensorType] = [program.slots[slot].type for slot in step.inputs[FIRST:]]
    n = len(types)
    engine_of_call().move(step.name, dict(step.attrs), types, addresses[:n], addresses[n:])


class ExchangeRecording(StepWalk):
    """Records steps, collectives among them, and notes what these have in their messages."""

    def __init__(self, work: Workspace, recorder: Recorder, launches: Launches) -> None:
        super().__init__(launches)
        self._program, self._recorder = work.program, recorder
        self.met: list[dict[str, Any]] = []

    def host_call(self, step: RoutineStep) -> None:
        slots = (*step.inputs[FIRST:], *step.outputs[FIRST:])
        self.met.append(dict(step.attrs))
        call = LibraryCall(step.name, partial(self._move, step), long=True)
        self._recorder.call(call, [SLOTS + slot for slot in slots])

    def _move(self, step: RoutineStep, words: Words) -> None:
        moved(self._program, step, words.tolist())


class RecordedExchange:
    """Implements Execution."""

    def __init__(self, work: Workspace) -> None:
        self._work = work
        self._recorder = work.recorder
        self._met: list[dict[str, Any]] = []
        self.recorded = False

    def run(self, inputs: Sequence[Allocation]) -> None:
        if not self.recorded:
            self._recorder.restart()
            recording = ExchangeRecording(self._work, self._recorder, Launches(self._work, self._recorder))
            recording.steps(self._work.program.steps)
            self._recorder.end(again=True)
            self._met, self.recorded = recording.met, True
        self._meet()
        self._recorder.refresh()
        self._recorder.run(None)

    def repeat(self) -> None:
        """As the run before, with all arrays where they lay."""
        self._meet()
        self._recorder.repeat()

    def _meet(self) -> None:
        for attrs in self._met:
            ENGINE.get().meet(attrs)

    def release(self) -> None:
        """Commands hold no memory of the run."""
