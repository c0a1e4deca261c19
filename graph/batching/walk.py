"""Walking a graph and emitting it for all batch elements at once.

Enters: a Graph and values for its inputs, with the batch axis in front where the context says batched.
Leaves: the values of its outputs. What doesn't depend on the batch is emitted once, as it is. Every node
keeps the user's line.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.graph.batching.row import BatchContext, expanded
from loopgrad.graph.build import at, emit
from loopgrad.graph.nodes import Graph, Node, Value


def walk(graph: Graph, arguments: Sequence[Value], context: BatchContext) -> list[Value]:
    """The stand-ins for the outputs."""
    env = dict(zip(graph.inputs, arguments, strict=True))
    for node in graph.nodes:
        operands = [env[v] for v in node.operands]
        with at(node.loc):
            results = _step(node, operands, context)
        env.update(zip(node.results, results, strict=True))
        if node.regions and results and results[0].node is not None:
            context.emitted[node] = results[0].node
    return [env[v] for v in graph.outputs]


def walk_region(graph: Graph, arguments: Sequence[Value], wanted: Sequence[bool], context: BatchContext) -> list[Value]:
    """As `walk`; outputs that are `wanted` batched and aren't are expanded."""
    outputs = walk(graph, arguments, context)
    missing = [w and not b for w, b in zip(wanted, context.flags(graph.outputs), strict=True)]
    return [expanded(v, not m, context.size) for v, m in zip(outputs, missing, strict=True)]


def _step(node: Node, operands: Sequence[Value], context: BatchContext) -> Sequence[Value]:
    if any(v in context.batched for v in (*node.operands, *node.results)) or context.flow.meets(node):
        return context.rows[node.op](node, operands, context)
    return emit(node.op, operands, node.attrs, node.regions, replacement(node, context))


def replacement(node: Node, context: BatchContext) -> Node | None:
    """What stands for the node that `node` replaces, where the graph has both."""
    return None if node.replaces is None else context.emitted.get(node.replaces)
