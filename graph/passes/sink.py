"""The opposite of hoisting, for what costs nothing to compute again.

Enters: a Graph. Leaves: a Graph in which regions don't capture constants, iotas, or broadcasts of smaller
values, but compute them inside: folding and lane analysis then see them, and a broadcast array isn't
stored for the sake of a loop.

    %1 = const {value=2.0}                          %2 = for(%n, %x)
    %2 = for(%n, %x, %1)                              body(%k, %c)
      body(%k, %c, %b)                      ->          %1 = const {value=2.0}
        %3 = mul(%c, %b)                                %3 = mul(%c, %1)
        return %3                                       return %3
"""

from __future__ import annotations

from typing import Final

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import node_by_node, renewed, substituted
from loopgrad.graph.regions import Region
from loopgrad.graph.types import TensorType

SMALL_LITERAL: Final = 16  # elements


def run(graph: Graph) -> Graph:
    """`graph` with free values recomputed in the regions that captured them, outermost first."""
    return node_by_node(graph, _renew)


def _renew(node: Node, operands: tuple[Value, ...]) -> Node:
    current = renewed(node, operands, node.regions)
    if not current.regions:
        return current
    current = _sunk(current)
    return renewed(current, current.operands, tuple([run(r) for r in current.regions]))


def _sunk(node: Node) -> Node:
    view = Region.of(node)
    offset, shared = view.offset, view.accumulators
    free: dict[int, Node] = {}
    for i in view.captured:
        made = node.operands[i].node
        if made is not None and i not in shared and _is_free(made):
            free[i] = made
    if not free:
        return node
    needed = [v for made in free.values() for v in made.operands]
    regions = []
    for region in node.regions:
        inputs = [v for i, v in enumerate(region.inputs) if i + offset not in free]
        extra = [Value(v.type) for v in needed]
        graph = Graph((*inputs, *extra), region.nodes, region.outputs)
        regions.append(_with_copies(graph, {region.inputs[i - offset]: made for i, made in free.items()}, extra))
    return view.recaptured(free, needed, regions).node(node.loc)


def _is_free(node: Node) -> bool:
    match node.op:
        case "const" | "iota":
            return True
        case "literal":
            type: TensorType = node.attrs["type"]
            return type.size <= SMALL_LITERAL
        case "broadcast":
            small, large = node.operands[0].type, node.results[0].type
            assert isinstance(small, TensorType)
            assert isinstance(large, TensorType)
            return small.size < large.size
    return False


def _with_copies(graph: Graph, free: dict[Value, Node], operands: list[Value]) -> Graph:
    """`graph` with copies of the free nodes in front; `operands` are theirs, one after the other."""
    env: dict[Value, Value] = {}
    copies = []
    rest = iter(operands)
    for argument, made in free.items():
        own = tuple([next(rest) for _ in made.operands])
        copy = Node(made.op, own, (made.results[0].type,), made.attrs, (), made.loc)
        copies.append(copy)
        env[argument] = copy.results[0]
    body = substituted(graph, env)
    return Graph(body.inputs, (*copies, *body.nodes), body.outputs)
