"""Attention by two warpgroups that take turns: while one multiplies, the other has its exponentials (Shah et al.,
"FlashAttention-3", 2024, section 3.1).

A turn is one run of matrix units: the scores of a block, and the sums of the block before. So turn number t needs keys
number t and values number t - 1, which are in memory of the workgroup when it comes. Each warpgroup copies half of
them, behind its turns, into the place of what both are done with: after its turn number t the first one knows that the
other has had turn t - 1 and copies for turn t + 1, and the second one that the other has had turn t, so that it copies
for turn t + 2. (Memory for three blocks was slower on an H200, and so was to pass turns on before they end.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from loopgrad.codegen.targets.gpu.assembler import WARP, WARPGROUP, ProductChain, Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.routines.attention_rows import AttentionRows, RowTile
from loopgrad.codegen.targets.gpu.routines.matrix_tiles import BlockPart, HeldRows, MatrixRows, Sums
from loopgrad.codegen.targets.gpu.routines.panel_tiles import PanelMatrices


@dataclass(frozen=True, slots=True)
class AttentionTurns(AttentionRows):
    """Of 2 * WARPGROUP warps, with memory for two blocks, the one `ahead` among them."""

    def emit(self, e: Emitter, tile: Val) -> None:
        _TurnedTile(e, self, tile).emit()


class _TurnedTile(RowTile):
    """One tile."""

    def __init__(self, e: Emitter, program: AttentionTurns, tile: Val) -> None:
        super().__init__(e, program, tile)
        self.panels = c = cast("PanelMatrices", self.code)
        widths = (self.s.width, self.s.value_width)
        self.keys, self.values = (c.held_twice(program.block, width) for width in widths)
        self.half, self.member = c.divided(c.own, WARPGROUP * WARP)
        self.turns = c.group_units.turns(self.half)
        self.words = [[self.b.local("i32") for _ in range(4)] for _ in range(program.block // 16)]  # weights, in pairs

    def emit(self) -> None:
        c, p = self.panels, self.p
        c.copy_block(self.keys(c.i32(0)), self.key, c.i32(0), p.block)
        (self.queries,) = self.own_left(self.query, 1)
        c.copied()
        self.b.barrier()
        self.count = self.blocks()
        self.e.when(c.test("IEqual", self.half, 1), partial(self._copy, c.i32(1)))
        self.turns.begin()
        (scores,) = self._turn(c.i32(0), [self._scores(c.i32(0))])
        self._weigh(scores, c.i32(0))

        def step(done: Val) -> None:
            number = c.plus(done, 1)
            totals, scores = self._turn(number, [self._totals(done), self._scores(number)])
            c.put(self.totals, 0, totals)
            self._weigh(scores, number)

        last = c.op("ISub", self.count, 1)
        counted(self.e, last, step)
        (totals,) = self._turn(self.count, [self._totals(last)])
        c.put(self.totals, 0, totals)
        self.turns.end()
        self.finish()

    def _turn(self, number: Val, chains: Sequence[ProductChain]) -> list[Sums]:
        c = self.panels
        c.copied()
        self.turns.take()
        found = c.products(chains)
        self.turns.pass_on()
        self._copy(c.plus(c.plus(number, 1), self.half))
        return found

    def _scores(self, number: Val) -> ProductChain:
        return self.panels.scores(self.queries, self.keys(number), self.p.block)

    def _totals(self, number: Val) -> ProductChain:
        left = [[self.b.get(word, "i32") for word in words] for words in self.words]
        return self.panels.added(self.totals, 0, left, self.values(number))

    def _weigh(self, scores: Sums, number: Val) -> None:
        c = self.panels
        (weights,) = self.weighed([scores], c.times(number, self.p.block))
        for variables, words in zip(self.words, c.factors(weights), strict=True):
            for variable, word in zip(variables, words, strict=True):
                self.b.set(variable, word)

    def _copy(self, number: Val) -> None:
        """Begin to copy this warpgroup's half of what that turn needs."""
        c = self.panels
        before = c.op("ISub", number, 1)
        for held, rows, own in ((self.keys, self.key, number), (self.values, self.value, before)):
            self.e.when(c.test("SLessThan", own, self.count), partial(self._copy_half, held(own), rows, own))

    def _copy_half(self, held: HeldRows, rows: MatrixRows, number: Val) -> None:
        c, each = self.panels, self.p.block // 2
        begin = c.times(self.half, each)
        first = c.plus(c.times(number, self.p.block), begin)
        part = BlockPart(first, begin, each, self.p.block)
        c.copy_lines(held, rows, part, (self.member, WARPGROUP * WARP))
