"""What of a property goes into regions, and what comes out."""

from __future__ import annotations

from loopgrad.graph import ops, region_flow
from loopgrad.graph.build import trace
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.types import TensorType, float64, int64

X = TensorType((3,), float64)
N = TensorType((), int64)


def loop() -> tuple[Node, Graph]:
    """Two carries, of which the body multiplies the first by a capture and keeps the second."""
    i, a, b, c = Value(N), Value(X), Value(X), Value(X)
    product = Node("mul", (a, c), (X,))
    body = Graph((i, a, b, c), (product,), (product.results[0], b))
    n, x, y, z = Value(N), Value(X), Value(X), Value(X)
    return Node("for", (n, x, y, z), (X, X), {"carries": 2, "lanes": 0, "shared": (), "reverse": False}, (body,)), body


def test_a_loop_continues_its_operands() -> None:
    node, body = loop()
    n, x, y, z = node.operands
    _, a, _, c = body.inputs
    assert region_flow.running(node) == (body,)
    assert region_flow.count_of(node) is n
    assert region_flow.whole_tensors_only(node)
    assert region_flow.entering(node, {n, x, z}) == {a, c}
    product, kept = body.outputs
    assert region_flow.leaving(node, {x}, {body: {product, kept}}) == [node.results[0]]
    assert region_flow.leaving(node, {x, y}, {body: {kept}}) == [node.results[1]]


def test_branches_have_no_start() -> None:
    first, _ = trace(lambda v: (ops.neg(v),), [X])
    second, _ = trace(lambda v: (v,), [X])
    node = Node("switch", (Value(N), Value(X)), (X,), {"lanes": 0, "shared": ()}, (first, second))
    index, x = node.operands
    assert region_flow.count_of(node) is None
    assert region_flow.entering(node, {index}) == set()
    assert region_flow.entering(node, {x}) == {first.inputs[0], second.inputs[0]}
    inside = {first: {*first.outputs}, second: {*second.outputs}}
    assert region_flow.leaving(node, set(), inside) == [*node.results]
    assert region_flow.leaving(node, {x}, {**inside, second: set()}) == []
