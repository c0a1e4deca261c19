"""Running combinations by functions of elements: a routine, where the target has one, of those results that are read;
elsewhere, and in lanes, what they say in blocks (`graph/associative.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.codegen.options import SCANS
from loopgrad.graph.associative import expanded
from loopgrad.graph.build import at
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder, read_anywhere, rebuild
from loopgrad.graph.region_flow import outside_lanes
from loopgrad.graph.types import TensorType

NAME: Final = "associative_scan"


def rewrite_scans(graph: Graph, library: frozenset[str]) -> Graph:
    """`graph` with those that the target has a routine for, and no others."""
    if not _has_scans(graph):
        return graph
    outside, read = outside_lanes(graph), read_anywhere(graph)

    def rewrite(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        original = builder.original
        if node.op != NAME or original is None:
            return None
        if SCANS not in library or original not in outside:
            with at(node.loc):
                form = expanded(node)
            return builder.inline(form, node.operands)
        wanted = [k for k, v in enumerate(original.results) if v in read]
        if len(wanted) == len(node.results):
            return None
        taken = tuple([node.attrs["taken"][k] for k in wanted])
        made = iter(builder.emit(NAME, node.operands, {**node.attrs, "taken": taken}))
        return [next(made) if k in wanted else _unread(v, builder) for k, v in enumerate(node.results)]

    return rebuild(graph, rewrite)


def _unread(value: Value, builder: GraphBuilder) -> Value:
    assert isinstance(value.type, TensorType)
    return builder.const(0, value.type)


def _has_scans(graph: Graph) -> bool:
    return any(node.op == NAME or any(map(_has_scans, node.regions)) for node in graph.nodes)
