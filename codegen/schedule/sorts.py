"""Sorts in the form that routines have them.

sort {axis=0}(x)          ->  transpose(sort {axis=last}(transpose(x))): what is sorted lies side by side, and whoever
                              makes the operand and reads the result transposes
sort(x) and argsort(x)    ->  gather(x, argsort(x)) and argsort(x), as in the gradient of what was sorted: moving
                              elements costs less than sorting them
sort(x), read at a few places  ->  sort {places}(x) (see `selection`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loopgrad.codegen.schedule.selection import places_read
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import LIBRARY
from loopgrad.graph.rebuild import GraphBuilder, renewed
from loopgrad.graph.types import TensorType, int64

Key = tuple[Value, int]


def rewrite_sorts(graph: Graph) -> Graph:
    """The sorts of `graph` itself in these forms; its regions stay."""
    sorts = [node for node in graph.nodes if _sorts(node)]
    if not sorts:
        return graph
    wanted: dict[Key, set[str]] = {}
    for node in [node for node in sorts if node.op != "top_positions"]:
        wanted.setdefault((node.operands[0], node.attrs["axis"]), set()).add(node.op)
    both = frozenset([key for key, ops in wanted.items() if len(ops) > 1])
    rewriting = _Rewriting(both, places_read(graph))
    return rewriting.graph(graph)


def _sorts(node: Node) -> bool:
    """Whether it is a routine that works along an axis."""
    return node.op in LIBRARY and "axis" in node.attrs


@dataclass(slots=True)
class _Rewriting:
    """`both`: what is sorted and argsorted as well. `orders`: how it lies for that, and the positions, once made.
    `places`: which elements of a sort's rows are read, where not all are."""

    both: frozenset[Key]
    places: Mapping[Value, tuple[int, ...]]
    builder: GraphBuilder = field(default_factory=GraphBuilder)
    orders: dict[Key, tuple[Value, Value]] = field(default_factory=dict)

    def graph(self, graph: Graph) -> Graph:
        env: dict[Value, Value] = {}
        for node in graph.nodes:
            current = renewed(
                node, tuple([env.get(v, v) for v in node.operands]) if env else node.operands, node.regions
            )
            self.builder.loc = current.loc
            if not _sorts(node):
                self.builder.nodes.append(current)
                env.update((old, new) for old, new in zip(node.results, current.results, strict=True) if old is not new)
            else:
                env[node.results[0]] = self.sort(node, current.operands[0])
        return Graph(graph.inputs, tuple(self.builder.nodes), tuple([env.get(v, v) for v in graph.outputs]))

    def sort(self, node: Node, operand: Value) -> Value:
        """What stands for the node's result, where `operand` stands for its operand."""
        key, rank = (node.operands[0], node.attrs["axis"]), len(operand.shape)
        perm = list(range(rank))
        perm[key[1]], perm[-1] = rank - 1, key[1]
        if key not in self.both or node.op == "top_positions":
            attrs = {**node.attrs, "axis": rank - 1}
            if node.results[0] in self.places:
                attrs["places"] = self.places[node.results[0]]
            return self.turned(self.builder.value(node.op, self.turned(operand, perm), **attrs), perm)
        if key not in self.orders:
            rows = self.turned(operand, perm)
            self.orders[key] = rows, self.builder.value("argsort", rows, axis=rank - 1)
        rows, order = self.orders[key]
        if node.op == "argsort":
            return self.turned(order, perm)
        own = [self.builder.value("iota", type=TensorType(rows.shape, int64), axis=d) for d in range(rank - 1)]
        return self.turned(self.builder.value("gather", rows, *own, order), perm)

    def turned(self, value: Value, perm: Sequence[int]) -> Value:
        """The axis brought to the end, or back."""
        if list(perm) == sorted(perm):
            return value
        return self.builder.value("transpose", value, perm=tuple(perm))
