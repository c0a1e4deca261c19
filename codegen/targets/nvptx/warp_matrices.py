"""Matrices of warps, by the instructions of `matrix_units.py`: 16 x 16 sums are two of `mma.sync`'s beside each other.

A factor of 16 x 16 is four parts of 8 x 8, whose rows are the chunks of memory; each invocation says where one of the
32 begins. Its registers lie as `mma.sync` wants them (NVIDIA, Parallel Thread Execution ISA 8.0, section 9.7.13): of
the left one rows 0 and 8 of the first eight terms, then of the others, of the right one terms 0 and 8 of the first
eight columns, then of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from loopgrad.codegen.targets.gpu.assembler import WARP, Val, Variable
from loopgrad.codegen.targets.gpu.interface import MatrixShape, SubgroupShapes
from loopgrad.codegen.targets.nvptx.matrix_units import WarpUnits

if TYPE_CHECKING:
    from loopgrad.codegen.targets.nvptx.assembler import NvptxAssembler

SIDE: Final = 16
PART: Final = 8  # lines, and halves of a chunk
SHAPES: Final = SubgroupShapes(WARP, tuple([MatrixShape(type, SIDE, SIDE, SIDE) for type in ("f16", "b16")]))
WORDS: Final = 4  # of a chunk
SUMS: Final = 4  # of an invocation, of 16 x 8


@dataclass(frozen=True, slots=True)
class WarpMatrices:
    """Implements codegen.targets.gpu.assembler.SubgroupMatrices."""

    b: NvptxAssembler

    def memory(self, chunks: int) -> Variable:
        return self.b.shared("i32", WORDS * chunks)

    def put(self, memory: Variable, index: Val, words: Sequence[Val]) -> None:
        for n, word in enumerate(words):
            self.b.shared_set(memory, self._word(index, n), word)

    def words(self, memory: Variable, index: Val) -> list[Val]:
        return [self.b.shared_get(memory, self._word(index, n), "i32") for n in range(WORDS)]

    def zeros(self, shape: MatrixShape) -> list[Variable]:
        sums = [self.b.local("f32") for _ in range(shape.columns // PART * SUMS)]
        for variable in sums:
            self.b.set(variable, self.b.const("f32", 0.0))
        return sums

    def factor(
        self, memory: Variable, index: Val, pitch: int, shape: MatrixShape, left: bool, turned: bool
    ) -> list[Val]:
        lane = self._lane()
        high, low = self._op("UDiv", lane, SIDE), self._op("BitwiseAnd", lane, SIDE - 1)
        line, chunk = low, high
        if turned:
            second = self._op("UDiv", low, PART)
            line, chunk = self._sum(self._op("BitwiseAnd", low, PART - 1), self._op("IMul", high, PART)), second
        place = self._sum(index, self._sum(self._op("IMul", line, pitch), chunk))
        return WarpUnits(self.b).lines(memory, self._word(place, 0), "i32", left == turned)

    def add(self, sums: Any, left: Sequence[Val], right: Sequence[Val], shape: MatrixShape) -> None:
        for n in range(shape.columns // PART):
            own = sums[n * SUMS : (n + 1) * SUMS]
            found = WarpUnits(self.b).product(
                left, right[2 * n : 2 * n + 2], [self.b.get(variable, "f32") for variable in own], shape.type
            )
            for variable, value in zip(own, found, strict=True):
                self.b.set(variable, value)

    def store(self, memory: Variable, index: Val, pitch: int, sums: Any, shape: MatrixShape) -> None:
        """An invocation has two sums side by side of a row, then of the eighth after it."""
        lane = self._lane()
        row, pair = self._op("UDiv", lane, WORDS), self._op("BitwiseAnd", lane, WORDS - 1)
        own = self._sum(self._op("IMul", row, WORDS * pitch), self._op("IMul", pair, 2))
        for number, variable in enumerate(sums):
            part, place = divmod(number, SUMS)
            further = part * PART + place // 2 * PART * WORDS * pitch + place % 2
            bits = self.b.inst("Bitcast", "i32", self.b.get(variable, "f32"))
            self.b.shared_set(memory, self._sum(self._word(index, further), own), bits)

    def _lane(self) -> Val:
        return self._op("BitwiseAnd", self.b.local_id(), WARP - 1)

    def _word(self, index: Val, number: int) -> Val:
        return self._sum(self._op("IMul", index, WORDS), self.b.const("i32", number))

    def _op(self, name: str, x: Val, y: int) -> Val:
        return self.b.inst(name, "i32", x, self.b.const("i32", y))

    def _sum(self, x: Val, y: Val) -> Val:
        return self.b.inst("IAdd", "i32", x, y)
