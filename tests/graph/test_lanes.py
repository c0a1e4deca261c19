"""Lane analysis: what it calls local really doesn't look at other lanes, and typical loops are local."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.accumulators import is_accumulator, passed
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.lane_axes import moved_axes, preserves
from loopgrad.graph.lanes import candidate_domain, iota_axis, lane_domain, lane_report
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.regions import Loop
from loopgrad.graph.types import StackType, TensorType, bool_, float64, int64
from tests.graph import random_graphs

N = 5


def f(*shape):
    return TensorType(shape, float64)


def i(*shape):
    return TensorType(shape, int64)


def last_region(function, *types):
    """The last region node of what `function` emits, in a graph over `types`."""
    graph = trace(lambda *v: list(function(*v)), types)[0]
    return [n for n in graph.nodes if n.regions][-1]


# ---- axes


@pytest.mark.parametrize(
    ("emitted", "shape", "axes", "expected"),
    [
        (ops.sin, (4, 3), (0, 1), (0, 1)),
        (lambda x: ops.broadcast(x, (4, 3, 2), (0, 1)), (4, 3), (0,), (0,)),
        (lambda x: ops.broadcast(x, (2, 4, 3), (1, 2)), (4, 3), (0,), (1,)),
        (lambda x: ops.broadcast(x, (4, 3), (0, 1)), (1, 3), (0,), None),
        (lambda x: ops.reshape(x, (4, 3, 1)), (4, 3), (0, 1), (0, 1)),
        (lambda x: ops.reshape(x, (12,)), (4, 3), (0,), None),
        (lambda x: ops.reshape(x, (2, 2, 3)), (4, 3), (1,), (2,)),
        (lambda x: ops.transpose(x, (1, 0)), (4, 3), (0,), (1,)),
        (lambda x: ops.slice(x, (0, 1), (None, 2)), (4, 3), (0,), (0,)),
        (lambda x: ops.slice(x, (1, 0), (None, 3)), (4, 3), (0,), None),
        (lambda x: ops.slice(x, (3, 0), (None, 3), (-1, 1)), (4, 3), (0,), None),
        (lambda x: ops.pad(x, (0, 1), (0, 0)), (4, 3), (0,), (0,)),
        (lambda x: ops.pad(x, (0, 1), (0, 0)), (4, 3), (1,), None),
        (lambda x: ops.concat([x, x], 1), (4, 3), (0,), (0,)),
        (lambda x: ops.concat([x, x], 0), (4, 3), (0,), None),
        (lambda x: ops.flip(x, (1,)), (4, 3), (0,), (0,)),
        (lambda x: ops.flip(x, (0,)), (4, 3), (0,), None),
        (lambda x: ops.reduce_sum(x, (0,)), (4, 3), (1,), (0,)),
        (lambda x: ops.reduce_sum(x, (0,)), (4, 3), (0,), None),
        (lambda x: ops.argmax(x, 0), (4, 3), (1,), (0,)),
        (lambda x: ops.cumsum(x, 1), (4, 3), (0,), (0,)),
        (lambda x: ops.sort(x, 0), (4, 3), (0,), None),
    ],
)
def test_where_axes_go(emitted, shape, axes, expected):
    (node,) = trace(lambda x: [emitted(x)], [f(*shape)])[0].nodes[-1:]
    assert moved_axes(node, 0, axes) == expected


def test_matmul_keeps_batch_rows_and_columns():
    node = trace(lambda a, b: [ops.matmul(a, b)], [f(2, 4, 3), f(2, 3, 5)])[0].nodes[-1]
    assert moved_axes(node, 0, (0, 1)) == (0, 1)
    assert moved_axes(node, 1, (0, 2)) == (0, 2)
    assert moved_axes(node, 0, (2,)) is None
    assert moved_axes(node, 1, (1,)) is None
    assert preserves(node, 0, 2)
    assert not preserves(node, 1, 2)


# ---- typical loops


def test_an_elementwise_loop_is_local_in_all_its_dims():
    node = last_region(lambda n, x: traced_for(n, [x], lambda _k, c: [ops.sin(c)]), i(), f(N, 3))
    assert candidate_domain(node) == (N, 3)
    assert lane_domain(node).local
    assert lane_domain(node).shape == (N, 3)


def test_a_reduction_over_the_last_dim_leaves_the_first_as_lanes():
    def body(_k, c):
        return [ops.mul(c, ops.broadcast(ops.reduce_sum(c, (1,)), (N, 3), (0,)))]

    report = lane_domain(last_region(lambda n, x: traced_for(n, [x], body), i(), f(N, 3)))
    assert report.local
    assert report.shape == (N,)


def test_a_reduction_over_lanes_is_the_culprit():
    def body(_k, c):
        return [ops.mul(c, ops.broadcast(ops.reduce_sum(c, (0,)), (N,), ()))]

    report = lane_report(last_region(lambda n, x: traced_for(n, [x], body), i(N), f(N)), (N,))
    assert not report.local
    assert report.culprit.op == "reduce_sum"
    assert "lanes" in report.reason


def test_a_captured_table_may_be_read_anywhere_and_is_reported():
    def program(n, x, table, index, bias):
        def body(_k, c):
            return [ops.add(ops.mul(c, ops.gather(table, index)), bias)]

        return traced_for(n, [x], body)

    graph = trace(program, [i(N), f(N), f(N), i(N), f(N)])[0]
    (node,) = graph.nodes
    report = lane_report(node, (N,))
    table, index, bias = (node.operands.index(v) for v in graph.inputs[2:])
    assert report.local
    assert report.table_inputs == {table}
    assert report.identity_inputs == {0, 1, index, bias}


def test_a_captured_array_that_is_reduced_is_no_identity_input():
    def program(n, x, y):
        return traced_for(n, [x], lambda _k, c: [ops.mul(c, ops.broadcast(ops.reduce_sum(y, (0,)), (N,), ()))])

    report = lane_report(last_region(program, i(N), f(N), f(N)), (N,))
    assert report.local
    assert 2 not in report.identity_inputs


def test_gathering_own_rows_by_iota_is_local():
    def body(k, c):
        rows = ops.iota(i(N), 0)
        x = ops.gather(c, rows, k)
        return [ops.scatter("set", c, (ops.cast(rows, int64), k), ops.sin(x))]

    report = lane_report(last_region(lambda n, x: traced_for(n, [x], body), i(N), f(N, 3)), (N,))
    assert report.local


def test_iota_is_recognised_through_captures():
    def program(n, x):
        rows = ops.reshape(ops.broadcast(ops.iota(i(N), 0), (N, 1), (0,)), (N,))
        return traced_for(n, [x], lambda k, c: [ops.scatter("add", c, (rows, k), ops.gather(c, rows, k))])

    assert lane_report(last_region(program, i(N), f(N, 3)), (N,)).local


def test_gathering_other_rows_of_a_carry_is_not_local():
    def body(k, c):
        return [ops.gather(c, k)]

    report = lane_report(last_region(lambda n, x: traced_for(n, [x], body), i(N), f(N)), (N,))
    assert report.culprit.op == "gather"


def test_a_window_that_covers_the_lanes_is_local():
    def program(n, x, table):
        return traced_for(n, [x], lambda k, c: [ops.add(c, ops.gather(table, k))])

    report = lane_domain(last_region(program, i(), f(N), f(7, N)))
    assert report.local
    assert report.shape == (N,)
    assert report.table_inputs == {2}


def test_scan_outputs_are_exclusive_accumulators():
    def body(k, c, ys):
        c = ops.sin(c)
        return [c, ops.scatter("set", ys, (k,), c)]

    node = last_region(lambda n, x, ys: traced_for(n, [x, ys], body), i(), f(N), f(7, N))
    assert candidate_domain(node) == (N,)
    report = lane_domain(node)
    assert report.local
    assert report.accumulators[2].exclusive
    assert report.accumulators[2].kinds == {"set"}


def test_shared_accumulators_that_lanes_share_are_not_exclusive():
    def program(n, acc, index, x):
        def body(_k, a, c):
            return [ops.scatter("add", a, (index,), c), ops.sin(c)]

        return traced_for(n, [acc, x], body, shared=(0,))

    report = lane_report(last_region(program, i(N), f(3), i(N), f(N)), (N,))
    assert report.local
    assert not report.accumulators[1].exclusive


def test_setting_elements_that_lanes_share_is_not_local():
    def program(n, acc, index, x):
        return traced_for(n, [acc, x], lambda _k, a, c: [ops.scatter("set", a, (index,), c), c], shared=(0,))

    assert not lane_report(last_region(program, i(N), f(3), i(N), f(N)), (N,)).local


def test_nested_lane_loops_switches_and_stacks_are_local():
    def program(n, m, x):
        def inner(j, stack, c):
            (d,) = traced_switch(ops.lt(c, 0.0), [lambda a: [ops.sin(a)], lambda a: [ops.mul(a, 2.0)]], [c])
            return [ops.push(stack, d), ops.add(d, ops.cast(j, float64))]

        def outer(k, stack, c):
            return traced_for(ops.min(m, k), [stack, c], inner)

        stack, y = traced_for(n, [ops.stack_new(f(N)), x], outer)

        def back(_k, stack, c):
            stack, saved = ops.pop(stack)
            return [stack, ops.mul(c, saved)]

        return traced_for(n, [stack, y], back, reverse=True)[1:]

    assert lane_report(last_region(program, i(N), i(N), f(N)), (N,)).local


def test_a_while_condition_over_all_lanes_is_not_local():
    def program(x):
        def cond(c):
            return ops.lt(ops.reduce_sum(c, (0,)), 9.0)

        return traced_while([x], cond, lambda c: [ops.mul(c, 2.0)])

    report = lane_domain(last_region(program, f(N)))
    assert report.shape == ()
    assert lane_report(last_region(program, f(N)), (N,)).culprit.op == "reduce_sum"


def test_scalar_carries_are_computed_by_every_lane():
    def body(k, s, c):
        s = ops.add(s, ops.cast(k, float64))
        return [s, ops.add(c, ops.broadcast(s, (N,), ()))]

    report = lane_domain(last_region(lambda n, s, x: traced_for(n, [s, x], body), i(), f(), f(N)))
    assert report.local
    assert report.shape == (N,)


def test_accumulator_chains_pass_branches_and_inner_loops():
    def program(n, acc, x, index):
        def body(_k, a, c):
            (a,) = traced_for(n, [a], lambda _j, b: [ops.scatter("add", b, (index,), x)])
            flag = ops.lt(ops.reduce_sum(c, (0,)), 0.0)
            (a,) = traced_switch(flag, [lambda b: [b], lambda b: [ops.scatter("add", b, (index,), x)]], [a])
            return [a, c]

        return traced_for(n, [acc, x], body)

    node = last_region(program, i(), f(3), f(N), i(N))
    assert is_accumulator(Loop.of(node), 0)
    assert not is_accumulator(Loop.of(node), 1)


# ---- the property


def region_nodes(graph):
    for node in graph.nodes:
        if node.regions:
            yield node
        for region in node.regions:
            yield from region_nodes(region)


def alone(node):
    """A graph of this node only."""
    inputs = tuple(Value(v.type) for v in node.operands)
    types = tuple(r.type for r in node.results)
    copy = Node(node.op, inputs, types, node.attrs, node.regions)
    return Graph(inputs, (copy,), copy.results)


def disturbed(rng, graph, arrays, report, lane):
    """Other elements in every other lane of what is read at the lane's own index only."""
    result = []
    for position, (value, array) in enumerate(zip(graph.inputs, arrays, strict=True)):
        if position in report.identity_inputs:
            (other,) = random_graphs.random_arrays(rng, [value.type])
            other[lane] = array[lane]
            result.append(other)
        else:
            result.append(array)
    return result


