"""Programs without loops and branches: one list of commands, recorded once and started again.

Owns the list and its tables. Later runs write addresses into the tables and start the list; a stack that grew
moves under it.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.runtime.gpu.hazards import Hazards
from loopgrad.runtime.gpu.launches import Launches
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.gpu.step_walk import StepWalk
from loopgrad.runtime.gpu.workspace import Workspace


class Recorded:
    """Implements Execution."""

    def __init__(self, work: Workspace) -> None:
        self._work = work
        self._recorder = work.recorder
        self._launches = Launches(work, self._recorder, Hazards(work.program, work.placement))
        self.recorded = False

    def run(self, inputs: Sequence[Allocation]) -> None:
        while True:
            self._record()
            self._recorder.refresh()
            reports = self._launches.may_report
            self._recorder.run(self._work.placement.shared if reports else None)
            if not reports or not self._work.settle(self._launches.launched):
                return
            kept = self._work.heap.reserve(keep=self.recorded)
            self.recorded = kept and not self._work.adapt

    def start(self) -> None:
        """A run that nobody waits for: the ledger looks at the stacks."""
        self._record()
        self._recorder.refresh()
        self._recorder.run(None)

    def repeat(self) -> None:
        """As the run before, with all arrays where they lay."""
        self._recorder.repeat()

    def release(self) -> None:
        """Commands hold no memory of the run."""

    def _record(self) -> None:
        """The whole program in one list of commands, where that isn't done."""
        if not (self.recorded and self._work.heap.current):
            self.recorded = self._work.heap.reserve(keep=self.recorded)
        if self.recorded:
            return
        self._recorder.restart()
        self._launches.forget()
        StepWalk(self._launches).steps(self._work.program.steps)
        self._recorder.end(again=True)
        self.recorded = True
