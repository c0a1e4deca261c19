"""The order of a block's nodes: what reads a table comes before the scatter that would overwrite it.

Enters: a Graph. Leaves: the same nodes, in an order in which, wherever the data allows it, everything that
reads the operand of a scatter comes first. The scatter may then happen in place.

    %1 = scatter(%t, %i, %x)                    %2 = gather(%t, %j)
    %2 = gather(%t, %j)                 ->      %1 = scatter(%t, %i, %x)
    %3 = scatter(%1, %k, %2)                    %3 = scatter(%1, %k, %2)
"""

from __future__ import annotations

from typing import Final

from loopgrad.graph.nodes import Graph, Node, Value

MOST_MOVES: Final = 256  # scatters looked at: each may look at all nodes after it


def reads_first(graph: Graph) -> Graph:
    """`graph` with readers of scattered values moved before the scatters."""
    nodes = list(graph.nodes)
    waits: dict[Node, list[Node]] = {}  # scatter -> readers that were put before it
    for scatter in _candidates(graph)[:MOST_MOVES]:
        readers = _later_readers(nodes, scatter)
        start = nodes.index(scatter)
        later = set(nodes[start:])
        for reader in readers:
            needed = _needed(reader, later, waits)
            if scatter not in needed:
                waits.setdefault(scatter, []).append(reader)
                first = [n for n in nodes[start:] if n in needed]
                nodes[start:] = [*first, *[n for n in nodes[start:] if n not in needed]]
                start += len(first)
                later -= needed
    return Graph(graph.inputs, tuple(nodes), graph.outputs) if waits else graph


def _candidates(graph: Graph) -> list[Node]:
    """Scatters whose operand others read too."""
    scatters = [n for n in graph.nodes if n.op == "scatter"]
    counts = dict.fromkeys([n.operands[0] for n in scatters], 0)
    for node in graph.nodes:
        for v in set(node.operands):
            if v in counts:
                counts[v] += 1
    return [n for n in scatters if counts[n.operands[0]] > 1]


def _later_readers(nodes: list[Node], scatter: Node) -> list[Node]:
    """What else reads the operand of the scatter after it; nothing where another scatter does."""
    table: Value = scatter.operands[0]
    readers = [n for n in nodes if n is not scatter and table in n.operands]
    if any(n.op == "scatter" and n.operands[0] is table for n in readers):
        return []
    return [n for n in readers if nodes.index(n) > nodes.index(scatter)]


def _needed(reader: Node, later: set[Node], waits: dict[Node, list[Node]]) -> set[Node]:
    """Those of the `later` nodes that must come before the reader, and itself."""
    needed, pending = {reader}, [reader]
    while pending:
        node = pending.pop()
        before = [v.node for v in node.operands if v.node is not None] + waits.get(node, [])
        fresh = [n for n in before if n in later and n not in needed]
        needed.update(fresh)
        pending.extend(fresh)
    return needed
