"""Closed calls: plain calls of functions whose numbers stay, as what an array function noted is noted again.

%2 = call(%x) {kind="plain", closed=True}        a word of its graph's structure is the digest of what it calls
"""

from __future__ import annotations

from loopgrad.graph.nodes import Graph, Node


def is_closed_call(node: Node) -> bool:
    """Whether a node is a plain call of a function whose numbers stay as they are."""
    return node.op == "call" and "closed" in node.attrs


def operations(graph: Graph) -> int:
    """How many nodes the graph has once closed calls have given way to what they call."""
    called = [operations(node.regions[0]) - 1 for node in graph.nodes if node.regions and is_closed_call(node)]
    return len(graph.nodes) + sum(called)
