"""Reductions of columns as reductions of rows, where what they make goes back to the columns' elements, on GPUs.

    reduce_max(x) {axes=(0,)}    ->    reduce_max(transpose(x)) {axes=(1,)}

The lanes of such a reduction are numbered column by column. What reads `x` so, reduces it and goes on with all of its
elements, as a softmax along the first axis does, then becomes stages of one launch, in which a workgroup has some
neighbouring columns (`targets.gpu.lanes.row_stages`). Columns that are reduced once are read once anyway: by lanes that
have a piece of a column each. So are those whose reduction meets another one where it comes back: of rows, for example.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from math import prod
from typing import Final, NamedTuple

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import ELEMENTWISE, REDUCTIONS
from loopgrad.graph.rebuild import GraphBuilder, readers_of

LONGEST: Final = 1 << 11  # bytes of one, of 32-bit words at least, of which 128 invocations hold eight with ease
FEWEST: Final = 256  # columns
NARROWEST: Final = 32  # bytes that lie side by side, which memory gives at once
MOST_LOOKED_AT, MOST_BEHIND = 64, 400
ALONG: Final = frozenset({*ELEMENTWISE, "broadcast", "reshape"})


class ReducedColumns(NamedTuple):
    """An array as (before, length, after), of which the middle is reduced."""

    before: int
    length: int
    after: int

    @property
    def many(self) -> int:
        return self.before * self.after


def columns_of(node: Node) -> ReducedColumns | None:
    """Those that a node reduces, where it reduces neighbouring axes and keeps one behind them."""
    shape, axes = node.operands[0].shape, [a for a in node.attrs["axes"] if node.operands[0].shape[a] != 1]
    if not axes:
        return None
    first, end = min(axes), max(axes) + 1
    if len(axes) != sum(n != 1 for n in shape[first:end]):
        return None
    found = ReducedColumns(prod(shape[:first]), prod(shape[first:end]), prod(shape[end:]))
    return found if found.after > 1 else None


def returning(graph: Graph, long: bool) -> set[Node]:
    """The reductions of columns that workgroups had better hold, by shape and by what is done with them. `long`: as
    LONG_COLUMNS says."""
    longest = 8 * LONGEST if long else LONGEST
    found = [node for node in graph.nodes if node.op in REDUCTIONS and _can_be_held(node, longest)]
    if not found:
        return set()
    readers = readers_of(graph)
    held = {node for node in found if _comes_back(node, readers)}
    for node in found:  # in the order of the graph
        behind = _behind(node.operands, set()) & held
        if any(columns_of(other) == columns_of(node) for other in behind):
            held.add(node)
    return held


def as_rows(node: Node, builder: GraphBuilder) -> Value:
    """The reduction of the transposed array."""
    found, result = columns_of(node), node.results[0]
    assert found is not None, "only reductions of columns are made so"
    total = of_rows(node.op, builder.value("reshape", node.operands[0], shape=tuple(found)), builder)
    return total if total.shape == result.shape else builder.value("reshape", total, shape=result.shape)


def of_rows(op: str, columns: Value, builder: GraphBuilder) -> Value:
    """The reduction of the last dim but one, by rows of the transposed array."""
    before, *plane = columns.shape
    if before == 1:
        columns = builder.value("reshape", columns, shape=tuple(plane))
    last = len(columns.shape) - 1
    return builder.value(op, builder.value("transpose", columns, perm=(*range(last - 1), last, last - 1)), axes=(last,))


def reads_columns(node: Node) -> bool:
    """Whether a reduction's lanes are numbered column by column of what it is made of."""
    source = node.operands[0].node
    return node.op in REDUCTIONS and source is not None and source.op == "transpose"


def holds_columns(node: Node, comes_back: bool, is_shared: Callable[[Node], bool]) -> bool:
    """Whether a reduction's lanes are numbered so because workgroups hold the columns: what it makes comes back to
    their elements, or they are made of what lanes have reduced that share the work."""
    return reads_columns(node) and (comes_back or any(map(is_shared, _behind(node.operands, set()))))


def _can_be_held(node: Node, longest: int) -> bool:
    found, itemsize = columns_of(node), node.operands[0].dtype.itemsize
    if found is None or found.after * itemsize < NARROWEST or found.many < FEWEST:
        return False
    return found.length * max(itemsize, 4) <= longest


def _comes_back(node: Node, readers: Mapping[Value, Sequence[Node]]) -> bool:
    """Whether as many elements as the reduction's are made of what is made of its result, element by element, and of
    nothing that has to wait for reductions of those elements by other axes."""
    size = prod(node.operands[0].shape)
    spread = [v for v in _made_of([node.results[0]], readers, ALONG) if prod(v.shape) == size]
    if not any(v.node is not None and v.node.op == "broadcast" for v in spread):
        return False
    before = _behind(node.operands, set())
    beside = [v for made in spread if made.node is not None for v in made.node.operands]
    others = [r for r in _behind(beside, {node}) if _reduces_otherwise(r, node) and r not in before]
    return all(node in _behind(r.operands, set()) for r in others)


def _reduces_otherwise(other: Node, node: Node) -> bool:
    if other.op not in REDUCTIONS or prod(other.operands[0].shape) != prod(node.operands[0].shape):
        return False
    return columns_of(other) != columns_of(node)


def _made_of(values: Sequence[Value], readers: Mapping[Value, Sequence[Node]], along: Container[str]) -> list[Value]:
    """What is made of values by such operations, some of it where that is much."""
    found = dict.fromkeys(values)
    pending = [*values]
    while pending and len(found) <= MOST_LOOKED_AT:
        made = [v for reader in readers.get(pending.pop(), ()) if reader.op in along for v in reader.results]
        fresh = [v for v in made if v not in found]
        found.update(dict.fromkeys(fresh))
        pending += fresh
    return [*found]


def _behind(values: Sequence[Value], ends: Container[Node]) -> set[Node]:
    """The nodes that values are made of, some of them where they are many; nothing behind `ends`."""
    found = set[Node]()
    pending = [*values]
    while pending and len(found) <= MOST_BEHIND:
        made = pending.pop().node
        if made is not None and made not in found and made not in ends:
            found.add(made)
            pending += made.operands
    return found
