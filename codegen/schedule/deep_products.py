"""Products of matrices whose few elements are sums of very many terms, as derivatives by weights are, in slices.

matmul((m, k), (k, n)), k long   ->  sum over s of matmul((s, m, k / s), (s, k / s, n))

Whoever multiplies shares out results among workgroups, so few of them would leave most of a device idle for long. A
library shares out the terms of single products itself: of these it gets slices of several products only, and only where
they lie one after the other, so that nothing is copied. How many slices there are follows from the shape alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from loopgrad.codegen.product_shapes import deep_product
from loopgrad.codegen.schedule.products import made_otherwise, turns
from loopgrad.codegen.schedule.shared_terms import NARROW
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.types import float32, float64, sum_dtype

LONG: Final = 2048  # terms
DEEP: Final = 4096  # terms, where a library multiplies
SHORTEST: Final = 256  # terms of a slice: adding up its results must be worth it
FEWEST: Final = 4  # slices that are worth another kernel
MANY_RESULTS: Final = 1 << 19  # of all slices, which have a device busy
SIDE: Final = 64  # of the squares that libraries make products of
FEW_SQUARES: Final = 64
ENOUGH: Final = 512


def for_libraries(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    """The product's result by what a library makes of slices; None where it stays as it is."""
    count = library_slices(node)
    return [_sliced(node, builder, count)] if count else None


def for_own_kernels(graph: Graph, slices: Callable[[Node], int]) -> Graph:
    """Products of `graph` itself in so many slices; its regions stay. The same graph where there are none."""
    return made_otherwise(graph, slices, lambda node, builder: _sliced(node, builder, slices(node)))


def library_slices(node: Node) -> int:
    """How many slices a product is made in by a library; 0 where it is whole."""
    left, right = node.operands
    if not turns(left.node) or turns(right.node) or left.shape[:-2] != right.shape[:-2] or not left.dtype.is_float:
        return 0
    *batch, m, k = left.shape
    squares = prod(batch) * -(-m // SIDE) * -(-right.shape[-1] // SIDE)
    if prod(batch) < 2 or k < DEEP or not 0 < squares < FEW_SQUARES:
        return 0
    most = min(ENOUGH // squares, k // SHORTEST)
    return next((s for s in range(most, FEWEST - 1, -1) if k % s == 0), 0)


def own_slices(node: Node) -> int:
    """How many slices a product is made in by kernels of our own; 0 where it is none, or whole."""
    if node.op != "matmul" or {v.dtype for v in (*node.operands, *node.results)} not in ({float32}, {float64}):
        return 0
    shape, terms = node.results[0].shape, node.operands[0].shape[-1]
    if min(shape[-2:]) < NARROW or terms < LONG:
        return 0
    count = min(MANY_RESULTS // prod(shape), terms // SHORTEST)
    return 1 << (count.bit_length() - 1) if count >= FEWEST else 0


def slices_beside_library(node: Node) -> int:
    """As `own_slices`, of products that take a library longer (float32, see `deep_product`)."""
    count = own_slices(node)
    if not count or node.results[0].dtype is not float32:
        return 0
    *batch, m, n = node.results[0].shape
    return count if deep_product(prod(batch), m, node.operands[0].shape[-1], n) else 0


def _sliced(node: Node, builder: GraphBuilder, count: int) -> Value:
    left, right = (_slices_of(v, which, count, builder) for which, v in enumerate(node.operands))
    wide = sum_dtype(left.dtype)  # parts of narrow floats would be rounded
    attrs = node.attrs if wide is left.dtype else {**node.attrs, "dtype": wide}
    product = builder.value("matmul", left, right, **attrs)
    total = builder.value("reduce_sum", product, axes=(len(product.shape) - 3,))
    return builder.cast(total, node.results[0].dtype)


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
