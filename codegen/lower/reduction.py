"""Reductions inside one lane: unrolled where short, otherwise a `for` over the reduced dims.

    reduce_sum(x) {axes=(1,)} at (i)    ->    for 100 (0.0) do (k, acc): yield acc + x[i, k]

Long float sums run in blocks of 256, so that the error grows with the blocks only.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import KValue
from loopgrad.codegen.lower.context import Frame, Lowering, Pull, identity_of
from loopgrad.codegen.lower.emitter import Index, Position
from loopgrad.codegen.lower.movement import digit, dim_runs, joined
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import bool_, int32, int64

COMBINES: Final = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_min": "min",
    "reduce_max": "max",
    "reduce_and": "and",
    "reduce_or": "or",
    "cumsum": "add",
    "cumprod": "mul",
    "cummin": "min",
    "cummax": "max",
}
UNROLL_LANES: Final = 64  # inside a kernel of lane loops, where values sit in registers
UNROLL_PLAIN: Final = 16
SUM_BLOCK: Final = 256


def unroll_limit(ctx: Lowering) -> int:
    return UNROLL_LANES if ctx.lane_loops else UNROLL_PLAIN


def tree(ctx: Lowering, kind: str, values: Sequence[KValue]) -> KValue:
    """Combined in a balanced tree."""
    level = list(values)
    while len(level) > 1:
        pairs = [ctx.emitter.op(kind, (a, b), a.dtype) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def _reduce(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    operand = node.operands[0]
    shape, axes = operand.shape, set(node.attrs["axes"])
    runs = dim_runs(shape, [d in axes for d in range(len(shape))])
    sizes = [prod(shape[a:b]) for a, b in runs]
    reduced = [any(d in axes and shape[d] != 1 for d in range(a, b)) for a, b in runs]
    kept = iter(ctx.cuts(index, [n for n, r in zip(sizes, reduced, strict=True) if not r]))
    at = [None if r else next(kept) for r in reduced]
    return (yield from reduce_over(ctx, frame, operand, sizes, at, COMBINES[node.op]))


def reduce_over(
    ctx: Lowering, frame: Frame, operand: Value, sizes: Sequence[int], at: Sequence[Index | None], kind: str
) -> Pull:
    """The operand's elements combined over the dims (of the view `sizes`) where `at` is None."""
    free = [d for d, cut in enumerate(at) if cut is None]
    count = prod([sizes[d] for d in free])
    if count == 0:
        return ctx.emitter.const(identity_of(kind, operand.dtype), operand.dtype)
    if count > unroll_limit(ctx):
        return (yield from _loops(ctx, frame, operand, sizes, list(at), kind, None))
    values = []
    for t in range(count):
        point = ctx.radix(digit(count, t), [sizes[d] for d in free])
        full = list(at)
        for d, p in zip(free, point, strict=True):
            full[d] = digit(sizes[d], p)
        values.append((yield frame, operand, joined(c for c in full if c is not None)))
    return tree(ctx, kind, values)


def _loops(
    ctx: Lowering,
    frame: Frame,
    operand: Value,
    sizes: Sequence[int],
    at: list[Index | None],
    kind: str,
    outer: KValue | None,
) -> Pull:
    """Nested loops over the dims without an index, carrying the accumulator."""
    e = ctx.emitter
    if None not in at:
        x = yield frame, operand, joined(c for c in at if c is not None)
        return x if outer is None else e.op(kind, (outer, x), x.dtype)
    d = at.index(None)
    dtype, extent = operand.dtype, sizes[d]
    start = e.const(identity_of(kind, dtype), dtype) if outer is None else outer
    if kind == "add" and dtype.is_float and at.count(None) == 1 and extent > 2 * SUM_BLOCK:
        return (yield from _blocked_sum(ctx, frame, operand, sizes, at, start))
    k, acc = e.open((int64, dtype))
    total = yield from _loops(ctx, frame, operand, sizes, [*at[:d], digit(extent, k), *at[d + 1 :]], kind, acc)
    body = e.close((total,))
    return e.effect("for", (e.const(extent, int64), start), (dtype,), {"reverse": False}, (body,))[0]


