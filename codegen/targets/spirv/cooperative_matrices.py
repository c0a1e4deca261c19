"""Matrices of a subgroup: SPV_KHR_cooperative_matrix, with the bfloat16 of SPV_KHR_bfloat16."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.interface import MatrixShape
from loopgrad.codegen.targets.spirv.assembly import NON_PRIVATE, WORKGROUP

if TYPE_CHECKING:
    from loopgrad.codegen.targets.spirv.assembler import SpirvAssembler

LEFT, RIGHT, SUMS = 0, 1, 2  # what a matrix is used for
BY_ROWS, BY_COLUMNS = 0, 1  # how it lies in memory
WORDS: Final = 4  # of a chunk


@dataclass(frozen=True, slots=True)
class CooperativeMatrices:
    """Implements codegen.targets.gpu.assembler.SubgroupMatrices. A chunk is a vector of words, so that drivers know how
    it is aligned; matrices of whatever type are loaded from and stored to arrays of these."""

    b: SpirvAssembler

    def memory(self, chunks: int) -> int:
        return self.b.shared_vectors("i32", WORDS, chunks)

    def _chunk(self, memory: int, index: Val) -> int:
        pointer = self.b.pointer(WORKGROUP, self.b.vector("i32", WORDS))
        return self.b.raw("AccessChain", pointer, memory, index.id)

    def put(self, memory: int, index: Val, words: Sequence[Val]) -> None:
        whole = self.b.raw("CompositeConstruct", self.b.vector("i32", WORDS), *[word.id for word in words])
        self.b.put("Store", self._chunk(memory, index), whole, NON_PRIVATE)

    def put_word(self, memory: int, index: Val, word: Val) -> None:
        """By its number among those of all chunks."""
        self.b.put("Store", self._word(memory, *self._split(index)), word.id, NON_PRIVATE)

    def word(self, memory: int, index: Val) -> Val:
        return self.word_of(memory, *self._split(index))

    def word_of(self, memory: int, chunk: Val, number: Val) -> Val:
        place = self._word(memory, chunk, number)
        return Val(self.b.raw("Load", self.b.type("i32"), place, NON_PRIVATE), "i32")

    def _split(self, index: Val) -> tuple[Val, Val]:
        """Of a word the chunk, and its number there."""
        chunk = self.b.inst("ShiftRightLogical", "i32", index, self.b.const("i32", WORDS.bit_length() - 1))
        return chunk, self.b.inst("BitwiseAnd", "i32", index, self.b.const("i32", WORDS - 1))

    def _word(self, memory: int, chunk: Val, number: Val) -> int:
        pointer = self.b.pointer(WORKGROUP, self.b.type("i32"))
        return self.b.raw("AccessChain", pointer, memory, chunk.id, number.id)

    def words(self, memory: int, index: Val) -> list[Val]:
        whole = self.b.raw("Load", self.b.vector("i32", WORDS), self._chunk(memory, index), NON_PRIVATE)
        kind = self.b.type("i32")
        return [Val(self.b.raw("CompositeExtract", kind, whole, n), "i32") for n in range(WORDS)]

    def kind(self, shape: MatrixShape, use: int) -> int:
        """Of a matrix for that use."""
        b = self.b
        if use == SUMS:
            return b.matrix(b.type("f32"), shape.rows, shape.columns, use)
        rows, columns = (shape.rows, shape.depth) if use == LEFT else (shape.depth, shape.columns)
        if shape.type == "f16":
            return b.matrix(b.type("f16"), rows, columns, use)
        for capability in ("BFloat16TypeKHR", "BFloat16CooperativeMatrixKHR"):
            b.capabilities[capability] = None
        b.extensions["SPV_KHR_bfloat16"] = None
        return b.matrix(b.bfloat(), rows, columns, use)

    def loaded(self, memory: int, index: Val, pitch: int, shape: MatrixShape, use: int) -> int:
        """A matrix for any use, by its rows."""
        layout, stride = self._how(pitch, False)
        kind = self.kind(shape, use)
        return self.b.raw("CooperativeMatrixLoadKHR", kind, self._chunk(memory, index), layout, stride, NON_PRIVATE)

    def bits(self, matrix: int, number: int, shape: MatrixShape, use: int) -> Val:
        """Of a component, as an i32."""
        b = self.b
        if use == SUMS:
            return b.inst("Bitcast", "i32", Val(b.raw("CompositeExtract", b.type("f32"), matrix, number), "f32"))
        element = b.bfloat() if shape.type == "b16" else b.type("f16")
        found = b.raw("CompositeExtract", element, matrix, number)
        return b.inst("UConvert", "i32", Val(b.raw("Bitcast", b.type("i16"), found), "i16"))

    def zeros(self, shape: MatrixShape) -> int:
        kind = self.kind(shape, SUMS)
        sums = self.b.local_of(kind)
        self.b.put("Store", sums, self.b.raw("CompositeConstruct", kind, self.b.const("f32", 0.0).id))
        return sums

    def factor(self, memory: int, index: Val, pitch: int, shape: MatrixShape, left: bool, turned: bool) -> int:
        layout, stride = self._how(pitch, turned)
        kind = self.kind(shape, LEFT if left else RIGHT)
        return self.b.raw("CooperativeMatrixLoadKHR", kind, self._chunk(memory, index), layout, stride, NON_PRIVATE)

    def _how(self, pitch: int, turned: bool) -> tuple[int, int]:
        return self.b.const("i32", BY_COLUMNS if turned else BY_ROWS).id, self.b.const("i32", pitch).id

    def add(self, sums: int, left: int, right: int, shape: MatrixShape) -> None:
        kind = self.kind(shape, SUMS)
        before = self.b.raw("Load", kind, sums)
        self.b.put("Store", sums, self.b.raw("CooperativeMatrixMulAddKHR", kind, left, right, before))

    def store(self, memory: int, index: Val, pitch: int, sums: int, shape: MatrixShape) -> None:
        layout, stride = self._how(pitch, False)
        value = self.b.raw("Load", self.kind(shape, SUMS), sums)
        self.b.put("CooperativeMatrixStoreKHR", self._chunk(memory, index), value, layout, stride, NON_PRIVATE)
