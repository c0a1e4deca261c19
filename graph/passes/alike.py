"""Pieces of a long concat that are computed alike are computed as one array.

Enters: a Graph. Leaves: a Graph in which a concat of many pieces, each the same elementwise expression of slices of the
same arrays, of numbers and of at most one value of its own, is that expression of all slices and of all numbers. What a
Python loop makes one by one, `lg.asarray([2.0 * x[i] for i in ...])`, has as many nodes as elements otherwise.

    %1 = slice(%x) {start=(0,), stop=(1,)}               %1 = slice(%x) {start=(0,), stop=(900,)}
    %2 = mul(%1, 2.0)                                    %2 = literal() {data=2.0, 3.0, ...}
    %3 = slice(%x) {start=(1,), stop=(2,)}       ->      %3 = mul(%1, %2)
    %4 = mul(%3, 3.0)    ...                             return %3
    return concat(%2, %4, ...)

Elements keep their bits: only elementwise operations and movements are joined, nothing that adds elements up. Pieces
that another node reads as well stay as they are, so that nothing is computed twice; those that are outputs as well are
taken from the array. Regions are left alone: what is joined there would read other lanes' elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from loopgrad.graph.key import encode_attrs
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes.windows import Window, can_be_joined, joined_windows
from loopgrad.graph.primitives import ELEMENTWISE, PRIMITIVES, Kind
from loopgrad.graph.rebuild import GraphBuilder, renewed
from loopgrad.graph.types import TensorType

MANY: Final = 16  # pieces of a concat
MOST_DATA: Final = 1 << 16  # elements of literals that are joined
DEEPEST: Final = 100  # operations after each other in a piece

_INTEGERS: Final = frozenset({int})

Values = tuple[Value, ...]
Readers = dict[Value, list[Node | None]]
"""Of each value; None for an output of the graph."""


@dataclass(frozen=True, slots=True, eq=False)
class Joining:
    """How values, one a piece, become one value with an axis of the pieces in front.

    op is that of all of them, and `operands` how theirs do; or
    same      they are one value
    const     each has equal elements
    literal   they are arrays of data
    windows   they are slices of one value
    pieces    none of these: they are joined as they are
    """

    op: str
    values: Values
    operands: tuple[Joining, ...] = ()


def run(graph: Graph) -> Graph:
    """`graph` with alike pieces of its own concats joined."""
    if not any(node.op == "concat" and len(node.operands) >= MANY for node in graph.nodes):
        return graph
    readers: Readers = {v: [None] for v in graph.outputs}
    for node in graph.nodes:
        for v in node.operands:
            readers.setdefault(v, []).append(node)
    builder = GraphBuilder()
    env: dict[Value, Value] = {}
    for node in graph.nodes:
        current = renewed(node, tuple([env.get(v, v) for v in node.operands]), node.regions) if env else node
        if node.op == "concat" and len(node.operands) >= MANY:
            joiner = _Joiner(node, readers)
            plan = joiner.plan()
            if plan.op != "pieces":
                builder.loc = node.loc
                made: dict[Values, Value] = {}
                env[node.results[0]] = _concatenated(_emitted(plan, builder, env, made), node, builder)
                for values in joiner.returned:
                    env.update(_returned(values, made[values], readers, builder))
                continue
        if current is not node:
            env.update(zip(node.results, current.results, strict=True))
        builder.nodes.append(current)
    if not env:
        return graph
    return Graph(graph.inputs, tuple(builder.nodes), tuple([env.get(v, v) for v in graph.outputs]))


class _Joiner:
    """Plans of the pieces of one concat."""

    def __init__(self, concat: Node, readers: Readers) -> None:
        self.concat = concat
        self.readers = readers
        self.known: dict[Values, Joining] = {}
        self.kept: set[Values] = set()  # read by others too
        self.returned: list[Values] = []  # some of them are outputs of the graph

    def plan(self) -> Joining:
        """Once more without what others read, until nobody else reads what is joined."""
        while True:
            self.known.clear()
            plan = self.of(self.concat.operands, 0)
            inside: set[Node | None] = {self.concat}
            joined = [p.values for p in self.known.values() if p.operands]
            inside.update([v.node for values in joined for v in values])
            alone = {v for p in self.known.values() if p.op == "pieces" for v in p.values}
            self.returned = [values for values in joined if any(None in self.readers[v] for v in values)]
            outside = [values for values in joined if not self._only_read_by({*inside, None}, alone, values)]
            if not outside:
                return plan
            self.kept.update(outside)

    def _only_read_by(self, inside: set[Node | None], alone: set[Value], values: Values) -> bool:
        """Whether nobody needs these values by themselves. Movements are free to do again."""
        free = values[0].node is not None and values[0].node.op not in ELEMENTWISE
        return free or all(v not in alone and all(r in inside for r in self.readers[v]) for v in values)

    def of(self, values: Values, depth: int) -> Joining:
        plan = self.known.get(values)
        if plan is None:
            plan = self.known[values] = self._of(values, depth)
        return plan

    def _of(self, values: Values, depth: int) -> Joining:
        first = values[0]
        pieces = Joining("pieces", values)
        if all(v is first for v in values):
            return Joining("same", values)
        nodes = [v.node for v in values if v.node is not None and v.type == first.type and v.node.op == _op(first)]
        if len(nodes) < len(values) or values in self.kept or depth == DEEPEST:
            return pieces
        if nodes[0].op == "const" or (nodes[0].op == "literal" and len(nodes) * prod(first.shape) <= MOST_DATA):
            return Joining(nodes[0].op, values)
        if nodes[0].op == "slice" and all(n.operands == nodes[0].operands for n in nodes):
            return Joining("windows", values) if can_be_joined(_windows(nodes)) else pieces
        if not _can_be_batched(nodes[0]) or not _equal_attributes(nodes):
            return pieces
        columns = [tuple([n.operands[i] for n in nodes]) for i in range(len(nodes[0].operands))]
        if any(v.type != column[0].type for column in columns for v in column):
            return pieces
        plan = Joining(nodes[0].op, values, tuple([self.of(column, depth + 1) for column in columns]))
        moved = nodes[0].op not in ELEMENTWISE and plan.operands[0].op == "pieces"  # nothing would be gained
        return pieces if moved or len(_own_pieces(plan)) > 1 else plan


def _op(value: Value) -> str:
    return value.node.op if value.node is not None else ""


def _windows(nodes: Sequence[Node]) -> list[Window]:
    return [Window(n.attrs, n.operands[0].shape, n.results[0].shape) for n in nodes]


def _can_be_batched(node: Node) -> bool:
    return len(node.results) == 1 and not node.regions and bool(node.operands) and may_be_batched(node.op)


def may_be_batched(op: str) -> bool:
    """Whether many of an operation, on operands of one type each, are one with an axis in front."""
    row = PRIMITIVES[op]
    moves = row.kind is Kind.MOVEMENT and row.batched is not None
    return op != "alias" and (row.kind is Kind.ELEMENTWISE or moves)


def _equal_attributes(nodes: Sequence[Node]) -> bool:
    attrs = nodes[0].attrs
    others = [n.attrs for n in nodes if n.attrs is not attrs]
    if all(type(value) is tuple and _INTEGERS.issuperset(map(type, value)) for value in attrs.values()):
        return all(other == attrs for other in others)
    first = encode_attrs(attrs, with_name=False)
    return all(encode_attrs(other, with_name=False) == first for other in others)


def _own_pieces(plan: Joining) -> set[Values]:
    """What has to be joined as it is."""
    if plan.op == "pieces":
        return {plan.values}
    return {values for operand in plan.operands for values in _own_pieces(operand)}


# ---- emission


def _emitted(plan: Joining, b: GraphBuilder, env: dict[Value, Value], known: dict[Values, Value]) -> Value:
    """The values with the axis of the pieces in front."""
    made = known.get(plan.values)
    if made is None:
        made = known[plan.values] = _made(plan, b, env, known)
    return made


def _made(plan: Joining, b: GraphBuilder, env: dict[Value, Value], known: dict[Values, Value]) -> Value:
    count, first = len(plan.values), plan.values[0]
    shape = (count, *first.shape)
    match plan.op:
        case "same":
            return b.value("broadcast", env.get(first, first), shape=shape, dims=tuple(range(1, len(shape))))
        case "const":
            numbers = np.array([v.node.attrs["value"] for v in plan.values if v.node is not None], first.dtype.np)
            own = b.value("literal", data=numbers.tobytes(), type=TensorType((count,), first.dtype))
            return b.value("broadcast", own, shape=shape, dims=(0,)) if first.shape else own
        case "literal":
            data = b"".join([v.node.attrs["data"] for v in plan.values if v.node is not None])
            return b.value("literal", data=data, type=TensorType(shape, first.dtype))
        case "windows":
            assert first.node is not None
            source = first.node.operands[0]
            nodes = [v.node for v in plan.values if v.node is not None]
            return joined_windows(_windows(nodes), env.get(source, source), b)
        case "pieces":
            rows = [b.value("reshape", env.get(v, v), shape=(1, *v.shape)) for v in plan.values]
            return b.value("concat", *rows, axis=0)
    assert first.node is not None
    attrs, rule = first.node.attrs, PRIMITIVES[plan.op].batched
    operands = [_emitted(operand, b, env, known) for operand in plan.operands]
    return b.emit(plan.op, operands, attrs if rule is None else rule(attrs, count))[0]


def _returned(values: Values, made: Value, readers: Readers, b: GraphBuilder) -> dict[Value, Value]:
    """Those that are outputs of the graph, from their joined form."""
    found, shape = {}, made.shape
    for i, v in enumerate(values):
        if None in readers[v]:
            start, stop = (i, *[0] * (len(shape) - 1)), (i + 1, *shape[1:])
            row = b.value("slice", made, start=start, stop=stop, step=(1,) * len(shape))
            found[v] = b.value("reshape", row, shape=v.shape)
    return found


def _concatenated(stacked: Value, node: Node, b: GraphBuilder) -> Value:
    return concatenated(stacked, node.attrs["axis"], node.results[0].shape, b)


def concatenated(stacked: Value, axis: int, shape: tuple[int, ...], b: GraphBuilder) -> Value:
    """The axis of the pieces as the outer part of the axis along which they were joined to an array of this shape."""
    rank = len(stacked.shape)
    if axis:
        stacked = b.value("transpose", stacked, perm=(*range(1, axis + 1), 0, *range(axis + 1, rank)))
    return b.value("reshape", stacked, shape=shape)
