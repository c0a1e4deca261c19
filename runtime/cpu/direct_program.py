"""What runs a graph directly, operation by operation, once `runtime.cpu.direct` has planned it.

Values have places, in the order of inputs, constants, results. Where arrays are large, a program lets go of what nobody
needs any more, and writes over it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.graph.closed_calls import called, is_closed_call
from loopgrad.graph.interpret_regions import Activation
from loopgrad.graph.lift import NumberPlace, slots
from loopgrad.graph.nodes import Graph
from loopgrad.graph.primitives.primitive import Attrs
from loopgrad.graph.types import TensorType
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.cpu.direct_regions import Budget, RegionOperation, arrays_of
from loopgrad.runtime.executable import DirectProgram

DEVICE: Final = "cpu"

Outputs = Sequence[tuple[int, TensorType]]
"""Places, and the types of what is there."""


class Operation(NamedTuple):
    """`attrs` None: the function takes arrays alone, and gives its result alone; else it takes them first, and gives a
    tuple. `operands` are places; results have the next ones."""

    function: Callable[..., Any]
    attrs: Attrs | None
    operands: tuple[int, ...]


class LargeOperation(NamedTuple):
    """One, with one result, of a program with large values, whose memory counts: nobody needs what is in the places
    `last` afterwards, and the result may take the place of what is in `over`."""

    operation: Operation
    last: tuple[int, ...]
    over: int | None


class OpenNumber(NamedTuple):
    """Where a program has a number that scripts change: the place among all of the `constant` that it is, or of the
    `operation` whose attributes have it."""

    number: NumberPlace
    constant: int | None
    operation: int | None


class CpuDirectProgram(DirectProgram):
    """See the module. Safe to call from several threads. `segments`, `loops`: see Planner. `open`: its numbers, in the
    order of `graph.lift`; None where the plan depends on them."""

    segments: set[tuple[int, int]]
    loops: bool

    def __init__(
        self,
        inputs: int,
        constants: Sequence[Any],
        operations: Sequence[Operation],
        outputs: Outputs,
        work: int,
        shared: int = 0,
    ) -> None:
        self.work = work
        self.shared = shared
        self.operations = operations
        self.outputs = outputs
        self.first = inputs + len(constants)  # place of a result
        self.large: Sequence[LargeOperation] = ()
        self.open: Sequence[OpenNumber] | None = None
        self._inputs = inputs
        self._constants = constants

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        with np.errstate(all="ignore"):
            found = self._computed([b.array for b in buffers])
        return [buffers[i] if i < self._inputs else dense(found[i], type) for i, type in self.outputs]

    def with_numbers(self, numbers: Sequence[float | int]) -> DirectProgram | None:
        if self.open is None or self.large:
            return None
        constants, operations = [*self._constants], [*self.operations]
        for (place, constant, operation), number in zip(self.open, numbers, strict=True):
            if constant is not None:
                constants[constant] = filled(place.node.attrs["type"], number)
            elif operation is not None:
                function, attrs, operands = operations[operation]
                assert attrs is not None
                operations[operation] = Operation(function, place.moved(attrs, int(number)), operands)
        return CpuDirectProgram(self._inputs, constants, operations, self.outputs, self.work, self.shared)

    def explain(self) -> tuple[str, ...]:
        count, took = len(self.operations), f"{self.work / 1000:,.0f} microseconds"
        return (f"runs directly, without being compiled: {count} operations one after the other, about {took}",)

    def compute(self, *arrays: Any) -> Any:
        """The only output for these inputs, as part of another program."""
        return self._computed([*arrays])[self.outputs[0][0]]

    def _computed(self, found: list[Any]) -> list[Any]:
        """All values, where the inputs are found."""
        found += self._constants
        if self.large:
            return self._computed_sparingly(found)
        for function, attrs, operands in self.operations:
            if attrs is not None:
                found += function(attrs, *[found[i] for i in operands])
            elif len(operands) == 2:
                i, j = operands
                found.append(function(found[i], found[j]))
            else:
                found.append(function(*[found[i] for i in operands]))
        return found

    def _computed_sparingly(self, found: list[Any]) -> list[Any]:
        """As above; what nobody needs any more goes."""
        for (function, attrs, operands), last, over in self.large:
            arrays = [found[i] for i in operands]
            if attrs is not None:
                result = function(attrs, *arrays)[0]
            else:
                result = function(*arrays) if over is None else function(*arrays, out=found[over])
            del arrays
            found.append(result)
            for i in last:
                found[i] = None
        return found


class RegionalProgram(CpuDirectProgram):
    """One with loops or branches, or in them. `bodies`: the programs of regions, all that are inside each other."""

    def __init__(
        self, inputs: int, constants: Sequence[Any], operations: Sequence[Operation],
        outputs: Outputs, work: int, bodies: Bodies,
    ) -> None:  # fmt: skip
        super().__init__(inputs, constants, operations, outputs, work)
        self._own = work
        self._bodies = bodies

    def _computed(self, found: list[Any]) -> list[Any]:
        budget = Budget()

        def run(graph: Graph, inputs: list[Any], frame: Activation) -> list[Any]:
            body = self._bodies[graph]
            budget.spend(body.work)
            return arrays_of(body.computed_in([*inputs], frame), body.outputs)

        found = self.computed_in(found, Activation(run))
        self.work = max(budget.spent, self._own)
        return found

    def explain(self) -> tuple[str, ...]:
        trips = (
            "runs bodies of loops and branches trip by trip; a run that takes as long as compiling does is broken off, "
            "and the program compiled"
        )
        return *super().explain(), trips

    def computed_in(self, found: list[Any], frame: Activation) -> list[Any]:
        found += self._constants
        for function, attrs, operands in self.operations:
            arrays = [found[i] for i in operands]
            if isinstance(function, RegionOperation):
                found += function(arrays, frame)
            else:
                found += (function(*arrays),) if attrs is None else function(attrs, *arrays)
        return found


Bodies = dict[Graph, RegionalProgram]


def own_numbers(found: Sequence[OpenNumber] | None, graph: Graph) -> Sequence[OpenNumber] | None:
    """Of the numbers of a program those of the graph itself, of which closed calls may have given way; None where more
    was changed."""
    if found is None:
        return None
    own: list[bool] = []
    for node in graph.nodes:
        if node.regions and not is_closed_call(node):
            return None
        own += [False] * _numbers_within(called(node)) if node.regions else [True] * len(slots(node))
    return [number for number, kept in zip(found, own, strict=True) if kept] if len(own) == len(found) else None


def _numbers_within(graph: Graph) -> int:
    return sum([_numbers_within(called(node)) if node.regions else len(slots(node)) for node in graph.nodes])


def filled(type: TensorType, number: complex) -> Any:
    """An array, or NumPy's scalar, whose every element is a number; not of bfloat16."""
    with np.errstate(over="ignore"):  # a number beyond the type's range is infinity, as in kernels
        scalar = type.dtype.np.type(number)
    return np.broadcast_to(scalar, type.shape) if type.shape else scalar


