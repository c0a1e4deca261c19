"""Products of matrices that read 16-bit floats as they are, add up in float32, and round once or not at all.

cast(matmul(cast(a), cast(b))), which nothing else reads   ->  matmul(a, b)
matmul(cast(a), cast(b)), of float32                       ->  matmul(a, b) {dtype=float32}

So devices have half as much to read, and take their units for such factors. Products of two of these numbers are exact
in float32. What was cast may have been moved since: transposed, reshaped, repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from loopgrad.codegen.schedule.products import in_lanes
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes import dce
from loopgrad.graph.primitives import ARRANGING
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.types import DType, float32


def narrow_products(graph: Graph) -> Graph:
    """Products of `graph` itself; its regions stay."""
    if not any(node.op == "matmul" and _narrow(node) for node in graph.nodes):
        return graph
    uses = Counter([v for node in graph.nodes for v in node.operands])
    uses.update(graph.outputs)

    def rewrite(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        before = builder.original
        assert before is not None
        made = None
        if node.op == "matmul" and _narrow(before):
            made = builder.value("matmul", *[_source(v, builder) for v in node.operands], dtype=float32)
        elif node.op == "cast" and uses[before.operands[0]] == 1:
            made = _rounded(node, builder)
        return None if made is None else [made]

    return dce.run(rebuild(graph, rewrite, inner=False))


def _narrow(node: Node) -> bool:
    """Whether it is a product of float32 whose factors were 16-bit floats, both of one kind, and worth a call."""
    left, right = node.operands
    found = _given(left)
    return left.dtype is float32 and found is not None and found is _given(right) and not in_lanes(left, right)


def _given(value: Value) -> DType | None:
    """The 16-bit dtype that an operand was cast from."""
    node = value.node
    while node is not None and node.op in ARRANGING:
        node = node.operands[0].node
    if node is None or node.op != "cast":
        return None
    source = node.operands[0].dtype
    return source if source.is_float and source.bits == 16 else None


def _source(value: Value, builder: GraphBuilder) -> Value:
    """An operand before it was cast."""
    node = value.node
    assert node is not None
    if node.op == "cast":
        return node.operands[0]
    return builder.value(node.op, _source(node.operands[0], builder), **node.attrs)


def _rounded(cast: Node, builder: GraphBuilder) -> Value | None:
    """What the cast makes of a product that nothing else reads, by the product itself."""
    product = cast.operands[0].node
    if product is None or product.op != "matmul" or "dtype" not in product.attrs:
        return None
    narrow = product.operands[0].dtype
    return builder.value("matmul", *product.operands) if cast.attrs["dtype"] is narrow else None
