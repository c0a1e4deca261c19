"""The verifier accepts what builders make and names each kind of damage."""

from __future__ import annotations

import pytest

from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.errors import VerifyError
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float32, float64, int64
from loopgrad.graph.verify import verify, violations
from tests.graph import random_graphs

X = TensorType((4,), float64)
COUNT = TensorType((4,), int64)


@pytest.mark.parametrize("seed", range(40))
def test_what_builders_make_is_valid(seed):
    verify(random_graphs.random_program(seed)[0])


def simple():
    return trace(lambda x, y: [ops.add(ops.sin(x), y)], [X, X])[0]


def test_a_use_before_its_definition():
    graph = simple()
    with pytest.raises(VerifyError, match="isn't defined before"):
        verify(Graph(graph.inputs, graph.nodes[::-1], graph.outputs))


def test_a_region_that_reads_an_outer_value():
    graph = trace(lambda n, x: traced_for(n, [x], lambda _k, c: [ops.sin(c)]), [COUNT, X])[0]
    loop = graph.nodes[-1]
    body = loop.regions[0]
    leak = Graph(body.inputs, (), (graph.inputs[1],))
    broken = Node(loop.op, loop.operands, tuple(r.type for r in loop.results), loop.attrs, (leak,))
    errors = violations(Graph(graph.inputs, (broken,), broken.results))
    assert any("region 0 output 0" in e for e in errors)


def test_an_output_that_nobody_defines():
    graph = simple()
    assert "output 0" in violations(Graph(graph.inputs, graph.nodes, (Value(X),)))[0]


def test_a_node_that_appears_twice():
    graph = simple()
    (error, *_) = violations(Graph(graph.inputs, (graph.nodes[0], *graph.nodes), graph.outputs))
    assert "defined twice" in error


def test_a_result_type_that_the_primitive_does_not_infer():
    x = Value(X)
    node = Node("sin", (x,), (TensorType((4,), float32),))
    with pytest.raises(VerifyError, match=r"expected results of types \(float64\[4\]\), got \(float32\[4\]\)"):
        verify(Graph((x,), (node,), node.results))


def test_operands_that_the_primitive_refuses():
    x = Value(X)
    node = Node("reshape", (x,), (X,), {"shape": (5,)})
    assert "refused" in violations(Graph((x,), (node,), node.results))[0]


def test_an_unknown_operation_and_missing_regions():
    x = Value(X)
    unknown, empty = Node("sine", (x,), (X,)), Node("for", (x,), (X,), {"carries": 0})
    errors = violations(Graph((x,), (unknown, empty), ()))
    assert "unknown operation" in errors[0]
    assert "expected 1 regions, got 0" in errors[1]


def test_an_attribute_that_cannot_be_hashed():
    x = Value(X)
    node = Node("broadcast", (x,), (X,), {"shape": [4], "dims": (0,)})
    assert "hashable" in violations(Graph((x,), (node,), node.results))[0]


def test_a_stack_consumed_twice():
    def program(x):
        stack = ops.push(ops.stack_new(X), x)
        return [ops.pop(stack)[1], ops.pop(stack)[1]]

    errors = violations(trace(program, [X])[0])
    assert len(errors) == 1
    assert "consumed already" in errors[0]


def test_a_shared_carry_that_is_read():
    def body(_k, acc):
        return [ops.add(acc, 1.0)]

    graph = trace(lambda n, x: traced_for(n, [x], body, shared=(0,)), [COUNT, X])[0]
    assert "shared result 0" in violations(graph)[0]


def test_all_errors_are_listed_above_the_printed_graph():
    x = Value(X)
    node = Node("sine", (x, Value(X)), (X,), {"a": [1]})
    with pytest.raises(VerifyError) as caught:
        verify(Graph((x,), (node,), node.results), after="cse")
    text = str(caught.value)
    assert text.startswith("the graph after cse breaks")
    assert text.count("\n  - ") == 3
    assert "not printable" in text


def test_a_shared_carry_that_lanes_scatter_into_together():
    """Only what each lane puts at a position of its own can be dropped where the lane isn't active."""

    types = [COUNT, TensorType((2, 4), float32), TensorType((4,), float32)]

    def program(count, table, row):
        def add(j, table):
            return [ops.scatter("add", table, [j], row)]

        def trip(_k, table):
            return traced_for(ops.full(2, TensorType((), int64)), [table], add)

        return traced_for(count, [table], trip, shared=(0,))

    assert "not over the lanes (4,)" in violations(trace(program, types)[0])[0]
