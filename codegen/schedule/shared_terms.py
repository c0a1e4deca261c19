"""Products of a matrix and few rows or columns, as sums that many lanes share, and of few terms, as a lane's.

matmul((m, k), (k, n)), m or n small   ->  sum over k of products (m, n, k), or (k, m, n) where the matrix lies so
matmul((m, k), (k, n)), k small        ->  the same, which lanes of what goes on with an element compute

Such a product reads the matrix once, so it takes as long as reading does. Tiles have no use for it, and a lane for
each element would leave most of a device idle and read across the rows; reductions are shared out along the terms and
read what lies side by side. The order of the terms in memory is that of the larger operand. Where there are few terms,
nothing is shared out: it takes as long as the results are written, unless what follows keeps only its own.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from math import prod
from typing import Final

from loopgrad.codegen.schedule.products import in_lanes, made_otherwise, turns
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import ARRANGING, ELEMENTWISE, REDUCTIONS
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.types import float32, float64, sum_dtype

NARROW: Final = 8  # rows or columns from which tiles are of use
FEWEST_TERMS: Final = 64  # that lanes share out
SMALLEST_WORK: Final = 1 << 15  # terms; below that the launch is all that counts

LARGE: Final = 1 << 23  # elements of a matrix that doesn't stay in caches
FEW_RESULTS: Final = 16
MORE_RESULTS: Final = 256  # of several rows and columns, at which libraries are slower yet
VERY_LONG: Final = 1 << 16  # terms
FEW_BESIDE: Final = 4  # rows or columns that are added up side by side
WIDE: Final = 32  # columns or rows
FAR_SMALLER: Final = 8  # times
MOST_LOOKED_AT: Final = 64  # values
MADE_ALONG: Final = frozenset({*ELEMENTWISE, *REDUCTIONS, *ARRANGING, "const", "iota", "concat", "slice"})

Places = dict[str, int]


def as_sums(graph: Graph, which: Callable[[Node], bool]) -> Graph:
    """Those products of `graph` itself as sums; its regions stay. The same graph where there are none."""
    return made_otherwise(graph, which, partial(_summed, _columns_added_up(graph)))


def _columns_added_up(graph: Graph) -> set[Value]:
    """The values of which a reduction adds up columns, or blocks of their rows."""
    found = set()
    for node in graph.nodes:
        if node.op == "reduce_sum" and len(node.operands[0].shape) - 1 not in node.attrs["axes"]:
            value = node.operands[0]
            while value.node is not None and value.node.op == "reshape":
                value = value.node.operands[0]
            found.add(value)
    return found


def has_few_terms(node: Node) -> bool:
    """Whether an element is a sum of so few terms that who reads it computes it."""
    return node.op == "matmul" and node.operands[0].shape[-1] < NARROW and not in_lanes(*node.operands)


def is_narrow(node: Node) -> bool:
    """Whether it is a product with few rows or columns, and many terms."""
    if node.op != "matmul" or {v.dtype for v in (*node.operands, *node.results)} not in ({float32}, {float64}):
        return False
    *batch, m, n = node.results[0].shape
    k = node.operands[0].shape[-1]
    return min(m, n) < NARROW and k >= FEWEST_TERMS and prod(batch) * m * n * k >= SMALLEST_WORK


def outpaces_library(node: Node, read_again: Container[Value] = ()) -> bool:
    """Whether sums take less time than a library's product: where the matrix would have to be stored for it, in another
    shape for it alone and not `read_again`, as derivatives read it; float32 of a matrix whose rows lie beside each
    other, and a vector (on an H200 8,192 x 8,192 takes 70 us, by cuBLAS 91), or of few rows, columns and very many
    terms (2 x 2^20 x 2 takes 39, by cuBLAS 114), whichever way these lie."""
    if not is_narrow(node):
        return False
    alone = _is_made(_large(node)) and not _is_reshaped_and(_large(node), read_again)
    if alone and (_order(node)[0] != "k" or _is_of_smaller(_large(node))):
        return True
    if node.results[0].dtype is not float32 or prod(node.results[0].shape[:-2]) > 1:
        return False
    m, n = node.results[0].shape[-2:]
    k = node.operands[0].shape[-1]
    vector = min(m, n) == 1 and m * n * k >= LARGE
    few = m * n <= (MORE_RESULTS if min(m, n) > 1 else FEW_RESULTS)
    return (vector and _order(node).endswith("k")) or (few and k >= VERY_LONG)


def _summed(added_up: set[Value], node: Node, builder: GraphBuilder) -> Value:
    """`added_up`: values whose columns are added up besides."""
    left, right = node.operands
    *batch, m, n = node.results[0].shape
    sizes = {"m": m, "k": left.shape[-1], "n": n}
    order = _order(node)
    places = {name: len(batch) + order.index(name) for name in order}
    shape = (*batch, *[sizes[name] for name in order])
    factors = [_spread(v, names, places, shape, builder) for v, names in ((left, "mk"), (right, "kn"))]
    wide = [builder.cast(v, sum_dtype(v.dtype)) for v in factors]
    terms, axis = builder.value("mul", *wide), places["k"]
    large = _large(node if builder.original is None else builder.original)
    if _is_line_by_line(order, (*batch, m, n), large in added_up, large):
        across = places["n" if n <= m else "m"]
        parts = [builder.value("reduce_sum", line, axes=(axis,)) for line in _lines(terms, across, builder)]
        total = builder.value("concat", *parts, axis=across - (axis < across))
    else:
        total = builder.value("reduce_sum", terms, axes=(axis,))
    total = builder.cast(total, node.results[0].dtype)
    if places["m"] < places["n"]:
        return total
    return _exchanged(total, builder)


def _is_line_by_line(order: str, shape: tuple[int, ...], added_up: bool, large: Value) -> bool:
    """Whether each of the few rows or columns of a product of that shape is a sum by itself: whoever computes an
    element of the larger factor, or adds up its columns, does so once for all of them."""
    *batch, m, n = shape
    few, many = sorted((m, n))
    if order[0] != "k":
        return 1 < few < NARROW and _is_made(large)
    return 1 < few <= FEW_BESIDE and many >= WIDE and not batch and (added_up or _is_made(large))


def _lines(terms: Value, axis: int, builder: GraphBuilder) -> list[Value]:
    """Those of each of few rows or columns: lanes that add up what the larger factor gives for one of them do so for
    all, and add up its columns themselves, for which others would read it again."""
    found, start, stop = [], [0] * len(terms.shape), list(terms.shape)
    for number in range(terms.shape[axis]):
        start[axis], stop[axis] = number, number + 1
        found.append(builder.value("slice", terms, start=tuple(start), stop=tuple(stop), step=(1,) * len(start)))
    return found


def _large(node: Node) -> Value:
    """The larger operand as it lies in memory."""
    m, n = node.results[0].shape[-2:]
    value = node.operands[0 if n <= m else 1]
    return value.node.operands[0] if value.node is not None and turns(value.node) else value


def _is_made(value: Value) -> bool:
    """Whether it is computed element by element, by whoever reads it if it needn't be in memory; in another shape, as
    where its rows are of a picture's pixels."""
    while value.node is not None and value.node.op == "reshape":
        value = value.node.operands[0]
    return value.node is not None and value.node.op in ELEMENTWISE


