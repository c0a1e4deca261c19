"""What rolled factorisations are written with: matrices in arrays of the lane, their arithmetic, loops over rows.

Rows that are computed alike are taken four at a time, whose chains of operations are under way together and read what
they share once; then those that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from loopgrad.codegen.kernel.nodes import KValue
from loopgrad.codegen.lower.arrays import new_kept, own_dims, repeated
from loopgrad.codegen.lower.context import Frame, Lowering
from loopgrad.codegen.lower.emitter import Index, KernelBuilder, Position
from loopgrad.codegen.lower.movement import digit
from loopgrad.codegen.lower.reduction import Fold, tree
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import DType, bool_, int64

TOGETHER: Final = 4
Element = Callable[[Position, Position], KValue]


class LaneArithmetic:
    """Of numbers of one dtype."""

    def __init__(self, e: KernelBuilder, dtype: DType) -> None:
        self.e, self.dtype = e, dtype

    def const(self, value: Any) -> KValue:
        return self.e.const(value, self.dtype)

    def op(self, opcode: str, *operands: KValue) -> KValue:
        return self.e.op(opcode, operands, self.dtype)

    def less(self, x: KValue, factor: KValue, y: KValue) -> KValue:
        """x - factor * y"""
        return self.op("sub", x, self.op("mul", factor, y))

    def test(self, opcode: str, *operands: KValue) -> KValue:
        return self.e.op(opcode, operands, bool_)

    def select(self, condition: KValue, yes: KValue, no: KValue) -> KValue:
        return self.e.op("select", (condition, yes, no), yes.dtype)


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows one after the other, from `start` on in an array. A vector is a matrix of one column."""

    ctx: Lowering
    array: int
    columns: int
    start: Position = 0

    def place(self, i: Position, j: Position) -> Position:
        e = self.ctx.emitter
        return e.add(self.start, e.add(e.mul(i, self.columns), j))

    def at(self, i: Position, j: Position = 0) -> KValue:
        return self.ctx.element(self.array, self.place(i, j))

    def put(self, i: Position, x: KValue, j: Position = 0) -> None:
        self.ctx.put(self.array, self.place(i, j), x)


@dataclass(frozen=True, slots=True)
class MatrixOperand:
    """Matrices that a node reads, the one that `batch` says: anywhere, perhaps computed as they are read."""

    ctx: Lowering
    frame: Frame
    value: Value
    batch: Index
    rank: int = 2

    def at(self, i: Position, j: Position = 0) -> KValue:
        shape, lane = self.value.shape, self.ctx.lane_index if self.ctx.leads(self.value.shape) else ()
        last = (*digit(shape[-2], i), *digit(shape[-1], j)) if self.rank == 2 else digit(shape[-1], i)
        return self.ctx.pull(self.frame, self.value, (*lane, *self.batch, *last))


def scratch(ctx: Lowering, rows: int, columns: int, dtype: DType) -> Matrix:
    """Memory for the time of one factorisation."""
    return Matrix(ctx, ctx.new_array(dtype, rows * columns), columns)


class EachMatrix:
    """One node: its results get arrays, and `each` is written once for all its matrices."""

    def __init__(self, ctx: Lowering, frame: Frame, node: Node, ranks: Sequence[int]) -> None:
        self.ctx, self.frame, self.node = ctx, frame, node
        self.kept = [new_kept(ctx, r) for r in node.results]
        first = node.operands[0]
        self.count = prod(own_dims(ctx, first)[:-2])
        self.ranks = ranks

    def run(self, each: Callable[[list[MatrixOperand], list[Matrix]], None]) -> None:
        """`each(operands, results)` of one matrix. `ranks`: of the results', 2 or 1."""

        def one(b: Position) -> None:
            batch = digit(self.count, b)
            operands = [MatrixOperand(self.ctx, self.frame, v, batch, self._rank(v)) for v in self.node.operands]
            each(operands, [self._result(r, b) for r in range(len(self.kept))])

        if self.count == 1:
            one(0)
        else:
            repeated(self.ctx.emitter, self.count, one)
        for value, kept in zip(self.node.results, self.kept, strict=True):
            self.frame.bindings[value] = kept

    def _rank(self, v: Value) -> int:
        return len(v.shape) - len(self.node.operands[0].shape) + 2

    def _result(self, r: int, b: Position) -> Matrix:
        shape = self.node.results[r].shape
        columns = shape[-1] if self.ranks[r] == 2 else 1
        size = prod(shape[-self.ranks[r] :])
        return Matrix(self.ctx, self.kept[r].array, columns, self.ctx.emitter.mul(b, size))


# ---- loops


def carried(
    e: KernelBuilder, count: Position, inits: Sequence[KValue], body: Callable[..., Sequence[KValue]]
) -> tuple[KValue, ...]:
    """What is left of `inits` after so many trips of `body(k, *values)`."""
    dtypes = [v.dtype for v in inits]
    k, *inner = e.open((int64, *dtypes))
    block = e.close(body(k, *inner))
    return e.effect("for", (e.value(count), *inits), dtypes, {"reverse": False}, (block,))


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
    ctx: Lowering, dtype: DType, first: Position, end: Position, term: Callable[[Position], KValue], *more: KValue
) -> KValue:
    """The sum of term(i) for i in [first, end), and of what else is given."""
    e, how = ctx.emitter, Fold(ctx.emitter, "add", dtype)
    fours, left = e.divmod(e.sub(end, first), TOGETHER)
    start = how.start()
    for x in more:
        start = how.add(start, x)

    def several(k: KValue, *sums: KValue) -> Sequence[KValue]:
        base = e.add(first, e.mul(k, TOGETHER))
        return how.add(tuple(sums), tree(ctx, "add", [term(e.add(base, t)) for t in range(TOGETHER)]))

    rest = e.add(first, e.mul(fours, TOGETHER))
    sums = carried(e, fours, start, several)
    sums = carried(e, left, sums, lambda k, *sums: how.add(tuple(sums), term(e.add(rest, k))))
    return how.result(sums)


def copy(e: KernelBuilder, source: MatrixOperand, target: Matrix, rows: int, columns: int) -> None:
    repeated(e, rows, lambda i: repeated(e, columns, lambda j: target.put(i, source.at(i, j), j)))


