"""Products of matrices as whoever multiplies wants them: it reads an operand across (`matmul_source`), so none is
stored twice, nor a product to be transposed.

matmul(a, b), transposed, which nothing else reads   ->  matmul of b transposed and a transposed
matmul of y transposed in two ways that differ in
the last two dims                                    ->  the later one is the earlier one, transposed by the product
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.types import DType, float32, float64, sum_dtype

SMALL_PRODUCT: Final = 512  # multiplications of a matrix product that isn't worth a call
MANY_MATRICES: Final = 1 << 12
LONGEST_TREE: Final = 16  # terms of an element whose code is straight
SMALL_FACTOR: Final = 128  # elements, which lanes read at the same time
MOST_TOGETHER: Final = 16  # elements that a lane makes


def in_lanes(left: Value, right: Value) -> bool:
    """Whether lanes make the elements of such a product, each its own, rather than whoever multiplies matrices."""
    return not called(left.dtype, left.shape[-2], left.shape[-1], right.shape[-1])


def called(dtype: DType, rows: int, terms: int, columns: int) -> bool:
    """Whether a product of that dtype and so many rows, terms and columns is a call."""
    return sum_dtype(dtype) in (float32, float64) and rows * terms * columns > SMALL_PRODUCT


def multiplied_in_lanes(node: Node, in_order: bool) -> bool:
    """Whether a product of matrices isn't worth a library call: few multiplications, or on a CPU few for each of many
    rows."""
    left, right = node.operands
    *batch, m, k = left.shape
    return in_lanes(left, right) or (
        in_order and prod(batch) == 1 and m >= MANY_MATRICES and small_factor(k, right.shape[-1])
    )


def small_factor(k: int, n: int) -> bool:
    """Whether lanes multiply their rows by a whole factor of k rows and n columns."""
    return k <= LONGEST_TREE and k * n <= SMALL_FACTOR


def matrix_lanes(node: Node) -> int:
    """Lanes that make a product, or a row of it, each; 0 where its elements have lanes of their own."""
    *batch, m, k = node.operands[0].shape
    n = node.operands[1].shape[-1]
    if k > LONGEST_TREE or (m == 1 and n == 1):
        return 0
    if prod(batch) >= MANY_MATRICES and m * n <= MOST_TOGETHER:
        return prod(batch)
    return m if prod(batch) == 1 and m >= MANY_MATRICES and n <= MOST_TOGETHER else 0


def matmul_source(value: Value) -> tuple[Value, bool]:
    """The operand of a product, in memory of the same order: a transposition of its last two dims is left to the
    library, which doesn't look at shapes."""
    node, turned = value.node, False
    if node is not None and node.op == "transpose":
        rank = len(value.shape)
        if node.attrs["perm"] == (*range(rank - 2), rank - 1, rank - 2):
            value, turned = node.operands[0], True
    while value.node is not None and value.node.op == "reshape":
        value = value.node.operands[0]
    return value, turned


def rewrite_products(graph: Graph) -> Graph:
    """Products of `graph` itself; its regions stay."""
    if not any(node.op == "matmul" for node in graph.nodes):
        return graph
    held = _only_transposed(graph)
    transposed: dict[tuple[Value, tuple[int, ...]], Value] = {}

    def rewrite(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        before = builder.original
        assert before is not None
        if node.op == "matmul" and before.results[0] in held:
            return node.results  # its transpose is made in its place
        if node.op == "matmul":
            operands = [_shared(v, builder, transposed) for v in node.operands]
            return None if operands == list(node.operands) else [builder.value("matmul", *operands, **node.attrs)]
        if node.op == "transpose" and before.operands[0] in held:
            product = node.operands[0].node
            assert product is not None
            left, right = product.operands
            return [builder.value("matmul", _turned(right, builder), _turned(left, builder), **product.attrs)]
        return None

    rebuilt = rebuild(graph, rewrite, inner=False)
    if rebuilt is graph:
        return graph
    return Graph(graph.inputs, without_unread(rebuilt.nodes, rebuilt.outputs), rebuilt.outputs)


def made_otherwise(graph: Graph, which: Callable[[Node], object], make: Callable[[Node, GraphBuilder], Value]) -> Graph:
    """Those products of `graph` itself as `make` says; its regions stay. The same graph where there are none."""
    if not any(map(which, graph.nodes)):
        return graph
    made = rebuild(graph, lambda node, builder: [make(node, builder)] if which(node) else None, inner=False)
    return Graph(graph.inputs, without_unread(made.nodes, made.outputs), made.outputs)


def without_unread(nodes: Sequence[Node], outputs: tuple[Value, ...]) -> tuple[Node, ...]:
    """Without the transposes that products read before."""
    read = {v for node in nodes for v in node.operands}.union(outputs)
    return tuple([node for node in nodes if node.op != "transpose" or node.results[0] in read])


def _only_transposed(graph: Graph) -> set[Value]:
    """Products of which nothing but one transpose is read."""
    uses = Counter([v for node in graph.nodes for v in node.operands])
    uses.update(graph.outputs)
    sources = [node.operands[0] for node in graph.nodes if turns(node)]
    return {v for v in sources if uses[v] == 1 and v.node is not None and v.node.op == "matmul"}


def is_read_turned(node: Node, graph: Graph) -> bool:
    """Whether the transpose of a product is made in its place, and may add up terms in another order: few columns for
    each of many rows become few rows."""
    if node.op != "matmul" or max(node.results[0].shape[-2:]) < MANY_MATRICES:
        return False
    return any(turns(other) and other.operands[0] is node.results[0] for other in graph.nodes)


def turns(node: Node | None) -> bool:
    """Whether it exchanges the last two dims of its operand, and nothing else."""
    if node is None or node.op != "transpose":
        return False
    perm: tuple[int, ...] = node.attrs["perm"]
    return perm == _exchanged(tuple(range(len(perm))))


def _exchanged(perm: tuple[int, ...]) -> tuple[int, ...]:
    return (*perm[:-2], perm[-1], perm[-2]) if len(perm) > 1 else ()


def _turned(value: Value, builder: GraphBuilder) -> Value:
    if value.node is not None and turns(value.node):
        return value.node.operands[0]
    return builder.value("transpose", value, perm=_exchanged(tuple(range(len(value.shape)))))


def _shared(value: Value, builder: GraphBuilder, transposed: dict[tuple[Value, tuple[int, ...]], Value]) -> Value:
    """The operand of a product by what an earlier one has of the same source."""
    if value.node is None or value.node.op != "transpose" or turns(value.node):
        return value
    source, perm = value.node.operands[0], value.node.attrs["perm"]
    known = transposed.get((source, _exchanged(perm)))
    if known is not None:
        return _turned(known, builder)
    transposed.setdefault((source, perm), value)
    return value
