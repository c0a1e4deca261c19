"""Matrices of 16-bit floats for matrix units: a word has two elements of a row, products add up 16."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.routines.matrix_tiles import (
    SIDE,
    Depth,
    HeldRows,
    MatrixCode,
    MatrixRows,
    RowVariables,
    Sums,
)


class NarrowMatrices(MatrixCode):
    """`type`: "b16" or "f16". Sums that are factors again are rounded to it."""

    depth: ClassVar = Depth(2)
    element: ClassVar = "i16"

    def __init__(self, e: Emitter, type: str) -> None:
        super().__init__(e)
        self.type = type
        self.lead = self.column

    def left_factor(self, words: Sequence[Val]) -> Sequence[Val]:
        return words

    right_factor = left_factor

    def begun(self) -> list[Val]:
        return [self.zero] * 4

    def summed(self, sums: list[Val]) -> list[Val]:
        return sums

    def product(self, left: Sequence[Val], right: Sequence[Val], sums: Sequence[Val]) -> list[Val]:
        return self.units.product(left, right, sums, self.type)

    def right_pair(self, words: Sequence[Val]) -> Sequence[Val]:
        return words

    def pair_product(self, left: Sequence[Val], pair: Sequence[Val], sums: Sequence[Any]) -> Sequence[Any]:
        found = self.product(left, pair, [*sums[0], *sums[1]])
        return [found[:4], found[4:]]

    def store_row(self, rows: MatrixRows, row: Val, pairs: Sequence[Sequence[Val]], factor: Val) -> None:
        place = self.plus(self.op("IMul", row, rows.width), self.column)
        for n, (low, high) in enumerate(pairs):
            if 8 * n < rows.width:
                pair = self.units.pair(self.scaled(low, factor), self.scaled(high, factor), self.type)
                self.b.store(self.at(rows.base, self.plus(place, 8 * n), self.depth.bytes), pair)

    def store_floats(self, rows: MatrixRows, row: Val, pairs: Sequence[Sequence[Val]], factor: Val) -> None:
        place = self.plus(self.op("IMul", row, rows.width), self.column)
        for n, pair in enumerate(pairs):
            if 8 * n < rows.width:
                self.b.store_vector(
                    self.at(rows.base, self.plus(place, 8 * n), 4), [self.scaled(x, factor) for x in pair]
                )

    def add_product(self, totals: RowVariables, left: Sequence[Sums], held: HeldRows) -> None:
        words = self.right_blocks(held, turned=True)
        found = [self.taken(totals, tile) for tile in range(len(left))]
        for k in range(len(left[0]) // 2):
            factors = [self._as_factor(sums[2 * k], sums[2 * k + 1]) for sums in left]
            for n in range(held.width // SIDE):
                right = words(k * SIDE * held.pitch + n * SIDE)
                for factor, sums in zip(factors, found, strict=True):
                    sums[2 * n : 2 * n + 2] = self.pair_product(factor, right, sums[2 * n : 2 * n + 2])
        for tile, sums in enumerate(found):
            self.put(totals, tile, sums)

    def _as_factor(self, low: Sequence[Val], high: Sequence[Val]) -> list[Val]:
        """Sums of 16 columns as a left factor."""
        return [self.units.pair(x[i], x[i + 1], self.type) for x in (low, high) for i in (0, 2)]
