"""Doing the steps of a program one after the other.

Steps that are launches are done alike wherever they are recorded (`Launches`). What else there is, each execution does
in its own way: the host looks at a number and decides, or an update is recorded that does so on the device. An
execution overrides what its programs may have; a step of another kind is a bug.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from loopgrad.codegen.program import (
    CopyStep,
    ForStep,
    LaunchStep,
    MatmulStep,
    PopStep,
    PushStep,
    ReserveStep,
    RoutineStep,
    Step,
    SwitchStep,
    WhileStep,
)
from loopgrad.runtime.gpu.launches import Launches


class StepWalk:
    """By itself, for programs without loops, branches, stacks of whole tensors and calls of the host."""

    def __init__(self, launches: Launches) -> None:
        self._launches = launches

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.step(step)

    def step(self, step: Step) -> None:
        match step:
            case LaunchStep():
                self.launch(step)
            case CopyStep():
                self._launches.copy(step)
            case MatmulStep():
                self._launches.matmul(step)
            case RoutineStep() if step.by_host:
                self.host_call(step)
            case RoutineStep():
                self._launches.routine(step)
            case ReserveStep():
                self.reserve(step)
            case PushStep():
                self.push(step)
            case PopStep():
                self.pop(step)
            case ForStep():
                self.for_loop(step)
            case WhileStep():
                self.while_loop(step)
            case SwitchStep():
                self.switch(step)

    def launch(self, step: LaunchStep) -> None:
        self._launches.kernel(step)

    def host_call(self, step: RoutineStep) -> None:
        _refuse(self, step)

    def reserve(self, step: ReserveStep) -> None:
        _refuse(self, step)

    def push(self, step: PushStep) -> None:
        _refuse(self, step)

    def pop(self, step: PopStep) -> None:
        _refuse(self, step)

    def for_loop(self, step: ForStep) -> None:
        _refuse(self, step)

    def while_loop(self, step: WhileStep) -> None:
        _refuse(self, step)

    def switch(self, step: SwitchStep) -> None:
        _refuse(self, step)


def _refuse(walk: StepWalk, step: Step) -> NoReturn:
    raise AssertionError(f"programs with a {type(step).__name__} don't run by {type(walk).__name__}")
