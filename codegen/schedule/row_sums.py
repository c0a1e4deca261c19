"""Scatters that add rows, as sums of segments: the rows that meet in one are brought side by side first.

    scatter {kind=add}(zeros (v, w), ids (n), rows (n, w))
        ->  segments = ids, or v where that is out of range;  order = argsort(segments)
            segment_sum {shape=(v, w), rank=1}(rows, segments[order], order)
    the same of rows that are x[sources]
        ->  segment_sum {shape=(v, w), rank=1}(x, segments[order], sources[order])
    the same of rows that are select(m, x[sources], 0), m the same for all of a row: the gradient of such a scatter
        ->  segments = select(m, ids, v)
    the same of rows that are -y: the gradient of differences
        ->  sub(zeros, what is made of y)
    the same of rows that are repeated along an axis of the indices, as in the gradient of a bag's mean
        ->  sources = the number of each row before

Scatters of equally many rows, whose indices are known before any of them, have their rows' numbers sorted as one array.

For devices whose lanes don't meet in an order: what keeps bits the same there costs more for each element than a sort
does for each row. A table that isn't zero is added afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from operator import mul
from typing import Final, NamedTuple

from loopgrad.codegen.options import Options
from loopgrad.graph.distinct import no_duplicates
from loopgrad.graph.nodes import Graph, Node, Value, is_zero
from loopgrad.graph.rebuild import GraphBuilder, renewed
from loopgrad.graph.types import TensorType, bool_, int32, int64, sum_dtype, uint64

NARROW: Final = 8  # elements of a row that lanes add by themselves
MOST_ROWS: Final = 1 << 30  # of either; they are counted in 32 bits
MOST_BEFORE: Final = 100  # operations that make the keys of scatters whose rows are sorted together
SPARSE: Final = 16  # rows of the table for each that is added, beyond which it had better not be read
# what the ways take on an H100, in nanoseconds: of lanes that meet, for each element of the table and of the rows; of
# sorts, for each element of these, for each row and for their launches
MEETING: Final = (0.02, 0.005)
SORTED: Final = (0.004, 0.0015, 0.06, 30e3)


def rewrite_row_sums(graph: Graph, options: Options) -> Graph:
    """The scatters of `graph` itself that are worth a sort; its regions stay."""
    found = [node for node in graph.nodes if _is_worth_a_sort(node, options)]
    if not found:
        return graph
    groups = _sorted_together(found)
    builder, env = GraphBuilder(), dict[Value, Value]()
    orders: dict[Node, _SortedNumbers] = {}
    for node in _keys_first(graph, groups):
        current = renewed(node, tuple([env.get(v, v) for v in node.operands]), node.regions)
        builder.loc = current.loc
        if node not in groups:
            builder.nodes.append(current)
            results: Sequence[Value] = current.results
        else:
            if node not in orders:
                keys = [[env.get(v, v) for v in _keys(member)] for member in groups[node]]
                orders.update(zip(groups[node], _ordered(groups[node], keys, builder), strict=True))
            results = [_sum_of_rows(current, orders[node], builder)]
        env.update([(old, new) for old, new in zip(node.results, results, strict=True) if old is not new])
    return Graph(graph.inputs, tuple(builder.nodes), tuple([env.get(v, v) for v in graph.outputs]))


def _sorted_together(found: Sequence[Node]) -> dict[Node, list[Node]]:
    """Of each scatter those that are sorted with it, itself among them, in the order of the graph."""
    groups: dict[Node, list[Node]] = {}
    open_groups: dict[int, list[Node]] = {}
    for node in found:
        if _before(node).isdisjoint(found):
            groups[node] = open_groups.setdefault(prod(node.operands[1].shape), [])
        else:
            groups[node] = []
        groups[node].append(node)
    return groups


def _keys_first(graph: Graph, groups: Mapping[Node, list[Node]]) -> list[Node]:
    """The nodes in an order in which what makes the keys of a group comes before its first scatter."""
    nodes: dict[Node, None] = {}
    for node in graph.nodes:
        group = groups.get(node, [])
        if len(group) > 1 and node is group[0]:
            early = frozenset[Node]().union(*[_before(member) for member in group])
            nodes.update([(n, None) for n in graph.nodes if n in early])
        nodes.setdefault(node)
    return [*nodes]


def _before(node: Node) -> frozenset[Node]:
    """What makes the keys of a scatter: that node itself, where it is more than a few operations."""
    found: set[Node] = set()
    waiting = [v.node for v in _keys(node)]
    while waiting:
        made_by = waiting.pop()
        if made_by is not None and made_by not in found:
            found.add(made_by)
            waiting += [v.node for v in made_by.operands]
        if len(found) > MOST_BEFORE:
            return frozenset([node])
    return frozenset(found)


def _keys(node: Node) -> list[Value]:
    """The values that say where rows are added: indices, and which rows are, where that isn't all."""
    mask = _masked(node.operands[-1], node)[1]
    return [*node.operands[1:-1], *([] if mask is None else [mask])]


def _is_worth_a_sort(node: Node, options: Options) -> bool:
    """Whether it is a scatter of rows that is done so, by shape alone."""
    if node.op != "scatter" or node.attrs["kind"] != "add" or not node.results[0].dtype.is_float:
        return False
    table, index = node.operands[0], node.operands[1]
    rank, count = len(node.operands) - 2, prod(index.shape)
    rows, width = prod(table.shape[:rank]), prod(table.shape[rank:])
    if not options.deterministic or options.check_indices or no_duplicates(node):
        return False
    if width <= NARROW or max(rows, count) > MOST_ROWS or not (is_zero(table) or rows <= SPARSE * count):
        return False
    *each, launches = SORTED
    sizes = (rows * width, count * width, count)
    return bool(sum(map(mul, MEETING, sizes)) > sum(map(mul, each, sizes)) + launches)


