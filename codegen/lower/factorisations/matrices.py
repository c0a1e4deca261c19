"""What rolled factorisations are written with: matrices in arrays of the lane, loops over rows.

Rows that are computed alike are taken four at a time, whose chains of operations are under way together and read what
they share once; then those that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import KValue
from loopgrad.codegen.lower.arrays import new_kept, own_dims, repeated
from loopgrad.codegen.lower.context import Frame, Lowering
from loopgrad.codegen.lower.emitter import Index, KernelBuilder, Position
from loopgrad.codegen.lower.factorisations.numbers import Number, Numbers, Reals
from loopgrad.codegen.lower.movement import digit
from loopgrad.codegen.lower.reduction import Fold, tree
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives.factorisations import batch_rank, extents, part_count
from loopgrad.graph.types import DType, int64

TOGETHER: Final = 4
Element = Callable[[Position, Position], Number]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows one after the other, from `start` on in an array, the parts of a number side by side. A vector is a matrix
    of one column."""

    ctx: Lowering
    array: int
    columns: int
    start: Position = 0
    parts: int = 1

    @property
    def numbers(self) -> Numbers:
        return Numbers(Reals(self.ctx.emitter, self.ctx.arrays[self.array].dtype), self.parts)

    def place(self, i: Position, j: Position, part: int = 0) -> Position:
        e = self.ctx.emitter
        return e.add(self.start, e.add(e.mul(e.add(e.mul(i, self.columns), j), self.parts), part))

    def at(self, i: Position, j: Position = 0) -> Number:
        return tuple([self.ctx.element(self.array, self.place(i, j, p)) for p in range(self.parts)])

    def real(self, i: Position, j: Position = 0) -> KValue:
        """The real part, or the whole of what is no complex number."""
        return self.ctx.element(self.array, self.place(i, j))

    def put(self, i: Position, x: Number, j: Position = 0) -> None:
        for p, part in enumerate(x):
            self.ctx.put(self.array, self.place(i, j, p), part)

    def flat(self) -> Matrix:
        """All parts of all numbers, one after the other."""
        return Matrix(self.ctx, self.array, 1, self.start)


@dataclass(frozen=True, slots=True)
class MatrixOperand:
    """Matrices that a node reads, the one that `batch` says: anywhere, perhaps computed as they are read."""

    ctx: Lowering
    frame: Frame
    value: Value
    batch: Index
    rank: int = 2
    parts: int = 1

    def at(self, i: Position, j: Position = 0) -> Number:
        shape, lane = self.value.shape, self.ctx.lane_index if self.ctx.leads(self.value.shape) else ()
        own = shape[: len(shape) - (self.parts > 1)]
        last = (*digit(own[-2], i), *digit(own[-1], j)) if self.rank == 2 else digit(own[-1], i)
        places = [digit(self.parts, p) for p in range(self.parts)]
        return tuple([self.ctx.pull(self.frame, self.value, (*lane, *self.batch, *last, *part)) for part in places])


def scratch(ctx: Lowering, rows: int, columns: int, dtype: DType, parts: int = 1) -> Matrix:
    """Memory for the time of one factorisation."""
    return Matrix(ctx, ctx.new_array(dtype, rows * columns * parts), columns, 0, parts)


class EachMatrix:
    """One node: its results get arrays, and `each` is written once for all its matrices."""

    def __init__(self, ctx: Lowering, frame: Frame, node: Node, ranks: Sequence[int]) -> None:
        self.ctx, self.frame, self.node = ctx, frame, node
        self.kept = [new_kept(ctx, r) for r in node.results]
        self.parts = part_count(node, 0)
        first = node.operands[0]
        self.count = prod(own_dims(ctx, first)[: -1 - self.parts])
        self.ranks = ranks

    def run(self, each: Callable[[list[MatrixOperand], list[Matrix]], None]) -> None:
        """`each(operands, results)` of one matrix. `ranks`: of the results', 2, or 1 for those of reals."""

        def one(b: Position) -> None:
            batch = digit(self.count, b)
            operands = [self._operand(k, batch) for k in range(len(self.node.operands))]
            each(operands, [self._result(r, b) for r in range(len(self.kept))])

        if self.count == 1:
            one(0)
        else:
            repeated(self.ctx.emitter, self.count, one)
        for value, kept in zip(self.node.results, self.kept, strict=True):
            self.frame.bindings[value] = kept

    def _operand(self, k: int, batch: Index) -> MatrixOperand:
        value, rank = self.node.operands[k], len(extents(self.node, k))
        return MatrixOperand(self.ctx, self.frame, value, batch, rank, part_count(self.node, k))

    def _result(self, r: int, b: Position) -> Matrix:
        shape = self.node.results[r].shape[batch_rank(self.node) :]
        columns, parts = (shape[1], self.parts) if self.ranks[r] == 2 else (1, 1)
        return Matrix(self.ctx, self.kept[r].array, columns, self.ctx.emitter.mul(b, prod(shape)), parts)


