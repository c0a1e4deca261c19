"""Every kind of step has one place where an execution does it; what an execution doesn't know is refused."""

from __future__ import annotations

from typing import Any

import pytest

from loopgrad.codegen.program import (
    CopyStep,
    ForStep,
    LaunchStep,
    MatmulStep,
    PopStep,
    PushStep,
    ReserveStep,
    RoutineLaunch,
    RoutineStep,
    Step,
    SwitchStep,
    WhileStep,
)
from loopgrad.runtime.gpu.step_walk import StepWalk

STEPS: dict[str, Step] = {
    "kernel": LaunchStep(0, (0, 1)),
    "copy": CopyStep(0, 1),
    "matmul": MatmulStep(0, 0, 1, 1, 2, 2, 2),
    "routine": RoutineStep("sort", (0,), (1,), launches=(RoutineLaunch(0, (0, 1)),)),
    "host_call": RoutineStep("sort", (0,), (1,)),
    "reserve": ReserveStep(0, 1),
    "push": PushStep(0, 1),
    "pop": PopStep(0, 1),
    "for_loop": ForStep(0, 1, (), (), False, None),
    "while_loop": WhileStep((), 0, (), (), None, None),
    "switch": SwitchStep(0, ((), ())),
}
LAUNCHES = ("kernel", "copy", "matmul", "routine")
OWN = [name for name in STEPS if name not in LAUNCHES]


class Noting:
    """Stands for Launches, or overrides: notes what is called with which step."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Step]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda step: self.done.append((name, step))


def test_every_kind_is_here():
    assert {type(step) for step in STEPS.values()} == set(Step.__args__)


def test_launches_are_done_alike():
    launches = Noting()
    StepWalk(launches).steps([STEPS[name] for name in LAUNCHES])  # type: ignore[arg-type]
    assert launches.done == [(name, STEPS[name]) for name in LAUNCHES]


@pytest.mark.parametrize("name", OWN)
def test_an_execution_does_the_others_itself(name):
    noting = Noting()
    own = type("Own", (StepWalk,), {n: (lambda _self, step, n=n: getattr(noting, n)(step)) for n in OWN})
    own(Noting()).step(STEPS[name])
    assert noting.done == [(name, STEPS[name])]


@pytest.mark.parametrize("name", OWN)
def test_what_an_execution_does_not_do_is_refused(name):
    with pytest.raises(AssertionError, match=f"{type(STEPS[name]).__name__} don't run by StepWalk"):
        StepWalk(Noting()).step(STEPS[name])  # type: ignore[arg-type]
