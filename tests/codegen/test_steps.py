"""Walks over steps: order, and every slot that a step names."""

from loopgrad.codegen.program import (
    CopyStep,
    ForStep,
    Initial,
    LaunchStep,
    MatmulStep,
    PopStep,
    PushStep,
    ReserveStep,
    RoutineStep,
    SwitchStep,
    WhileStep,
)
from loopgrad.codegen.steps import all_steps, blocks, named, rotated

COPY = CopyStep(1, 2)
FOR = ForStep(3, 4, (COPY,), ((5, 6), (7, 8)), False, None)
WHILE = WhileStep((PopStep(0, 9),), 10, (FOR, PushStep(0, 11)), ((12, 13),), None, None)
SWITCH = SwitchStep(14, ((WHILE,), (), (COPY,)))


def test_steps_come_in_program_order():
    assert list(all_steps([SWITCH, COPY])) == [
        SWITCH, WHILE, WHILE.condition[0], FOR, COPY, WHILE.body[1], COPY, COPY,
    ]  # fmt: skip
    assert blocks(WHILE) == (WHILE.condition, WHILE.body)
    assert blocks(COPY) == ()


def test_every_slot_is_named_once_and_nothing_of_the_steps_inside():
    launch = LaunchStep(0, (20, 21), ((1, Initial(22)),))
    call = RoutineStep("sort", (23,), (24,), ())
    for step, wanted in (
        (COPY, [1, 2]),
        (FOR, [3, 4, 5, 6, 7, 8]),
        (WHILE, [10, 12, 13]),
        (SWITCH, [14]),
        (launch, [20, 21, 22]),
        (call, [23, 24]),
        (MatmulStep(25, 26, 27, 1, 2, 3, 4), [25, 26, 27]),
        (ReserveStep(0, 28), [28]),
        (PushStep(0, 29), [29]),
        (PopStep(0, 30), [30]),
    ):
        assert list(named(step)) == wanted
    assert rotated(FOR) == (5, 6, 7, 8)
    assert rotated(COPY) == ()
