"""Which slots of a Program may share memory on a GPU, and where they lie.

Slots that leave, change places, are rows of stacks, or are read or written by the host have no part of it; the other
temporaries and the kernels' scratch blocks lie in one arena.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from loopgrad.codegen.arena import Arena, plan_arena
from loopgrad.codegen.program import (
    ForStep,
    LaunchStep,
    PopStep,
    Program,
    PushStep,
    ReserveStep,
    RoutineStep,
    SwitchStep,
    WhileStep,
)
from loopgrad.codegen.steps import all_steps, named
from loopgrad.codegen.targets.gpu.interface import KernelInterface

ALIGNMENT: Final = 256


def arena(program: Program, interfaces: Sequence[KernelInterface]) -> Arena:
    """Where they lie."""
    apart = frozenset([*program.outputs, *_apart(program)])
    placed = frozenset([i for i, slot in enumerate(program.slots) if slot.kind == "temp"]) - apart
    return plan_arena(program, [interface.scratch for interface in interfaces], placed, ALIGNMENT)


def _apart(program: Program) -> Iterator[int]:
    """Slots that need memory of their own."""
    for step in all_steps(program.steps):
        match step:
            case ForStep() | WhileStep() | SwitchStep() | PopStep() | ReserveStep():
                yield from named(step)
            case PushStep() if step.in_place:
                yield step.slot
            case RoutineStep() if step.by_host:
                yield from named(step)
            case LaunchStep():
                stacks = program.kernels[step.kernel].stacks
                yield from [step.slots[s.depth_param] for s in stacks if s.depth_param is not None]
            case _:
                pass
