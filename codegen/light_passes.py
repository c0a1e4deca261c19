"""The passes that are worth while for programs that run without being compiled: calls give way to what they call
(graph.passes.calls), and long lists of pieces that are computed alike become arrays (graph.passes.alike)."""

from __future__ import annotations

from loopgrad.graph.nodes import Graph
from loopgrad.graph.passes import alike, calls, dce


def lightened(graph: Graph) -> tuple[Graph, bool]:
    """The graph, whose nodes are then few where it makes lists of numbers one by one; whether it does, so that its
    numbers are no longer those of the nodes that were given."""
    if any(node.op == "call" for node in graph.nodes):
        graph = calls.run(graph)
    found = alike.run(graph)
    return (graph, False) if found is graph else (dce.run(found), True)
