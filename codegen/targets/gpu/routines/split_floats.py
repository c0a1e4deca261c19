"""Matrices of float32 for matrix units that multiply bfloat16 and no wider numbers: a number is the sum of three of
those, which have 8 bits each, without a rest.

Of the nine products of such parts six are made, the smallest of which is about 2**-16 of the largest; what is left out
is below the last bit of a float32. A product adds up 16 terms: 8 elements in two parts each, in any order if both
factors have the same (Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For
Higher-Precision Computations", 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Final, NamedTuple

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.routines.float_tiles import FloatMatrices, PartSums

UPPER: Final = -1 << 16  # of an f32's bits, those of a bfloat16


class SplitFactor(NamedTuple):
    """Of one factor the words of products: of each pair of parts that meets those of the other one."""

    pairs: tuple[Sequence[Val], ...]


class SplitFloats(FloatMatrices):
    """`full`: products have the digits of float32; otherwise those of two parts."""

    def __init__(self, e: Emitter, full: bool) -> None:
        super().__init__(e, full)
        self.type = "f32"

    def left_factor(self, words: Sequence[Val]) -> SplitFactor:
        """Of two rows, of each the first element and the second: parts 0 and 1, and parts 0 and 2."""
        parts = [self._parts(word) for word in words]
        rows = [[self._pair(x, y) for x, y in zip(parts[row], parts[row + 2], strict=True)] for row in (0, 1)]
        wanted = ((0, 1), (0, 2)) if self.full else ((0, 1),)
        return SplitFactor(tuple([[rows[0][i], rows[1][i], rows[0][j], rows[1][j]] for i, j in wanted]))

    def right_factor(self, words: Sequence[Val]) -> SplitFactor:
        """Of each 8 columns parts 0 and 0, 1 and 1, 2 and 0. The second part 0, which meets zeros, is zero where it is
        infinite."""
        parts = [[*self._parts(word), self._finite(word)] for word in words]
        columns = [zip(*parts[n : n + 2], strict=True) for n in range(0, len(parts), 2)]
        pairs = [[self._pair(x, y) for x, y in column] for column in columns]
        wanted = ((0, -1), (1, 1), (2, 0)) if self.full else ((0, -1), (1, 1))
        return SplitFactor(tuple([[x for own in pairs for x in (own[i], own[j])] for i, j in wanted]))

    right_pair = right_factor

    def pair_product(self, left: Any, pair: Any, sums: Sequence[PartSums]) -> list[PartSums]:
        zeros = [self.zero] * 4
        whole = PartSums(*[[x for own in parts for x in own or zeros] for parts in zip(*sums, strict=True)])
        found = self.product(left, pair, whole)
        return [PartSums(first, rest) for first, rest in zip(*[(x[:4], x[4:]) for x in found if x], strict=True)]

    def _parts(self, word: Val) -> list[Val]:
        """As bits of float32 (i32), of which the upper halves are set alone. An infinite number has no others."""
        x = self.b.inst("Bitcast", "f32", word)
        rest = self.e.select(self._endless(x), self.zero, self.less(x, self._upper(x)))
        found = [self._bits(self._upper(x)), self._bits(self._upper(rest))]
        if self.full:
            found.append(self._bits(self.less(rest, self._upper(rest))))
        return found

    def _finite(self, word: Val) -> Val:
        """Part 0."""
        x = self.b.inst("Bitcast", "f32", word)
        return self.e.select(self._endless(x), self.i32(0), self._bits(self._upper(x)))

    def _endless(self, x: Val) -> Val:
        return self.test("FOrdEqual", self.b.extended("FAbs", "f32", x), self.f32(inf))

    def _bits(self, x: Val) -> Val:
        return self.b.inst("Bitcast", "i32", x)

    def _upper(self, x: Val) -> Val:
        return self.b.inst("Bitcast", "f32", self.op("BitwiseAnd", self._bits(x), UPPER))

    def _pair(self, low: Val, high: Val) -> Val:
        return self.op("BitwiseOr", self.op("ShiftRightLogical", low, 16), high)

    def product(self, left: Any, right: Any, sums: PartSums) -> PartSums:
        first = self.units.product(left.pairs[0], right.pairs[0], sums.first, "b16")
        rest = sums.rest or [self.zero] * len(sums.first)
        for x, y in zip((left.pairs[0], *left.pairs[1:]), right.pairs[1:], strict=True):
            rest = self.units.product(x, y, rest, "b16")
        return PartSums(first, rest)


def float_matrices(e: Emitter, full: bool) -> FloatMatrices:
    """As the target's matrix units multiply."""
    units = e.b.matrix_units
    return (FloatMatrices if units is None or "tf32" in units.types else SplitFloats)(e, full)
