"""Scatters that add rows, as sums of segments: the rows that meet in one are brought side by side first.

    scatter {kind=add}(zeros (v, w), ids (n), rows (n, w))
        ->  segments = ids, or v where that is out of range;  order = argsort(segments)
            segment_sum {shape=(v, w), rank=1}(rows, segments[order], order)
    the same of rows that are x[sources]
        ->  segment_sum {shape=(v, w), rank=1}(x, segments[order], sources[order])

For devices whose lanes don't meet in an order: what keeps bits the same there costs more for each element than a sort
does for each row. A table that isn't zero is added afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import mul
from typing import Final

from loopgrad.codegen.options import Options
from loopgrad.graph.distinct import no_duplicates
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.types import TensorType, bool_, int32, int64, sum_dtype, uint64

NARROW: Final = 8  # elements of a row that lanes add by themselves
MOST_ROWS: Final = 1 << 30  # of either; they are counted in 32 bits
SPARSE: Final = 16  # rows of the table for each that is added, beyond which it had better not be read
# what the ways take on an H100, in nanoseconds: of lanes that meet, for each element of the table and of the rows; of
# sorts, for each element of these, for each row and for their launches
MEETING: Final = (0.02, 0.005)
SORTED: Final = (0.004, 0.0015, 0.06, 30e3)


def rewrite_row_sums(graph: Graph, options: Options) -> Graph:
    """The scatters of `graph` itself that are worth a sort; its regions stay."""
    if not any(_is_worth_a_sort(node, options) for node in graph.nodes):
        return graph

    def rewrite(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        return [_sum_of_rows(node, builder)] if _is_worth_a_sort(node, options) else None

    return rebuild(graph, rewrite, inner=False)


def _is_worth_a_sort(node: Node, options: Options) -> bool:
    """Whether it is a scatter of rows that is done so, by shape alone."""
    if node.op != "scatter" or node.attrs["kind"] != "add" or not node.results[0].dtype.is_float:
        return False
    table, index = node.operands[0], node.operands[1]
    rank, count = len(node.operands) - 2, prod(index.shape)
    rows, width = prod(table.shape[:rank]), prod(table.shape[rank:])
    if not options.deterministic or options.check_indices or no_duplicates(node):
        return False
    if width <= NARROW or max(rows, count) > MOST_ROWS or not (_is_zero(table) or rows <= SPARSE * count):
        return False
    *each, launches = SORTED
    sizes = (rows * width, count * width, count)
    return bool(sum(map(mul, MEETING, sizes)) > sum(map(mul, each, sizes)) + launches)


def _sum_of_rows(node: Node, builder: GraphBuilder) -> Value:
    """What stands for the scatter's result."""
    table, indices, updates = node.operands[0], node.operands[1:-1], node.operands[-1]
    count, wide = prod(indices[0].shape), sum_dtype(table.dtype)
    numbers = _numbers(table.shape[: len(indices)], indices, builder)
    segments = builder.value("reshape", numbers, shape=(count,))
    order = builder.value("argsort", segments, axis=0)
    values, rows = _gathered(updates, count, builder) or (updates, None)
    rows = order if rows is None else builder.value("gather", builder.value("reshape", rows, shape=(count,)), order)
    sorted_segments = builder.value("gather", segments, order)
    rows = builder.cast(rows, int32)
    total = builder.value("segment_sum", values, sorted_segments, rows, shape=table.shape, rank=len(indices))
    if not _is_zero(table):
        total = builder.value("add", builder.cast(table, wide), total)
    return builder.cast(total, table.dtype)


def _is_zero(value: Value) -> bool:
    node = value.node
    return node is not None and node.op == "const" and node.attrs["value"] == 0


def _gathered(updates: Value, count: int, builder: GraphBuilder) -> tuple[Value, Value] | None:
    """Of what rows were read, and the number of each there, where that is all that was done to them."""
    node = updates.node
    while node is not None and node.op == "reshape":
        node = node.operands[0].node
    if node is None or node.op != "gather" or prod(node.operands[1].shape) != count:
        return None
    table, indices = node.operands[0], node.operands[1:]
    made = table.node is not None and prod(table.shape) > prod(updates.shape)
    extents = table.shape[: len(indices)]
    if made or 0 in table.shape or prod(extents) > MOST_ROWS:
        return None
    places = [_clamped(i, n, builder) for i, n in zip(indices, extents, strict=True)]
    return table, _linear(extents, places, builder)


def _numbers(extents: tuple[int, ...], indices: tuple[Value, ...], builder: GraphBuilder) -> Value:
    """The number of each row among those of the table (int32), that of none for what is out of range."""
    wide = [builder.cast(index, int64) for index in indices]  # what only uint64 can hold becomes negative
    inside = builder.const(True, TensorType(indices[0].shape, bool_))
    for extent, index in zip(extents, wide, strict=True):
        inside = builder.value("and", inside, builder.value("ge", index, _like(index, 0, builder)))
        inside = builder.value("and", inside, builder.value("lt", index, _like(index, extent, builder)))
    number = _linear(extents, wide, builder)
    number = builder.value("select", inside, number, _like(number, prod(extents), builder))
    # says to whoever sorts them how many digits they have
    return builder.cast(_clamped(number, prod(extents) + 1, builder), int32)


def _linear(extents: tuple[int, ...], indices: Sequence[Value], builder: GraphBuilder) -> Value:
    """The number of a row of which these (int64) are the places along the extents."""
    number, *rest = indices
    for extent, index in zip(extents[1:], rest, strict=True):
        number = builder.value("add", builder.value("mul", number, _like(number, extent, builder)), index)
    return number


def _clamped(index: Value, extent: int, builder: GraphBuilder) -> Value:
    """As int64, one of the extent's places."""
    if index.dtype is uint64:
        index = builder.value("min", index, _like(index, (1 << 63) - 1, builder))
    wide = builder.cast(index, int64)
    above = builder.value("max", wide, _like(wide, 0, builder))
    return builder.value("min", above, _like(wide, extent - 1, builder))


def _like(value: Value, number: int, builder: GraphBuilder) -> Value:
    return builder.const(number, TensorType(value.shape, value.dtype))
