"""Reductions inside one lane: unrolled where short, otherwise a `for` over the reduced dims.

    reduce_sum(x) {axes=(1,)} at (i)    ->    for 100 (0.0) do (k, acc): yield acc + x[i, k]

Long float sums carry what their additions lose beside them (see codegen.math.compensated), so that the error doesn't
grow with the number of terms; four neighbours at a time are added up first, which makes that cheap:

    for 25 (-0.0, -0.0) do (k, total, rest): x = (a[4k] + a[4k+1]) + (a[4k+2] + a[4k+3]); yield total + x, rest + ...

In which order depends on the shape alone, not on what else the kernel does: `runtime.cpu.in_order` follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, KValue
from loopgrad.codegen.lower.context import Frame, Lowering, Pull, Request
from loopgrad.codegen.lower.emitter import Index, KernelBuilder, Position
from loopgrad.codegen.lower.movement import concatenated, digit, dim_runs
from loopgrad.codegen.math import sums_of_exponentials
from loopgrad.codegen.math.compensated import added, balanced, rounded
from loopgrad.codegen.math.sums_of_exponentials import EXPONENTIALS, NOTHING
from loopgrad.graph.identities import identity, of_nothing
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import COMBINES, REDUCTIONS, RUNNING_TOTALS
from loopgrad.graph.types import DType, bool_, int32, int64

UNROLL_LANES: Final = 64  # inside a kernel of lane loops, where values sit in registers
UNROLL_PLAIN: Final = 16
UNROLLED_TERMS: Final = 4  # terms of a long sum that are added up first
MOST_COPIED: Final = 24  # operations of one term that are worth having several times
Carried = tuple[KValue, ...]
Pulled = Generator[Request, KValue, Carried]


def unroll_limit(ctx: Lowering) -> int:
    return UNROLL_LANES if ctx.lane_loops else UNROLL_PLAIN


def tree(ctx: Lowering, kind: str, values: Sequence[KValue]) -> KValue:
    """Combined in a balanced tree."""
    return balanced(lambda a, b: ctx.emitter.op(kind, (a, b), a.dtype), values)


class Scalars:
    """Arithmetic of the Kernel IR, for codegen.math.compensated and sums_of_exponentials."""

    def __init__(self, e: KernelBuilder) -> None:
        self.e = e

    def add(self, x: KValue, y: KValue, /) -> KValue:
        return self.e.op("add", (x, y), x.dtype)

    def sub(self, x: KValue, y: KValue, /) -> KValue:
        return self.e.op("sub", (x, y), x.dtype)

    def lt(self, x: KValue, y: KValue, /) -> KValue:
        return self.e.compare("lt", x, y)

    def either(self, m: KValue, n: KValue, /) -> KValue:
        return self.e.op("or", (m, n), bool_)

    def select(self, m: KValue, x: KValue, y: KValue, /) -> KValue:
        return self.e.op("select", (m, x, y), x.dtype)

    def mul(self, x: KValue, y: KValue, /) -> KValue:
        return self.e.op("mul", (x, y), x.dtype)

    def eq(self, x: KValue, y: KValue, /) -> KValue:
        return self.e.compare("eq", x, y)

    def number(self, like: KValue, value: float, /) -> KValue:
        return self.e.const(value, like.dtype)

    def exp(self, x: KValue, /) -> KValue:
        return self.e.op("exp", (x,), x.dtype)

    def log_of_sum(self, total: KValue, rest: KValue, /) -> KValue:
        more = self.add(self.sub(total, self.number(total, 1.0)), rest)
        return self.e.op("log1p", (more,), more.dtype)


class Fold:
    """How a loop inside a lane combines terms: what it carries, from which start, and what is left in the end."""

    def __init__(self, e: KernelBuilder, kind: str, dtype: DType) -> None:
        self.e, self.kind, self.dtype = e, kind, dtype
        self.compensated = kind == "add" and dtype.is_float

    def start(self) -> Carried:
        if self.kind == EXPONENTIALS:
            return tuple([self.e.const(part, self.dtype) for part in NOTHING])
        nothing = self.e.const((identity if self.compensated else of_nothing)(self.kind, self.dtype), self.dtype)
        return (nothing,) * (2 if self.compensated else 1)

    def of_term(self, x: KValue) -> Carried:
        """What one term alone makes."""
        if self.kind == EXPONENTIALS:
            return sums_of_exponentials.of_term(Scalars(self.e), x)
        return (x, *self.start()[1:])

    def add(self, carried: Carried, x: KValue) -> Carried:
        if self.compensated:
            total, rest = carried
            return added(Scalars(self.e), total, rest, x)
        if self.kind == EXPONENTIALS:
            (anchor, total, rest), (term, one, none) = carried, self.of_term(x)
            return sums_of_exponentials.combined(Scalars(self.e), (anchor, total, rest), (term, one, none))
        return (self.e.op(self.kind, (*carried, x), self.dtype),)

    def result(self, carried: Carried) -> KValue:
        if self.kind == EXPONENTIALS:
            anchor, total, rest = carried
            return sums_of_exponentials.logarithm(Scalars(self.e), (anchor, total, rest))
        return rounded(Scalars(self.e), *carried) if self.compensated else carried[0]


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
        return ctx.emitter.const(of_nothing(kind, operand.dtype), operand.dtype)
    if count > unroll_limit(ctx):
        how = Fold(ctx.emitter, kind, operand.dtype)
        return how.result((yield from _loops(ctx, frame, operand, sizes, list(at), how, how.start())))
    values = []
    for t in range(count):
        point = ctx.radix(digit(count, t), [sizes[d] for d in free])
        full = list(at)
        for d, p in zip(free, point, strict=True):
            full[d] = digit(sizes[d], p)
        values.append((yield frame, operand, concatenated(c for c in full if c is not None)))
    if ctx.lane_loops or count <= UNROLLED_TERMS:
        return tree(ctx, kind, values)
    how = Fold(ctx.emitter, kind, operand.dtype)
    carried = how.start()
    for first in range(0, count, 2):
        carried = how.add(carried, tree(ctx, kind, values[first : first + 2]))
    return how.result(carried)


def _loops(
    ctx: Lowering,
    frame: Frame,
    operand: Value,
    sizes: Sequence[int],
    at: list[Index | None],
    how: Fold,
    carried: Carried,
) -> Pulled:
    """Nested loops over the dims without an index, which carry what is combined so far."""
    e, d = ctx.emitter, at.index(None)

    def point(k: Position) -> list[Index | None]:
        return [*at[:d], digit(sizes[d], k), *at[d + 1 :]]

    def term(k: Position) -> Pull:
        return (yield frame, operand, concatenated(c for c in point(k) if c is not None))

    if at.count(None) == 1:
        return (yield from accumulated(ctx, sizes[d], term, how, carried))
    k, *inner = e.open((int64, *[v.dtype for v in carried]))
    body = e.close((yield from _loops(ctx, frame, operand, sizes, point(k), how, tuple(inner))))
    return _repeated(e, sizes[d], carried, body)


def accumulated(ctx: Lowering, extent: int, term: Callable[[Position], Pull], how: Fold, carried: Carried) -> Pulled:
    """The terms 0 to `extent` combined with what is carried, in a loop; those of a float sum a few at a time."""
    e = ctx.emitter
    k, *_ = e.open((int64,))
    before = e.ops
    yield from term(k)
    copied = e.ops - before <= MOST_COPIED
    e.close()
    together = UNROLLED_TERMS if how.compensated else 1

    def some(first: Position, count: int, carried: Carried) -> Pulled:
        if not copied and count > 1:
            return how.add(carried, (yield from _few(ctx, first, count, term, how)))
        terms = []
        for t in range(count):
            x = yield from term(e.add(first, t))
            terms.append(x)
        return how.add(carried, tree(ctx, how.kind, terms))

    trips, left = divmod(extent, together)
    if trips > 1:
        k, *inner = e.open((int64, *[v.dtype for v in carried]))
        body = e.close((yield from some(e.mul(k, together), together, tuple(inner))))
        carried = _repeated(e, trips, carried, body)
    elif trips:
        carried = yield from some(0, together, carried)
    if left:
        carried = yield from some(trips * together, left, carried)
    return carried


def _few(ctx: Lowering, first: Position, count: int, term: Callable[[Position], Pull], how: Fold) -> Pull:
    """The plain sum of up to four terms, as the tree has it, with the code of one: a loop of pairs, and in it one of
    the terms of a pair. The sum of -0.0 and x is x."""
    e, dtype = ctx.emitter, how.dtype
    nothing = e.const(identity(how.kind, dtype), dtype)
    pairs, each = (2, 2) if count == UNROLLED_TERMS else (1, count)

    def inside(start: Position) -> Pull:
        k, total = e.open((int64, dtype))
        x = yield from term(e.add(start, k))
        (added_up,) = _repeated(e, each, (nothing,), e.close((e.op(how.kind, (total, x), dtype),)))
        return added_up

    if pairs == 1:
        return (yield from inside(first))
    k, total = e.open((int64, dtype))
    pair = yield from inside(e.add(first, e.mul(k, each)))
    (added_up,) = _repeated(e, pairs, (nothing,), e.close((e.op(how.kind, (total, pair), dtype),)))
    return added_up


def _repeated(e: KernelBuilder, count: int, carried: Carried, body: Block) -> Carried:
    dtypes = tuple([v.dtype for v in carried])
    return tuple(e.effect("for", (e.const(count, int64), *carried), dtypes, {"reverse": False}, (body,)))


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
        return _pair(e, kind, total, x)
    how = Fold(e, kind, operand.dtype)
    count = e.value(e.sub(extent, at) if reverse else e.add(at, 1))
    start = how.start()
    k, *carried = e.open((int64, *[v.dtype for v in start]))
    x = yield frame, operand, element(e.sub(extent - 1, k) if reverse else k)
    body = e.close(how.add(tuple(carried), x))
    dtypes = tuple([v.dtype for v in start])
    return how.result(tuple(e.effect("for", (count, *start), dtypes, {"reverse": False}, (body,))))


def _pair(e: KernelBuilder, kind: str, total: KValue, x: KValue) -> KValue:
    """A running total with one more term."""
    if kind != EXPONENTIALS:
        return e.op(kind, (total, x), x.dtype)
    how = Fold(e, kind, x.dtype)
    return how.result(how.add(how.of_term(total), x))


RULES: Final = {
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(("argmin", "argmax"), _arg),
    **dict.fromkeys(RUNNING_TOTALS, _cumulative),
}
