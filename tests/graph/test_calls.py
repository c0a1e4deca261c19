"""`call`: text, rules that are checked, what passes make of it, batches of its rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from loopgrad.graph import ops, region_ops
from loopgrad.graph.batching import batch
from loopgrad.graph.build import trace
from loopgrad.graph.errors import ShapeError
from loopgrad.graph.interpret import interpret
from loopgrad.graph.key import abstract_key, key
from loopgrad.graph.lift import lift
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.passes import calls, optimise
from loopgrad.graph.regions import Call
from loopgrad.graph.text import parse_graph, print_graph
from loopgrad.graph.types import TensorType, float64
from loopgrad.graph.verify import verify, violations

ROW, X = TensorType((3,), float64), np.array([0.3, -0.7, 1.1])


def region(function: object, types: Sequence[TensorType]) -> Graph:
    return trace(function, types)[0]  # type: ignore[arg-type]


def called(kind: str) -> Graph:
    """x, a -> 2.7 sin(x) a; the forward rule gives 100 more."""
    function = region(lambda x, a: [ops.mul(ops.mul(ops.sin(x), a), 2.7)], [ROW, ROW])
    forward = region(lambda x, a: [ops.add(ops.sin(x), 100.0), x, a], [ROW, ROW])
    backward = region(lambda x, a, ct: [ops.mul(ct, a), ops.mul(ct, x)], [ROW] * 3)
    tangent = region(lambda x, a, s, t: [ops.mul(x, a), ops.add(s, t)], [ROW] * 4)
    regions = {"vjp": [function, forward, backward], "jvp": [function, tangent]}.get(kind, [function])

    def program(x: Value, a: Value) -> Sequence[Value]:
        return region_ops.call([x, a], regions, kind, arguments=2, name="f")

    graph = region(program, [ROW, ROW])
    verify(graph)
    return graph


KINDS = ["plain", "recompute", "again", "opaque", "jvp", "vjp"]


@pytest.mark.parametrize("kind", KINDS)
def test_text_there_and_back(kind):
    text = print_graph(called(kind))
    assert print_graph(parse_graph(text)) == text
    assert key(parse_graph(text), with_locations=False) == key(called(kind), with_locations=False)


@pytest.mark.parametrize("kind", KINDS)
def test_its_function_is_what_runs(kind):
    graph, expected = called(kind), 2.7 * np.sin(X) * X
    for form in (graph, calls.run(graph), calls.separate(calls.run(graph)), optimise(graph)):
        verify(form)
        np.testing.assert_allclose(interpret(form, [X, X])[0], expected)
    assert [n.op for n in calls.run(graph).nodes if n.regions] == (["call"] if kind == "again" else [])
    assert "call" not in [n.op for n in calls.separate(calls.run(graph)).nodes]


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_in_its_function_become_inputs(kind):
    graph = called(kind)
    _, numbers, slots = abstract_key(graph)
    assert numbers == (2.7,)
    lifted, inputs = lift(graph, range(len(slots)))
    verify(lifted)
    assert len(inputs) == 1
    np.testing.assert_allclose(interpret(lifted, [X, X, np.array(3.0)])[0], 3 * np.sin(X) * X)


def test_rules_have_the_types_of_what_they_are_about():
    function = region(lambda x: [ops.sin(x)], [ROW])
    scalar = TensorType((), float64)
    wrong = [
        [function, region(lambda x: [ops.reduce_sum(x, (0,))], [ROW]), function],
        [function, region(lambda x: [x, x], [ROW]), function],
        [function, function, region(lambda ct: [ops.reduce_sum(ct, (0,))], [ROW])],
        [function, function, region(lambda ct: [ct], [scalar])],
    ]
    for regions in wrong:
        with pytest.raises(ShapeError, match="call: expected"):
            region(lambda x, regions=regions: region_ops.call([x], regions, "vjp", arguments=1), [ROW])
    (node,) = called("vjp").nodes
    broken = type(node)("call", node.operands, (ROW,), {**node.attrs, "kind": "jvp"}, node.regions)
    assert any("expected 2 regions, got 3" in v for v in violations(Graph(node.operands, (broken,), broken.results)))


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True)])
def test_a_batch_of_rules(flags):
    """What the batch shares gets the sum of its cotangents."""
    graph, rows = called("vjp"), np.stack([X, 2 * X])
    types = [TensorType((2, 3), float64) if b else ROW for b in flags]
    batched = region(lambda *v: batch(graph, v, flags, 2)[0], types)
    verify(batched)
    arrays = [rows if b else X for b in flags]
    np.testing.assert_allclose(interpret(batched, arrays)[0], 2.7 * np.sin(arrays[0]) * arrays[1])
    (call,) = [Call.of(n) for n in batched.nodes if n.op == "call"]
    forward, backward = call.rules
    np.testing.assert_allclose(interpret(forward, arrays)[0], np.broadcast_to(np.sin(arrays[0]) + 100, (2, 3)))
    found = interpret(backward, [*arrays, np.ones((2, 3))])
    full = [np.broadcast_to(arrays[1], (2, 3)), np.broadcast_to(arrays[0], (2, 3))]
    for got, expected, b in zip(found, full, flags, strict=True):
        np.testing.assert_allclose(got, expected if b else expected.sum(0))
