"""Functions that our code generator expands (exp, sin, pow ...) and sums of rows, on arrays of any size: for programs
that run directly.

A function is a compiled program of its own for a fixed number of elements, which takes longer arrays in parts (where
they lie). An
element's bits don't depend on what is computed beside it, so they are those of any other program. A sum, product or
extreme of a long row is a program for the next power of two, to which the row is filled up with what changes nothing:
small kernels combine a row's elements in an order that depends on how many there are alone
(`codegen.targets.cpu.vector.lanes.settled`). Made when they are first needed, kept in the cache on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.codegen.options import DEFAULT_OPTIONS, Options
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.primitive import Array
from loopgrad.graph.types import DType, TensorType
from loopgrad.runtime.buffers import Buffer, address_of
from loopgrad.runtime.cpu.executable import CpuExecutable
from loopgrad.runtime.executable import Executable

FEW: Final = 64  # elements of a program that most arrays fit in
MANY: Final = 1024
MOST: Final = 1 << 15  # which several threads compute

Compile = Callable[[Graph, Options], CpuExecutable]
Key = tuple[str, DType, int | None, int]


class Expanded:
    """The functions of one device."""

    def __init__(self, compile: Compile) -> None:
        self._compile = compile
        self._programs: dict[Key, BlockProgram] = {}
        self._rows: dict[tuple[str, DType, int], RowProgram] = {}

    def function(self, node: Node, exponent: int | None) -> Callable[..., Array]:
        """What computes the node's result from arrays of one shape; from the first alone where an exponent is given
        that is part of the code."""
        op, type = node.op, node.results[0].type
        assert isinstance(type, TensorType)
        count = 1 if exponent is not None else len(node.operands)
        program = self._program((op, type.dtype, exponent, FEW if type.size <= FEW else MANY), count)
        if type.size < MOST:
            return program.run
        return Parts(self._program((op, type.dtype, exponent, MOST), count), program).run

    def rows(self, op: str, dtype: DType, extent: int, nothing: float) -> Callable[[Any], Array]:
        """What reduces each row of an array (rows, extent); `nothing` combines with any element to that."""
        size = 1 << (extent - 1).bit_length()
        program = self._rows.get((op, dtype, size))
        if program is None:
            inputs = (Value(TensorType((size,), dtype)),)
            node = Node(op, inputs, (TensorType((), dtype),), {"axes": (0,)})
            executable = self._compile(Graph(inputs, (node,), node.results), DEFAULT_OPTIONS)
            program = self._rows[op, dtype, size] = RowProgram(executable, nothing)
        return program.run

    def _program(self, key: Key, count: int) -> BlockProgram:
        program = self._programs.get(key)
        if program is None:
            graph = _graph(key, count)
            program = self._programs[key] = BlockProgram(self._compile(graph, DEFAULT_OPTIONS), key[-1])
        return program


def _graph(key: Key, count: int) -> Graph:
    op, dtype, exponent, size = key
    type = TensorType((size,), dtype)
    inputs = tuple([Value(type) for _ in range(count)])
    nodes, operands = [], inputs
    if exponent is not None:
        nodes.append(Node("const", (), (type,), {"value": float(exponent), "type": type}))
        operands = (*inputs, nodes[0].results[0])
    nodes.append(Node(op, operands, (type,)))
    return Graph(inputs, tuple(nodes), nodes[-1].results)


class BlockProgram:
    """A program of `size` elements, for arrays of other sizes."""

    def __init__(self, executable: CpuExecutable, size: int) -> None:
        self.size = size
        self._executable = executable
        self._idle: list[Sequence[Buffer]] = []  # inputs that no call is using

    def run(self, *arrays: Any) -> Array:
        """The elements, in new memory."""
        flat = [np.reshape(a, -1) for a in arrays]
        result = np.empty(np.shape(arrays[0]), flat[0].dtype)
        self.fill(result.reshape(-1), flat)
        return result

    def fill(self, target: Array, flat: Sequence[Array]) -> None:
        """The elements of vectors, in memory that lies together."""
        whole = self.whole(target, flat)
        if whole == len(target):
            return
        try:
            inputs = self._idle.pop()
        except IndexError:
            inputs = self._inputs()
        part = target[whole:]
        for buffer, elements in zip(inputs, flat, strict=True):
            buffer.array[: len(part)] = elements[whole:]
        part[...] = self._executable.run(inputs)[0].array[: len(part)]
        self._idle.append(inputs)

    def whole(self, target: Array, flat: Sequence[Array]) -> int:
        """As many of them as fill whole blocks, computed where they lie; how many these are."""
        whole = len(target) // self.size * self.size
        if whole:
            dense = [np.ascontiguousarray(a) for a in flat]
            addresses = [address_of(a) for a in dense]
            result, itemsize = address_of(target), target.itemsize
            for first in range(0, whole * itemsize, self.size * itemsize):
                self._executable.run_at([a + first for a in addresses], (result + first,))
        return whole

    def _inputs(self) -> Sequence[Buffer]:
        """Memory of our own, that nobody else sees."""
        types = self._executable.input_types
        return [Buffer(np.ones(t.shape, t.dtype.np), self._executable.device, t) for t in types]


class Parts(NamedTuple):
    """Long arrays: whole blocks of the one program, the rest by the other."""

    most: BlockProgram
    rest: BlockProgram

    def run(self, *arrays: Any) -> Array:
        """The elements, in new memory."""
        flat = [np.ascontiguousarray(a).reshape(-1) for a in arrays]
        result = np.empty(np.shape(arrays[0]), flat[0].dtype)
        target = result.reshape(-1)
        whole = self.most.whole(target, flat)
        self.rest.fill(target[whole:], [a[whole:] for a in flat])
        return result


class RowProgram:
    """A program that reduces one row, for shorter ones."""

    def __init__(self, executable: Executable, nothing: float) -> None:
        self._executable = executable
        self._nothing = nothing
        self._idle: list[Buffer] = []  # inputs that no call is using

    def run(self, rows: Array) -> Array:
        """A result for each row, in new memory."""
        result = np.empty(len(rows), rows.dtype)
        try:
            given = self._idle.pop()
        except IndexError:
            type = self._executable.input_types[0]
            given = Buffer(np.empty(type.shape, type.dtype.np), self._executable.device, type)
        given.array[rows.shape[1] :] = self._nothing
        for i, row in enumerate(rows):
            given.array[: len(row)] = row
            result[i] = self._executable.run([given])[0].array
        self._idle.append(given)
        return result
