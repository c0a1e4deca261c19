from __future__ import annotations

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.extract import extract
from loopgrad.graph.interpret import interpret
from loopgrad.graph.nodes import Leaf
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float64, int32
from loopgrad.graph.verify import verify

SCALAR = TensorType((), float64)


def leaf(type=SCALAR):
    return Leaf(type, None)


def test_the_cut_stops_at_its_bounds():
    x = leaf()
    y = ops.sin(x)
    graph = extract([ops.mul(ops.cos(y), 2)], [y])
    assert graph.inputs == (y,)
    assert [n.op for n in graph.nodes] == ["cos", "const", "mul"]


def test_bounds_come_first_and_leaves_in_the_order_they_are_met():
    x, a, b = leaf(), leaf(), leaf()
    graph = extract([ops.add(ops.mul(a, b), a)], [x])
    assert graph.inputs == (x, a, b)


def test_an_output_may_be_an_input():
    x = leaf()
    graph = extract([x, x], [x])
    assert (graph.inputs, graph.nodes, graph.outputs) == ((x,), (), (x, x))
    assert extract([x]).inputs == (x,)


def test_a_deep_graph_needs_no_recursion():
    v = x = leaf()
    for _ in range(50_000):
        v = ops.sin(v)
    graph = extract([v], [x])
    assert len(graph.nodes) == 50_000
    assert graph.nodes[0].operands == (x,)


def loop_and_replacements(levels: int):
    """A loop, and loops that compute its result and one more each."""
    n, x = leaf(TensorType((), int32)), leaf()
    loops = [traced_for(n, [x], lambda _, c: (ops.mul(c, 2),))]
    for level in range(1, levels + 1):
        loops.append(
            traced_for(
                n,
                [x] * (level + 1),
                lambda _, *c: tuple([ops.mul(v, i + 2) for i, v in enumerate(c)]),
                replaces=loops[-1][0].node,
            )
        )
    return n, x, loops


def test_of_a_node_and_its_replacement_one_stays():
    n, x, (old, new) = loop_and_replacements(1)
    graph = extract([ops.add(old[0], 1), new[1]], [n, x])
    assert [node.op for node in graph.nodes].count("for") == 1
    assert [a.item() for a in interpret(graph, [np.int32(3), np.array(1.0)])] == [9, 27]


def test_a_replacement_that_is_not_reached_replaces_nothing():
    n, x, (old, _) = loop_and_replacements(1)
    graph = extract([old[0]], [n, x])
    assert graph.nodes == (old[0].node,)


def test_the_last_of_a_chain_of_replacements_stays():
    n, x, loops = loop_and_replacements(3)
    graph = extract([loops[0][0], loops[1][1], loops[3][3], ops.neg(loops[2][2])], [n, x])
    assert [node.op for node in graph.nodes] == ["for", "neg"]
    assert [a.item() for a in interpret(graph, [np.int32(2), np.array(1.0)])] == [4, 9, 25, -16]


def test_a_chain_with_a_missing_link_still_resolves():
    n, x, loops = loop_and_replacements(2)
    graph = extract([loops[0][0], loops[2][2]], [n, x])
    assert len(graph.nodes) == 1
    assert graph.nodes[0] is loops[2][0].node


def test_two_replacements_of_one_node_both_stay():
    n, x, (old, first) = loop_and_replacements(1)
    second = traced_for(n, [x, x], lambda _, a, b: (ops.mul(a, 2), ops.add(b, 1)), replaces=old[0].node)
    graph = extract([old[0], first[1], second[1]], [n, x])
    assert len(graph.nodes) == 2
    assert [a.item() for a in interpret(graph, [np.int32(3), np.array(1.0)])] == [8, 27, 4]


def test_consumers_of_a_replaced_node_see_the_new_one():
    n, x, (old, new) = loop_and_replacements(1)
    y = ops.sin(ops.add(old[0], new[0]))
    graph = extract([y, new[1]], [n, x])
    add = next(node for node in graph.nodes if node.op == "add")
    assert add.operands == (new[0], new[0])
    assert y.node.operands[0].node.operands == (old[0], new[0]), "the DAG itself is unchanged"


def test_a_replacement_that_needs_the_old_result_replaces_nothing():
    n, x = leaf(TensorType((), int32)), leaf()
    (old,) = traced_for(n, [x], lambda _, c: (ops.mul(c, 2),))
    new = traced_for(n, [x, ops.add(old, 1)], lambda _, a, b: (ops.mul(a, 2), ops.mul(b, 3)), replaces=old.node)
    for outputs in ([old, *new], [ops.add(old, 1), *new], [*new, ops.sin(old)]):
        graph = extract(outputs, [n, x])
        assert [node.op for node in graph.nodes].count("for") == 2
        assert 27.0 in [a.item() for a in interpret(graph, [np.int32(1), np.array(4.0)])]


def test_replacements_that_need_each_others_old_results_stay_apart():
    n, x = leaf(TensorType((), int32)), leaf()
    (a,) = traced_for(n, [x], lambda _, c: (ops.mul(c, 2),))
    (b,) = traced_for(n, [x], lambda _, c: (ops.mul(c, 3),))
    new_a = traced_for(n, [x, b], lambda _, c, d: (ops.mul(c, 2), d), replaces=a.node)
    new_b = traced_for(n, [x, a], lambda _, c, d: (ops.mul(c, 3), d), replaces=b.node)
    graph = extract([a, b, *new_a, *new_b], [n, x])
    values = [v.item() for v in interpret(graph, [np.int32(2), np.array(1.0)])]
    assert values == [4, 9, 4, 9, 9, 4]


def test_a_bound_whose_node_runs_for_another_result_stays_an_input():
    n, x = leaf(TensorType((), int32)), leaf()
    a, b = traced_for(n, [x, x], lambda _, a, b: (ops.mul(a, 2), ops.mul(b, 3)))
    for outputs in ([b, ops.add(a, 1)], [ops.add(a, 1), b], [ops.sub(b, ops.neg(a)), a]):
        graph = extract(outputs, [n, x, a])
        verify(graph)
        # for the bound a number that the loop wouldn't give
        env = {b: 9.0} if outputs[1] is not a else {outputs[0]: 109.0, a: 100.0}
        expected = [env.get(v, 101.0) for v in outputs]
        assert [v.item() for v in interpret(graph, [np.int32(2), np.array(1.0), np.array(100.0)])] == expected


def test_a_bound_of_a_replaced_node_stays_an_input():
    n, x = leaf(TensorType((), int32)), leaf()
    a, b = traced_for(n, [x, x], lambda _, a, b: (ops.mul(a, 2), ops.mul(b, 3)))
    reader = ops.add(a, 1)
    last = ops.mul(reader, b)
    new = traced_for(n, [x, x, x], lambda _, a, b, c: (ops.mul(a, 2), ops.mul(b, 3), ops.mul(c, 5)), replaces=a.node)
    expected = {a: 100.0, reader: 101.0, b: 9.0, last: 909.0, new[0]: 4.0, new[2]: 25.0}
    for outputs in ([reader, b, new[2]], [new[2], reader, b], [a, last, new[2]], [a, b], [new[0], a, b]):
        graph = extract(outputs, [n, x, a])
        verify(graph)
        assert graph.inputs[2] is a
        values = interpret(graph, [np.int32(2), np.array(1.0), np.array(100.0)])
        assert [v.item() for v in values] == [expected[v] for v in outputs]
