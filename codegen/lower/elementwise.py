"""Elementwise primitives: every operand at the result's index."""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.kernel.nodes import KOp, KValue
from loopgrad.codegen.lower.context import Frame, Lowering, Pull
from loopgrad.codegen.lower.emitter import Index, KernelBuilder
from loopgrad.codegen.math.power import has_few_factors
from loopgrad.graph.nodes import Node
from loopgrad.graph.passes.fold import known_scalar
from loopgrad.graph.primitives import ELEMENTWISE
from loopgrad.graph.types import float32, float64

IDENTITIES: Final = ("alias", "stop_gradient")


def _plain(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    operands = []
    for v in node.operands:
        operands.append((yield frame, v, index))  # noqa: PERF401 - a comprehension can't yield
    return ctx.emitter.op(node.op, tuple(operands), node.results[0].dtype)


def _sum(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    a = yield frame, node.operands[0], index
    b = yield frame, node.operands[1], index
    if node.attrs.get("contract") and (terms := _contracted(ctx.emitter, node.op, a, b)) is not None:
        return ctx.emitter.op("fma", terms, a.dtype)
    return ctx.emitter.op(node.op, (a, b), a.dtype)


def _contracted(e: KernelBuilder, opcode: str, a: KValue, b: KValue) -> tuple[KValue, KValue, KValue] | None:
    """Two factors and what is added to their product. A sum of two products stays one: x*y - y*x has to be 0. A product
    outside of the loop around the sum is a number as any other: it is computed once for many sums, and whether it is in
    this kernel or in memory, which the number of lanes decides, makes no difference."""
    depth = max(e.depth[a], e.depth[b])
    (x, x_negative), (y, y_negative) = _product(e, a, depth), _product(e, b, depth)
    if a.dtype not in (float32, float64) or (x is None) == (y is None):
        return None
    product, other, negative = (x, b, x_negative) if y is None else (y, a, y_negative ^ (opcode == "sub"))
    assert product is not None
    if y is None and opcode == "sub":
        other = e.op("neg", (other,), other.dtype)
    first, second = product.operands
    return (e.op("neg", (first,), first.dtype) if negative else first), second, other


def _product(e: KernelBuilder, v: KValue, depth: int) -> tuple[KOp | None, bool]:
    """The multiplication behind a value, in loops of that depth, and whether the value is its opposite."""
    negative = v.op is not None and v.op.opcode == "neg"
    if negative:
        assert v.op is not None
        v = v.op.operands[0]
    found = v.op is not None and v.op.opcode == "mul" and e.depth[v] >= depth
    return (v.op, negative) if found else (None, False)


def whole_exponent(node: Node) -> int | None:
    """The exponent of a `pow` of floats to a constant whole number of few factors."""
    exponent = known_scalar(node.operands[1])
    if exponent is None or not node.results[0].dtype.is_float or not has_few_factors(exponent):
        return None
    return int(exponent)


def _pow(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    exponent = whole_exponent(node)
    if exponent is None:
        return (yield from _plain(ctx, frame, node, index))
    x = yield frame, node.operands[0], index
    return ctx.emitter.op("whole_power", (x,), x.dtype, {"exponent": exponent})


def _cast(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    x = yield frame, node.operands[0], index
    return ctx.emitter.cast(x, node.results[0].dtype)


def _bitcast(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    x = yield frame, node.operands[0], index
    dtype = node.results[0].dtype
    return x if x.dtype is dtype else ctx.emitter.op("bitcast", (x,), dtype, {"dtype": dtype})


def _identity(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    return (yield frame, node.operands[0], index)


RULES: Final = {
    **dict.fromkeys(ELEMENTWISE, _plain),
    **dict.fromkeys(("add", "sub"), _sum),
    "pow": _pow,
    "cast": _cast,
    "bitcast": _bitcast,
    **dict.fromkeys(IDENTITIES, _identity),
}
