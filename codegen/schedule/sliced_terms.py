"""Products of matrices with few results and many terms, as products of slices of the terms, which are added up.

matmul((m, k), (k, n)), k long   ->  sum over s of matmul((s, m, k / s), (s, k / s, n))

Whoever multiplies shares out results among workgroups, so few results would leave most of a device idle for long, as
derivatives by a layer's weights do. How many slices there are follows from the shape alone.
"""

from __future__ import annotations

from math import prod
from typing import Final

from loopgrad.codegen.schedule.products import turns, without_unread
from loopgrad.codegen.schedule.shared_terms import NARROW
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.types import float32, float64

LONG: Final = 2048  # terms
SHORTEST: Final = 256  # terms of a slice: adding up its results must be worth it
MANY_RESULTS: Final = 1 << 19  # of all slices, which have a device busy
FEWEST: Final = 4  # slices


def in_slices(graph: Graph) -> Graph:
    """Long products of `graph` itself in slices; its regions stay. The same graph where there are none."""
    if not any(map(slices, graph.nodes)):
        return graph
    sliced = rebuild(graph, lambda node, b: [_sliced(node, b)] if slices(node) else None, inner=False)
    return Graph(graph.inputs, without_unread(sliced.nodes, sliced.outputs), sliced.outputs)


def slices(node: Node) -> int:
    """How many slices a product is made in; 0 where it is none, or whole."""
    if node.op != "matmul" or {v.dtype for v in (*node.operands, *node.results)} not in ({float32}, {float64}):
        return 0
    shape, terms = node.results[0].shape, node.operands[0].shape[-1]
    if min(shape[-2:]) < NARROW or terms < LONG:
        return 0
    count = min(MANY_RESULTS // prod(shape), terms // SHORTEST)
    return 1 << (count.bit_length() - 1) if count >= FEWEST else 0


def _sliced(node: Node, builder: GraphBuilder) -> Value:
    left, right = (_slices_of(v, which, slices(node), builder) for which, v in enumerate(node.operands))
    product = builder.value("matmul", left, right, **node.attrs)
    return builder.value("reduce_sum", product, axes=(len(product.shape) - 3,))


def _slices_of(value: Value, which: int, count: int, builder: GraphBuilder) -> Value:
    """The left or right operand with an axis of slices before its last two, read from where its terms lie."""
    turned = turns(value.node)
    source = value.node.operands[0] if turned and value.node is not None else value
    *batch, rows, columns = source.shape
    rank, along = len(batch), (which == 0) != turned  # whether terms lie side by side
    each = -(-(columns if along else rows) // count)
    whole = builder.extended(source, rank + along, count * each)
    if along:
        apart = builder.value("reshape", whole, shape=(*batch, rows, count, each))
        found = builder.value("transpose", apart, perm=(*range(rank), rank + 1, rank, rank + 2))
    else:
        found = builder.value("reshape", whole, shape=(*batch, count, each, columns))
    return builder.value("transpose", found, perm=(*range(rank + 1), rank + 2, rank + 1)) if turned else found
