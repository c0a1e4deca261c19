"""Matrices of subgroups for the simulator: every invocation has some of the sums, and reads rows and columns as they
lie in memory of the workgroup; nothing is shared with `spirv/cooperative_matrices.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from loopgrad.codegen.targets.gpu.assembler import WARP, Val, Variable
from loopgrad.codegen.targets.gpu.interface import MatrixShape, SubgroupShapes

if TYPE_CHECKING:
    from tests.simulator.code import HostAssembler

SHAPES = SubgroupShapes(WARP, (MatrixShape("f16", 16, 8, 16), MatrixShape("b16", 8, 16, 8)))
WORDS = 4  # of a chunk


class Factor(NamedTuple):
    """Where it begins (i64), and bytes from one row or column of the product to the next, and from term to term."""

    start: Val
    side: int
    term: int


@dataclass(frozen=True)
class HostMatrices:
    """Implements codegen.targets.gpu.assembler.SubgroupMatrices."""

    b: HostAssembler

    def op(self, name: str, x: Val, y: Val | int) -> Val:
        return self.b.inst(name, x.type, x, self.b.const(x.type, y) if isinstance(y, int) else y)

    def memory(self, chunks: int) -> Variable:
        return self.b.shared("i32", WORDS * chunks)

    def word(self, index: Val, number: int) -> Val:
        return self.op("IAdd", self.op("IMul", index, WORDS), number)

    def put(self, memory: Variable, index: Val, words: Sequence[Val]) -> None:
        for n, word in enumerate(words):
            self.b.shared_set(memory, self.word(index, n), word)

    def words(self, memory: Variable, index: Val) -> list[Val]:
        return [self.b.shared_get(memory, self.word(index, n), "i32") for n in range(WORDS)]

    def zeros(self, shape: MatrixShape) -> list[Variable]:
        sums = [self.b.local("f32") for _ in range(shape.rows * shape.columns // WARP)]
        for variable in sums:
            self.b.set(variable, self.b.const("f32", 0.0))
        return sums

    def place(self, shape: MatrixShape, number: int) -> tuple[Val, Val]:
        """Row and column of one of the invocation's sums."""
        lane = self.op("BitwiseAnd", self.b.local_id(), WARP - 1)
        whole = self.op("IAdd", lane, number * WARP)
        return self.op("UDiv", whole, shape.columns), self.op("BitwiseAnd", whole, shape.columns - 1)

    def factor(self, memory: Variable, index: Val, pitch: int, shape: MatrixShape, left: bool, turned: bool) -> Factor:
        start = self.b.place_of(memory, self.word(index, 0))
        steps = (16 * pitch, 2) if left != turned else (2, 16 * pitch)
        return Factor(start, *steps)

    def add(self, sums: Sequence[Variable], left: Factor, right: Factor, shape: MatrixShape) -> None:
        for number, variable in enumerate(sums):
            row, column = self.place(shape, number)
            starts = [self._further(f, side) for f, side in ((left, row), (right, column))]
            name = f"terms.{shape.type}.{shape.depth}.{left.term}.{right.term}"
            make = partial(self._sum, shape, left.term, right.term)
            (total,) = self.b.outlined(name, [*starts, self.b.get(variable, "f32")], make)
            self.b.set(variable, total)

    def _further(self, factor: Factor, side: Val) -> Val:
        return self.op("IAdd", factor.start, self.b.inst("UConvert", "i64", self.op("IMul", side, factor.side)))

    def _sum(self, shape: MatrixShape, left: int, right: int, given: Sequence[Val]) -> list[Val]:
        x, y, total = given
        for k in range(shape.depth):
            places = [self.op("IAdd", start, k * step) for start, step in ((x, left), (y, right))]
            total = self.b.extended("Fma", "f32", *[self._float(place, shape.type) for place in places], total)
        return [total]

    def _float(self, address: Val, type: str) -> Val:
        bits = self.b.load(address, "i16")
        if type == "f16":
            return self.b.inst("FConvert", "f32", self.b.inst("Bitcast", "f16", bits))
        return self.b.inst("Bitcast", "f32", self.op("ShiftLeftLogical", self.b.inst("UConvert", "i32", bits), 16))

    def store(self, memory: Variable, index: Val, pitch: int, sums: Sequence[Variable], shape: MatrixShape) -> None:
        for number, variable in enumerate(sums):
            row, column = self.place(shape, number)
            at = self.op("IAdd", self.op("IAdd", self.word(index, 0), self.op("IMul", row, WORDS * pitch)), column)
            self.b.shared_set(memory, at, self.b.inst("Bitcast", "i32", self.b.get(variable, "f32")))
