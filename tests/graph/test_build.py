from __future__ import annotations

import threading

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.build import LeakedValueError, at, current_scope, emit, emit_beside, inline, trace
from loopgrad.graph.errors import LoopgradError
from loopgrad.graph.interpret import interpret
from loopgrad.graph.key import key
from loopgrad.graph.nodes import Location, Value
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float64, int64

SCALAR = TensorType((), float64)


def test_a_traced_graph_is_closed_and_holds_only_what_it_needs(leaf):
    outer = leaf("float64")

    def function(x):
        ops.exp(x)  # nobody asks for it
        return [ops.add(ops.sin(x), outer)]

    graph, captures = trace(function, [SCALAR])
    assert captures == (outer,)
    assert [n.op for n in graph.nodes] == ["sin", "add"]
    assert graph.nodes[1].operands[1] is graph.inputs[1]
    assert interpret(graph, [np.array(0.5), np.array(2.0)])[0] == np.sin(0.5) + 2


def test_a_capture_goes_through_every_scope_between(leaf):
    top = leaf("float64")
    inner_captures = []

    def outer(x):
        middle = ops.mul(x, 2)

        def inner(y):
            return [ops.add(ops.add(y, top), ops.add(middle, top))]

        graph, captures = trace(inner, [SCALAR])
        inner_captures.extend(captures)
        return inline(graph, [x, *captures])

    graph, captures = trace(outer, [SCALAR])
    assert captures == (top,)
    assert len(graph.inputs) == 2
    assert len(inner_captures) == 2, "each captured value once"
    assert inner_captures[0] is graph.inputs[1], "as the enclosing scope sees it"
    assert interpret(graph, [np.array(3.0), np.array(10.0)])[0] == 3 + 10 + 6 + 10


def test_captures_become_operands_of_nested_region_nodes():
    def program(n, x, a):
        def outer(_, c):
            scaled = ops.mul(a, 2)
            return traced_for(n, [c], lambda _, d: (ops.add(d, ops.mul(scaled, a)),))

        return traced_for(n, [x], outer)

    graph, captures = trace(program, [TensorType((), int64), SCALAR, SCALAR])
    assert captures == ()
    (loop,) = graph.nodes
    assert set(loop.operands) == set(graph.inputs)
    assert interpret(graph, [np.array(3), np.array(1.0), np.array(0.5)])[0] == 1 + 9 * 0.5


def test_a_value_that_left_its_scope_is_refused_with_the_line_that_made_it(leaf):
    leaked = []
    trace(lambda x: leaked.append(ops.sin(x)) or [x], [SCALAR])
    for use in (lambda: ops.add(leaked[0], 1), lambda: trace(lambda y: [ops.add(y, leaked[0])], [SCALAR])):
        with pytest.raises(LeakedValueError, match=r"test_build\.py:\d+ that was made while tracing another function"):
            use()
    with pytest.raises(LeakedValueError):
        trace(lambda _: [leaked[0]], [SCALAR])
    assert issubclass(LeakedValueError, LoopgradError)
    assert issubclass(LeakedValueError, ValueError)


def test_a_failed_trace_leaves_the_scope_as_it_was(leaf):
    with pytest.raises(ZeroDivisionError):
        trace(lambda _: 1 // 0, [SCALAR])
    assert current_scope() is None
    assert ops.sin(leaf("float64")).scope is None


def test_threads_trace_independently():
    entered, leave = threading.Event(), threading.Event()

    def function(x):
        entered.set()
        assert leave.wait(10)
        return [ops.sin(x)]

    thread = threading.Thread(target=trace, args=(function, [SCALAR]))
    thread.start()
    assert entered.wait(10)
    assert current_scope() is None
    leave.set()
    thread.join()


def test_at_gives_transforms_the_users_line(leaf):
    x, place = leaf("float64"), Location("model.py", 7, "step")
    with at(place):
        assert ops.sin(x).node.loc == place
        with at(None):
            assert ops.sin(x).node.loc == place
    assert ops.sin(x).node.loc.file == __file__


def test_each_line_of_a_function_is_told_apart(leaf):
    x = leaf("float64")
    first = ops.sin(x).node.loc
    second, third = ops.sin(x).node.loc, ops.cos(x).node.loc
    assert first.line + 1 == second.line == third.line
    lines = {ops.sin(x).node.loc for _ in range(3)}
    assert len(lines) == 1


def test_a_frame_of_another_folder_with_a_similar_name_is_the_users(leaf, tmp_path):
    path = tmp_path / "graph" / "model.py"
    code = compile("from loopgrad.graph import ops\ndef f(x):\n    return ops.sin(x)\n", str(path), "exec")
    namespace: dict = {}
    exec(code, namespace)
    assert namespace["f"](leaf("float64")).node.loc == Location(str(path), 3, "f")


def test_inline_copies_nodes_with_their_lines(leaf):
    graph, _ = trace(lambda x: [ops.sin(x)], [SCALAR])
    x = leaf("float64")
    (y,) = inline(graph, [x])
    assert y.node is not graph.nodes[0]
    assert y.node.operands == (x,)
    assert y.node.loc == graph.nodes[0].loc


@pytest.mark.parametrize("number_first", [False, True])
@pytest.mark.parametrize("number", [2, -0.0, 0.3])
def test_an_operation_on_a_number_is_that_on_a_constant(number, number_first):
    def at_once(x):
        return [emit_beside("sub", x, number, number_first)]

    def in_two(x):
        constant = emit("const", (), {"value": float(number), "type": x.type})[0]
        return [emit("sub", (constant, x) if number_first else (x, constant))[0]]

    one, other = (trace(f, [SCALAR])[0] for f in (at_once, in_two))
    assert key(one) == key(other)
    assert {node.loc.file for node in one.nodes} == {__file__}


def test_an_operation_on_a_number_captures_its_operand():
    outer = Value(SCALAR)
    graph, captures = trace(lambda: [emit_beside("add", outer, 1.0)], [])
    assert captures == (outer,)
    assert len(graph.inputs) == 1
    leaked = []
    trace(lambda x: leaked.append(x) or [x], [SCALAR])
    with pytest.raises(LeakedValueError):
        emit_beside("add", leaked[0], 1.0)