def _is_reshaped_and(value: Value, read_again: Container[Value]) -> bool:
    """Whether it is in another shape, and it or what it is made of are among those."""
    found = False
    while value.node is not None and value.node.op == "reshape":
        found = found or value in read_again or value.node.operands[0] in read_again
        value = value.node.operands[0]
    return found


def _is_of_smaller(value: Value) -> bool:
    """Whether all that it is computed of has few elements beside it, as distances of all pairs of points have: it
    takes as long to compute it again as to read it."""
    size, pending, seen, read = prod(value.shape), [value], {value}, 0
    while pending and len(seen) <= MOST_LOOKED_AT and read * FAR_SMALLER <= size:
        v = pending.pop()
        if v.node is None or not (v.node.op in MADE_ALONG or has_few_terms(v.node)):
            read += prod(v.shape)
            continue
        fresh = [o for o in v.node.operands if o not in seen]
        seen.update(fresh)
        pending.extend(fresh)
    return not pending and read * FAR_SMALLER <= size


def _order(node: Node) -> str:
    """The dims of the terms as the larger operand has them. Where its rows are computed, each element is so once for
    all of the few, which come last: a lane has several sums."""
    m, n = node.results[0].shape[-2:]
    large = 0 if n <= m else 1
    turned = turns(node.operands[large].node)
    if turned == (large == 0):
        return "kmn"
    if _is_made(_large(node)):
        return "mkn" if large == 0 else "nkm"
    return "mnk" if large == 0 else "nmk"


def _spread(value: Value, names: str, places: Places, shape: tuple[int, ...], builder: GraphBuilder) -> Value:
    """An operand with those last two dims, by the dims of the terms."""
    if places[names[0]] > places[names[1]]:
        value, names = _exchanged(value, builder), names[::-1]
    dims = (*range(len(shape) - 3), *[places[name] for name in names])
    return builder.value("broadcast", value, shape=shape, dims=dims)


def _exchanged(value: Value, builder: GraphBuilder) -> Value:
    """Its last two dims exchanged: nothing moves where one of them is 1, or that had been done before."""
    if value.node is not None and turns(value.node):
        return value.node.operands[0]
    *batch, rows, columns = value.shape
    if 1 in (rows, columns):
        return builder.value("reshape", value, shape=(*batch, columns, rows))
    rank = len(value.shape)
    return builder.value("transpose", value, perm=(*range(rank - 2), rank - 1, rank - 2))
