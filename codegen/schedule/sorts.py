"""Sorts in the form that routines have them.

sort {axis=0}(x)          ->  transpose(sort {axis=last}(transpose(x))): what is sorted lies side by side, and whoever
                              makes the operand and reads the result transposes
sort(x) and argsort(x)    ->  gather(x, argsort(x)) and argsort(x), as in the gradient of what was sorted: moving
                              elements costs less than sorting them
sort(x), read at a few places  ->  sort {places}(x) (see `selection`)
sort(x), x in [0, 999]  ->  sort {bits=10}(x): where digits are sorted (`counts_bits`), those that all elements share
                              needn't be
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loopgrad.codegen.schedule.selection import places_read
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import LIBRARY
from loopgrad.graph.ranges import bounds
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.types import TensorType, int64

Key = tuple[Value, int]


def rewrite_sorts(graph: Graph, counts_bits: bool = False) -> Graph:
    """The sorts of `graph` itself in these forms; its regions stay."""
    sorts = [node for node in graph.nodes if _sorts(node)]
    if not sorts:
        return graph
    wanted: dict[Key, set[str]] = {}
    for node in [node for node in sorts if node.op != "top_positions"]:
        wanted.setdefault((node.operands[0], node.attrs["axis"]), set()).add(node.op)
    both = frozenset([key for key, ops in wanted.items() if len(ops) > 1])
    return rebuild(graph, _Rewriting(both, places_read(graph), counts_bits), inner=False)


def _sorts(node: Node) -> bool:
    """Whether it is a routine that works along an axis."""
    return node.op in LIBRARY and "axis" in node.attrs


@dataclass(slots=True)
class _Rewriting:
    """`both`: what is sorted and argsorted as well. `orders`: how it lies for that, and the positions, once made.
    `places`: which elements of a sort's rows are read, where not all are."""

    both: frozenset[Key]
    places: Mapping[Value, tuple[int, ...]]
    counts_bits: bool
    orders: dict[Key, tuple[Value, Value]] = field(default_factory=dict)

    def __call__(self, node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        return [self.sort(node, builder)] if _sorts(node) else None

    def sort(self, node: Node, builder: GraphBuilder) -> Value:
        """What stands for the node's result."""
        assert builder.original is not None, "orders and places are those of the graph as it was"
        (operand,), original, rank = node.operands, builder.original, len(node.results[0].shape)
        key = (original.operands[0], node.attrs["axis"])
        perm = list(range(rank))
        perm[key[1]], perm[-1] = rank - 1, key[1]
        if key not in self.both or node.op == "top_positions":
            attrs = {**node.attrs, "axis": rank - 1, **self.bits(operand)}
            if original.results[0] in self.places:
                attrs["places"] = self.places[original.results[0]]
            return _turned(builder.value(node.op, _turned(operand, perm, builder), **attrs), perm, builder)
        if key not in self.orders:
            rows = _turned(operand, perm, builder)
            self.orders[key] = rows, builder.value("argsort", rows, axis=rank - 1, **self.bits(operand))
        rows, order = self.orders[key]
        if node.op == "argsort":
            return _turned(order, perm, builder)
        own = [builder.value("iota", type=TensorType(rows.shape, int64), axis=d) for d in range(rank - 1)]
        return _turned(builder.value("gather", rows, *own, order), perm, builder)

    def bits(self, operand: Value) -> dict[str, int]:
        """The attribute that says how many low bits of integers differ, where that are known to be fewer than all."""
        if not self.counts_bits or operand.dtype.kind not in "iu":
            return {}
        low, high = bounds(operand)
        return {"bits": high.bit_length()} if low >= 0 and high.bit_length() < operand.dtype.bits else {}


def _turned(value: Value, perm: Sequence[int], builder: GraphBuilder) -> Value:
    """The axis brought to the end, or back."""
    return value if list(perm) == sorted(perm) else builder.value("transpose", value, perm=tuple(perm))
