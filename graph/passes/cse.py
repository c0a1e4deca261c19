"""Common subexpression elimination.

Enters: a Graph. Leaves: a Graph in which no operation is computed twice from the same operands: equal
operation, attributes and regions. A value that a region captures twice is captured once. Operations on
stacks are never merged (each stack is its own), nor is `alias` (it exists to be distinct).

    %1 = sin(%x);  %2 = sin(%x);  %3 = add(%1, %2)     ->     %1 = sin(%x);  %3 = add(%1, %1)
"""

from __future__ import annotations

from typing import Any

from loopgrad.graph.key import encode_attrs, key
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import COMMUTATIVE, PRIMITIVES, STACKS
from loopgrad.graph.rebuild import renewed, substituted
from loopgrad.graph.regions import Region
from loopgrad.graph.types import StackType


def run(graph: Graph) -> Graph:
    """`graph` with equal nodes merged."""
    table: dict[Any, Node] = {}
    env: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        operands = tuple([env.get(v, v) for v in node.operands]) if env else node.operands
        current = node
        if node.regions:
            current = _without_repeated_captures(renewed(node, operands, tuple([run(r) for r in node.regions])))
        elif operands is not node.operands:
            current = renewed(node, operands, ())
        if _is_mergeable(current):
            known = table.setdefault(_identity(current), current)
            if known is current:
                nodes.append(current)
            current = known
        else:
            nodes.append(current)
        if current is not node:
            env.update(zip(node.results, current.results, strict=True))
    if not env:
        return graph
    return Graph(graph.inputs, tuple(nodes), tuple([env.get(v, v) for v in graph.outputs]))


def _is_mergeable(node: Node) -> bool:
    if node.op in STACKS or node.op == "alias" or PRIMITIVES[node.op].collective:
        return False
    if not node.regions:
        return True
    return not any(isinstance(v.type, StackType) for v in (*node.operands, *node.results))


def _identity(node: Node) -> tuple[Any, ...]:
    operands = node.operands
    if node.op in COMMUTATIVE and operands[0].dtype.kind in PRIMITIVES[node.op].commutes:
        operands = tuple(sorted(operands, key=id))
    attrs = encode_attrs(node.attrs, with_name=False) if node.attrs else None
    if not node.regions:
        return node.op, operands, attrs
    return (node.op, operands, attrs, *[key(r, with_locations=False) for r in node.regions])


def _without_repeated_captures(node: Node) -> Node:
    view = Region.of(node)
    offset, shared = view.offset, view.accumulators
    first_at: dict[Value, int] = {}
    repeated: dict[int, int] = {}
    for i in view.captured:
        if i in shared:
            continue
        first = first_at.setdefault(node.operands[i], i)
        if first != i and not isinstance(node.operands[i].type, StackType):
            repeated[i] = first
    if not repeated:
        return node
    regions = []
    for region in node.regions:
        replaced = {region.inputs[i - offset]: region.inputs[first - offset] for i, first in repeated.items()}
        inputs = tuple([v for v in region.inputs if v not in replaced])
        regions.append(run(substituted(Graph(inputs, region.nodes, region.outputs), replaced)))
    return view.recaptured(repeated, (), regions).node(node.loc)
