"""Products and reductions of what is computed of transposed arrays, in the order in which these lie in memory.

matmul(f(transpose(x)), w)        ->  matmul(transpose(f(x)), w): whoever multiplies reads an operand across
reduce(f(transpose(x))) {axes}    ->  reduce(f(x)) over the places of the axes in x, transposed

f: elementwise operations whose operands are transposed alike, or repeat fewer elements. Else f would be stored in an
order in which nothing lies side by side while x is read, and rows added up whose elements are far apart. What somebody
needs in the other order anyway stays in it, so that nothing is computed for the sake of an order alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from loopgrad.codegen.schedule.products import turns
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes import dce
from loopgrad.graph.primitives import ELEMENTWISE, REDUCTIONS
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.types import TensorType

Perm = tuple[int, ...]


class _Source(NamedTuple):
    """A value is `value`, transposed by `perm`; `computed`: of operations between."""

    perm: Perm
    value: Value
    computed: bool


def in_memory_order(graph: Graph) -> Graph:
    """Products and reductions of `graph` itself; its regions stay. The same graph where nothing is to be gained."""
    ops = {node.op for node in graph.nodes}
    if "transpose" not in ops or ops.isdisjoint(REDUCTIONS.union(("matmul",))):
        return graph
    rewritten = rebuild(graph, _Orders(graph).rewrite, inner=False)
    return graph if rewritten is graph else dce.run(rewritten)


class _Orders:
    """`sources`: of values of the graph before the rewrite."""

    def __init__(self, graph: Graph) -> None:
        self.sources: dict[Value, _Source] = {}
        self.needed = _needed_as_they_are(graph)

    def rewrite(self, node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        before = builder.original
        assert before is not None
        if node.op == "matmul":
            return self.product(node, before, builder)
        if node.op in REDUCTIONS:
            return self.reduction(node, before, builder)
        if node.op in ELEMENTWISE or node.op == "transpose":
            found = self.source(node, before, builder)
            if found is not None:
                self.sources[before.results[0]] = found
        return None

    def source(self, node: Node, before: Node, builder: GraphBuilder) -> _Source | None:
        """What the result of a transposition or an elementwise operation is a transpose of."""
        known = [self.sources.get(v) for v in before.operands]
        if node.op == "transpose":
            perm: Perm = node.attrs["perm"]
            (inner,) = known
            if inner is None:
                return _Source(perm, node.operands[0], False)
            return _Source(tuple([inner.perm[p] for p in perm]), inner.value, inner.computed)
        perms = {inner.perm for inner in known if inner is not None}
        if len(perms) != 1 or before.results[0] in self.needed:
            return None
        (perm,) = perms
        if perm == tuple(range(len(perm))):
            return None
        operands = [
            _repeated(v, perm, builder) if inner is None else inner.value
            for v, inner in zip(node.operands, known, strict=True)
        ]
        given = [v for v in operands if v is not None]
        if len(given) < len(operands):
            return None
        return _Source(perm, builder.value(node.op, *given, **node.attrs), True)

    def product(self, node: Node, before: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        operands = [self.operand(v, was, builder) for v, was in zip(node.operands, before.operands, strict=True)]
        return None if operands == list(node.operands) else [builder.value("matmul", *operands, **node.attrs)]

    def operand(self, value: Value, before: Value, builder: GraphBuilder) -> Value:
        found = self.sources.get(before)
        if found is None or not found.computed:
            return value
        plain = tuple(range(len(found.perm)))
        if found.perm == plain:
            return found.value
        turned = builder.value("transpose", found.value, perm=found.perm)
        return turned if turns(turned.node) else value

    def reduction(self, node: Node, before: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        found = self.sources.get(before.operands[0])
        if found is None or found.perm[-1:] == (len(found.perm) - 1,) or _is_left(found.value):
            return None  # rows stay rows
        perm = found.perm
        axes = {perm[a] for a in node.attrs["axes"]}
        result = builder.value(node.op, found.value, **{**node.attrs, "axes": tuple(sorted(axes))})
        kept = [p for i, p in enumerate(perm) if i not in node.attrs["axes"]]
        back = tuple([sorted(kept).index(p) for p in kept])
        return [result if back == tuple(range(len(back))) else builder.value("transpose", result, perm=back)]


def _is_left(value: Value) -> bool:
    """Whether it is little, in whichever order it is read: what another reduction leaves."""
    while value.node is not None and value.node.op == "reshape":
        (value,) = value.node.operands
    return value.node is not None and value.node.op in REDUCTIONS


def _needed_as_they_are(graph: Graph) -> set[Value]:
    """Values that somebody stores, or reads otherwise than element by element, in a product or in a reduction."""
    plain = REDUCTIONS.union(ELEMENTWISE, ("matmul", "transpose"))
    return {v for node in graph.nodes if node.op not in plain for v in node.operands}.union(graph.outputs)


def _repeated(value: Value, perm: Perm, builder: GraphBuilder) -> Value | None:
    """What transposed by `perm` is `value`, which has fewer elements than places; None where it is no such value."""
    node, type = value.node, value.type
    assert isinstance(type, TensorType)
    shape = [0] * len(perm)
    for p, extent in zip(perm, type.shape, strict=True):
        shape[p] = extent
    if node is not None and node.op == "const":
        return builder.const(node.attrs["value"], TensorType(tuple(shape), type.dtype))
    if node is None or node.op != "broadcast":
        return None
    (source,) = node.operands
    places = [perm[d] for d in node.attrs["dims"]]
    if source.type.size * 2 > type.size:  # type: ignore[union-attr]
        return None
    order = tuple(sorted(range(len(places)), key=places.__getitem__))
    if order != tuple(range(len(order))):
        source = builder.value("transpose", source, perm=order)
    return builder.value("broadcast", source, shape=tuple(shape), dims=tuple(sorted(places)))
