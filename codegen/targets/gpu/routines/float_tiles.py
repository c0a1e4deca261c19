"""Matrices of float32 for matrix units, which multiply numbers of 11 bits ("TF32"): a word is an element, products add
up 8.

A number is the sum of two of 11 bits, but for about 2**-23 of it, and of the four products of two such sums the
smallest is left out: three are about as good as one of float32. Matrix units cut off what they add up, so products that
are small are added up apart, sums of a block begin at zero, and what rounds adds them to the totals (Ootomo and Yokota,
"Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance",
2022).

Sums that are factors again are permuted: a product may add up columns in any order, if the other factor's rows are in
the same. So is the result: of up to 32 columns an invocation has those that lie side by side in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, ClassVar, Final, NamedTuple

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.routines.matrix_tiles import (
    Depth,
    HeldRows,
    MatrixCode,
    MatrixRows,
    RowVariables,
    Sums,
)

KEPT: Final = -1 << 13  # of an f32's bits, those that matrix units read
HALF: Final = 1 << 12  # of the last one of them
WIDEST: Final = 4  # times 8 columns, of which an invocation loads those of a row at once


class FactorParts(NamedTuple):
    """Numbers of 11 bits, whose sum factors are; there is no `rest` where one is enough."""

    first: list[Val]
    rest: list[Val] | None


class PartSums(NamedTuple):
    """Sums of the products of the first parts, and of those that are smaller."""

    first: Sequence[Val]
    rest: Sequence[Val] | None


class FloatMatrices(MatrixCode):
    """`full`: products have the digits of float32; otherwise factors have 11 bits."""

    depth: ClassVar = Depth(4)
    element: ClassVar = "i32"

    def __init__(self, e: Emitter, full: bool) -> None:
        super().__init__(e)
        self.full, self.type = full, "tf32"
        self.lead = self.quarter

    def left_factor(self, words: Sequence[Val]) -> Any:
        first = [self._rounded(word) for word in words]
        if not self.full:
            return FactorParts(first, None)
        return FactorParts(first, [self._rest(word, part) for word, part in zip(words, first, strict=True)])

    def right_factor(self, words: Sequence[Val]) -> Any:
        return self.left_factor(words)

    def _rounded(self, word: Val) -> Val:
        """To 11 bits. GPUs' own NaN, whose digits are all ones, would become a zero, which nobody would see beside an
        infinite number of its sum; as an integer it is larger than what it wraps around to, and no other number is.
        (One of all ones with a sign becomes that zero: to look at each number costs attention a fifth of its time.)"""
        near = self.units.larger_integer(self.op("IAdd", word, HALF), word)
        rounded = self.op("BitwiseAnd", near, KEPT)
        if self.full:
            return rounded
        return self.e.select(self.b.inst("IsNan", "bool", self.b.inst("Bitcast", "f32", word)), word, rounded)

    def _rest(self, word: Val, part: Val) -> Val:
        """What is left, of which matrix units read 11 bits; NaN where the word is infinite."""
        left = self.less(*[self.b.inst("Bitcast", "f32", x) for x in (word, part)])
        return self.b.inst("Bitcast", "i32", left)

    def product(self, left: Any, right: Any, sums: PartSums) -> PartSums:
        first = self.units.product(left.first, right.first, sums.first, "tf32")
        if left.rest is None or right.rest is None:
            return PartSums(first, None)
        rest = self.units.product(left.rest, right.first, sums.rest or [self.zero] * 4, "tf32")
        return PartSums(first, self.units.product(left.first, right.rest, rest, "tf32"))

    def begun(self) -> PartSums:
        return PartSums([self.zero] * 4, None)

    def summed(self, sums: PartSums) -> list[Val]:
        return self.completed(sums.first, sums.rest)

    def completed(self, first: Sequence[Val], rest: Sequence[Val] | None) -> list[Val]:
        if rest is None:
            return list(first)
        return [self._whole(x, y) for x, y in zip(first, rest, strict=True)]

    def _whole(self, first: Val, rest: Val) -> Val:
        """An infinite sum is what it is: what is left of infinite factors is NaN."""
        endless = self.test("FOrdEqual", self.b.extended("FAbs", "f32", first), self.f32(inf))
        return self.e.select(endless, first, self.sum(first, rest))

    def add_product(self, totals: RowVariables, left: Sequence[Sums], held: HeldRows) -> None:
        found = [self.taken(totals, tile) for tile in range(len(left))]
        factors = [[self._as_factor(eight) for eight in sums] for sums in left]
        for first, count in _groups(held.width):
            sums = [[self.begun() for _ in range(count)] for _ in left]
            column = self.plus(self.times(self.row, count), first)
            for k in range(len(left[0])):
                lines = [self.plus(self.column, 8 * k + i) for i in (0, 1)]
                words = [self.several(held, self.cell(held, line, column), count) for line in lines]
                rights = self.rights(words)
                for by_tile, own in zip(factors, sums, strict=True):
                    self.add_all(by_tile[k], rights, own)
            for total, own in zip(found, sums, strict=True):
                for n, eight in enumerate(own):
                    place = first // 8 + n
                    total[place] = [self.sum(x, y) for x, y in zip(total[place], self.summed(eight), strict=True)]
        for tile, total in enumerate(found):
            self.put(totals, tile, total)

    def rights(self, words: Sequence[Sequence[Val]]) -> list[Any]:
        """Of the first words of some right factors, and the second ones: pairs of factors, and the last one."""
        both = list(zip(*words, strict=True))
        pairs = [self.right_pair([*both[n], *both[n + 1]]) for n in range(0, len(both) - 1, 2)]
        return [*pairs, *[self.right_factor(pair) for pair in both[2 * len(pairs) :]]]

    def add_all(self, left: Any, rights: Sequence[Any], sums: list[PartSums]) -> None:
        """Products with these, to their sums."""
        for n, right in enumerate(rights):
            if 2 * n + 1 < len(sums):
                sums[2 * n : 2 * n + 2] = self.pair_product(left, right, sums[2 * n : 2 * n + 2])
            else:
                sums[2 * n] = self.product(left, right, sums[2 * n])

    def several(self, held: HeldRows, place: Val, count: int) -> list[Val]:
        return self.units.words_at(held.array, place, count)

    def _as_factor(self, eight: Sequence[Val]) -> Any:
        """Sums of 8 columns as a left factor: of the pairs' first ones, then of the others."""
        return self.left_factor([self.b.inst("Bitcast", "i32", eight[i]) for i in (0, 2, 1, 3)])

    def store_row(self, rows: MatrixRows, row: Val, pairs: Sequence[Sequence[Val]], factor: Val) -> None:
        start = self.op("IMul", row, rows.width)
        for first, count in _groups(self.depth.padded(rows.width)):
            group = pairs[first // 8 : first // 8 + count]
            place = self.plus(self.plus(start, first), self.times(self.column, count))
            values = [self.scaled(pair[i], factor) for i in (0, 1) for pair in group]
            for n in range(0, len(values), 4):
                address = self.at(rows.base, self.plus(place, n), self.depth.bytes)
                self.b.store_vector(address, values[n : n + 4])

    store_floats = store_row


def _groups(width: int) -> Iterator[tuple[int, int]]:
    """The first of some columns that are made together, and how many times 8 there are."""
    first = 0
    while first < width:
        count = WIDEST
        while first + 8 * count > width:
            count //= 2
        yield first, count
        first += 8 * count