class _SortedNumbers(NamedTuple):
    """The numbers of rows of the table, one for each that is added, and the order in which these are sorted."""

    segments: Value
    order: Value


def _ordered(group: Sequence[Node], keys: Sequence[Sequence[Value]], builder: GraphBuilder) -> list[_SortedNumbers]:
    """Of each scatter, whose keys these are; equal ones are sorted once."""
    numbers: dict[tuple[object, ...], Value] = {}
    wanted, count = list[tuple[object, ...]](), prod(group[0].operands[1].shape)
    for node, values in zip(group, keys, strict=True):
        rank = len(node.operands) - 2
        extents = node.operands[0].shape[:rank]
        wanted.append((*values, *extents))
        if wanted[-1] not in numbers:
            mask = values[rank] if len(values) > rank else None
            number = _numbers(extents, tuple(values[:rank]), mask, builder)
            numbers[wanted[-1]] = builder.value("reshape", number, shape=(1, count))
    every = [*numbers.values()]
    lines = every[0] if len(every) == 1 else builder.value("concat", *every, axis=0)
    # says to whoever sorts them how many digits they have
    most = max(prod(node.operands[0].shape[: len(node.operands) - 2]) for node in group)
    lines = builder.cast(_clamped(lines, most + 1, builder), int32)
    orders = builder.value("argsort", lines, axis=1)
    made = {}
    for line, key in enumerate(numbers):
        values = [_line(array, line, builder) for array in (lines, orders)]
        made[key] = _SortedNumbers(*values)
    return [made[key] for key in wanted]


def _line(array: Value, line: int, builder: GraphBuilder) -> Value:
    if array.shape[0] > 1:
        array = builder.value("slice", array, start=(line, 0), stop=(line + 1, array.shape[1]), step=(1, 1))
    return builder.value("reshape", array, shape=array.shape[1:])


def _sum_of_rows(node: Node, order: _SortedNumbers, builder: GraphBuilder) -> Value:
    """What stands for the scatter's result."""
    table, indices, updates = node.operands[0], node.operands[1:-1], node.operands[-1]
    count, wide = prod(indices[0].shape), sum_dtype(table.dtype)
    updates, combine = _masked(updates, node)[0], "add"
    if updates.node is not None and updates.node.op == "neg":
        (updates,), combine = updates.node.operands, "sub"
    found = _gathered(updates, count, builder) or _repeated(updates, indices[0].shape, builder)
    values, rows = found or (updates, None)
    rows = order.order if rows is None else _at(builder.value("reshape", rows, shape=(count,)), order, builder)
    rows = builder.cast(rows, int32)
    segments = _at(order.segments, order, builder)
    start = [table] if combine == "add" and table.dtype is wide and not is_zero(table) else []
    total = builder.value("segment_sum", values, segments, rows, *start, shape=table.shape, rank=len(indices))
    if start:
        return total
    if combine == "sub" or not is_zero(table):
        total = builder.value(combine, builder.cast(table, wide), total)
    return builder.cast(total, table.dtype)


def _at(values: Value, order: _SortedNumbers, builder: GraphBuilder) -> Value:
    return builder.value("gather", values, order.order)


def _masked(updates: Value, node: Node) -> tuple[Value, Value | None]:
    """Rows, and which of them aren't zeros, where they were selected so."""
    made_by, leading = updates.node, node.operands[1].shape
    if made_by is None or made_by.op != "select" or not is_zero(made_by.operands[2]):
        return updates, None
    mask = made_by.operands[0].node
    if mask is None or mask.op != "broadcast" or mask.operands[0].shape != leading:
        return updates, None
    if mask.attrs["dims"] != tuple(range(len(leading))):
        return updates, None
    return made_by.operands[1], mask.operands[0]


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


def _repeated(updates: Value, leading: tuple[int, ...], builder: GraphBuilder) -> tuple[Value, Value] | None:
    """The same of rows that are repeated along some axes of the indices."""
    node = updates.node
    if node is None or node.op != "broadcast" or 0 in updates.shape:
        return None
    (rows,), dims = node.operands, node.attrs["dims"]
    along = [d for d in dims if d < len(leading)]
    whole = all(updates.shape[d] == n for d, n in zip(dims, rows.shape, strict=True))
    if not along or not whole or dims[len(along) :] != tuple(range(len(leading), len(updates.shape))):
        return None
    extents = rows.shape[: len(along)]
    number = builder.value("iota", type=TensorType((prod(extents),), int64), axis=0)
    number = builder.value("reshape", number, shape=extents)
    number = builder.value("broadcast", number, shape=leading, dims=tuple(along))
    return rows, number


def _numbers(extents: tuple[int, ...], indices: tuple[Value, ...], mask: Value | None, builder: GraphBuilder) -> Value:
    """The number of each row among those of the table (int64), that of none for what is out of range or left out."""
    wide = [builder.cast(index, int64) for index in indices]  # what only uint64 can hold becomes negative
    inside = builder.const(True, TensorType(indices[0].shape, bool_)) if mask is None else mask
    for extent, index in zip(extents, wide, strict=True):
        inside = builder.value("and", inside, builder.value("ge", index, _like(index, 0, builder)))
        inside = builder.value("and", inside, builder.value("lt", index, _like(index, extent, builder)))
    number = _linear(extents, wide, builder)
    return builder.value("select", inside, number, _like(number, prod(extents), builder))


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
