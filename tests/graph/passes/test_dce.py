"""Dead nodes, captures and switch results disappear; nothing else does."""

from __future__ import annotations

import pytest

from loopgrad.graph import ops
from loopgrad.graph.passes import dce
from loopgrad.graph.region_ops import traced_for, traced_switch
from tests.graph.passes import checking

checked, f, i, ops_of = checking.checked, checking.f, checking.i, checking.ops_of


@pytest.mark.parametrize("seed", checking.SEEDS)
def test_random_programs(seed):
    checking.check_random(dce.run, seed)


def with_dead_node(function):
    """Extraction drops dead nodes, so a graph that has some is made by dropping an output."""

    def run(graph):
        return dce.run(type(graph)(graph.inputs, graph.nodes, graph.outputs[:1]))

    graph = checking.traced(function, f(4), f(4))
    return run(graph)


def test_dead_nodes_go():
    assert ops_of(with_dead_node(lambda x, y: [ops.sin(x), ops.cos(ops.exp(y))])) == ["sin"]


def test_a_graph_without_dead_code_is_returned_as_it_is():
    graph = checking.traced(lambda x: [ops.sin(ops.cos(x))], f(4))
    assert dce.run(graph) is graph


def test_unread_switch_results_and_captures_go():
    def program(x, y):
        branches = [lambda a, b: [ops.sin(a), ops.cos(b)], lambda a, b: [a, b]]
        return traced_switch(ops.lt(ops.reduce_sum(x, (0,)), 0.0), branches, [x, y])

    after = with_dead_node(program)
    assert "cos" not in ops_of(after)
    assert len(after.nodes[-1].operands) == 2
    assert len(after.nodes[-1].results) == 1


def test_dead_code_inside_a_body_goes_with_its_capture():
    graph = checking.traced(lambda n, x, y: traced_for(n, [x], lambda _k, c: [ops.add(c, ops.sin(y))]), i(), f(4), f(4))
    (loop,) = graph.nodes
    body = loop.regions[0]
    idle = type(body)(body.inputs, body.nodes, body.inputs[1:2])
    node = type(loop)(loop.op, loop.operands, tuple(r.type for r in loop.results), loop.attrs, (idle,))
    after = dce.run(type(graph)(graph.inputs, (node,), node.results))
    assert ops_of(after) == ["for"]
    assert len(after.nodes[0].operands) == 2


def test_shared_positions_follow_their_results():
    def program(k, x, acc):
        first = [lambda a, c: [ops.neg(c), ops.scatter("add", a, (k,), c)], lambda a, c: [c, a]]
        return traced_switch(ops.lt(x, 0.0), first, [acc, x], shared=(1,))

    graph = checking.traced(program, i(4), f(4), f(3))
    after = dce.run(type(graph)(graph.inputs, graph.nodes, graph.outputs[1:]))
    assert after.nodes[-1].attrs["shared"] == (0,)
    arrays = checking.random_graphs.random_arrays(checking.np.random.default_rng(0), graph.input_types)
    checking.same_meaning(type(graph)(graph.inputs, graph.nodes, graph.outputs[1:]), after, arrays)