def _blocked_sum(
    ctx: Lowering, frame: Frame, operand: Value, sizes: Sequence[int], at: list[Index | None], start: KValue
) -> Pull:
    e = ctx.emitter
    d = at.index(None)
    dtype, extent = operand.dtype, sizes[d]
    b, acc = e.open((int64, dtype))
    first = e.value(e.mul(b, SUM_BLOCK))
    left = e.op("min", (e.value(e.sub(extent, first)), e.const(SUM_BLOCK, int64)), int64)
    k, partial = e.open((int64, dtype))
    point = [*at[:d], digit(extent, e.add(first, k)), *at[d + 1 :]]
    x = yield frame, operand, joined(c for c in point if c is not None)
    inner = e.close((e.op("add", (partial, x), dtype),))
    (block,) = e.effect("for", (left, e.const(0, dtype)), (dtype,), {"reverse": False}, (inner,))
    outer = e.close((e.op("add", (acc, block), dtype),))
    count = e.const(-(-extent // SUM_BLOCK), int64)
    return e.effect("for", (count, start), (dtype,), {"reverse": False}, (outer,))[0]


def _arg(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    """The first position of the best element; NaN is best."""
    e = ctx.emitter
    operand, axis = node.operands[0], node.attrs["axis"]
    shape = operand.shape
    outer, extent, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    lead, below = ctx.cuts(index, (outer, inner))

    def element(k: Position) -> Index:
        return (*lead, *digit(extent, k), *below)

    best = _ordered(ctx, (yield frame, operand, element(0)))
    position: KValue = e.const(0, int64)
    if extent <= unroll_limit(ctx):
        for t in range(1, extent):
            x = _ordered(ctx, (yield frame, operand, element(t)))
            take = _better(ctx, node.op, x, best)
            best = e.op("select", (take, x, best), x.dtype)
            position = e.op("select", (take, e.const(t, int64), position), int64)
        return position
    k, held, where = e.open((int64, best.dtype, int64))
    at = e.add(k, 1)
    x = _ordered(ctx, (yield frame, operand, element(at)))
    take = _better(ctx, node.op, x, held)
    yields = (e.op("select", (take, x, held), x.dtype), e.op("select", (take, e.value(at), where), int64))
    body = e.close(yields)
    count = e.const(extent - 1, int64)
    return e.effect("for", (count, best, position), (best.dtype, int64), {"reverse": False}, (body,))[1]


def _ordered(ctx: Lowering, x: KValue) -> KValue:
    return ctx.emitter.cast(x, int32) if x.dtype is bool_ else x


def _better(ctx: Lowering, op: str, x: KValue, best: KValue) -> KValue:
    e = ctx.emitter
    better = e.compare("lt" if op == "argmin" else "gt", x, best)
    if not x.dtype.is_float:
        return better
    known = e.op("invert", (e.op("is_nan", (best,), bool_),), bool_)
    return e.op("or", (better, e.op("and", (e.op("is_nan", (x,), bool_), known), bool_)), bool_)


def _cumulative(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    """One element of a running total: the previous one where the position is known, else a loop up to it."""
    e = ctx.emitter
    operand, axis, reverse = node.operands[0], node.attrs["axis"], node.attrs["reverse"]
    shape, kind = operand.shape, COMBINES[node.op]
    outer, extent, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    lead, middle, below = ctx.cuts(index, (outer, extent, inner))
    at = e.linear(middle)

    def element(k: Position) -> Index:
        return (*lead, *digit(extent, k), *below)

    if isinstance(at, int):
        x = yield frame, operand, element(at)
        previous = at + 1 if reverse else at - 1
        if not 0 <= previous < extent:
            return x
        total = yield frame, node.results[0], element(previous)
        return e.op(kind, (total, x), x.dtype)
    count = e.value(e.sub(extent, at) if reverse else e.add(at, 1))
    k, acc = e.open((int64, operand.dtype))
    x = yield frame, operand, element(e.sub(extent - 1, k) if reverse else k)
    body = e.close((e.op(kind, (acc, x), x.dtype),))
    zero = e.const(identity_of(kind, operand.dtype), operand.dtype)
    return e.effect("for", (count, zero), (operand.dtype,), {"reverse": False}, (body,))[0]


RULES: Final = {
    **dict.fromkeys(("reduce_sum", "reduce_prod", "reduce_min", "reduce_max", "reduce_and", "reduce_or"), _reduce),
    **dict.fromkeys(("argmin", "argmax"), _arg),
    **dict.fromkeys(("cumsum", "cumprod", "cummin", "cummax"), _cumulative),
}
