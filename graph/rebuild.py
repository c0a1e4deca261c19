"""Rebuilding graphs: what every pass shares.

Nodes and graphs are never changed, so a pass makes a new Graph. Nodes whose operands and regions
are unchanged are reused as they are. `rebuild` walks a graph in order, regions first, and asks a
rewrite what to put in place of each node:

    None                       keep the node (with its new operands)
    a sequence of values       these stand for the node's results from here on

Inputs keep their number, order and identity: callers bind buffers to them by position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from loopgrad.graph.nodes import NO_ATTRS, Graph, Location, Node, Value
from loopgrad.graph.primitives import INFER
from loopgrad.graph.types import DType, TensorType

NOTHING: Final[Mapping[Value, Value]] = MappingProxyType({})


class GraphBuilder:
    """The nodes of a graph under construction, in order."""

    __slots__ = ("loc", "nodes", "original")

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.loc: Location | None = None  # given to what `emit` makes
        self.original: Node | None = None  # during a rewrite: the node before its operands were rebuilt

    def emit(
        self, op: str, operands: Sequence[Value], attrs: Mapping[str, Any] = NO_ATTRS, regions: tuple[Graph, ...] = ()
    ) -> tuple[Value, ...]:
        """Append a node and return its results."""
        operands = tuple(operands)
        types = INFER[op](operands, attrs, regions)
        node = Node(op, operands, types, attrs, regions, self.loc)
        self.nodes.append(node)
        return node.results

    def value(self, op: str, *operands: Value, **attrs: Any) -> Value:
        """`emit` for operations with one result."""
        return self.emit(op, operands, attrs or NO_ATTRS)[0]

    def const(self, value: float | int | bool, type: TensorType) -> Value:
        """A splat constant."""
        return self.value("const", value=value, type=type)

    def cast(self, value: Value, dtype: DType) -> Value:
        """The value itself where it has the dtype."""
        return value if value.dtype is dtype else self.value("cast", value, dtype=dtype)

    def splat(self, scalar: Value, shape: tuple[int, ...]) -> Value:
        """A scalar in every element of `shape`."""
        return self.value("broadcast", scalar, shape=shape, dims=()) if shape else scalar

    def extended(self, value: Value, axis: int, extent: int, filling: float | int | bool = 0) -> Value:
        """So long along the axis, with this behind its elements; itself where it is."""
        missing = extent - value.shape[axis]
        if not missing:
            return value
        none = (0,) * len(value.shape)
        high = (*none[:axis], missing, *none[axis + 1 :])
        return self.value("pad", value, self.const(filling, TensorType((), value.dtype)), low=none, high=high)

    def inline(self, graph: Graph, arguments: Sequence[Value]) -> tuple[Value, ...]:
        """Append the nodes of `graph`, with `arguments` for its inputs."""
        env = dict(zip(graph.inputs, arguments, strict=True))
        for node in graph.nodes:
            # always a copy: the same graph may be inlined twice
            types = tuple([r.type for r in node.results])
            copy = Node(node.op, tuple([env[v] for v in node.operands]), types, node.attrs, node.regions, node.loc)
            env.update(zip(node.results, copy.results, strict=True))
            self.nodes.append(copy)
        return tuple([env[v] for v in graph.outputs])


Rewrite = Callable[[Node, GraphBuilder], Sequence[Value] | None]


def rebuild(graph: Graph, rewrite: Rewrite, inner: bool = True) -> Graph:
    """`graph` with `rewrite` applied to every node of it and of its regions, innermost first; without `inner` regions
    stay."""
    builder = GraphBuilder()
    env: dict[Value, Value] = {}
    changed = False
    for node in graph.nodes:
        operands = tuple([env.get(v, v) for v in node.operands]) if env else node.operands
        regions = tuple([rebuild(r, rewrite) for r in node.regions]) if inner and node.regions else node.regions
        current = renewed(node, operands, regions)
        builder.loc, builder.original = current.loc, node
        results = rewrite(current, builder)
        if results is None:
            builder.nodes.append(current)
            results = current.results
        if results is not node.results:
            changed = True
            env.update([(old, new) for old, new in zip(node.results, results, strict=True) if old is not new])
    if not changed:
        return graph
    return Graph(graph.inputs, tuple(builder.nodes), tuple([env.get(v, v) for v in graph.outputs]))


def renewed(node: Node, operands: tuple[Value, ...], regions: tuple[Graph, ...]) -> Node:
    """`node` with these operands and regions of unchanged types; itself where they are the same."""
    if operands == node.operands and regions == node.regions:
        return node
    results = node.results
    types = (results[0].type,) if len(results) == 1 else tuple([r.type for r in results])
    return Node(node.op, operands, types, node.attrs, regions, node.loc)


def node_by_node(
    graph: Graph, renew: Callable[[Node, tuple[Value, ...]], Node], replaced: Mapping[Value, Value] = NOTHING
) -> Graph:
    """`graph` with operands and outputs looked up in `replaced` first, and each node as `renew` makes it of its
    operands, with results of the same types. Itself where nothing is replaced."""
    env = dict(replaced)
    nodes: list[Node] = []
    for node in graph.nodes:
        current = renew(node, tuple([env.get(v, v) for v in node.operands]) if env else node.operands)
        if current is not node:
            env.update(zip(node.results, current.results, strict=True))
        nodes.append(current)
    if not env:
        return graph
    return Graph(graph.inputs, tuple(nodes), tuple([env.get(v, v) for v in graph.outputs]))


def map_regions(graph: Graph, transform: Callable[[Graph], Graph]) -> Graph:
    """`graph` with `transform` applied to the direct regions of its nodes (same interface out)."""

    def renew(node: Node, operands: tuple[Value, ...]) -> Node:
        return renewed(node, operands, tuple([transform(r) for r in node.regions]) if node.regions else ())

    return node_by_node(graph, renew)


def substituted(graph: Graph, replaced: Mapping[Value, Value]) -> Graph:
    """`graph` with operands and outputs looked up in `replaced` first."""
    return node_by_node(graph, lambda node, operands: renewed(node, operands, node.regions), replaced)


def read_values(graph: Graph) -> set[Value]:
    """Every value that a node or an output of this graph (not of its regions) reads."""
    read = {v for node in graph.nodes for v in node.operands}
    read.update(graph.outputs)
    return read


def read_anywhere(graph: Graph) -> set[Value]:
    """The same, and what its regions read."""
    return read_values(graph).union(*[read_anywhere(region) for node in graph.nodes for region in node.regions])


def readers_of(graph: Graph) -> dict[Value, list[Node]]:
    """The nodes of `graph` itself that read each value, in order, each once."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for v in dict.fromkeys(node.operands):
            readers.setdefault(v, []).append(node)
    return readers
