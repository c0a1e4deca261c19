"""Rebuilding keeps what doesn't change and threads what does."""

from __future__ import annotations

from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.nodes import Value
from loopgrad.graph.rebuild import (
    GraphBuilder,
    map_regions,
    read_values,
    rebuild,
    renewed,
    substituted,
)
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float64, int64
from loopgrad.graph.verify import verify

X = TensorType((4,), float64)
COUNT = TensorType((), int64)


def sample():
    def program(n, x, y):
        return traced_for(n, [ops.sin(x)], lambda _k, c: [ops.add(c, ops.sin(y))])

    return trace(program, [COUNT, X, X])[0]


def test_a_rewrite_that_keeps_everything_returns_the_same_graph():
    graph = sample()
    assert rebuild(graph, lambda _node, _builder: None) is graph
    assert map_regions(graph, lambda region: region) is graph
    assert substituted(graph, {}).nodes == graph.nodes


def test_a_rewrite_reaches_regions_and_sees_the_original_node():
    graph = sample()
    seen = []

    def cosine(node, builder):
        seen.append(builder.original)
        return builder.emit("cos", node.operands) if node.op == "sin" else None

    after = rebuild(graph, cosine)
    verify(after)
    assert after.inputs == graph.inputs
    assert [n.op for n in after.nodes] == ["cos", "for"]
    assert [n.op for n in after.nodes[1].regions[0].nodes] == ["cos", "add"]
    assert set(seen) == {*graph.nodes, *graph.nodes[1].regions[0].nodes}
    assert after.nodes[0].loc == graph.nodes[0].loc


def test_map_regions_changes_direct_regions():
    after = map_regions(
        sample(), lambda region: rebuild(region, lambda n, _: n.operands[:1] if n.op == "sin" else None)
    )
    verify(after)
    assert [n.op for n in after.nodes[1].regions[0].nodes] == ["add"]


def test_the_same_graph_may_be_inlined_twice():
    graph = sample()
    builder = GraphBuilder()
    arguments = [Value(t) for t in graph.input_types]
    first = builder.inline(graph, arguments)
    second = builder.inline(graph, [arguments[0], *first, arguments[2]])
    assert len(builder.nodes) == 2 * len(graph.nodes)
    assert first != second


def test_what_is_unchanged_is_itself():
    loop = sample().nodes[-1]
    assert renewed(loop, loop.operands, loop.regions) is loop
    assert read_values(loop.regions[0]) >= set(loop.regions[0].inputs[1:])
