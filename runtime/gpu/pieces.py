"""Stretches of a program that the host drives, recorded once: between what it has to do itself, as collectives.

A stretch holds launches and calls of libraries, one after the other, in one list of commands with tables of its own,
which later runs start again: on streams a graph. Kernels whose stacks may be too small aren't among them: the host
looks at each before it goes on, since what other processes are sent must be right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.codegen.program import CopyStep, LaunchStep, MatmulStep, RoutineStep, Step
from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.runtime.gpu.launches import Launches
from loopgrad.runtime.gpu.recorder import Recorder
from loopgrad.runtime.gpu.step_walk import StepWalk
from loopgrad.runtime.gpu.workspace import Workspace

SHORTEST: Final = 2  # steps


class RecordedPiece:
    """One stretch. What its arrays are may change between runs, as other pieces and loops leave them."""

    def __init__(self, work: Workspace, steps: Sequence[Step]) -> None:
        self._work = work
        self._recorder = Recorder(work.driver, work.bindings.symbols)
        self._launches = Launches(work, self._recorder)
        StepWalk(self._launches).steps(steps)
        self._recorder.end(again=True)

    def run(self) -> None:
        """Start it; raises what its kernels report, where they may."""
        self._recorder.refresh()
        reports = self._launches.may_report
        self._recorder.run(self._work.placement.shared if reports else None)
        if reports:
            grew = self._work.settle(self._launches.launched)
            assert not grew, "kernels with stacks are in no piece"


def stretches(program: ProgramRecord) -> list[tuple[Step, ...]]:
    """The steps of a program, those together that make a piece; the host does each of the others."""
    found: list[tuple[Step, ...]] = []
    open_: list[Step] = []

    def close() -> None:
        found.extend([tuple(open_)] if len(open_) >= SHORTEST else [(step,) for step in open_])
        open_.clear()

    for step in program.steps:
        if _is_recorded(program, step):
            open_.append(step)
        else:
            close()
            found.append((step,))
    close()
    return found


def _is_recorded(program: ProgramRecord, step: Step) -> bool:
    match step:
        case LaunchStep():
            kernel = program.kernels[step.kernel]
            return not (kernel.stacks or kernel.resumable)
        case RoutineStep():
            return not step.by_host
        case MatmulStep():
            return step.epilogue is None or _is_recorded(program, step.epilogue)
    return isinstance(step, CopyStep)
