"""Which slots share memory on a GPU."""

from __future__ import annotations

from loopgrad.codegen.program import ArraySlot, CopyStep, ForStep, Program, RoutineStep, SwitchStep, WhileStep
from loopgrad.codegen.targets.gpu.arena import arena
from loopgrad.graph.types import TensorType, bool_, float64, int64

VECTOR, NUMBER, TRUTH = TensorType((100,), float64), TensorType((), int64), TensorType((), bool_)


def placed(types: list[TensorType], steps: tuple, output: int) -> tuple[int, dict[int, int]]:
    slots = tuple(ArraySlot(t, "input" if i == 0 else "output" if i == output else "temp") for i, t in enumerate(types))
    plan = arena(Program(slots, (0,), (output,), (), steps), ())
    assert plan.scratch == ()
    return plan.size, plan.slots


def test_a_chain_needs_two_blocks():
    size, offsets = placed([VECTOR] * 7, tuple(CopyStep(i, i + 1) for i in range(6)), 6)
    assert sorted(offsets) == [1, 2, 3, 4, 5]
    assert size == 2 * 1024
    assert all(offset % 256 == 0 for offset in offsets.values())


def test_what_moves_or_meets_the_host_has_memory_of_its_own():
    types = [VECTOR, NUMBER, NUMBER, VECTOR, VECTOR, TRUTH, VECTOR, VECTOR, NUMBER, VECTOR]
    steps = (
        ForStep(1, 2, (CopyStep(0, 4),), ((3, 4),), False, None),
        WhileStep((CopyStep(0, 6),), 5, (), (), None, None),
        RoutineStep("sort", (6,), (7,)),
        SwitchStep(8, ((CopyStep(7, 9),),)),
    )
    assert placed(types, steps, 9) == (0, {})
