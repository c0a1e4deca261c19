"""Stretches of a program that the host drives, recorded once: between what it has to do itself.

A stretch holds launches and calls of libraries, one after the other, in one list of commands with tables of its own,
which later runs start again: on streams a graph. Where devices exchange memory, collectives are among them. Kernels
whose stacks may be too small aren't: the host looks at each before it goes on, since what other processes are sent must
be right; nor is a collective behind a kernel that may report something, or behind another one: a process that has other
kernels may wait between them, before it meets the others again. Collectives that go on beside other work, and those
that come meanwhile, which wait for them, the host starts: what was recorded before them needn't wait.

The arrays of a loop rotate, so a stretch in it comes back to a few sets of addresses, and has a list for each: a graph
with a library's calls holds the addresses that they were given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from loopgrad.codegen.program import CopyStep, LaunchStep, MatmulStep, RoutineStep, Step
from loopgrad.codegen.targets.gpu.record import ProgramRecord, change_under_way, meets
from loopgrad.graph.primitives.collectives import ENGINE
from loopgrad.runtime.gpu.launches import Launches
from loopgrad.runtime.gpu.recorded_exchange import ExchangeRecording
from loopgrad.runtime.gpu.recorder import Recorder
from loopgrad.runtime.gpu.workspace import Workspace

SHORTEST: Final = 2  # steps
PLACES: Final = 4  # sets of addresses


class RecordedPiece:
    """One list of commands of a stretch. What its arrays are may change between runs, as other pieces and loops leave
    them."""

    def __init__(self, work: Workspace, steps: Sequence[Step]) -> None:
        self._work = work
        self._recorder = Recorder(work.driver, work.bindings.symbols)
        self._launches = Launches(work, self._recorder)
        recording = ExchangeRecording(work, self._recorder, self._launches)
        recording.steps(steps)
        self._met: list[dict[str, Any]] = recording.met
        self._recorder.end(again=True)

    def run(self, moved: bool) -> None:
        """Start it, once processes have met for its collectives; raises what its kernels report, where they may.
        `moved`: its arrays don't lie where they lay in its last run."""
        for attrs in self._met:
            ENGINE.get().meet(attrs)
            ENGINE.get().join_all()  # collectives are in one order on all devices
        if moved:
            self._recorder.refresh()
        if self._launches.may_report:
            self._recorder.run(self._work.placement.shared)
            grew = self._work.settle(self._launches.launched)
            assert not grew, "kernels with stacks are in no piece"
        elif moved:
            self._recorder.run(None)
        else:
            self._recorder.repeat()


class Stretch:
    """Steps that are recorded, for each of a few sets of addresses."""

    def __init__(self, work: Workspace, steps: Sequence[Step]) -> None:
        self._work, self._steps = work, steps
        self._pieces: dict[bytes, RecordedPiece] = {}

    def run(self) -> None:
        places = self._work.bindings.symbols.tobytes()
        known = self._pieces
        piece = known.get(places)
        if piece is not None:
            piece.run(moved=False)
            return
        piece = known.pop(next(iter(known))) if len(known) == PLACES else RecordedPiece(self._work, self._steps)
        piece.run(moved=True)
        known[places] = piece


def stretches(
    program: ProgramRecord, steps: Sequence[Step], exchanges: bool, shortest: int = SHORTEST
) -> list[Step | list[Step]]:
    """The steps, those together that make a stretch; the host does each of the others. `exchanges`: collectives are
    recorded."""
    found: list[Step | list[Step]] = []
    open_: list[Step] = []
    under_way = 0

    def close() -> None:
        found.extend([list(open_)] if len(open_) >= shortest else open_)
        open_.clear()

    for step in steps:
        under_way += change_under_way(step)
        collective = exchanges and meets(step) and not under_way
        if collective and any(meets(s) or _may_report(program, s) for s in open_):
            close()
        if collective or _is_recorded(program, step):
            open_.append(step)
        else:
            close()
            found.append(step)
    close()
    return found


def _may_report(program: ProgramRecord, step: Step) -> bool:
    if isinstance(step, MatmulStep):
        return step.epilogue is not None and _may_report(program, step.epilogue)
    return isinstance(step, LaunchStep) and bool(program.kernels[step.kernel].errors)


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
