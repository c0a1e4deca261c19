"""A library routine in the making: a provider takes scratch memory and launches kernels over whole arrays.

A kernel is either one of lanes, in the Kernel IR, or a `GroupProgram`: what a workgroup does for one tile, written
with the Assembler's instructions, with memory of the workgroup and barriers. Launches run one after the other, and
each sees all that those before it wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KValue
from loopgrad.codegen.program import ALIGNMENT, ArraySlot, RoutineLaunch, RoutineStep
from loopgrad.codegen.targets.gpu.lanes.boxes import boxed
from loopgrad.codegen.targets.gpu.lanes.plan import (
    UNTILED,
    Geometry,
    GroupProgram,
    LaneMapping,
    Support,
    power_below,
    streamed_tiles,
)
from loopgrad.graph.types import DTYPES, DType, TensorType, int64

MOST_INVOCATIONS: Final = 256  # of a workgroup
OWN_BYTES: Final = 64  # of a workgroup's memory, for what every kernel has

Launch = Callable[[int, int, int, bool], int]


class Array(NamedTuple):
    """A slot that a launch works on, and the type of its elements there."""

    slot: int
    type: TensorType


class Constants:
    """Constants of a program, to which routines add some."""

    def __init__(self, slots: list[ArraySlot], content: bytes) -> None:
        self._slots, self._content = slots, bytearray(content)
        self._known: dict[tuple[str, bytes], Array] = {}

    @property
    def content(self) -> bytes:
        return bytes(self._content)

    def array(self, value: np.ndarray[Any, Any]) -> Array:
        """A slot that holds it; equal ones are one."""
        key = (value.dtype.name, value.tobytes())
        if key not in self._known:
            self._content += bytes(-len(self._content) % ALIGNMENT)
            type = TensorType(value.shape, DTYPES[value.dtype.name])
            self._slots.append(ArraySlot(type, "constant", len(self._content)))
            self._content += key[1]
            self._known[key] = Array(len(self._slots) - 1, type)
        return self._known[key]


class Workgroups(NamedTuple):
    """What a program needs: workgroups of so many invocations (0: as many as the target likes), registers for so many
    `resident` side by side (0: any number), bytes that each shares (0: no more than all have), and `matrix_units`.
    `unlike`: its tiles take unlike times, so none should wait behind others for its workgroup."""

    group: int = 0
    resident: int = 0
    memory: int = 0
    matrix_units: bool = False
    unlike: bool = False


ANY: Final = Workgroups()


@dataclass(slots=True)
class Routine:
    """`inputs`, `outputs`: the step's. `launch(module, lanes, tiles, unlike)` numbers a support launch; `slots` are the
    program's, to which scratch memory is added."""

    name: str
    attrs: dict[str, object]
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    slots: list[ArraySlot]
    support: Support
    launch: Launch
    constants: Constants
    scratch_slots: list[int] = field(default_factory=list)
    launches: list[RoutineLaunch] = field(default_factory=list)

    @property
    def group(self) -> int:
        """Invocations of a workgroup: a power of two."""
        return power_below(min(self.geometry.group, MOST_INVOCATIONS))

    @property
    def memory(self) -> int:
        """Bytes of a workgroup that are left for a program."""
        return self.geometry.memory - OWN_BYTES

    @property
    def asked_memory(self) -> int:
        """Bytes of a workgroup where launches ask for them."""
        return max(self.geometry.asked_memory - OWN_BYTES, self.memory)

    @property
    def geometry(self) -> Geometry:
        """What workgroups of the target can be."""
        return self.support.geometry

    def scratch(self, count: int, dtype: DType = int64) -> Array:
        """Memory for so many elements, uninitialised, for the launches of this step alone."""
        type = TensorType((max(count, 1),), dtype)
        self.slots.append(ArraySlot(type, "temp"))
        self.scratch_slots.append(len(self.slots) - 1)
        return Array(self.scratch_slots[-1], type)

    def constant(self, value: np.ndarray[Any, Any]) -> Array:
        """Elements that are known now."""
        return self.constants.array(value)

    def by_lanes(self, kernel: Kernel, lanes: int, *arrays: Array) -> None:
        """A kernel of the Kernel IR, whose parameters are these arrays: of one lane, which `lanes` run, or of all."""
        tiles = streamed_tiles(kernel, self.geometry) if prod(kernel.domain) == lanes else None
        shape = UNTILED if tiles is None else LaneMapping(group=self.geometry.group, tiles=tiles)
        self._launched(self.support.add(kernel, shape), lanes, 0 if tiles is None else tiles.count, arrays)

    def by_boxes(self, kernel: Kernel, *arrays: Array) -> None:
        """A kernel of the Kernel IR that reads across the order in which it writes, for all of its lanes."""
        boxes = boxed(kernel, self.memory)
        if boxes is None:
            self.by_lanes(kernel, prod(kernel.domain), *arrays)
        else:
            self.by_mapping(kernel, LaneMapping(group=self.geometry.group, boxes=boxes), boxes.count, *arrays)

    def by_mapping(self, kernel: Kernel, shape: LaneMapping, tiles: int, *arrays: Array) -> None:
        """A kernel of the Kernel IR whose tiles workgroups take in that way. Arrays: its parameters, then scratch."""
        self._launched(self.support.add(kernel, shape), prod(kernel.domain), tiles, arrays)

    def by_groups(self, name: str, program: GroupProgram, tiles: int, *arrays: Array, needs: Workgroups = ANY) -> None:
        """A workgroup for each of the tiles, of `self.group` invocations where it `needs` no other number. The program
        finds the addresses of these arrays in `e.table.params`."""
        params = tuple([BufferParam(a.type.dtype, a.type.size, "write") for a in arrays])
        group = needs.group or self.group
        kernel = Kernel(name, (tiles * group,), params, Block((KValue(int64),)))
        mapping = LaneMapping(group=group, program=program, resident=needs.resident, matrix_units=needs.matrix_units)
        module = self.support.add(kernel, replace(mapping, asks=needs.memory > self.memory))
        self._launched(module, tiles * group, tiles, arrays, needs.unlike)

    def _launched(self, module: int, lanes: int, tiles: int, arrays: Sequence[Array], unlike: bool = False) -> None:
        number = self.launch(module, lanes, tiles, unlike)
        self.launches.append(RoutineLaunch(number, tuple([a.slot for a in arrays])))


class Provider(NamedTuple):
    """One way to do a routine. `refuses`: why it can't do this one, "" where it can. `make` adds its launches."""

    name: str
    refuses: Callable[[Routine], str]
    make: Callable[[Routine], None]


def begun(step: RoutineStep, slots: list[ArraySlot], support: Support, launch: Launch, constants: Constants) -> Routine:
    """The step as a routine without launches."""
    inputs, outputs = (tuple([Array(s, slots[s].type) for s in numbers]) for numbers in (step.inputs, step.outputs))
    return Routine(step.name, dict(step.attrs), inputs, outputs, slots, support, launch, constants)
