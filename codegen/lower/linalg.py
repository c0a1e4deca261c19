"""Small products inside one lane. 16-bit floats are added up in float32 and rounded once."""

from __future__ import annotations

from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import KValue
from loopgrad.codegen.lower.context import Frame, Lowering, Pull
from loopgrad.codegen.lower.emitter import Index, KernelBuilder, Position
from loopgrad.codegen.lower.movement import digit
from loopgrad.codegen.lower.reduction import Fold, accumulated, tree, unroll_limit
from loopgrad.graph.nodes import Node
from loopgrad.graph.types import DType, sum_dtype


def _matmul(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    e = ctx.emitter
    left, right = node.operands
    *batch, m, depth = left.shape
    n, dtype, result = right.shape[-1], sum_dtype(left.dtype), node.results[0].dtype
    lead, row, column = ctx.cuts(index, (prod(batch), m, n))

    def sides(k: Position) -> tuple[Index, Index]:
        return (*lead, *row, *digit(depth, k)), (*lead, *digit(depth, k), *column)

    def term(k: Position) -> Pull:
        at_left, at_right = sides(k)
        a = yield frame, left, at_left
        b = yield frame, right, at_right
        return e.op("mul", (_cast(e, a, dtype), _cast(e, b, dtype)), dtype)

    if depth == 0:
        return e.const(0, result)
    if depth <= unroll_limit(ctx):
        products = []
        for t in range(depth):
            product = yield from term(t)
            products.append(product)
        return _cast(e, tree(ctx, "add", products), result)
    how = Fold(e, "add", dtype)
    return _cast(e, how.result((yield from accumulated(ctx, depth, term, how, how.start()))), result)


def _cast(e: KernelBuilder, x: KValue, dtype: DType) -> KValue:
    return x if x.dtype is dtype else e.op("cast", (x,), dtype)


RULES: Final = {"matmul": _matmul}
