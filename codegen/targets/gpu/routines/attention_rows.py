"""Attention by matrix units: a workgroup has some queries and goes over blocks of keys and values.

Of its queries a workgroup carries about the largest score so far, by which numerators and denominators are scaled
(Milakov and Gimelshein, 2018), and keeps scores and numerators in registers (Dao, "FlashAttention-2", 2023). While the
products with a block's keys are made its values come into memory of the workgroup, and the next keys while those with
values are. Blocks that no query of the workgroup sees aren't read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from math import inf, log
from typing import Final, NamedTuple

from loopgrad.codegen.targets.gpu.assembler import Val, Variable
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.lanes.tiles import digits
from loopgrad.codegen.targets.gpu.routines.attention_scores import (
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
from loopgrad.codegen.targets.gpu.routines.matrix_tiles import SIDE, MatrixRows, Sums

LEEWAY: Final = 8.0  # by which binary logarithms of scores may exceed the one that was the largest


@dataclass(frozen=True, slots=True)
class AttentionRows:
    """A tile is `warps` times `tiles` times 16 queries of one attention, keys come in blocks of `block`; it has its
    queries in memory where they are `held`. The next block comes while one is worked on, `ahead`, where there is memory
    for both; otherwise as soon as there is room for its keys, and then for its values.
    Arrays: query, key, value, the result, of each query the logarithm of its denominator (f32), and bias and mask, if
    there are. Where keys are shared out among `parts`, there is a result of each part, of f32, and the logarithms of
    its denominators: one array behind the other."""

    shapes: Shapes
    warps: int
    tiles: int
    block: int
    held: bool
    ahead: bool = False
    parts: int = 1

    @property
    def memory(self) -> int:
        """Bytes that a workgroup shares."""
        s, depth = self.shapes, self.shapes.depth
        blocks = sum(depth.held_bytes(self.block, width) for width in (s.width, s.value_width)) * (1 + self.ahead)
        return blocks + (depth.held_bytes(self.rows, s.width) if self.held else 0)

    @property
    def rows(self) -> int:
        return self.warps * self.tiles * SIDE

    @property
    def row_blocks(self) -> int:
        return -(-self.shapes.queries // self.rows)

    @property
    def count(self) -> int:
        return self.parts * self.row_blocks * self.shapes.count

    @property
    def blocks(self) -> int:
        """Of keys, of each part."""
        return -(-self.shapes.keys // (self.block * self.parts))

    def emit(self, e: Emitter, tile: Val) -> None:
        RowTile(e, self, tile).emit()


class _Scale(NamedTuple):
    """Of a row: whether scores are taken by a larger one from now on, how far the old one is below it (in units of the
    binary logarithm), and the one in use in these units."""

    grown: Val
    apart: Val
    base: Val


class RowTile(ScoreTile):
    """Of one tile; those that see most keys come first. Scores are in units of the binary logarithm once multiplied by
    `factor`."""

    def __init__(self, e: Emitter, program: AttentionRows, tile: Val) -> None:
        part, tile = digits(e, tile, (program.parts, program.count // program.parts))
        super().__init__(e, program, tile, backwards=True)
        self.p, c = program, self.code
        self.begin = c.times(e.resize(part, "i32"), program.blocks)
        s, params = self.s, list(e.table.params)
        self.query = rows_of(c, params[0], self.number, s.queries, s.width)
        shared = self.number if s.shared is None else place_of(c, self.number, *s.shared)
        self.key, self.value = (
            rows_of(c, array, shared, s.keys, width)
            for array, width in zip(params[1:3], (s.width, s.value_width), strict=True)
        )
        place = c.op("IMul", c.plus(c.op("IMul", part, s.count), self.number), s.queries)
        size = WORD if program.parts > 1 else c.depth.bytes
        self.result = MatrixRows(e.at(params[3], c.op("IMul", place, s.value_width), size), s.queries, s.value_width)
        self.normal = e.at(params[4], place, WORD)
        self.sides = Sides.of_arrays(c, s, self.number, params[5:])

        self.totals = c.variables(program.tiles, c.depth.padded(self.value.width))
        self.norms, self.most = (
            [[self._local(x) for _ in range(2)] for _ in range(program.tiles)] for x in (0.0, -inf)
        )

    def emit(self) -> None:
        c, p, s = self.code, self.p, self.s
        keys, values = (c.held_twice(p.block, width, 1 + p.ahead) for width in (s.width, s.value_width))
        blocks = self.blocks()

        def copy(number: Val) -> None:
            at = c.times(number, p.block)
            c.copy_block(keys(number), self.key, at, p.block)
            if p.ahead:
                c.copy_block(values(number), self.value, at, p.block)

        copy(self.begin)
        queries = self.own_left(self.query, p.tiles)

        def step(counter: Val) -> None:
            number = c.plus(counter, self.begin)
            at = c.times(number, p.block)
            c.copied()
            self.b.barrier()
            more = c.plus(number, 1)
            follows = c.test("SLessThan", c.plus(counter, 1), blocks)
            if p.ahead:
                c.copies(follows, lambda: copy(more))
                scores = c.times_held(queries, keys(number), p.block)
            else:
                c.copy_block(values(number), self.value, at, p.block)
                scores = c.times_held(queries, keys(number), p.block)
                c.copied()
                self.b.barrier()
                c.copies(follows, lambda: copy(more))
            c.add_product(self.totals, self.weighed(scores, at), values(number))

        counted(self.e, blocks, step)
        self.finish()

    def finish(self) -> None:
        for tile in range(self.p.tiles):
            self._finish(tile)

    def _local(self, value: float) -> Variable:
        variable = self.b.local("f32")
        self.b.set(variable, self.code.f32(value))
        return variable

    def blocks(self) -> Val:
        """Of keys that a query of the workgroup sees."""
        c, p, s = self.code, self.p, self.s
        every = -(-s.keys // p.block)
        if p.parts > 1:
            return self._lesser(c.op("ISub", c.i32(every), self.begin), p.blocks)
        if not s.causal:
            return c.i32(every)
        some = c.divided(c.plus(self.first, p.rows + p.block - 1), p.block)[0]
        return self._lesser(some, every)

    def _lesser(self, x: Val, most: int) -> Val:
        return self.e.select(self.code.test("SLessThan", x, most), x, self.code.i32(most))

    # scores

    def weighed(self, scores: list[Sums], at: Val) -> list[Sums]:
        """The weights of a block's values, which are added up; `at`: its first key."""
        scores = self._seen(scores, at)
        scales = [self._compared(tile, sums) for tile, sums in enumerate(scores)]
        grown = [x.grown for pair in scales for x in pair]
        some = reduce(lambda x, y: self.b.inst("LogicalOr", "bool", x, y), grown)
        self.e.when(some, partial(self._rescale, scales))
        return [self._weights(tile, sums, scales[tile]) for tile, sums in enumerate(scores)]

    def _seen(self, scores: list[Sums], at: Val) -> list[Sums]:
        """With bias, and -inf where a query doesn't see a key; `at`: the first key of the block."""
        c, p, s = self.code, self.p, self.s
        if self.early:
            scores = multiplied(c, s, scores)
        if s.mask is not None or s.bias is not None:
            scores = [self.with_sides(sums, self._row(tile), at) for tile, sums in enumerate(scores)]
        if not s.causal and s.keys % p.block == 0:
            return scores
        end, start = c.plus(at, p.block), c.plus(at, c.column)
        left = c.op("ISub", c.i32(s.keys), start)
        partly = c.test("SGreaterThan", end, s.keys)
        seen = [Seen(None, (left, left))] * p.tiles
        if s.causal:
            ahead = c.test("SGreaterThan", end, c.plus(self.first, 1))
            partly = self.b.inst("LogicalOr", "bool", partly, ahead)
            seen = [Seen(None, self._until(tile, start, left)) for tile in range(p.tiles)]
        return only_seen(c, scores, partly, seen)

    def _until(self, tile: int, start: Val, left: Val) -> list[Val]:
        """The first key that isn't seen, after the one at `start`, of which there are `left`."""
        c = self.code
        later = [c.op("ISub", c.plus(self._row(tile), 8 * half + 1), start) for half in (0, 1)]
        return [self.e.select(c.test("SLessThan", x, left), x, left) for x in later]

    def _row(self, tile: int) -> Val:
        """The number of this invocation's first query."""
        return self.code.plus(self.code.plus(self.own_first, SIDE * tile), self.code.row)

    def _compared(self, tile: int, sums: Sums) -> list[_Scale]:
        """By which score of each of a tile's two rows exponentials are taken: the largest once, and another one where
        scores are much larger (as in "FlashAttention-4"; what is kept has no fewer digits)."""
        c, units = self.code, self.code.units
        found = []
        for half in (0, 1):
            variable = self.most[tile][half]
            old = self.b.get(variable, "f32")
            chains = [eight[2 * half : 2 * half + 2] for eight in sums]
            pairs = [reduce(units.larger, [pair[i] for pair in chains]) for i in (0, 1)]  # two wait less than one
            largest = c.over_columns(reduce(units.larger, pairs, old), "max")
            apart = c.scaled(c.less(old, largest), self.factor)
            grown = c.test("FOrdLessThan", apart, c.f32(-LEEWAY))
            base = self.e.select(grown, largest, old)
            self.b.set(variable, base)
            found.append(_Scale(grown, apart, c.scaled(self._finite(base), self.factor)))
        return found

    def _rescale(self, scales: list[list[_Scale]]) -> None:
        """What came before, by the new scores."""
        c = self.code
        one = c.f32(1.0)
        for tile, pair in enumerate(scales):
            before = [self.e.select(x.grown, c.units.power(x.apart), one) for x in pair]
            for variable, factor in zip(self.norms[tile], before, strict=True):
                self.b.set(variable, c.scaled(self.b.get(variable, "f32"), factor))
            sums = c.taken(self.totals, tile)
            c.put(self.totals, tile, [[c.scaled(x, before[i // 2]) for i, x in enumerate(eight)] for eight in sums])

    def _weights(self, tile: int, sums: Sums, scales: list[_Scale]) -> Sums:
        """Exponentials of the scores, which are added up."""
        c, units = self.code, self.code.units
        bases = [self.b.exact("FNegate", "f32", x.base) for x in scales]
        weights = [[units.power(c.fma(x, self.factor, bases[i // 2])) for i, x in enumerate(eight)] for eight in sums]
        for half in (0, 1):
            norm = self.b.get(self.norms[tile][half], "f32")
            for eight in weights:
                norm = c.sum(norm, c.sum(*eight[2 * half : 2 * half + 2]))
            self.b.set(self.norms[tile][half], norm)
        return weights

    def _finite(self, largest: Val) -> Val:
        """0 for queries that have seen no key."""
        none = self.code.test("FOrdEqual", largest, self.code.f32(-inf))
        return self.e.select(none, self.code.zero, largest)

    def _finish(self, tile: int) -> None:
        c, units = self.code, self.code.units
        factors = []
        for half in (0, 1):
            norm = c.over_columns(self.b.get(self.norms[tile][half], "f32"), "sum")
            none = c.test("FOrdEqual", norm, c.zero)
            norm = self.e.select(none, c.f32(1.0), norm)
            factors.append(self.b.inst("FDiv", "f32", c.f32(1.0), norm))
            base = c.scaled(self._finite(self.b.get(self.most[tile][half], "f32")), self.factor)
            found = c.scaled(c.sum(base, units.logarithm(norm)), c.f32(log(2)))
            if self.p.parts > 1:  # a part in which it sees nothing has no weight among others
                found = self.e.select(none, c.f32(-inf), found)
            row = c.plus(self._row(tile), 8 * half)
            inside = c.test("SLessThan", row, self.s.queries)
            first = self.b.inst("LogicalAnd", "bool", inside, c.test("IEqual", c.column, 0))
            self.e.when(first, partial(self._store_normal, row, found))
        first, sums = c.plus(self.own_first, SIDE * tile), c.taken(self.totals, tile)
        c.store_rows(self.result, first, sums, factors, floats=self.p.parts > 1)

    def _store_normal(self, row: Val, found: Val) -> None:
        self.b.store(self.code.at(self.normal, row, WORD), found)
