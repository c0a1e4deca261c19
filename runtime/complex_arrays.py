"""Programs that take or give complex arrays, on devices that know reals only.

`compiled` hands a device the graph of pairs (`graph.complex_pairs`) and has the executable show complex arrays to
callers, or a wrapper around it where it can't: the memory is the same, only its type is another one.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.options import Options
from loopgrad.graph.complex_pairs import in_pairs
from loopgrad.graph.nodes import Graph
from loopgrad.graph.types import TensorType
from loopgrad.runtime.buffers import Buffer, check_inputs
from loopgrad.runtime.devices import Device
from loopgrad.runtime.executable import DirectProgram, Executable
from loopgrad.runtime.plan import MemoryStats, Plan
from loopgrad.runtime.replay import Recording

Types = tuple[TensorType, ...]


def compiled(device: Device, graph: Graph, options: Options) -> Executable:
    """`graph`, which may hold complex numbers, made ready for a device."""
    pairs = in_pairs(graph)
    executable = device.compile(pairs, options)
    inputs, outputs = _tensors(graph.input_types), _tensors(graph.output_types)
    if inputs == executable.input_types and outputs == executable.output_types:
        return executable
    return executable.showing(inputs, outputs) or ComplexExecutable(executable, inputs, outputs)


def direct(device: Device, graph: Graph, options: Options) -> DirectProgram | None:
    """`graph`, which may hold complex numbers, as a program that needs no compilation, where the device has one."""
    pairs = in_pairs(graph)
    program = device.direct(pairs, options)
    outputs = _tensors(graph.output_types)
    if program is None or pairs is graph:
        return program
    return ComplexDirectProgram(program, _tensors(pairs.input_types), outputs)


def _tensors(types: Sequence[object]) -> Types:
    return tuple([t for t in types if isinstance(t, TensorType)])


def _retyped(buffers: Sequence[Buffer], types: Types) -> list[Buffer]:
    return [b if b.type == type else b.retyped(type) for b, type in zip(buffers, types, strict=True)]


class ComplexExecutable(Executable):
    """`inner` takes and gives pairs of reals where callers see complex numbers."""

    def __init__(self, inner: Executable, input_types: Types, output_types: Types) -> None:
        self.inner = inner
        self.device = inner.device
        self.input_types = input_types
        self.output_types = output_types

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        return _retyped(self.inner.run(self.pairs(buffers)), self.output_types)

    def pairs(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        check_inputs(self.input_types, buffers, self.device)
        return _retyped(buffers, self.inner.input_types)

    def expect(self, buffers: Sequence[Buffer]) -> None:
        self.inner.expect(self.pairs(buffers))

    def record(self, buffers: Sequence[Buffer]) -> Recording:
        return ComplexRecording(self, self.inner.record(self.pairs(buffers)))

    def plan(self) -> Plan:
        return self.inner.plan()

    def text(self, stage: str) -> str:
        return self.inner.text(stage)

    def explain(self) -> tuple[str, ...]:
        return self.inner.explain()

    def memory_stats(self) -> MemoryStats:
        return self.inner.memory_stats()

    @property
    def host_bytes(self) -> int:
        return self.inner.host_bytes


class ComplexDirectProgram(DirectProgram):
    """As above, of a program that isn't compiled. It takes no other numbers: those of pairs aren't those of the graph,
    also where only values on the way are complex."""

    def __init__(self, inner: DirectProgram, pair_types: Types, output_types: Types) -> None:
        self._inner = inner
        self._pair_types = pair_types
        self._output_types = output_types

    @property
    def work(self) -> int:  # type: ignore[override]  # nobody sets it
        return self._inner.work

    @property
    def shared(self) -> int:  # type: ignore[override]  # as above
        return self._inner.shared

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        return _retyped(self._inner.run(_retyped(buffers, self._pair_types)), self._output_types)

    def explain(self) -> tuple[str, ...]:
        return self._inner.explain()


class ComplexRecording(Recording):
    """A recorded call of pairs, as above."""

    def __init__(self, executable: ComplexExecutable, inner: Recording) -> None:
        self._executable = executable
        self._inner = inner

    def bind(self, buffers: Sequence[Buffer]) -> None:
        self._inner.bind(self._executable.pairs(buffers))

    def submit(self) -> None:
        self._inner.submit()

    def settle(self) -> bool:
        return self._inner.settle()

    def outputs(self) -> list[Buffer]:
        return _retyped(self._inner.outputs(), self._executable.output_types)

    def growths(self) -> int:
        return self._inner.growths()
