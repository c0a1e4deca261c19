"""What a kernel needs of a region: dead carries, unread pushes and unused values are never emitted.

for (n, x0, s0) body (k, x, s): y = sin(x); t = push(s, x); return y, t
needed results {0}: carry 0 only, so neither the push nor the stack
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.regions import Loop, Region

Positions = frozenset[int]


@dataclass(slots=True)
class Live:
    """`needed[node]`: result positions wanted of a live node; `inputs`: positions of live inputs."""

    needed: dict[Node, set[int]] = field(default_factory=dict)
    inputs: set[int] = field(default_factory=set)


class Liveness:
    """Answers are cached: a graph may be asked about many times."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[Graph, Positions], Live] = {}
        self._operands: dict[tuple[Node, Positions], tuple[int, ...]] = {}

    def graph(self, graph: Graph, outputs: Iterable[int]) -> Live:
        """What the outputs at these positions need."""
        wanted = frozenset(outputs)
        known = self._graphs.get((graph, wanted))
        if known is None:
            known = self.slice(graph.nodes, [graph.outputs[i] for i in wanted])
            values = {v for node, _ in known.needed.items() for v in self.read_by(node, known)}
            values.update(graph.outputs[i] for i in wanted)
            known.inputs = {i for i, v in enumerate(graph.inputs) if v in values}
            self._graphs[graph, wanted] = known
        return known

    def slice(self, nodes: Iterable[Node], values: Iterable[Value], loaded: Container[Value] = ()) -> Live:
        """The live ones among `nodes` (in topological order) when `values` are wanted. Nothing is live for a value
        among `loaded`: a region that runs again for its stack doesn't make results again that are in memory."""
        live = Live()
        wanted: dict[Node, set[int]] = live.needed

        def want(value: Value) -> None:
            if value.node is not None and value not in loaded:
                wanted.setdefault(value.node, set()).add(value.index)

        for value in values:
            want(value)
        order: list[Node] = []
        for node in reversed(list(nodes)):
            if node in wanted:
                order.append(node)
                for i in self.operands(node, frozenset(wanted[node])):
                    want(node.operands[i])
        live.needed = {node: wanted[node] for node in reversed(order)}
        return live

    def read_by(self, node: Node, live: Live) -> list[Value]:
        return [node.operands[i] for i in self.operands(node, frozenset(live.needed[node]))]

    def operands(self, node: Node, results: Positions) -> tuple[int, ...]:
        """Operand positions that the results at these positions depend on."""
        if not node.regions:
            return tuple(range(len(node.operands)))
        known = self._operands.get((node, results))
        if known is None:
            region = Region.of(node)
            known = self._loop(region, results) if isinstance(region, Loop) else self._branches(region, results)
            self._operands[node, results] = known
        return known

    def _branches(self, region: Region, results: Positions) -> tuple[int, ...]:
        read = set(range(region.first))
        for body in region.bodies:
            read.update(region.offset + i for i in self.graph(body, results).inputs)
        return tuple(sorted(read))

    def carries(self, loop: Loop, results: Positions) -> Positions:
        """The carries of a loop that its results at these positions depend on."""
        carries = map(loop.carry_at, self.operands(loop.node, results))
        return frozenset([c for c in carries if c is not None])

    def _loop(self, loop: Loop, results: Positions) -> tuple[int, ...]:
        """The least fixpoint: a carry is live where a live carry, the condition or a result reads it. The count is."""
        condition = self.graph(loop.condition, (0,)).inputs if loop.condition is not None else set[int]()
        live = set(results) | {c for i in condition if (c := loop.carry_at(i)) is not None}
        while True:
            read = self.graph(loop.body, live).inputs | condition
            grown = live | {c for i in read if (c := loop.carry_at(i)) is not None}
            if grown == live:
                break
            live = grown
        captured = loop.captured
        return (*range(loop.first), *sorted(map(loop.position, live)), *sorted(i for i in read if i in captured))
