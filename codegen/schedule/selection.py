"""Sorted rows of which few elements are read, at places that are known: medians, quantiles, `partition(x, k)[k]`.

    %1 = sort(%0) {axis=0}                 %1 = sort(%0) {axis=0, places=(500,)}
    %2 = gather(%1, const 500)     ->      %2 = gather(%1, const 500)

Whoever sorts may leave the other elements in any order. Seen through reshapes and broadcasts that add axes in front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import readers_of
from loopgrad.graph.types import integer

MOST_PLACES: Final = 16
SHORTEST: Final = 64  # elements of a row

Users = Mapping[Value, Sequence[Node]]


def places_read(graph: Graph) -> dict[Value, tuple[int, ...]]:
    """The results of sorts of which only some places along the axis are read, and these."""
    sorts = [node for node in graph.nodes if node.op == "sort"]
    if not sorts:
        return {}
    users = readers_of(graph)
    returned, found = frozenset(graph.outputs), dict[Value, tuple[int, ...]]()
    for node in sorts:
        (result,) = node.results
        if node.attrs["axis"] != len(result.shape) - 1 or result.shape[-1] < SHORTEST:
            continue
        places = _read(result, users, returned)
        if places and len(places) <= MOST_PLACES:
            found[result] = tuple(sorted(places))
    return found


def _read(rows: Value, users: Users, returned: frozenset[Value]) -> set[int] | None:
    """Which places of the last axis are read; None where that may be any."""
    if rows in returned:
        return None
    places = set[int]()
    for user in users.get(rows, ()):
        found = _read(user.results[0], users, returned) if _same_rows(user) else _chosen(user, rows)
        if found is None:
            return None
        places |= found
    return places


def _same_rows(node: Node) -> bool:
    """Whether the last axis of the result is that of the operand, as it is."""
    if node.op == "reshape":
        return node.operands[0].shape[-1:] == node.results[0].shape[-1:]
    if node.op != "broadcast":
        return False
    given, made = node.operands[0].shape, node.results[0].shape
    return node.attrs["dims"][-1:] == (len(made) - 1,) and given[-1:] == made[-1:]


def _chosen(node: Node, rows: Value) -> set[int] | None:
    """The places that a slice or gather reads."""
    length, rank = rows.shape[-1], len(rows.shape)
    if node.op == "slice":
        start, stop, step = (node.attrs[name][-1] for name in ("start", "stop", "step"))
        places = range(length)[start:stop:step]  # backwards to the first element no number says where to stop
        return set(places) if len(places) <= MOST_PLACES else None
    if node.op != "gather" or rows in node.operands[1:] or len(node.operands) != rank + 1:
        return None
    place = node.operands[-1].node
    if place is None or place.op != "const":
        return None
    return {min(max(integer(place.attrs["value"]), 0), length - 1)}
