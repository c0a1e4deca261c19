"""Long lists of pieces that are computed alike become arrays (graph.passes.alike): of all passes the one that is worth
while for programs that run without being compiled."""

from __future__ import annotations

from loopgrad.graph.nodes import Graph
from loopgrad.graph.passes import alike, dce


def joined(graph: Graph) -> Graph:
    """The graph, whose nodes are then few where it makes lists of numbers one by one."""
    found = alike.run(graph)
    return graph if found is graph else dce.run(found)
