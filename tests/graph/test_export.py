"""Exported graphs have the vertices, edges and clusters of the original."""

from __future__ import annotations

import networkx

from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.export import to_dot, to_networkx
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float64, int64

X = TensorType((4,), float64)
COUNT = TensorType((), int64)


def sample():
    return trace(lambda n, x: traced_for(n, [ops.sin(x)], lambda _k, c: [ops.mul(c, c)]), [COUNT, X])[0]


def test_dot_nests_regions_and_quotes():
    text = to_dot(sample())
    assert text.startswith("digraph")
    assert text.count("{") == text.count("}")
    assert 'label="for n3: body"' in text
    assert "subgraph cluster_3_0" in text
    assert 'label="for\\nreverse=False\\nlanes=0"' in text
    assert text.count("->") == sum(1 for _ in to_networkx(sample()).edges)


def test_networkx_is_acyclic_and_complete():
    graph = to_networkx(sample())
    assert networkx.is_directed_acyclic_graph(graph)
    ops_found = sorted(data["op"] for _, data in graph.nodes(data=True))
    assert ops_found == ["argument"] * 4 + ["for", "mul", "output", "output", "sin"]
    (body_mul,) = [n for n, data in graph.nodes(data=True) if data["op"] == "mul"]
    assert graph.nodes[body_mul]["region"] == (3, 0)
    assert graph.nodes[body_mul]["types"] == ("float64[4]",)
    assert sorted(data["operand"] for _, _, data in graph.in_edges(body_mul, data=True)) == [0, 1]
