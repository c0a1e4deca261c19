"""What the CPU's runtime has of a compiled Program: the target writes it, the disk cache holds it (codegen.codec).

Steps aren't part of it: they are machine code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopgrad.codegen.kernel.nodes import ErrorSite, StackSlot
from loopgrad.codegen.program import (
    ArraySlot,
    ForStep,
    MatmulStep,
    Program,
    ProgramStack,
    Residual,
    RoutineStep,
    WhileStep,
)
from loopgrad.codegen.steps import all_steps, launches
from loopgrad.codegen.targets.cpu.entry.call_context import ContextLayout, plan_layout
from loopgrad.codegen.targets.cpu.interface import CpuKernelInterface
from loopgrad.graph.nodes import Location


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """`launches`: in how many steps."""

    name: str
    domain: tuple[int, ...]
    interface: CpuKernelInterface
    stacks: tuple[StackSlot, ...]
    errors: tuple[ErrorSite, ...]
    launches: int


@dataclass(frozen=True, slots=True)
class CpuProgramRecord:
    """`loops`: where each was written, in the order of their numbers. `table`: what the code's open numbers are
    (open_numbers)."""

    slots: tuple[ArraySlot, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    layout: ContextLayout
    kernels: tuple[KernelRecord, ...]
    stacks: tuple[ProgramStack, ...]
    loops: tuple[Location | None, ...]
    host_calls: tuple[RoutineStep | MatmulStep, ...]
    residuals: tuple[Residual, ...]
    notes: tuple[str, ...]
    table: tuple[int, ...]


def record(program: Program, interfaces: Sequence[CpuKernelInterface], table: tuple[int, ...] = ()) -> CpuProgramRecord:
    counts = launches(program.steps)
    kernels = [
        KernelRecord(kernel.name, kernel.domain, interface, kernel.stacks, kernel.errors, counts[number])
        for number, (kernel, interface) in enumerate(zip(program.kernels, interfaces, strict=True))
    ]
    return CpuProgramRecord(
        slots=program.slots,
        inputs=program.inputs,
        outputs=program.outputs,
        layout=plan_layout(program, interfaces),
        kernels=tuple(kernels),
        stacks=program.stacks,
        loops=loop_locations(program),
        host_calls=host_calls(program),
        residuals=program.residuals,
        notes=program.notes,
        table=table,
    )


def host_calls(program: Program) -> tuple[RoutineStep | MatmulStep, ...]:
    """The calls back into Python, in the order of their numbers: RoutineSteps, and a matrix product
    wherever no BLAS was found or its dtype has none."""
    steps = [step for step in all_steps(program.steps) if isinstance(step, RoutineStep | MatmulStep)]
    return tuple([s for s in steps if isinstance(s, RoutineStep) or not program.slots[s.out].type.dtype.is_integer])


def loop_locations(program: Program) -> tuple[Location | None, ...]:
    """Where each loop step was written, in the order of their numbers."""
    return tuple(step.loc for step in all_steps(program.steps) if isinstance(step, ForStep | WhileStep))
