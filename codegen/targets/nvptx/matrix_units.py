"""Tensor cores of one warp, and what feeds them: PTX's `mma.sync`, `ldmatrix`, `cp.async` and `shfl.sync`, which all
GPUs have from compute capability 8.0 on (NVIDIA, Parallel Thread Execution ISA 8.0, sections 9.7.8, 9.7.13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES, WARP, Val, Variable, When
from loopgrad.codegen.targets.llvm_rows import TYPE

if TYPE_CHECKING:
    from loopgrad.codegen.targets.nvptx.assembler import NvptxAssembler

SUMS: Final = "{ float, float, float, float }"
WORDS: Final = "{ i32, i32, i32, i32 }"
# type of the factors -> the function, and the type of an i32 to it
PRODUCTS: Final = {
    "b16": ("llvm.nvvm.mma.m16n8k16.row.col.bf16", "i32"),
    "f16": ("llvm.nvvm.mma.m16n8k16.row.col.f32.f32", "<2 x half>"),
    "tf32": ("llvm.nvvm.mma.m16n8k8.row.col.tf32", "i32"),
}
PAIRS: Final = {"b16": "llvm.nvvm.ff2bf16x2.rn", "f16": "llvm.nvvm.ff2f16x2.rn"}
COPIES: Final = {16: "llvm.nvvm.cp.async.cg.shared.global.16.s", 4: "llvm.nvvm.cp.async.ca.shared.global.4.s"}
COPIED: Final = "llvm.nvvm.cp.async.wait.all"


@dataclass(frozen=True, slots=True)
class WarpUnits:
    """Implements codegen.targets.gpu.assembler.MatrixUnits."""

    b: NvptxAssembler
    types = tuple(PRODUCTS)

    def product(self, left: Sequence[Val], right: Sequence[Val], sums: Sequence[Val], type: str) -> list[Val]:
        if len(right) > 2:
            halves = zip((right[:2], right[2:]), (sums[:4], sums[4:]), strict=True)
            return [x for pair, own in halves for x in self.product(left, pair, own, type)]
        function, kind = PRODUCTS[type]
        factors = [f"{kind} {self.b.recast(v.id, 'i32', kind)}" for v in (*left, *right)]
        given = ", ".join([*factors, *[f"float {v.id}" for v in sums]])
        return self._several(SUMS, function, given, "f32")

    def memory(self, type: str, count: int) -> Variable:
        return self.b.shared(type, count)

    def put(self, array: Variable, index: Val, word: Val) -> None:
        self.b.shared_set(array, index, word)

    def words_at(self, array: Variable, index: Val, count: int) -> list[Val]:
        places = [self._op("IAdd", index, n) if n else index for n in range(count)]
        return [self.b.shared_get(array, place, "i32") for place in places]

    def blocks(
        self, array: Variable, first: Val, pitch: int, type: str, right: bool, turned: bool
    ) -> Callable[[int], list[Val]]:
        """Four matrices of eight lines of 16 bytes: invocation 8 m + r gives the place of line r of matrix m."""
        element, chunk = ("i32", 4) if type == "tf32" else ("i16", 8)
        lane = self._op("BitwiseAnd", self.b.local_id(), WARP - 1)
        line, eight = self._op("BitwiseAnd", lane, 7), self._op("ShiftRightLogical", lane, 3)
        low, high = self._op("BitwiseAnd", eight, 1), self._op("ShiftRightLogical", eight, 1)
        below, beside = (high, low) if right != turned else (low, high)
        line = self._op("IAdd", line, self._op("ShiftLeftLogical", below, 3))
        start = self._op("IAdd", self._op("IMul", line, pitch), self._op("IMul", beside, chunk))
        start = self._op("IAdd", start, first)

        def words(further: int) -> list[Val]:
            return self.lines(array, self._op("IAdd", start, further) if further else start, element, turned)

        return words

    def lines(self, array: Variable, index: Val, type: str, turned: bool) -> list[Val]:
        """Words of four matrices of eight lines of 16 bytes, where each invocation gives the place of one line."""
        place, how = self.b.shared_place(array, index, type), ".trans" if turned else ""
        return self._several(WORDS, f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{how}.b16.p3", place, "i32")

    def _op(self, name: str, x: Val, y: Val | int) -> Val:
        return self.b.inst(name, "i32", x, self.b.const("i32", y) if isinstance(y, int) else y)

    def pair(self, low: Val, high: Val, type: str) -> Val:
        kind = f"<2 x {TYPE[type]}>"
        found = self.b.called(PAIRS[type], kind, f"float {high.id}, float {low.id}")
        return Val(self.b.recast(found, kind, "i32"), "i32")

    def larger(self, x: Val, y: Val) -> Val:
        return Val(self.b.called("llvm.maxnum.f32", "float", f"float {x.id}, float {y.id}"), "f32")

    def larger_integer(self, x: Val, y: Val) -> Val:
        return Val(self.b.called("llvm.smax.i32", "i32", f"i32 {x.id}, i32 {y.id}"), "i32")

    def power(self, x: Val) -> Val:
        return Val(self.b.called("llvm.nvvm.ex2.approx.ftz.f", "float", f"float {x.id}"), "f32")

    def logarithm(self, x: Val) -> Val:
        return Val(self.b.called("llvm.nvvm.lg2.approx.ftz.f", "float", f"float {x.id}"), "f32")

    def copy(self, array: Variable, index: Val, type: str, source: Val, valid: Val, bytes: int = VECTOR_BYTES) -> None:
        size = self.b.inst("Select", "i32", valid, self.b.const("i32", bytes), self.b.const("i32", 0))
        given = f"{self.b.shared_place(array, index, type)}, {self.b.place(source)}, i32 {size.id}"
        self.b.called(COPIES[bytes], "void", given)

    def copies(self, there: Val, begin: Callable[[], None], when: When) -> None:
        when(there, begin)

    def copied(self) -> None:
        self.b.called(COPIED, "void", "")

    def _several(self, kind: str, function: str, given: str, type: str) -> list[Val]:
        found = self.b.called(function, kind, given)
        return [self.b.part_of(found, kind, n, type) for n in range(4)]
