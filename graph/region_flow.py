"""How a property of values goes into regions and comes out of them: for who walks a graph with regions forward.

for (n, x, y):  body(i, a, b) -> (f(a), b)       x chosen -> a is inside;  x and f(a) chosen -> the first result is
"""

from __future__ import annotations

from collections.abc import Mapping

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.types import TensorType


def running(node: Node) -> tuple[Graph, ...]:
    """The regions that run where the node does."""
    return Region.of(node).running


def whole_tensors_only(node: Node) -> bool:
    """Whether neither stacks nor accumulators of lanes go through the node."""
    types = [v.type for v in (*node.operands, *node.results)]
    return not Region.of(node).shared and all(isinstance(t, TensorType) for t in types)


def outside_lanes(graph: Graph) -> set[Node]:
    """The nodes of the graph, and of loops over whole tensors in it."""
    found = set(graph.nodes)
    for node in graph.nodes:
        if node.regions and not Region.of(node).lanes and isinstance(Region.of(node), Loop):
            found = found.union(*[outside_lanes(region) for region in Region.of(node).bodies])
    return found


def count_of(node: Node) -> Value | None:
    """The trips of a counted loop."""
    region = Region.of(node)
    return region.count if isinstance(region, Loop) else None


def entering(node: Node, chosen: set[Value]) -> set[Value]:
    """The inputs of its regions that continue operands among the chosen ones (an index continues none)."""
    region, operands = Region.of(node), node.operands
    places = [i for i in range(region.first, len(operands)) if operands[i] in chosen]
    return {v for i in places for v in region.inputs_of(i)}


def leaving(node: Node, chosen: set[Value], inside: Mapping[Graph, set[Value]]) -> list[Value]:
    """The results that are chosen at the end of each body, where `inside` says what is, and at the start of a loop."""
    region = Region.of(node)
    starts = region.inits if isinstance(region, Loop) else None
    return [
        result
        for j, result in enumerate(node.results)
        if all(body.outputs[j] in inside[body] for body in region.bodies) and (starts is None or starts[j] in chosen)
    ]
