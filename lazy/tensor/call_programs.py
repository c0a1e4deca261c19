"""The program of a call that is noted again (`lazy.tensor.repeated_calls`), and that lines can't know: of loops, and of
nodes with several results.

    lg.linalg.inv(a)      lu, solve_factored, and what finds the first matrix that has no inverse, for any `a` alike

An evaluation walks over nodes, cuts a graph of them, adds tests (`lazy.tensor.refusals`), and finds the program by the
graph's structure. Such a call notes one graph whatever its operands are, so that all this is done once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from loopgrad.graph.closed_calls import operations
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.structure import Numbers
from loopgrad.lazy.tensor.config import Config
from loopgrad.lazy.tensor.core import TensorLeaf
from loopgrad.lazy.tensor.refusals import check, with_tests
from loopgrad.lazy.tensor.walk import walked
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.devices import Device, get_device
from loopgrad.runtime.executable import Outgrown
from loopgrad.runtime.session import SESSION, Versions, evaluate_graph, placed

Noting = Callable[[Sequence[Value]], Sequence[Value]]
"""What notes a call's operations on operands, and gives its results."""


class CallProgram:
    """The program of calls with operands of some types. `order`: the operands that it takes; `marks` are tested."""

    def __init__(self, types: Sequence[Any], note: Noting) -> None:
        operands = [Value(type) for type in types]
        results = [*note(operands)]
        walk = walked(results)
        self._marks: list[Node] = walk.marks()
        outputs = with_tests(results, self._marks)
        self._graph: Graph
        self._graph, given = walked(outputs).cut(outputs)
        self._order = [operands.index(v) for v in given]
        self._count = len(results)
        self._nodes = operations(self._graph)
        self._latest: tuple[Config, ref[Versions], Numbers] | None = None

    def run(self, leaves: Sequence[TensorLeaf], config: Config) -> list[Buffer]:
        """The results for operands with elements; LinAlgError where a mark refuses them."""
        device, given = get_device(config.device), [leaves[i] for i in self._order]
        versions, numbers = self._found(config, device)
        ready = SESSION.ready(versions, numbers, self._nodes, device, config.options)
        if ready is None:
            buffers = evaluate_graph(self._graph, given, config.device, config.options)
        else:
            try:
                name = device.name
                inputs = [b if (b := leaf.buffer).device == name else placed(leaf, device) for leaf in given]
                buffers = ready[0].run([*inputs, *ready[1]])
            except Outgrown:
                buffers = evaluate_graph(self._graph, given, config.device, config.options)
        if self._marks:
            check(self._marks, [get_device(b.device).get(b) for b in buffers[self._count :]])
        return buffers[: self._count]

    def _found(self, config: Config, device: Device) -> tuple[Versions, Numbers]:
        """What the session knows of the graph with these settings, which are the latest call's mostly."""
        latest = self._latest
        if latest is not None and latest[0] is config and (versions := latest[1]()) is not None:
            return versions, latest[2]
        versions, numbers = SESSION.found(self._graph, device, config.options)
        self._latest = config, ref(versions), numbers
        return versions, numbers
