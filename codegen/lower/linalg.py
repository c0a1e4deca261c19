"""Small products inside one lane."""

from __future__ import annotations

from math import prod
from typing import Final

from loopgrad.codegen.lower.context import Frame, Lowering, Pull
from loopgrad.codegen.lower.emitter import Index, Position
from loopgrad.codegen.lower.movement import digit
from loopgrad.codegen.lower.reduction import Fold, accumulated, tree, unroll_limit
from loopgrad.graph.nodes import Node


def _matmul(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    e = ctx.emitter
    left, right = node.operands
    *batch, m, depth = left.shape
    n = right.shape[-1]
    lead, row, column = ctx.cuts(index, (prod(batch), m, n))

    def sides(k: Position) -> tuple[Index, Index]:
        return (*lead, *row, *digit(depth, k)), (*lead, *digit(depth, k), *column)

    def term(k: Position) -> Pull:
        at_left, at_right = sides(k)
        a = yield frame, left, at_left
        b = yield frame, right, at_right
        return e.op("mul", (a, b), a.dtype)

    if depth == 0:
        return e.const(0, left.dtype)
    if depth <= unroll_limit(ctx):
        products = []
        for t in range(depth):
            product = yield from term(t)
            products.append(product)
        return tree(ctx, "add", products)
    how = Fold(e, "add", left.dtype)
    return how.result((yield from accumulated(ctx, depth, term, how, how.start())))


RULES: Final = {"matmul": _matmul}
