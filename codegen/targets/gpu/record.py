"""What a GPU's runtime has of a compiled Program: a target writes it, the disk cache holds it (codegen.codec).

Steps, slots, stacks and saved values are the Program's own. What depends on the steps alone is found when it is first
asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from loopgrad.codegen.arena import Arena
from loopgrad.codegen.program import (
    ArraySlot,
    CopyStep,
    ForStep,
    LaunchStep,
    MatmulStep,
    PopStep,
    ProgramStack,
    PushStep,
    Residual,
    RoutineRow,
    RoutineStep,
    Step,
    WhileStep,
)
from loopgrad.codegen.steps import all_steps, rotated
from loopgrad.codegen.targets.gpu.interface import KernelInterface, SupportLaunch
from loopgrad.graph.cached_property import cached_property
from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.graph.primitives.collectives import is_started


@dataclass(frozen=True, slots=True)
class Module:
    """Where a kernel is: function `entry` of the image `code[offset : offset + size]`. `group` is its
    workgroup size, `shared` its memory of a workgroup in bytes, of which so many are `asked` for at a launch."""

    name: str
    offset: int
    size: int
    entry: str
    group: int
    shared: int = 0
    asked: int = 0


@dataclass(frozen=True)
class ProgramRecord:
    """`support`: launches that steps name in `by`. `arena`: the temporaries without memory of their own, and the
    scratch blocks of each kernel. `written`: of each module, which of its parameters its lanes write."""

    slots: tuple[ArraySlot, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    kernels: tuple[KernelInterface, ...]
    modules: tuple[Module, ...]
    steps: tuple[Step, ...]
    support: tuple[SupportLaunch, ...]
    stacks: tuple[ProgramStack, ...]
    residuals: tuple[Residual, ...]
    notes: tuple[str, ...]
    arena: Arena
    written: tuple[tuple[int, ...], ...]
    routines: tuple[RoutineRow, ...] = ()

    @cached_property
    def moved(self) -> frozenset[int]:
        """Slots whose memory becomes another slot's, or that anything but a loop's counting writes."""
        return frozenset([slot for step in all_steps(self.steps) for slot in _moved(step)])

    @cached_property
    def moving(self) -> frozenset[int]:
        """Slots that steps make point elsewhere, or that the host writes."""
        return self.moved.union([step.index for step in all_steps(self.steps) if isinstance(step, ForStep)])

    @cached_property
    def rows(self) -> frozenset[int]:
        """Slots that are rows of stacks whenever steps use them, without memory of their own."""
        return frozenset([s.slot for s in all_steps(self.steps) if isinstance(s, PushStep) and s.in_place])

    @cached_property
    def shadowed(self) -> tuple[int, ...]:
        """Inputs and constants that are written, and so copied first."""
        return tuple([slot for slot in sorted(self.moving) if self.slots[slot].kind in ("input", "constant")])

    @cached_property
    def continued(self) -> bool:
        """Some kernel may leave lanes in the middle and is launched again."""
        return any(kernel.resumable for kernel in self.kernels)

    @cached_property
    def straight(self) -> bool:
        """Launches one after the other, so that one list of commands holds the program."""
        kinds = (LaunchStep, CopyStep, MatmulStep, RoutineStep)
        straight = all(isinstance(step, kinds) and not by_host(step) for step in self.steps)
        return straight and not self.continued and not self.shadowed

    @cached_property
    def exchanges(self) -> bool:
        """Launches one after the other, which have nothing to report, and a collective between them: of several, a
        process that has other kernels may have something to report between."""
        kinds = (LaunchStep, CopyStep, MatmulStep, RoutineStep)
        silent = not any(kernel.errors or kernel.stacks or kernel.resumable for kernel in self.kernels)
        plain = all(isinstance(step, kinds) and (meets(step) or not by_host(step)) for step in self.steps)
        alone = sum(map(meets, self.steps)) == 1
        return silent and plain and alone and self.asks_host and not self.shadowed

    @cached_property
    def meets(self) -> bool:
        """Collectives are among the steps, in loops and branches as well."""
        return any(map(is_collective, all_steps(self.steps)))

    @cached_property
    def recordable(self) -> bool:
        """No step needs the host, but for loops and branches, and no result lies in a stack."""
        steps = list(all_steps(self.steps))
        popped = {step.slot for step in steps if isinstance(step, PopStep)}
        apart = self.asks_host or (self.calls_libraries and not self.straight)
        return not (self.continued or apart or popped.intersection(self.outputs))

    @cached_property
    def asks_host(self) -> bool:
        """Some routine is done by the host."""
        return any(map(by_host, all_steps(self.steps)))

    @cached_property
    def calls_libraries(self) -> bool:
        """Some routine has no kernels of ours, but a library: its calls are in no recording with loops."""
        steps = [step for step in all_steps(self.steps) if isinstance(step, RoutineStep)]
        return any(step.launches is None and step.call is not None for step in steps)

    @cached_property
    def kernel_stacks(self) -> bool:
        """Some kernel has stacks."""
        return any(kernel.stacks for kernel in self.kernels)


def meets(step: Step) -> bool:
    """Whether it is a collective that starts and ends in one."""
    return is_collective(step) and not change_under_way(step)


def change_under_way(step: Step) -> int:
    """How many more collectives are under way behind it."""
    if not (isinstance(step, RoutineStep) and is_collective(step)):
        return 0
    return (step.name == "collective_start") - is_started(dict(step.attrs))


def is_collective(step: Step) -> bool:
    return isinstance(step, RoutineStep) and PRIMITIVES[step.name].collective


def by_host(step: Step) -> bool:
    """Whether it is a library routine that only the host has."""
    return isinstance(step, RoutineStep) and step.by_host


def _moved(step: Step) -> tuple[int, ...]:
    """Slots that a step makes point elsewhere, or that the host writes; but for the index of a loop."""
    match step:
        case LaunchStep():
            return tuple([step.slots[position] for position, _ in step.initials])
        case CopyStep():
            return (step.target,)
        case RoutineStep():
            return step.outputs
        case PopStep():
            return (step.slot,)
        case PushStep() if step.in_place:
            return (step.slot,)
        case ForStep() | WhileStep():
            return rotated(step)
        case _:
            return ()
