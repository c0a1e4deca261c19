"""Sums into the same elements of a table are one.

Enters: a Graph. Leaves: a Graph in which updates that are added at the same indices, one scatter after the other, are
added up before they are scattered. They are what the reverse pass makes of a table that is looked up twice at the same
places, as in `x[i] * x[i]`: lanes that meet in elements take longer than an addition.

    %1 = scatter(%t, %i, %a) {kind=add}
    %2 = scatter(%1, %j, %b) {kind=add}                     %1 = scatter(%t, %j, %b) {kind=add}
    %3 = scatter(%2, %i, %c) {kind=add}            ->       %2 = scatter(%1, %i, add(%a, %c)) {kind=add}

Nobody else may read what is between them. A sum of two floats is rounded once more; of 16 bits, which a table is summed
in more than, they are left alone.
"""

from __future__ import annotations

from collections import Counter

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder, map_regions, renewed


def run(graph: Graph) -> Graph:
    """`graph`, and its regions, with such scatters joined."""
    graph = map_regions(graph, run)
    joined = _joined(graph)
    if not joined:
        return graph
    left_out = {node for earlier in joined.values() for node in earlier}
    builder = GraphBuilder()
    env: dict[Value, Value] = {}
    for node in graph.nodes:
        operands = tuple([env.get(v, v) for v in node.operands])
        if node in left_out:
            env[node.results[0]] = operands[0]
            continue
        if node in joined:
            builder.loc = node.loc
            total = operands[-1]
            for earlier in joined[node]:
                total = builder.value("add", env.get(earlier.operands[-1], earlier.operands[-1]), total)
            operands = (*operands[:-1], total)
        current = renewed(node, operands, node.regions)
        builder.nodes.append(current)
        if current is not node:
            env.update(zip(node.results, current.results, strict=True))
    return Graph(graph.inputs, tuple(builder.nodes), tuple([env.get(v, v) for v in graph.outputs]))


def _joined(graph: Graph) -> dict[Node, list[Node]]:
    """The last scatters at their indices, each with those of its chain that it takes over, the latest first."""
    found: dict[Node, list[Node]] = {}
    if sum(node.op == "scatter" for node in graph.nodes) < 2:
        return found
    uses = Counter(v for node in graph.nodes for v in node.operands)
    uses.update(graph.outputs)
    seen: set[Node] = set()
    for node in reversed(graph.nodes):
        last: dict[tuple[Value, ...], Node] = {}
        step: Node | None = node
        while step is not None and step not in seen and _adds(step):
            seen.add(step)
            indices, table = step.operands[1:-1], step.operands[0]
            if indices in last:
                found.setdefault(last[indices], []).append(step)
            last.setdefault(indices, step)
            step = table.node if uses[table] == 1 else None
    return found


def _adds(node: Node) -> bool:
    if node.op != "scatter" or node.attrs["kind"] != "add":
        return False
    dtype = node.operands[-1].dtype
    return dtype.is_integer or dtype.bits >= 32
