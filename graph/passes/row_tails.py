"""What a loop computes on the way to rows of its results, and for nothing else, from a product on.

A carry that each trip writes one row of, its own, and that nobody reads, holds what the trips computed, one behind the
other. What lies between a product and such a row needn't wait for the other trips, but for what the product multiplies:
a `RowTail` names both, so that all rows can be computed at once when the loop has ended.

    body(%k, %h, %rows, %v)
      %a = tanh(...)                                  cut: what the loop must leave a row of in each trip
      %y = add(matmul(%a, %v), ...)                   nodes: may come after the loop, for all trips together
      return %a, scatter(%rows, %k, %y)
"""

from __future__ import annotations

from collections.abc import Callable, Container
from math import prod
from typing import NamedTuple

from loopgrad.graph.accumulators import Uses
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.passes.trip_rows import TripRows, computes_rows
from loopgrad.graph.primitives import ARRANGING
from loopgrad.graph.regions import Loop


class RowTail(NamedTuple):
    """What carry number `carry` is given in each trip is `row`. It is made of `cuts` by `nodes`, in order, and added to
    the row that is there where it `adds`."""

    carry: int
    row: Value
    adds: bool
    nodes: tuple[Node, ...]
    cuts: tuple[Value, ...]


def row_tails(loop: Loop, count: int, rows: TripRows, uses: Uses, is_large: Callable[[Node], bool]) -> list[RowTail]:
    """Of a loop of `count` trips, those that begin with a large product."""
    writes = {j: node for j in range(loop.width) if (node := _row_write(loop, j, count, uses)) is not None}
    only = _for_rows_only(loop, set(writes.values()), uses) if writes else set[Node]()
    late = set[Value]()  # what a large product reaches, of all that is for rows only
    for node in loop.body.nodes:
        if node in only and (is_large(node) or not late.isdisjoint(node.operands)):
            late.update(node.results)
    return [_tail(loop, j, node, rows, late) for j, node in writes.items() if node.operands[2] in late]


def _row_write(loop: Loop, carry: int, count: int, uses: Uses) -> Node | None:
    """The node that writes the trip's own row of a carry, of which nothing else becomes anything."""
    found = uses.get(loop.argument(carry), [])
    node = found[0][0] if len(found) == 1 else None
    if node is None or node.op != "scatter" or len(node.operands) != 3 or node.attrs["kind"] not in ("set", "add"):
        return None
    table, index, row = node.operands
    if table is not loop.argument(carry) or uses.get(node.results[0]) != [(None, carry)]:
        return None
    own = _is_trip(index, loop.body.inputs[0], count) and table.shape == (count, *row.shape)
    return node if own else None


def _is_trip(index: Value, trip: Value, count: int) -> bool:
    """Whether it is the trip's number, or that element of 0, 1, 2 ... of at least so many."""
    node = index.node
    if node is None or node.op != "gather" or len(node.operands) != 2:
        return index is trip
    numbers, at = node.operands
    counts = numbers.node is not None and numbers.node.op == "iota" and len(numbers.shape) == 1
    return counts and numbers.shape[0] >= count and at is trip


def _for_rows_only(loop: Loop, writes: set[Node], uses: Uses) -> set[Node]:
    """Nodes that can be computed for all trips together, and of which nothing but rows becomes anything."""
    found = set[Node]()
    for node in reversed(loop.body.nodes):
        users = [user for result in node.results for user, _ in uses.get(result, [])]
        wanted = bool(users) and all(user is not None and (user in found or user in writes) for user in users)
        if wanted and node not in writes and computes_rows(node):
            found.add(node)
    return found


def _tail(loop: Loop, carry: int, write: Node, rows: TripRows, late: Container[Value]) -> RowTail:
    row = write.operands[2]
    needed, nodes, cuts = {row}, list[Node](), dict[Value, None]()
    for node in reversed(loop.body.nodes):
        wanted = needed.intersection(node.results)
        if not wanted or rows.knows(node.results[0]):
            continue
        if node.results[0] in late or _only_moves(node):
            nodes.append(node)
            needed.update(node.operands)
        else:
            cuts.update(dict.fromkeys(wanted))
    given = [v for v in loop.body.inputs if v in needed and not rows.knows(v)]
    return RowTail(carry, row, write.attrs["kind"] == "add", tuple(nodes[::-1]), (*cuts, *given))


def _only_moves(node: Node) -> bool:
    """Whether its operand's rows, which take no more memory, are as good."""
    if node.op not in ARRANGING or len(node.operands) != 1:
        return False
    return prod(node.operands[0].shape) <= prod(node.results[0].shape)
