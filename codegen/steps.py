"""Walking the steps of a Program: what each holds, what each names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.program import (
    HOST,
    ArraySlot,
    CopyStep,
    ForStep,
    LaunchStep,
    MatmulStep,
    PopStep,
    Program,
    PushStep,
    ReserveStep,
    RoutineRow,
    RoutineStep,
    Step,
    SwitchStep,
    WhileStep,
)


def blocks(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The steps inside a loop or a branch."""
    match step:
        case ForStep():
            return (step.body,)
        case WhileStep():
            return (step.condition, step.body)
        case SwitchStep():
            return step.branches
        case _:
            return ()


def with_blocks(step: Step, change: Callable[[tuple[Step, ...]], tuple[Step, ...]]) -> Step:
    """The step with what `change` makes of the steps inside it."""
    match step:
        case ForStep():
            return replace(step, body=change(step.body))
        case WhileStep():
            return replace(step, condition=change(step.condition), body=change(step.body))
        case SwitchStep():
            return replace(step, branches=tuple(map(change, step.branches)))
        case _:
            return step


def launches(steps: Sequence[Step]) -> Counter[int]:
    """In how many steps each kernel is launched."""
    return Counter([step.kernel for step in all_steps(steps) if isinstance(step, LaunchStep)])


def all_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Every step, those inside loops and branches included, in program order."""
    for step in steps:
        yield step
        for block in blocks(step):
            yield from all_steps(block)


def routine_row(step: RoutineStep, slots: Sequence[ArraySlot], provider: str = HOST, reason: str = "") -> RoutineRow:
    """What `plan` says of a library routine."""
    operands = ", ".join([str(slots[slot].type) for slot in step.inputs])
    return RoutineRow(step.name, operands, provider, reason)


def rotated(step: Step) -> tuple[int, ...]:
    """Slots that change places after each pass of a loop."""
    pairs = step.rotate if isinstance(step, ForStep | WhileStep) else ()
    return tuple([slot for pair in pairs for slot in pair])


def named(step: Step) -> Iterator[int]:
    """Slots that a step itself names, in its own fields."""
    match step:
        case LaunchStep():
            yield from step.slots
            yield from [i.source for _, i in step.initials if i.source is not None]
        case CopyStep():
            yield from (step.source, step.target)
        case MatmulStep():
            yield from (step.left, step.right, step.out)
            if step.epilogue is not None:
                yield from named(step.epilogue)
        case RoutineStep():
            yield from (*step.inputs, *step.outputs, *step.scratch)
        case ReserveStep():
            yield step.depth
        case PushStep() | PopStep():
            yield step.slot
        case ForStep():
            yield from (step.count, step.index, *rotated(step))
        case WhileStep():
            yield from (step.pred, *rotated(step))
        case SwitchStep():
            yield step.index


def changed_by(step: LaunchStep | RoutineStep, kernels: Sequence[Kernel]) -> set[int]:
    """Slots that the step writes or adds to."""
    if isinstance(step, RoutineStep):
        return {*step.outputs, *step.scratch}
    params = kernels[step.kernel].params
    return {slot for slot, param in zip(step.slots, params, strict=True) if param.access != "read"}


def epilogue_slots(step: MatmulStep) -> list[int]:
    """What backs the parameters of a product's kernel after those of the product itself."""
    return [] if step.epilogue is None else [slot for slot in step.epilogue.slots if slot != step.out]


def slot_uses(program: Program) -> Counter[int]:
    """How many steps name each slot, and once more for each time that the program gives it."""
    found = Counter([slot for step in all_steps(program.steps) for slot in set(named(step))])
    found.update(program.outputs)
    return found
