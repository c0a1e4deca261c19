"""What the body of a loop computes without its carries, for all trips at once.

`TripRows` knows the values of a body that only its index and what it captures reach, and makes them in the graph
around the loop, with an axis of the trips in front: row k is the value in trip k. A capture that is looked up at the
index is its own rows; a product by a matrix that all trips share is one large product.

    body(%k, %c, %x, %w)                            %3 = reshape(%x) {shape=(5 * 8, 16)}
      %1 = gather(%x, %k)           : f[8,16]  ->   %4 = matmul(%3, %w)
      %2 = matmul(%1, %w)           : f[8,64]       %5 = reshape(%4) {shape=(5, 8, 64)}     rows of %2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from loopgrad.graph.batching import batch
from loopgrad.graph.build import trace
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import PRIMITIVES, Kind
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.regions import Loop
from loopgrad.graph.types import TensorType

_KINDS: Final = frozenset(
    {Kind.NULLARY, Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.REDUCTION, Kind.INDEXING, Kind.CONTRACTION}
)


def computes_rows(node: Node) -> bool:
    """Whether the node can be done for all trips at once."""
    record = PRIMITIVES[node.op]
    return record.kind in _KINDS and not (record.collective or record.updates)


class TripRows:
    """Of a `for` without lanes that runs `count` trips. Nodes go to `builder`, where the loop's operands are."""

    def __init__(self, loop: Loop, count: int, builder: GraphBuilder) -> None:
        self.count = count
        self._builder = builder
        (self._index,), _, captures = loop.split(loop.body.inputs)
        self._made = dict(zip(captures, loop.captures, strict=True))  # what is the same in all trips, and made rows
        self.varying: set[Value] = {self._index}  # what the trip's number reaches, and no carry
        self._nodes: list[Node] = []
        self._fixed = {v for v in captures if isinstance(v.type, TensorType)}
        for node in loop.body.nodes:
            if computes_rows(node) and all(self.knows(v) for v in node.operands):
                self._add(node)

    def _add(self, node: Node) -> None:
        self._nodes.append(node)
        (self.varying if any(v in self.varying for v in node.operands) else self._fixed).update(node.results)

    def knows(self, value: Value) -> bool:
        """Whether it is the same in all trips, or has rows."""
        return value in self._fixed or value in self.varying

    def go_on(self, tables: Mapping[Value, Value], nodes: Sequence[Node]) -> None:
        """`tables`: rows of values, which the loop has written by now. `nodes` make others of them, in order."""
        self.varying.update(tables)
        self._made.update(tables)
        for node in nodes:
            if not self.knows(node.results[0]):
                self._add(node)

    def is_made(self, value: Value) -> bool:
        """Whether the rows of a value take memory: those of a capture are there."""
        return value in self.varying and not (value.node is not None and self._looked_up(value.node))

    def of(self, value: Value) -> Value:
        """The rows of a varying value."""
        assert value in self.varying
        for node in self._missing(value):
            self._builder.loc = node.loc
            self._made.update(zip(node.results, self._step(node), strict=True))
        if value is self._index and value not in self._made:
            self._made[value] = self._builder.value("iota", type=TensorType((self.count,), value.dtype), axis=0)
        return self._made[value]

    def _missing(self, value: Value) -> Sequence[Node]:
        """The nodes, in order, of which it is made and that aren't there yet."""
        needed, found = {value}, list[Node]()
        for node in reversed(self._nodes):
            if node.results[0] in needed and node.results[0] not in self._made:
                found.append(node)
                needed.update(() if self._looked_up(node) else node.operands)
        return found[::-1]

    def _looked_up(self, node: Node) -> bool:
        """Whether it takes row k of a capture in trip k, and all these rows are there."""
        if node.op != "gather" or len(node.operands) != 2 or node.operands[1] is not self._index:
            return False
        table = node.operands[0]
        return table not in self.varying and table in self._made and table.shape[0] >= self.count

    def _step(self, node: Node) -> Sequence[Value]:
        builder = self._builder
        if self._looked_up(node):
            table = self._made[node.operands[0]]
            if table.shape[0] == self.count:
                return [table]
            stop, none = (self.count, *table.shape[1:]), (0,) * len(table.shape)
            return [builder.value("slice", table, start=none, stop=stop, step=(1,) * len(stop))]
        varies = [v in self.varying for v in node.operands]
        operands = [self.of(v) if v is self._index else self._made[v] for v in node.operands]
        if node.op == "matmul" and not all(varies) and len(node.results[0].shape) == 2:
            left, right = operands
            if varies[0]:
                return [self._by_shared(left, right, node.attrs)]
            product = self._by_shared(self._turned(right), self._turned(left), node.attrs)  # of both
            return [self._turned(product)]
        if not any(varies):
            return builder.emit(node.op, operands, node.attrs)
        return self._batched(node, operands, varies)

    def _by_shared(self, rows: Value, matrix: Value, attrs: Mapping[str, Any]) -> Value:
        """(trips, m, k) by (k, n)."""
        trips, m, k = rows.shape
        flat = self._builder.value("reshape", rows, shape=(trips * m, k))
        product = self._builder.value("matmul", flat, matrix, **attrs)
        return self._builder.value("reshape", product, shape=(trips, m, matrix.shape[1]))

    def _turned(self, value: Value) -> Value:
        """With its last two dims exchanged."""
        *batch, m, n = value.shape
        if 1 in (m, n):
            return self._builder.value("reshape", value, shape=(*batch, n, m))
        last = len(batch)
        return self._builder.value("transpose", value, perm=(*range(last), last + 1, last))

    def _batched(self, node: Node, operands: Sequence[Value], varies: Sequence[bool]) -> Sequence[Value]:
        inputs = tuple([Value(v.type) for v in node.operands])
        types = tuple([r.type for r in node.results])
        copy = Node(node.op, inputs, types, node.attrs, (), node.loc)
        one = Graph(inputs, (copy,), copy.results)
        made, _ = trace(lambda *given: batch(one, given, varies, self.count)[0], [v.type for v in operands])
        return self._builder.inline(made, operands)
