"""Products of complex matrices, of which four real ones were made, as a single real one; see `graph.complex_pairs`.

sub(matmul(p, r), matmul(q, s))      ->   parts of matmul(pairs of (p, q), pairs of (r, s) above those of (-s, r))
add(matmul(p, s), matmul(q, r))

That is as many multiplications, by one call, which reads the left matrix where it lies, as pairs, and leaves pairs;
with a single column both are sums over rows. For GPUs, where calls and passes over memory count (256 products
of 128 x 128 take 136 us on an H100, 260 as four): a CPU's own products are quicker with the smaller matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final, NamedTuple

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes import dce
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.region_flow import outside_lanes

WORTH_IT: Final = 1 << 15  # multiplications of one of the four
FEW_ROWS: Final = 8  # for which more of the right matrix would be written than is read for the product

Factors = tuple[Value, Value]


class _Product(NamedTuple):
    """The nodes of the real and the imaginary part, and the parts of the factors."""

    real: Node
    imaginary: Node
    left: Factors
    right: Factors


def rewrite_complex_products(graph: Graph) -> Graph:
    """`graph` with such products; those of lanes stay."""
    found = _found(outside_lanes(graph))
    if not found:
        return graph
    made: dict[Node, Factors] = {}

    def rewrite(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        if node.op == "concat":
            return _joined(node)
        assert builder.original is not None
        product = found.get(builder.original)
        if product is None:
            return None
        if product.real not in made:
            left, right = _current(product, builder.original, node)
            made[product.real] = (_sums if right[0].shape[-1] == 1 else _one_product)(left, right, builder)
        return [made[product.real][node.op == "add"]]

    return dce.run(rebuild(graph, rewrite))


def _found(nodes: set[Node]) -> dict[Node, _Product]:
    """The products, by both of their nodes."""
    sums = {frozenset(map(_factors, node.operands)): node for node in nodes if node.op == "add" and _of_products(node)}
    found: dict[Node, _Product] = {}
    for node in [node for node in nodes if node.op == "sub" and _of_products(node)] if sums else ():
        (p, r), (q, s) = map(_factors, node.operands)
        other = sums.get(frozenset([(p, s), (q, r)]))
        if other is not None and _worth_it(p, r):
            found[node] = found[other] = _Product(node, other, (p, q), (r, s))
    return found


def _of_products(node: Node) -> bool:
    return all(v.node is not None and v.node.op == "matmul" for v in node.operands)


def _factors(product: Value) -> Factors:
    assert product.node is not None
    left, right = product.node.operands
    return left, right


def _worth_it(left: Value, right: Value) -> bool:
    rows = prod(left.shape[:-1])
    return left.shape[-2] >= FEW_ROWS and rows * left.shape[-1] * right.shape[-1] >= WORTH_IT


def _current(product: _Product, original: Node, node: Node) -> tuple[Factors, Factors]:
    """The parts of the factors as they are by now, as `node` has them, which was `original`."""
    first, second = map(_factors, node.operands)
    if original is product.real:
        return (first[0], second[0]), (first[1], second[1])
    if _factors(original.operands[0]) != (product.left[0], product.right[1]):
        first, second = second, first
    return (first[0], second[0]), (second[1], first[1])


def _sums(left: Factors, right: Factors, builder: GraphBuilder) -> Factors:
    """The parts of a product with one column, of which a kernel reads the matrix once."""
    *rows, k = left[0].shape
    kept = (*range(len(rows) - 1), len(rows))
    flat = [builder.value("reshape", v, shape=(*rows[:-1], k)) for v in right]
    re, im = [builder.value("broadcast", v, shape=(*rows, k), dims=kept) for v in flat]
    terms = []
    for how, beside in (("sub", (re, im)), ("add", (im, re))):
        terms.append(builder.value(how, *[builder.value("mul", x, y) for x, y in zip(left, beside, strict=True)]))
    found = [builder.value("reduce_sum", x, axes=(len(rows),)) for x in terms]
    real, imaginary = [builder.value("reshape", x, shape=(*rows, 1)) for x in found]
    return real, imaginary


def _one_product(left: Factors, right: Factors, builder: GraphBuilder) -> Factors:
    """The parts of the product, which leaves pairs."""
    *batch, m, k = left[0].shape
    n = right[0].shape[-1]
    re, im = right
    rows = [_together(parts, builder) for parts in ((re, im), (builder.value("neg", im), re))]
    above = [builder.value("reshape", row, shape=(*batch, k, 1, n, 2)) for row in rows]
    both = builder.value("concat", *above, axis=len(batch) + 1)
    factor = builder.value("reshape", both, shape=(*batch, 2 * k, 2 * n))
    wide = builder.value("reshape", _together(left, builder), shape=(*batch, m, 2 * k))
    pairs = builder.value("reshape", builder.value("matmul", wide, factor), shape=(*batch, m, n, 2))
    return _part(pairs, False, builder), _part(pairs, True, builder)


def _together(parts: Factors, builder: GraphBuilder) -> Value:
    whole = _whole(*parts)
    if whole is not None:
        return whole
    shape = parts[0].shape
    return builder.value("concat", *[builder.value("reshape", v, shape=(*shape, 1)) for v in parts], axis=len(shape))


def _part(pairs: Value, imaginary: bool, builder: GraphBuilder) -> Value:
    shape = pairs.shape[:-1]
    start, stop = ((0,) * len(shape) + (int(imaginary),)), (*shape, 1 + imaginary)
    part = builder.value("slice", pairs, start=start, stop=stop, step=(1,) * len(pairs.shape))
    return builder.value("reshape", part, shape=shape)


def _joined(node: Node) -> Sequence[Value] | None:
    """Pairs that are taken apart and put together again."""
    if len(node.operands) != 2 or node.attrs["axis"] != len(node.results[0].shape) - 1:
        return None
    parts = []
    for v in node.operands:
        if v.node is None or v.node.op != "reshape" or v.shape != (*v.node.operands[0].shape, 1):
            return None
        parts.append(v.node.operands[0])
    whole = _whole(*parts)
    return None if whole is None else [whole]


def _whole(real: Value, imaginary: Value) -> Value | None:
    """The pairs of which these are the parts, where they lie together."""
    found = []
    for number, part in enumerate((real, imaginary)):
        cut = part.node.operands[0].node if part.node is not None and part.node.op == "reshape" else None
        if cut is None or cut.op != "slice":
            return None
        (source,) = cut.operands
        start = (0,) * len(part.shape) + (number,)
        if source.shape != (*part.shape, 2) or cut.attrs["start"] != start:
            return None
        if cut.results[0].shape != (*part.shape, 1) or set(cut.attrs["step"]) != {1}:
            return None
        found.append(source)
    return found[0] if found[0] is found[1] else None
