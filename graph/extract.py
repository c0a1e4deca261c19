"""Cutting a Graph out of the DAG of nodes behind some values.

Enters: output values, and the values that bound the cut from below. Leaves: a Graph in topological
order, whose inputs are those bounds followed by every other argument or leaf that was reached.
Nodes that the outputs don't need don't appear. Where a node and another that `replaces` it are both
reached, only the replacing one stays; both stay where the replacing one needs what the other gives (a
tangent that was computed from the primal result). A bound stays an input, for all who read it, also where its own node
runs or is replaced, since something else needs its other results: a copy of the node gives those, without defining the
bound again. Where replacing leaves a stack with two consumers (two
derivatives of one gradient were taken), what fills it runs once for each.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.types import StackType


def extract(outputs: Sequence[Value], bounds: Sequence[Value] = ()) -> Graph:
    """The graph that computes `outputs` from `bounds` and from the leaves it meets."""
    stop = dict.fromkeys(bounds)
    nodes, free, _ = _topological(outputs, stop, {})
    replaced = _replacements(nodes)
    while replaced:
        nodes, free, cycle = _topological(outputs, stop, replaced)
        if not cycle:
            break
        replaced = {old: new for old, new in replaced.items() if new not in cycle}
        nodes, free, _ = _topological(outputs, stop, {})
    made_again = {value.node for value in stop if value.node is not None}
    if replaced or (made_again and not made_again.isdisjoint(nodes)):
        nodes, outputs = _redirect(nodes, outputs, replaced, stop, made_again)
    if replaced:
        nodes, outputs = _own_stacks(nodes, outputs)
    return Graph((*stop, *free), tuple(nodes), tuple(outputs))


def _topological(
    outputs: Sequence[Value], stop: dict[Value, None], replaced: dict[Node, Node]
) -> tuple[list[Node], list[Value], list[Node]]:
    """Nodes in order, the free values they reach, and the nodes of a cycle that `replaced` makes, if any."""
    order: list[Node] = []
    free: dict[Value, None] = {}
    done: set[Node] = set()
    path: dict[Node, None] = {}
    pending: list[tuple[Node, bool]] = []

    def demand(value: Value) -> None:
        node = value.node
        if value in stop:
            return
        if node is None:
            free[value] = None
            return
        node = replaced.get(node, node)
        if node not in done:
            pending.append((node, False))

    for output in outputs:
        demand(output)
        while pending:
            node, expanded = pending.pop()
            if expanded:
                done.add(node)
                order.append(node)
                del path[node]
            elif node in path:
                nodes = list(path)
                return order, list(free), nodes[nodes.index(node) :]
            elif node not in done:
                path[node] = None
                pending.append((node, True))
                for operand in reversed(node.operands):
                    demand(operand)
    return order, list(free), []


def _replacements(nodes: Sequence[Node]) -> dict[Node, Node]:
    """Old node -> the node that stands for it; the latest link of a chain wins."""
    present = set(nodes)
    replaced: dict[Node, Node] = {}
    for node in nodes:
        old = node.replaces
        while old is not None:
            if old in present:
                replaced[old] = node
            old = old.replaces
    for old, new in replaced.items():
        while new in replaced:
            new = replaced[new]
        replaced[old] = new
    return replaced


def _redirect(
    nodes: Sequence[Node],
    outputs: Sequence[Value],
    replaced: dict[Node, Node],
    stop: dict[Value, None],
    made_again: set[Node],
) -> tuple[list[Node], tuple[Value, ...]]:
    """Operands that are results of replaced nodes, and of the nodes that give a bound, taken from those that stay."""
    env: dict[Value, Value] = {}

    def see(value: Value) -> Value:
        if value in stop:
            return value
        if value.node in replaced:
            value = replaced[value.node].results[value.index]
        return env.get(value, value)

    result: list[Node] = []
    for node in nodes:
        operands = tuple([see(v) for v in node.operands])
        if operands == node.operands and node not in made_again:
            result.append(node)
            continue
        types = tuple([r.type for r in node.results])
        scope = node.results[0].scope
        # the copy stands for the node wherever both are reached later, and so does what replaces the copy
        copy = Node(node.op, operands, types, node.attrs, node.regions, node.loc, node, scope)
        env.update(zip(node.results, copy.results, strict=True))
        result.append(copy)
    return result, tuple([see(v) for v in outputs])


def _own_stacks(nodes: Sequence[Node], outputs: Sequence[Value]) -> tuple[list[Node], tuple[Value, ...]]:
    """`nodes` with a copy of a stack's producers for each consumer after the first."""
    env: dict[Value, Value] = {}
    consumed: set[Value] = set()
    result: list[Node] = []

    def own(value: Value) -> Value:
        if not isinstance(value.type, StackType):
            return value
        if value in consumed and value.node is not None:
            producer = value.node
            value = rebuilt(producer, tuple([own(v) for v in producer.operands]), None).results[value.index]
        consumed.add(value)
        return value

    def rebuilt(node: Node, operands: tuple[Value, ...], replaces: Node | None) -> Node:
        types = tuple([r.type for r in node.results])
        copy = Node(node.op, operands, types, node.attrs, node.regions, node.loc, replaces, node.results[0].scope)
        result.append(copy)
        return copy

    for node in nodes:
        operands = tuple([own(env.get(v, v)) for v in node.operands])
        if operands == node.operands:
            result.append(node)
        else:
            env.update(zip(node.results, rebuilt(node, operands, node).results, strict=True))
    return result, tuple([env.get(v, v) for v in outputs])