# ---- loops


def carried(
    e: KernelBuilder, count: Position, inits: Sequence[KValue], body: Callable[..., Sequence[KValue]]
) -> tuple[KValue, ...]:
    """What is left of `inits` after so many trips of `body(k, *values)`."""
    dtypes = [v.dtype for v in inits]
    k, *inner = e.open((int64, *dtypes))
    block = e.close(body(k, *inner))
    return e.effect("for", (e.value(count), *inits), dtypes, {"reverse": False}, (block,))


def carried_numbers(
    e: KernelBuilder, count: Position, inits: Sequence[Number], body: Callable[..., Sequence[Number]]
) -> list[Number]:
    """The same of numbers, all of as many parts."""
    parts = len(inits[0])

    def joined(values: Sequence[KValue]) -> list[Number]:
        return [tuple(values[t : t + parts]) for t in range(0, len(values), parts)]

    def flat(numbers: Sequence[Number]) -> list[KValue]:
        return [part for number in numbers for part in number]

    return joined(carried(e, count, flat(inits), lambda k, *values: flat(body(k, *joined(values)))))


def between(e: KernelBuilder, first: Position, end: Position, body: Callable[[Position], None]) -> None:
    """body(i) for i in [first, end)"""
    repeated(e, e.sub(end, first), lambda k: body(e.add(first, k)))


def in_fours(e: KernelBuilder, first: Position, end: Position, body: Callable[[list[Position]], None]) -> None:
    """body(some neighbours) until all of [first, end) had their turn."""
    fours, left = e.divmod(e.sub(end, first), TOGETHER)

    def several(k: Position) -> None:
        start = e.add(first, e.mul(k, TOGETHER))
        body([e.add(start, t) for t in range(TOGETHER)])

    repeated(e, fours, several)
    rest = e.add(first, e.mul(fours, TOGETHER))
    repeated(e, left, lambda k: body([e.add(rest, k)]))


def until(
    e: KernelBuilder, inits: Sequence[KValue], test: Callable[..., KValue], body: Callable[..., Sequence[KValue]]
) -> tuple[KValue, ...]:
    """What is left of `inits` after trips of `body(*values)`, as long as `test(*values)` holds."""
    dtypes = [v.dtype for v in inits]
    condition = e.close((test(*e.open(dtypes)),))
    block = e.close(body(*e.open(dtypes)))
    return e.effect("while", inits, dtypes, {"max_steps": None}, (condition, block))


def total(
    ctx: Lowering, x: Numbers, first: Position, end: Position, term: Callable[[Position], Number], *more: Number
) -> Number:
    """The sum of term(i) for i in [first, end), and of what else is given; of each part by itself."""
    e, how = ctx.emitter, Fold(ctx.emitter, "add", x.real.dtype)
    fours, left = e.divmod(e.sub(end, first), TOGETHER)
    width = len(how.start())

    def added(sums: Sequence[KValue], terms: Number) -> Sequence[KValue]:
        each = [how.add(tuple(sums[p * width : (p + 1) * width]), t) for p, t in enumerate(terms)]
        return [v for pair in each for v in pair]

    start: Sequence[KValue] = how.start() * x.parts
    for number in more:
        start = added(start, number)

    def several(k: KValue, *sums: KValue) -> Sequence[KValue]:
        base = e.add(first, e.mul(k, TOGETHER))
        terms = [term(e.add(base, t)) for t in range(TOGETHER)]
        return added(sums, tuple([tree(ctx, "add", part) for part in zip(*terms, strict=True)]))

    rest = e.add(first, e.mul(fours, TOGETHER))
    sums = carried(e, fours, start, several)
    sums = carried(e, left, sums, lambda k, *sums: added(sums, term(e.add(rest, k))))
    return tuple([how.result(sums[p * width : (p + 1) * width]) for p in range(x.parts)])


def copy(e: KernelBuilder, source: MatrixOperand, target: Matrix, rows: int, columns: int) -> None:
    repeated(e, rows, lambda i: repeated(e, columns, lambda j: target.put(i, source.at(i, j), j)))
