"""Tensor cores of four warps: PTX's `wgmma.mma_async` of compute capability 9.0, which reads right factors from memory
of the workgroup (NVIDIA, Parallel Thread Execution ISA 8.0, section 9.7.14).

Registers belong to an instruction until it has been waited for, so all that is under way together is one text, which
ends with the wait; meanwhile other workgroups of the multiprocessor compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from loopgrad.codegen.targets.gpu.assembler import (
    PANEL_BYTES,
    PANEL_ROWS,
    WARP,
    WARPGROUP,
    PanelRows,
    Panels,
    ProductChain,
    Val,
    Variable,
)

if TYPE_CHECKING:
    from loopgrad.codegen.targets.nvptx.assembler import NvptxAssembler

CPU: Final = "sm_90a"
NAME: Final = "wgmma.mma_async"
# type of the factors -> bytes of an element, how many a product adds up, and what instructions call it
FACTORS: Final = {"b16": (2, 16, "bf16"), "f16": (2, 16, "f16"), "tf32": (4, 8, "tf32")}
SHIFT: Final = 4  # places are counted in 16 bytes
ADDRESS: Final = (1 << 18) - 1
PERMUTED: Final = 1 << 62  # chunks of rows of 128 bytes are, by the number of the row
EIGHT_ROWS: Final = PANEL_ROWS * PANEL_BYTES >> SHIFT << 32
FURTHER: Final = 16  # the first bit of what lies between panels
BEGIN: Final = "wgmma.fence.sync.aligned;"
END: Final = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
SEEN: Final = "fence.proxy.async.shared::cta;"
TURNS: Final = 1  # the first of two barriers, behind that of the whole workgroup
BOTH: Final = 2 * WARPGROUP * WARP  # invocations that meet there

Place = tuple[Variable, Val, int]  # an array, where factors begin, and how far their panels are apart


@dataclass(frozen=True, slots=True)
class PtxWarpgroupUnits:
    """Implements codegen.targets.gpu.assembler.WarpgroupUnits."""

    b: NvptxAssembler

    def products(self, chains: Sequence[ProductChain], type: str) -> list[list[Val]]:
        each = [chain.right.columns // 2 for chain in chains]  # sums of an invocation
        firsts, made = [sum(each[:n]) for n in range(len(each))], sum(each)
        sums = [(first + i, v) for first, c in zip(firsts, chains, strict=True) for i, v in enumerate(c.sums or ())]
        lefts = [p.left for c in chains for p in c.products]
        words = [v for left in lefts if not isinstance(left, PanelRows) for v in left]
        rows = [(left.array, left.start, 0) for left in lefts if isinstance(left, PanelRows)]
        places = dict.fromkeys([*rows, *[_place(chain.right) for chain in chains]])
        first = made + len(sums)
        numbers = {place: first + len(words) + n for n, place in enumerate(places)}
        text = " ".join([*self._lines(chains, type, firsts, first, numbers)])
        constraints = ["=f"] * made + [str(n) for n, _ in sums] + ["r"] * len(words) + ["l"] * len(places)
        given = [f"float {v.id}" for _, v in sums] + [f"i32 {v.id}" for v in words]
        given += [f"i64 {self._descriptor(*place, type).id}" for place in places]
        kind = f"{{ {', '.join(['float'] * made)} }}"
        found = self.b.inline(text, ",".join([*constraints, "~{memory}"]), kind, given)
        values = [self.b.part_of(found, kind, n, "f32") for n in range(made)]
        return [values[first : first + n] for first, n in zip(firsts, each, strict=True)]

    def _lines(
        self, chains: Sequence[ProductChain], type: str, firsts: Sequence[int], word: int, places: Mapping[Place, int]
    ) -> Iterator[str]:
        """`firsts`, `word`, `places`: the numbers among the operands of each chain's first sum, of the first word of
        left factors, and of where factors in memory begin."""
        size, depth, name = FACTORS[type]
        yield "{ .reg .pred p, q; .reg .b64 d, e; setp.ne.b32 p, 0, 0; setp.eq.b32 q, 0, 0;"
        yield BEGIN
        for chain, first in zip(chains, firsts, strict=True):
            right = chain.right
            shape = f"{NAME}.sync.aligned.m64n{right.columns}k{depth}.f32.{name}.{name}"
            sums = ", ".join(f"${first + i}" for i in range(right.columns // 2))
            for k, product in enumerate(chain.products):
                rows = product.left if isinstance(product.left, PanelRows) else None
                if rows is None:
                    left = f"{{{', '.join(f'${word + i}' for i in range(len(product.left)))}}}"
                    word += len(product.left)
                else:
                    left = "e"
                    yield f"add.s64 e, ${places[rows.array, rows.start, 0]}, {rows.at * size >> SHIFT};"
                yield f"add.s64 d, ${places[_place(right)]}, {product.at * size >> SHIFT};"
                added = "p" if k == 0 and chain.sums is None else "q"
                turned = (", 0" * (rows is not None) + f", {int(right.turned)}") * (size == 2)
                yield f"{shape} {{{sums}}}, {left}, d, {added}, 1, 1{turned};"
        yield f"{END} }}"

    def _descriptor(self, array: Variable, start: Val, apart: int, type: str) -> Val:
        """Where factors begin, and how they lie: panels `apart`, where they are read across."""
        size = FACTORS[type][0]
        place = self.b.shared_place(array, start, f"i{8 * size}")
        address = Val(self.b.address_number(place), "i64")
        low = self.b.inst("BitwiseAnd", "i64", address, self.b.const("i64", ADDRESS))
        number = self.b.inst("ShiftRightLogical", "i64", low, self.b.const("i64", SHIFT))
        further = apart * size >> SHIFT or 1
        return self.b.inst("BitwiseOr", "i64", number, self.b.const("i64", PERMUTED | EIGHT_ROWS | further << FURTHER))

    def written(self) -> None:
        self.b.inline(SEEN, "~{memory}", "void", [])

    def turns(self, number: Val) -> PtxTurns:
        return PtxTurns(self.b, number)


@dataclass(frozen=True, slots=True)
class PtxTurns:
    """Implements codegen.targets.gpu.assembler.Turns by a barrier for each warpgroup: it waits there for its turn, and
    the other only arrives."""

    b: NvptxAssembler
    number: Val

    def begin(self) -> None:
        self._where(1, f"bar.arrive {TURNS}, {BOTH}")

    def take(self) -> None:
        self.b.inline(f"bar.sync $0, {BOTH};", "r,~{memory}", "void", [f"i32 {self._barrier(self.number).id}"])

    def pass_on(self) -> None:
        other = self.b.inst("BitwiseXor", "i32", self.number, self.b.const("i32", 1))
        self.b.inline(f"bar.arrive $0, {BOTH};", "r,~{memory}", "void", [f"i32 {self._barrier(other).id}"])

    def end(self) -> None:
        self._where(0, f"bar.sync {TURNS}, {BOTH}")

    def _where(self, number: int, what: str) -> None:
        text = f"{{ .reg .pred p; setp.eq.s32 p, $0, {number}; @p {what}; }}"
        self.b.inline(text, "r,~{memory}", "void", [f"i32 {self.number.id}"])

    def _barrier(self, number: Val) -> Val:
        return self.b.inst("IAdd", "i32", number, self.b.const("i32", TURNS))


def _place(right: Panels) -> Place:
    return right.array, right.start, right.apart if right.turned else 0