def dense(result: Any, type: TensorType) -> Buffer:
    """A result's elements, dense; nobody writes to them again."""
    array = np.asarray(result)
    flags = array.flags
    if array.base is not None or not flags.c_contiguous:
        array = array.copy(order="C")
        flags = array.flags
    flags.writeable = False
    assert array.shape == type.shape, (array.shape, type)
    assert array.dtype == type.dtype.np, (array.dtype, type)
    return Buffer(array, DEVICE, type)


def sparing(program: CpuDirectProgram, types: Sequence[TensorType]) -> list[LargeOperation]:
    """The operations of a program, whose results have these types, with what they may spare. Written over is only what
    NumPy's functions of elements made and read: nothing else shares its memory."""
    operations, first = program.operations, program.first
    needed = {place for place, _ in program.outputs}
    kept = {*needed, *[p for o in operations if not _of_elements(o) for p in o.operands]}
    found: list[LargeOperation] = []
    for number, operation in reversed([*enumerate(operations)]):
        last = tuple({*operation.operands} - needed)
        needed.update(last)
        over = None
        if _of_elements(operation) and types[number].shape:  # NumPy's scalars can't be written to
            spare = [p for p in last if p >= first and p not in kept and _of_elements(operations[p - first])]
            over = next((p for p in spare if types[p - first] == types[number]), None)
        found.append(LargeOperation(operation, last, over))
    return found[::-1]


def _of_elements(operation: Operation) -> bool:
    return isinstance(operation.function, np.ufunc)
