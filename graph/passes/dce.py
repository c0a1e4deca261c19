"""Dead code elimination.

Enters: a Graph. Leaves: the same outputs from only the nodes they need. In regions too: captured values
that no region reads and results of a switch or call that nobody reads disappear from the region's node; a stack that
a branch fills or empties stays a result, as it stays a carry of a loop, because a derivative taken later follows
it to its end. (Dead carries of loops are the business of `carries`.)

    %1 = sin(%x)                                    %3 = for(%n, %x) {carries=1}
    %2, %3 = switch(%i, %x, %y) { ... }      ->          ...
    %4 = for(%n, %x, %y) {carries=1}                (the switch goes, and %y, which no body reads)
    return %4                                       return %3
"""

from __future__ import annotations

from typing import NamedTuple

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import read_values, renewed
from loopgrad.graph.regions import Region
from loopgrad.graph.types import StackType


class _Plan(NamedTuple):
    """A region node to be rebuilt with these regions, operand positions and result positions."""

    regions: tuple[Graph, ...]
    operands: tuple[int, ...]
    results: tuple[int, ...]


def run(graph: Graph) -> Graph:
    """`graph` without what its outputs don't need."""
    needed: set[Value] = set(graph.outputs)
    kept: list[tuple[Node, _Plan | None]] = []
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.results):
            continue
        plan = _shrink(node, needed) if node.regions else None
        needed.update(node.operands if plan is None else [node.operands[i] for i in plan.operands])
        kept.append((node, plan))
    if len(kept) == len(graph.nodes) and all(plan is None for _, plan in kept):
        return graph
    return _assemble(graph, kept[::-1])


def _assemble(graph: Graph, kept: list[tuple[Node, _Plan | None]]) -> Graph:
    env: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node, plan in kept:
        operands = tuple([env.get(v, v) for v in node.operands]) if env else node.operands
        if plan is None:
            current = renewed(node, operands, node.regions)
            env.update(zip(node.results, current.results, strict=True) if current is not node else ())
        else:
            current = _narrowed(node, operands, plan)
            env.update({node.results[old]: current.results[new] for new, old in enumerate(plan.results)})
        nodes.append(current)
    return Graph(graph.inputs, tuple(nodes), tuple([env.get(v, v) for v in graph.outputs]))


def shrunk(node: Node, needed: set[Value]) -> tuple[Node, tuple[int, ...]]:
    """A region node without the results that aren't `needed` (a switch or call) and captures it doesn't read, and
    the positions of the results that remain."""
    plan = _shrink(node, needed)
    if plan is None:
        return node, tuple(range(len(node.results)))
    return _narrowed(node, node.operands, plan), plan.results


def _shrink(node: Node, needed: set[Value]) -> _Plan | None:
    """What remains of a region node; None where all of it does."""
    results = tuple(range(len(node.results)))
    regions = node.regions
    view = Region.of(node)
    if view.optional:
        results = tuple([i for i in results if node.results[i] in needed or _moves_stack(node, i)])
        regions = tuple([Graph(r.inputs, r.nodes, tuple([r.outputs[i] for i in results])) for r in regions])
    regions = tuple([run(r) for r in regions])
    offset, captured = view.offset, view.captured
    reads = [(r.inputs, read_values(r)) for r in regions]
    read = [i for i in captured if any(inputs[i - offset] in inside for inputs, inside in reads)]
    operands = (*range(captured.start), *read)
    if len(operands) == len(node.operands) and len(results) == len(node.results):
        unchanged = all(
            a.nodes == b.nodes and a.outputs == b.outputs for a, b in zip(regions, node.regions, strict=True)
        )
        return None if unchanged else _Plan(regions, operands, results)
    inputs = [i - offset for i in operands if i >= offset]
    return _Plan(
        tuple([Graph(tuple([r.inputs[i] for i in inputs]), r.nodes, r.outputs) for r in regions]), operands, results
    )


def _moves_stack(switch: Node, result: int) -> bool:
    """Whether a result is a stack that some branch doesn't hand on as it came."""
    if not isinstance(switch.results[result].type, StackType):
        return False
    return any(r.outputs[result] not in r.inputs for r in switch.regions)


def _narrowed(node: Node, operands: tuple[Value, ...], plan: _Plan) -> Node:
    form = Region.of(node).narrowed(plan.operands, plan.regions, plan.results)
    return form._replace(operands=tuple([operands[i] for i in plan.operands])).node(node.loc)
