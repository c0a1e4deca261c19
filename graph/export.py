"""Graphs for other tools: Graphviz source and networkx.

Enters: a Graph. Leaves: text in the dot language, where each region is a cluster inside its node's
cluster; or a networkx.MultiDiGraph, whose nodes are numbered in order of appearance and carry `op`,
`label`, `types`, `region` (the path of region positions from the top) and `loc`, and whose edges carry the
`operand` position (which value of the source it is: `result`). Regions are closed: no edge enters them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.control import region_labels
from loopgrad.graph.text import print_attribute

if TYPE_CHECKING:
    import networkx

SHOWN: Final = ("value", "axes", "axis", "perm", "shape", "kind", "dtype", "reverse", "lanes", "max_steps")


class _Vertex(NamedTuple):
    number: int
    op: str
    label: str
    types: tuple[str, ...]
    region: tuple[int, ...]  # (vertex of the region's node, region position) pairs from the top, flattened
    loc: str


class _Edge(NamedTuple):
    source: int
    target: int
    operand: int
    result: int


class _Flattened:
    """A graph and its regions as one list of vertices and edges."""

    def __init__(self, graph: Graph) -> None:
        self.vertices: list[_Vertex] = []
        self.edges: list[_Edge] = []
        self.clusters: list[tuple[tuple[int, ...], str]] = []
        self._graph(graph, ())

    def _vertex(self, op: str, label: str, values: tuple[Value, ...], region: tuple[int, ...], loc: object = "") -> int:
        number = len(self.vertices)
        self.vertices.append(_Vertex(number, op, label, tuple(str(v.type) for v in values), region, str(loc or "")))
        return number

    def _graph(self, graph: Graph, region: tuple[int, ...]) -> list[int]:
        """Adds the vertices of one graph; the numbers of its arguments."""
        origin: dict[Value, tuple[int, int]] = {}
        arguments = []
        for i, value in enumerate(graph.inputs):
            arguments.append(self._vertex("argument", f"argument {i}", (value,), region))
            origin[value] = (arguments[-1], 0)
        for node in graph.nodes:
            number = self._vertex(node.op, _label(node), node.results, region, node.loc)
            for i, operand in enumerate(node.operands):
                self.edges.append(_Edge(origin[operand][0], number, i, origin[operand][1]))
            origin.update({v: (number, j) for j, v in enumerate(node.results)})
            for position, (name, inner) in enumerate(zip(_region_names(node), node.regions, strict=True)):
                path = (*region, number, position)
                self.clusters.append((path, name))
                self._graph(inner, path)
        for i, value in enumerate(graph.outputs):
            number = self._vertex("output", f"output {i}", (value,), region)
            self.edges.append(_Edge(origin[value][0], number, 0, origin[value][1]))
        return arguments


def _region_names(node: Node) -> tuple[str, ...]:
    names = region_labels(node.op, node.attrs)
    return names or tuple(f"branch {i}" for i in range(len(node.regions)))


def _label(node: Node) -> str:
    shown = [f"{name}={print_attribute(node.attrs[name])}" for name in SHOWN if name in node.attrs]
    return "\n".join([node.op, *shown])


def to_dot(graph: Graph) -> str:
    """Graphviz source."""
    flat = _Flattened(graph)
    lines = ["digraph graph_ {", '  node [shape=box, fontname="monospace", fontsize=10];']
    lines += _cluster(flat, (), 1)
    for edge in flat.edges:
        type = flat.vertices[edge.source].types[edge.result]
        lines.append(f"  n{edge.source} -> n{edge.target} [label={_quoted(type)}, fontsize=8];")
    return "\n".join([*lines, "}"])


def _cluster(flat: _Flattened, path: tuple[int, ...], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for vertex in flat.vertices:
        if vertex.region == path:
            tooltip = f", tooltip={_quoted(vertex.loc)}" if vertex.loc else ""
            yield f"{indent}n{vertex.number} [label={_quoted(vertex.label)}{tooltip}];"
    for inner, name in flat.clusters:
        if inner[:-2] == path:
            yield f"{indent}subgraph cluster_{'_'.join(map(str, inner))} {{"
            owner = flat.vertices[inner[-2]].op
            yield f"{indent}  label={_quoted(f'{owner} n{inner[-2]}: {name}')};"
            yield from _cluster(flat, inner, depth + 1)
            yield f"{indent}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def to_networkx(graph: Graph) -> networkx.MultiDiGraph[Any]:
    """A networkx graph for analysis."""
    import networkx as nx  # late: costs tens of ms, and compiling needs none of it

    flat = _Flattened(graph)
    result: networkx.MultiDiGraph[Any] = nx.MultiDiGraph()
    for v in flat.vertices:
        result.add_node(v.number, op=v.op, label=v.label, types=v.types, region=v.region, loc=v.loc)
    for edge in flat.edges:
        result.add_edge(edge.source, edge.target, operand=edge.operand, result=edge.result)
    return result
