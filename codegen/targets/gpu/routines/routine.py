"""A library routine in the making: a provider takes scratch memory and launches kernels over whole arrays.

A kernel is either one of lanes, in the Kernel IR, or a `GroupProgram`: what a workgroup does for one tile, written
with the Assembler's instructions, with memory of the workgroup and barriers. Launches run one after the other, and
each sees all that those before it wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KValue
from loopgrad.codegen.program import RoutineLaunch, RoutineStep, Slot
from loopgrad.codegen.targets.gpu.lanes.layout import Support
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry, GroupProgram, Plan
from loopgrad.graph.types import DType, TensorType, int64

Launch = Callable[[int, int, int], int]


class Array(NamedTuple):
    """A slot that a launch works on, and the type of its elements there."""

    slot: int
    type: TensorType


@dataclass(slots=True)
class Routine:
    """`inputs`, `outputs`: the step's. `launch(module, lanes, tiles)` numbers a support launch; `slots` are the
    program's, to which scratch memory is added."""

    name: str
    attrs: dict[str, object]
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    slots: list[Slot]
    support: Support
    launch: Launch
    scratch_slots: list[int]
    launches: list[RoutineLaunch]

    @property
    def geometry(self) -> Geometry:
        """What workgroups of the target can be."""
        return self.support.geometry

    def scratch(self, count: int, dtype: DType = int64) -> Array:
        """Memory for so many elements, uninitialised, for the launches of this step alone."""
        type = TensorType((max(count, 1),), dtype)
        self.slots.append(Slot(type, "temp"))
        self.scratch_slots.append(len(self.slots) - 1)
        return Array(self.scratch_slots[-1], type)

    def by_lanes(self, kernel: Kernel, lanes: int, *arrays: Array) -> None:
        """A kernel of the Kernel IR, whose parameters are these arrays."""
        self._launched(self.support.add(kernel), lanes, 0, arrays)

    def by_groups(self, name: str, program: GroupProgram, tiles: int, *arrays: Array, group: int = 0) -> None:
        """A workgroup of `group` invocations (0: the target's choice) for each of the tiles. The program finds the
        addresses of these arrays in `e.table.params`."""
        params = tuple([BufferParam(a.type.dtype, a.type.size, "write") for a in arrays])
        group = group or self.geometry.group
        kernel = Kernel(name, (tiles * group,), params, Block((KValue(int64),)))
        module = self.support.add(kernel, Plan(group=group, program=program))
        self._launched(module, tiles * group, tiles, arrays)

    def _launched(self, module: int, lanes: int, tiles: int, arrays: Sequence[Array]) -> None:
        self.launches.append(RoutineLaunch(self.launch(module, lanes, tiles), tuple([a.slot for a in arrays])))


class Provider(NamedTuple):
    """One way to do a routine. `refuses`: why it can't do this one, "" where it can. `make` adds its launches."""

    name: str
    refuses: Callable[[Routine], str]
    make: Callable[[Routine], None]


def begun(step: RoutineStep, slots: list[Slot], support: Support, launch: Launch) -> Routine:
    """The step as a routine without launches."""
    inputs, outputs = (tuple([Array(s, slots[s].type) for s in numbers]) for numbers in (step.inputs, step.outputs))
    return Routine(step.name, dict(step.attrs), inputs, outputs, slots, support, launch, [], [])
