"""Derivatives of attention by matrix units: scores are computed again from what was saved of a query.

    weights = exp(q k^T * scale - normal)          by_scores = weights * (ct v^T - along)
    by_q = scale * by_scores k       by_k = scale * by_scores^T q       by_v = weights^T ct

A workgroup has some queries and goes over blocks of keys, for `by_q`; or it has some keys and goes over blocks of
queries, for the two others: then its scores are transposed, and so are all products. Nobody adds to what others have,
so that sums have an order (where Dao's "FlashAttention-2", 2023, adds up `by_q` by atomics, in five products for our
seven). The next block is copied while one is worked on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.routines.attention_scores import (
    LOG2E,
    WORD,
    ScoreTile,
    Seen,
    Shapes,
    Sides,
    multiplied,
    only_seen,
    place_of,
    rows_of,
)
from loopgrad.codegen.targets.gpu.routines.matrix_tiles import SIDE, HeldRows, LeftRows, Sums


@dataclass(frozen=True, slots=True)
class AttentionGradients:
    """A tile is `warps` times 16 queries, or keys (`of_keys`), of one attention, which are in memory of the workgroup
    where they are `held`; the others come in blocks of `block`. Arrays: query, key, value, of each query the logarithm
    of its denominator and `along` (f32), the cotangent, then the results, and bias and mask, if there are."""

    shapes: Shapes
    warps: int
    block: int
    of_keys: bool
    held: bool

    @property
    def memory(self) -> int:
        """Bytes that a workgroup shares."""
        s, depth = self.shapes, self.shapes.depth
        lines = 2 * self.block + (self.rows if self.held else 0)
        return sum(depth.held_bytes(lines, width) for width in (s.width, s.value_width))

    @property
    def rows(self) -> int:
        return self.warps * SIDE

    @property
    def own(self) -> int:
        return self.shapes.keys if self.of_keys else self.shapes.queries

    @property
    def others(self) -> int:
        return self.shapes.queries if self.of_keys else self.shapes.keys

    @property
    def row_blocks(self) -> int:
        return -(-self.own // self.rows)

    @property
    def count(self) -> int:
        return self.row_blocks * self.shapes.count

    def emit(self, e: Emitter, tile: Val) -> None:
        _Gradients(e, self, tile).emit()


class _Saved(NamedTuple):
    """Of a query: its normal in units of the binary logarithm, with the opposite sign, and `along`."""

    normal: Val
    along: Val


class _Gradients(ScoreTile):
    """Of one tile; those that see most come first."""

    def __init__(self, e: Emitter, program: AttentionGradients, tile: Val) -> None:
        super().__init__(e, program, tile, backwards=not program.of_keys)
        self.p, c, number = program, self.code, self.number
        s, params = self.s, list(e.table.params)
        widths = (s.width, s.width, s.value_width)
        of_query, of_key = (s.queries, s.width), (s.keys, s.width)
        shared = number if s.shared is None else place_of(c, number, *s.shared)
        query, key = rows_of(c, params[0], number, *of_query), rows_of(c, params[1], shared, *of_key)
        value = rows_of(c, params[2], shared, s.keys, widths[2])
        ct = rows_of(c, params[5], number, s.queries, widths[2])
        self.own_rows, self.other_rows = ((key, value), (query, ct)) if program.of_keys else ((query, ct), (key, value))
        self.saved = [e.at(params[i], c.op("IMul", number, s.queries), WORD) for i in (3, 4)]
        made = params[6 : 8 if program.of_keys else 7]
        results = zip(made, widths[1:], strict=False)
        self.results = [rows_of(c, array, number, program.own, width) for array, width in results]
        self.sides = Sides.of_arrays(c, s, number, params[6 + len(made) :])

    def emit(self) -> None:
        c, p = self.code, self.p
        self.b.barrier()  # the blocks of the tile before are still read
        first, second = (c.held_twice(p.block, rows.width) for rows in self.other_rows)
        totals = [c.variables(1, c.depth.padded(rows.width)) for rows in self.results]
        begin, end = self._span()

        def copy(number: Val) -> None:
            at = c.times(number, p.block)
            for held, rows in zip((first, second), self.other_rows, strict=True):
                c.copy_block(held(number), rows, at, p.block)

        self.e.when(c.test("SLessThan", begin, end), partial(copy, begin))
        own = [self.own_left(rows, 1) for rows in self.own_rows]
        rows_saved = [] if p.of_keys else [self._saved(c.plus(self._row(), 8 * half)) for half in (0, 1)]

        def step(counter: Val) -> None:
            number = c.op("IAdd", counter, begin)
            at = c.times(number, p.block)
            c.copied()
            self.b.barrier()
            more = c.plus(number, 1)
            c.copies(c.test("SLessThan", more, end), lambda: copy(more))
            left, right = first(number), second(number)
            saved = self._by_columns(at) if p.of_keys else rows_saved
            weights = self._weights(own[0], left, at, saved)
            by_scores = self._by_scores(own[1], right, weights, saved)
            c.add_product(totals[0], [by_scores], left)
            if p.of_keys:
                c.add_product(totals[1], [weights], right)

        counted(self.e, c.op("ISub", end, begin), step)
        factors = [c.f32(self.s.scale), c.f32(1.0)]
        for rows, total, factor in zip(self.results, totals, factors, strict=False):
            c.store_rows(rows, self.own_first, c.taken(total, 0), [factor, factor])

    def _row(self) -> Val:
        """The number of this invocation's first query or key."""
        return self.code.plus(self.own_first, self.code.row)

    def _span(self) -> tuple[Val, Val]:
        """The first block of others that sees, or is seen by, some of the tile, and the one after the last."""
        c, p, s = self.code, self.p, self.s
        every = -(-p.others // p.block)
        if not s.causal:
            return c.i32(0), c.i32(every)
        if p.of_keys:
            begin = c.divided(self.first, p.block)[0]
            return c.e.select(c.test("SLessThan", begin, every), begin, c.i32(every)), c.i32(every)
        end = c.divided(c.plus(self.first, p.rows + p.block - 1), p.block)[0]
        return c.i32(0), c.e.select(c.test("SLessThan", end, every), end, c.i32(every))

    # what was saved

    def _saved(self, query: Val) -> _Saved:
        c = self.code
        row = c.below(query, self.s.queries)
        normal, along = (self.b.load(c.at(base, row, WORD), "f32", True) for base in self.saved)
        return _Saved(c.scaled(normal, c.f32(-LOG2E)), along)

    def _by_columns(self, at: Val) -> list[_Saved]:
        """Of the queries of this invocation's columns."""
        c = self.code
        first = c.plus(at, c.column)
        return [self._saved(c.plus(first, 8 * n + i)) for n in range(self.p.block // 8) for i in (0, 1)]

    def _of(self, saved: list[_Saved], n: int, i: int) -> _Saved:
        return saved[2 * n + i % 2] if self.p.of_keys else saved[i // 2]

    # scores

    def _weights(self, own: Sequence[LeftRows], held: HeldRows, at: Val, saved: list[_Saved]) -> Sums:
        c = self.code
        (scores,) = self._seen(c.times_held(own, held, self.p.block), at)
        return [
            [c.units.power(c.fma(x, self.factor, self._of(saved, n, i).normal)) for i, x in enumerate(eight)]
            for n, eight in enumerate(scores)
        ]

    def _by_scores(self, own: Sequence[LeftRows], held: HeldRows, weights: Sums, saved: list[_Saved]) -> Sums:
        c = self.code
        (slopes,) = c.times_held(own, held, self.p.block)
        return [
            [
                c.scaled(weights[n][i], c.less(x, self._of(saved, n, i).along))
                for i, x in enumerate(eight)
            ]
            for n, eight in enumerate(slopes)
        ]  # fmt: skip

    def _seen(self, scores: list[Sums], at: Val) -> list[Sums]:
        """With -inf where a query doesn't see a key; `at`: the first of the block."""
        c, p, s = self.code, self.p, self.s
        if self.early:
            scores = multiplied(c, s, scores)
        if s.mask is not None or s.bias is not None:
            scores = [self.with_sides(sums, self._row(), at, turned=p.of_keys) for sums in scores]
        if not s.causal and p.others % p.block == 0:
            return scores
        start = c.plus(at, c.column)
        left = c.op("ISub", c.i32(p.others), start)
        partly = c.test("SGreaterThan", c.plus(at, p.block), p.others)
        seen = Seen(None, (left, left))
        if s.causal:
            own = [c.op("ISub", c.plus(self._row(), 8 * half), start) for half in (0, 1)]
            if p.of_keys:
                crossed = c.test("SLessThan", at, c.plus(self.first, p.rows))
                seen = Seen(own, (left, left))
            else:
                crossed = c.test("SGreaterThan", c.plus(at, p.block), c.plus(self.first, 1))
                until = [c.plus(x, 1) for x in own]
                seen = Seen(None, [self.e.select(c.test("SLessThan", x, left), x, left) for x in until])
            partly = self.b.inst("LogicalOr", "bool", partly, crossed)
        return only_seen(c, scores, partly, [seen])
