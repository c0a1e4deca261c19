"""The forward walker: tangents from inputs to outputs of a piece of the ambient DAG.

The mirror of `autodiff.pullback`: same piece, same tables (`PARTIALS`, `JVP`), None for a zero tangent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from loopgrad.autodiff.activity import useful_values
from loopgrad.autodiff.rules import JVP, NONDIFFERENTIABLE, PARTIALS, REFUSED, pushed
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
    useful = _useful(graph)
    for node in graph.nodes:
        received = [known.get(v) for v in node.operands]
        if node.op in NONDIFFERENTIABLE or all(t is None for t in received):
            continue
        if _has_own_rule(node) and useful.isdisjoint(node.results):
            continue  # a vjp rule can't give a tangent, and needn't where a reverse pass has left the call behind
        with at(node.loc):
            if node.op in REFUSED:
                REFUSED[node.op](node, [r in useful for r in node.results])
            results = _step(node, received, regions)
        known.update((value, t) for value, t in zip(node.results, results, strict=True) if t is not None)
    return [known.get(v) for v in graph.outputs]


def _has_own_rule(node: Node) -> bool:
    return bool(node.regions) and Region.of(node).own


def _useful(graph: Graph) -> set[Value]:
    """The values whose tangents are asked for, where a node gives some of them only."""
    if not any(node.op in REFUSED or _has_own_rule(node) for node in graph.nodes):
        return set()
    return useful_values(graph, [True] * len(graph.outputs))


def _step(node: Node, received: Tangents, regions: RegionRules) -> Tangents:
    if node.op in PARTIALS:
        return (pushed(node, received, PARTIALS),)
    if node.op in JVP:
        return JVP[node.op](node, received)
    return regions[node.op](node, received, regions)
