"""Closed calls: plain calls of functions whose numbers stay, as what an array function noted is noted again.

%2 = call(%x) {kind="plain", closed=True}        a word of its graph's structure is the digest of what it calls
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.regions import Call


def is_closed_call(node: Node) -> bool:
    """Whether a node is a plain call of a function whose numbers stay as they are."""
    return node.op == "call" and "closed" in node.attrs


def called(node: Node) -> Graph:
    """What a call calls."""
    return Call.of(node).function


def expanded(function: Graph, arguments: Sequence[Value]) -> tuple[list[Node], Value]:
    """Nodes of one's own that give the only result of a function of these arguments, and the result."""
    builder = GraphBuilder()
    (result,) = builder.inline(function, arguments)
    return builder.nodes, result


def operations(graph: Graph) -> int:
    """How many nodes the graph has once closed calls have given way to what they call."""
    more = [operations(called(node)) - 1 for node in graph.nodes if node.regions and is_closed_call(node)]
    return len(graph.nodes) + sum(more)
