"""The `interpreter` device: reference semantics, one NumPy call per node.

It is slow and always available; other devices are checked against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loopgrad.codegen.options import Options
from loopgrad.graph.interpret import interpret
from loopgrad.graph.nodes import Graph, Noted
from loopgrad.graph.structure import LeafOf
from loopgrad.graph.types import DType, TensorType
from loopgrad.runtime.buffers import Buffer, check_inputs, host_buffer
from loopgrad.runtime.executable import Executable
from loopgrad.runtime.plan import BufferRow, MemoryStats, Plan
from loopgrad.runtime.replay import Recording

NAME = "interpreter"


class InterpreterDevice:
    """Compiles nothing."""

    name = NAME
    kind = "interpreter"
    reduces_shards = True

    def put(self, array: np.ndarray[Any, Any], copy: bool = True) -> Buffer:
        return host_buffer(array, NAME, copy)

    def get(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        return buffer.array

    def taken(self, buffer: Buffer) -> None:
        return None

    def lent(self, array: np.ndarray[Any, Any], type: TensorType) -> Buffer:
        return Buffer(array, self.name, type)

    def adds_rows_alike(self, rows: int, terms: int, columns: int, dtype: DType) -> bool:
        return False  # NumPy's library chooses by shape

    def compile(self, graph: Graph, options: Options) -> Executable:
        return InterpreterExecutable(graph, options.check_indices)

    def direct(self, graph: Graph, options: Options) -> None:
        return None  # what is compiled here runs at once

    def noted(self, output: Noted, leaf_of: LeafOf, options: Options, together: bool) -> None:
        return None  # as above

    def finish(self) -> None:
        """Calls return when their work is done."""

    def memory_stats(self) -> MemoryStats:
        return MemoryStats()  # it keeps nothing between calls


class InterpreterExecutable(Executable):
    """Holds the graph and walks it on every call."""

    device = NAME

    def __init__(self, graph: Graph, check_indices: bool = False) -> None:
        self.graph = graph
        self.check_indices = check_indices
        self.input_types = _tensor_types(graph.input_types)
        self.output_types = _tensor_types(graph.output_types)

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        arrays = interpret(self.graph, [b.array for b in buffers], self.check_indices)
        given = dict(zip(self.graph.inputs, buffers, strict=True))
        return [
            given.get(v) or host_buffer(np.asarray(a, dtype=t.dtype.np).reshape(t.shape), NAME)
            for v, a, t in zip(self.graph.outputs, arrays, self.output_types, strict=True)
        ]

    def record(self, buffers: Sequence[Buffer]) -> Recording:
        return InterpreterRecording(self, buffers)

    def plan(self) -> Plan:
        rows = [("input", t) for t in self.input_types] + [("output", t) for t in self.output_types]
        buffers = tuple(BufferRow(i, kind, str(t), t.nbytes, None) for i, (kind, t) in enumerate(rows))
        notes = ("the interpreter runs node by node: it has no kernels",)
        return Plan(NAME, (), buffers, (), notes, 0, 0)

    def text(self, stage: str) -> str:
        if stage != "graph":
            raise ValueError(f"expected the stage 'graph' on the interpreter, got {stage!r}; other devices have more")
        return str(self.graph)

    def explain(self) -> tuple[str, ...]:
        return ("runs node by node in NumPy: the interpreter compiles nothing",)

    def memory_stats(self) -> MemoryStats:
        return MemoryStats()

    @property
    def host_bytes(self) -> int:
        return 0


class InterpreterRecording(Recording):
    """A call to repeat."""

    def __init__(self, executable: InterpreterExecutable, buffers: Sequence[Buffer]) -> None:
        self._executable = executable
        self._inputs = list(buffers)
        self._outputs: list[Buffer] = []
        self.submit()

    def bind(self, buffers: Sequence[Buffer]) -> None:
        check_inputs(self._executable.input_types, buffers, NAME)
        self._inputs = list(buffers)

    def submit(self) -> None:
        self._outputs = self._executable.run(self._inputs)

    def settle(self) -> bool:
        return True

    def outputs(self) -> list[Buffer]:
        return self._outputs

    def growths(self) -> int:
        return 0


def _tensor_types(types: Sequence[object]) -> tuple[TensorType, ...]:
    for t in types:
        if not isinstance(t, TensorType):
            raise TypeError(f"expected tensors as inputs and outputs of a compiled graph, got {t}")
    return tuple(t for t in types if isinstance(t, TensorType))
