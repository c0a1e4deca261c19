"""Small products inside one lane."""

from __future__ import annotations

from math import prod
from typing import Final

from loopgrad.codegen.lower.context import Frame, Lowering, Pull
from loopgrad.codegen.lower.emitter import Index, Position
from loopgrad.codegen.lower.movement import digit
from loopgrad.codegen.lower.reduction import tree, unroll_limit
from loopgrad.graph.nodes import Node
from loopgrad.graph.types import int64


def _matmul(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    e = ctx.emitter
    left, right = node.operands
    *batch, m, depth = left.shape
    n = right.shape[-1]
    lead, row, column = ctx.cuts(index, (prod(batch), m, n))

    def sides(k: Position) -> tuple[Index, Index]:
        return (*lead, *row, *digit(depth, k)), (*lead, *digit(depth, k), *column)

    if depth == 0:
        return e.const(0, left.dtype)
    if depth <= unroll_limit(ctx):
        products = []
        for t in range(depth):
            at_left, at_right = sides(t)
            a = yield frame, left, at_left
            b = yield frame, right, at_right
            products.append(e.op("mul", (a, b), a.dtype))
        return tree(ctx, "add", products)
    k, acc = e.open((int64, left.dtype))
    at_left, at_right = sides(k)
    a = yield frame, left, at_left
    b = yield frame, right, at_right
    body = e.close((e.op("add", (acc, e.op("mul", (a, b), a.dtype)), a.dtype),))
    zero = e.const(0, left.dtype)
    return e.effect("for", (e.const(depth, int64), zero), (left.dtype,), {"reverse": False}, (body,))[0]


RULES: Final = {"matmul": _matmul}
