"""Parameters in which lanes meet and that start as one number everywhere, such as a gradient's zeros.

Where a kernel behind the lanes writes every element anyhow, it adds that number: the parameter needn't be filled first,
nor read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loopgrad.codegen.program import LaunchStep, Program, Step
from loopgrad.codegen.steps import all_steps, with_blocks
from loopgrad.codegen.targets.gpu.emit.accumulator import Accumulator
from loopgrad.codegen.targets.gpu.emit.exact_sum import ExactSum
from loopgrad.codegen.targets.gpu.emit.window_sum import WindowSum
from loopgrad.codegen.targets.gpu.lanes.analysis import shares_all
from loopgrad.codegen.targets.gpu.lanes.plan import LaneMapping

Starts = Mapping[int, float]
"""Of parameters that kernels behind the lanes start with these numbers."""


def writes_all(acc: Accumulator) -> bool:
    """Whether a kernel behind its lanes writes every element."""
    return isinstance(acc, ExactSum) or (isinstance(acc, WindowSum) and not acc.repair.table.bucket)


def starts(program: Program, shapes: Sequence[LaneMapping]) -> list[Starts]:
    """Of each kernel, whose lanes are laid out so."""
    found: dict[tuple[int, int], list[float | None]] = {}
    launches = [0] * len(program.kernels)
    for step in all_steps(program.steps):
        if isinstance(step, LaunchStep):
            launches[step.kernel] += 1
            for position, start in step.initials:
                value = start.value if start.source is None else None
                found.setdefault((step.kernel, position), []).append(value)
    return [
        {
            acc.param: values[0]
            for acc in shape.accumulators
            if writes_all(acc) and shares_all(program.kernels[number], acc.param)
            for values in [found.get((number, acc.param), [])]
            if len(values) == launches[number] and values and values[0] is not None and len({*map(repr, values)}) == 1
        }
        for number, shape in enumerate(shapes)
    ]


def with_starts(program: Program, found: Sequence[Starts]) -> Program:
    """The program whose launches include these."""

    def included(steps: Sequence[Step]) -> tuple[Step, ...]:
        return tuple([launch(step) if isinstance(step, LaunchStep) else with_blocks(step, included) for step in steps])

    def launch(step: LaunchStep) -> LaunchStep:
        own = found[step.kernel]
        initials = [(i, replace(start, included=i in own)) for i, start in step.initials]
        return replace(step, initials=tuple(initials)) if own else step

    return replace(program, steps=included(program.steps)) if any(found) else program