@pytest.mark.parametrize("seed", range(60))
def test_lanes_of_local_nodes_do_not_see_each_other(seed):
    rng = np.random.default_rng(seed)
    graph, _ = random_graphs.random_program(seed, depth=3)
    for node in region_nodes(graph):
        report = lane_domain(node)
        if not report.local or not report.shape or any(isinstance(v.type, StackType) for v in node.operands):
            continue
        single = alone(node)
        arrays = random_graphs.random_arrays(rng, single.input_types)
        lane = tuple(int(rng.integers(n)) for n in report.shape)
        expected = interpret(single, arrays)
        got = interpret(single, disturbed(rng, single, arrays, report, lane))
        ends = {passed(node, position).output for position in report.accumulators}
        for j, (a, b) in enumerate(zip(expected, got, strict=True)):
            if j not in ends and a.shape[: len(lane)] == report.shape:
                np.testing.assert_array_equal(a[lane], b[lane])


def test_bool_lane_values():
    node = last_region(lambda n, x: traced_for(n, [x], lambda _k, c: [ops.invert(c)]), i(N), TensorType((N,), bool_))
    assert lane_report(node, (N,)).local


def test_an_iota_is_seen_through_what_only_moves_it():
    def function():
        k = ops.stop_gradient(ops.alias(ops.iota(TensorType((3,), int64), 0)))
        return [ops.transpose(ops.broadcast(k, (3, 4), (0,)), (1, 0)), ops.neg(k)]

    graph, _ = trace(function, [])
    assert [iota_axis(v) for v in graph.outputs] == [1, None]


def test_what_a_routine_makes_at_once_has_no_lanes():
    """9 x 7 matrices have 7 singular values, each of all elements; of several matrices, these are lanes."""

    def loop(count, a, x):
        return traced_for(count, [x], lambda _, x: [ops.add(x, mx.svdvals(a))])

    assert lane_domain(last_region(loop, i(), f(9, 7), f(7))).shape == ()
    assert lane_domain(last_region(loop, i(), f(4, 9, 7), f(4, 7))).shape == (4,)
