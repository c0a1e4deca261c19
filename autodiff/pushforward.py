"""The forward walker: tangents from inputs to outputs of a piece of the ambient DAG.

The mirror of `autodiff.pullback`: same piece, same tables (`PARTIALS`, `JVP`), None for a zero tangent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from loopgrad.autodiff.activity import useful_values
from loopgrad.autodiff.rules import JVP, NONDIFFERENTIABLE, PARTIALS, pushed
from loopgrad.graph.build import at
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.regions import Region

Tangents = Sequence[Value | None]
RegionRule = Callable[[Node, Tangents, "RegionRules"], Tangents]
RegionRules = Mapping[str, "RegionRule"]


def push_forward(
    outputs: Sequence[Value], wrt: Sequence[Value], tangents: Tangents, regions: RegionRules
) -> list[Value | None]:
    """Tangents of `outputs`, given those of `wrt`."""
    graph = extract(outputs, wrt)
    known: dict[Value, Value] = {v: t for v, t in zip(wrt, tangents, strict=True) if t is not None}
    unread = _unread_calls(graph)
    for node in graph.nodes:
        received = [known.get(v) for v in node.operands]
        if node.op in NONDIFFERENTIABLE or node in unread or all(t is None for t in received):
            continue
        with at(node.loc):
            results = _step(node, received, regions)
        known.update((value, t) for value, t in zip(node.results, results, strict=True) if t is not None)
    return [known.get(v) for v in graph.outputs]


def _unread_calls(graph: Graph) -> set[Node]:
    """Calls with their own rule whose tangent nobody asks for: a vjp rule can't give it, and needn't where a reverse
    pass has left the call behind."""
    calls = [node for node in graph.nodes if node.regions and Region.of(node).own]
    if not calls:
        return set()
    useful = useful_values(graph, [True] * len(graph.outputs))
    return {node for node in calls if useful.isdisjoint(node.results)}


def _step(node: Node, received: Tangents, regions: RegionRules) -> Tangents:
    if node.op in PARTIALS:
        return (pushed(node, received, PARTIALS),)
    if node.op in JVP:
        return JVP[node.op](node, received)
    return regions[node.op](node, received, regions)
