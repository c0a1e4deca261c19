"""Products of matrices whose few elements are sums of very many terms, as derivatives by weights are, in slices.

several matmul(transpose(x), y) of (k, m) and (k, n)   ->  sums of matmul of slices (k / s, m) and (k / s, n)

So there is work for the whole device, where a library shares out the terms of single products only. Slices of such
operands lie one after the other: nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from loopgrad.codegen.schedule.products import turns
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.types import sum_dtype

DEEP: Final = 4096  # terms
SHORTEST: Final = 256  # terms of a slice
SIDE: Final = 64  # of the squares that libraries make products of
FEW_SQUARES: Final = 64
ENOUGH: Final = 512
FEWEST: Final = 4  # slices that are worth another kernel


def in_slices(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    """The product's result; None where it stays as it is."""
    left, right = node.operands
    if left.node is None or not turns(left.node) or turns(right.node) or left.shape[:-2] != right.shape[:-2]:
        return None
    if not left.dtype.is_float:
        return None
    *batch, m, k = left.shape
    n = right.shape[-1]
    slices = _slices(prod(batch), m, k, n)
    if slices < FEWEST:
        return None
    x, y = (
        builder.value("reshape", v, shape=(prod(batch) * slices, k // slices, v.shape[-1]))
        for v in (left.node.operands[0], right)
    )
    wide, result = sum_dtype(left.dtype), node.results[0].dtype  # parts of narrow floats would be rounded
    attrs = {} if wide is left.dtype else {"dtype": wide}
    parts = builder.value("matmul", builder.value("transpose", x, perm=(0, 2, 1)), y, **attrs)
    apart = builder.value("reshape", parts, shape=(prod(batch), slices, m, n))
    total = builder.value("reduce_sum", apart, axes=(1,))
    total = builder.cast(total, result)
    return [builder.value("reshape", total, shape=(*batch, m, n))]


def _slices(batch: int, m: int, k: int, n: int) -> int:
    """Into how many equal slices the terms are cut, 1 where they shouldn't be."""
    squares = batch * -(-m // SIDE) * -(-n // SIDE)
    if batch < 2 or k < DEEP or not 0 < squares < FEW_SQUARES:
        return 1
    return next((s for s in range(min(ENOUGH // squares, k // SHORTEST), 1, -1) if k % s == 0), 1)
