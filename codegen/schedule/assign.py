"""Buffers to slots: inputs and outputs first, temporaries reused once nobody reads them any more.

Enters: steps that refer to buffers by number. Leaves: slots and the same steps with slot numbers. Buffers of one
element type and size may share a slot; library calls need their exact shape, and what is pushed or popped may be
memory of a stack. The arena overlaps the bytes of all slots afterwards; sharing slots before is what gives a loop's new
carries the memory of dead ones, wherever rotations left that, which no offset known ahead can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappush, heapreplace
from operator import itemgetter

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.lifetimes import Lifetimes
from loopgrad.codegen.program import (
    ALIGNMENT,
    ArraySlot,
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
from loopgrad.codegen.schedule.program_builder import ProgramBuffer
from loopgrad.codegen.steps import all_steps, rotated


def assign_slots(
    buffers: Sequence[ProgramBuffer], kernels: Sequence[Kernel], steps: Sequence[Step], fixed: Sequence[ProgramBuffer]
) -> tuple[tuple[ArraySlot, ...], tuple[Step, ...], dict[int, int], bytes]:
    """Slots, renumbered steps, the slot of each buffer, and the bytes of all constants. `fixed`: inputs and outputs,
    in order."""
    lifetimes = Lifetimes(kernels)
    lifetimes.steps(steps)
    slots = [ArraySlot(b.type, b.kind) for b in fixed]
    numbers = {b.number: i for i, b in enumerate(fixed)}
    free: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    constants = bytearray()
    pushed = {step.slot for step in all_steps(steps) if isinstance(step, PushStep)}
    apart = pushed.difference([slot for step in all_steps(steps) for slot in rotated(step)])
    lives = sorted([(*lifetimes.life((b,)), b) for b in lifetimes.used() if b not in numbers], key=itemgetter(0, 2))
    for first, last, number in lives:
        buffer = buffers[number]
        if buffer.constant is not None:
            numbers[number] = len(slots)
            slots.append(ArraySlot(buffer.type, "constant", len(constants)))
            constants += buffer.constant
            constants += bytes(-len(constants) % ALIGNMENT)
            continue
        if number in apart or buffer.popped:
            numbers[number] = len(slots)
            slots.append(ArraySlot(buffer.type, "temp"))
        else:
            numbers[number] = _slot(buffer, first, last, slots, free)
    return tuple(slots), renumbered(steps, numbers.__getitem__), numbers, bytes(constants)


def _slot(
    buffer: ProgramBuffer,
    first: int,
    last: int,
    slots: list[ArraySlot],
    free: dict[tuple[object, ...], list[tuple[int, int]]],
) -> int:
    """A slot of the buffer's kind whose last user is done, else a new one."""
    key: tuple[object, ...] = (buffer.type.dtype, buffer.type.nbytes, buffer.type.shape if buffer.exact else None)
    pool = free.setdefault(key, [])
    if pool and pool[0][0] < first:
        return heapreplace(pool, (last, pool[0][1]))[1]
    slots.append(ArraySlot(buffer.type, "temp"))
    heappush(pool, (last, len(slots) - 1))
    return len(slots) - 1


def renumbered(steps: Sequence[Step], number: Callable[[int], int]) -> tuple[Step, ...]:
    """The steps with every buffer number replaced."""
    return tuple([_renumbered(step, number) for step in steps])


def _renumbered(step: Step, number: Callable[[int], int]) -> Step:
    def pairs(rotate: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        return tuple([(number(a), number(b)) for a, b in rotate])

    match step:
        case LaunchStep():
            initials = [
                (i, start if start.source is None else replace(start, source=number(start.source)))
                for i, start in step.initials
            ]
            return replace(step, slots=tuple(map(number, step.slots)), initials=tuple(initials))
        case CopyStep():
            return CopyStep(number(step.source), number(step.target))
        case MatmulStep():
            return replace(step, left=number(step.left), right=number(step.right), out=number(step.out))
        case RoutineStep():
            inputs, outputs, scratch = (tuple(map(number, s)) for s in (step.inputs, step.outputs, step.scratch))
            return replace(step, inputs=inputs, outputs=outputs, scratch=scratch)
        case ReserveStep():
            return replace(step, depth=number(step.depth))
        case PushStep() | PopStep():
            return replace(step, slot=number(step.slot))
        case ForStep():
            body, rotate = renumbered(step.body, number), pairs(step.rotate)
            return replace(step, count=number(step.count), index=number(step.index), body=body, rotate=rotate)
        case WhileStep():
            condition, body = renumbered(step.condition, number), renumbered(step.body, number)
            return replace(step, condition=condition, pred=number(step.pred), body=body, rotate=pairs(step.rotate))
        case SwitchStep():
            branches = tuple([renumbered(b, number) for b in step.branches])
            return replace(step, index=number(step.index), branches=branches)
