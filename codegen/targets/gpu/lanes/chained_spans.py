"""What the spans of a row before one's own make together, where workgroups that have begun go on whatever others wait
for, and neighbouring invocations exchange registers.

A running total then takes one launch, which reads its terms once: each workgroup makes the total of its span, leaves
that for those behind, and its first warp waits for what it lacks (decoupled look-back: Merrill and Garland, Single-pass
parallel prefix scan, 2016). Workgroups begin in the order of their numbers, which are those of the spans, as NVIDIA's
own scans presume (CUB's `DeviceScan`): nobody waits for what never comes. Numbers given out as workgroups begin need a
counter, for which each waits before it reads a term.

Their sum is in an order that only the shape fixes: of blocks of FAN spans, of as many such blocks, and so on. The
last span of a block leaves the block's total, which is one of the next level. That of the block before one's own may
come late, so its spans are added up once more.

    level 0   a a a a  a a a a  a a a a  a a s       totals of spans; this span waits for six of them
    level 1         A        A        A              of blocks of FAN spans; and for the first of these

An invocation of the warp waits for one total of each level, or two, all of which are on their way together. What is
left there says itself that it is: each half of a number lies in the lower half of an i64, and the upper half, which a
launch before has cleared, is 1. So nothing needs to be in order but the two halves of a word, which are written at
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from loopgrad.codegen.targets.gpu.assembler import WARP, Val, Variable
from loopgrad.codegen.targets.gpu.emit.arrays import narrowed, widened
from loopgrad.codegen.targets.gpu.emit.context import GROUP_TYPE, SIZE, register_type
from loopgrad.codegen.targets.gpu.emit.loops import emit_loop
from loopgrad.codegen.targets.gpu.lanes.exchanged import folded_by_exchange
from loopgrad.codegen.targets.gpu.lanes.partials import GroupPartials, Partial, combined, nothing
from loopgrad.codegen.targets.gpu.lanes.running_plan import RunningTiles
from loopgrad.codegen.targets.gpu.lanes.running_tile import Unit

if TYPE_CHECKING:
    from loopgrad.codegen.targets.gpu.lanes.running_totals import RunningTotals

WORD: Final = 8
HALF: Final = 32  # bits
FAN: Final = WARP


def level_sizes(plan: RunningTiles) -> list[int]:
    """How many totals of a row each level has."""
    sizes, left = [plan.spans], (plan.spans - 1) // FAN - 1
    while left > 0:
        sizes.append(sizes[-1] // FAN)
        left //= FAN
    return sizes


def chain_words(plan: RunningTiles, number_words: int) -> int:
    """Of all levels, where a total takes so many words."""
    return plan.outer * sum(level_sizes(plan)) * number_words


def number_words(parts: int, type: str) -> int:
    """Words of a total of so many parts of a register's type."""
    return parts * max(SIZE[GROUP_TYPE.get(type, type)] * 8 // HALF, 1)


class ChainedSpans:
    """Of one kernel. `block`: the address of the scratch block, which has been cleared."""

    def __init__(self, totals: RunningTotals, block: Val) -> None:
        self.totals, self.e, self.b, self.plan, self.block = totals, totals.e, totals.b, totals.plan, block
        self.type = register_type(totals.running.dtype)
        self.kept = GROUP_TYPE.get(self.type, self.type)
        self.words = number_words(len(totals.kept), self.type)
        self.sizes = level_sizes(self.plan)
        self.found = GroupPartials(self.e, totals.r, 1)
        words = self.b.handed_words
        assert words is not None, "running_plan asks whether workgroups may wait"
        self.memory = words

    def before(self, unit: Unit, whole: Partial) -> Partial:
        """What the spans before this one make, whose own total is `whole`. Leaves what others wait for."""
        e, b, own = self.e, self.b, self.totals.own
        first = b.inst("ULessThan", "bool", own, b.const("i32", WARP))
        e.when(first, lambda: self._by_warp(unit, whole))
        b.barrier()
        return self.found.get(b.const("i32", 0))

    def _by_warp(self, unit: Unit, whole: Partial) -> None:
        e, b, r, fan = self.e, self.b, self.totals.r, self.b.const("i64", FAN)
        self._leave(unit, 0, unit.span, whole)
        block = b.inst("UDiv", "i64", unit.span, fan)
        start = b.inst("IMul", "i64", block, fan)
        some = b.inst("INotEqual", "bool", block, b.const("i64", 0))
        left = e.select(some, b.inst("ISub", "i64", block, b.const("i64", 1)), block)
        behind = b.inst("IMul", "i64", left, fan)
        looks = [self._look(unit, 0, start, unit.span), self._look(unit, 0, behind, start)]
        for level in range(1, len(self.sizes)):
            above = b.inst("UDiv", "i64", left, fan)
            looks.append(self._look(unit, level, b.inst("IMul", "i64", above, fan), left))
            left = above
        found = looks[0].waited()
        self._close(unit, 1, found, whole)
        found = combined(e, r, looks[1].waited(), found)
        for level, look in enumerate(looks[2:], 2):
            found = combined(e, r, look.waited(), found)
            self._close(unit, level, found, whole)
        found = folded_by_exchange(e, r, self.totals.own, found, WARP)
        e.when(self._leads(), lambda: self.found.set(b.const("i32", 0), found))

    def _close(self, unit: Unit, level: int, found: Partial, whole: Partial) -> None:
        """The last span of a block leaves the total of it, where there is such a level."""
        if level >= len(self.sizes):
            return
        e, b, length = self.e, self.b, self.b.const("i64", FAN**level)
        number = b.inst("UDiv", "i64", unit.span, length)
        end = b.inst("IMul", "i64", b.inst("IAdd", "i64", number, b.const("i64", 1)), length)
        last = b.inst("IEqual", "bool", b.inst("IAdd", "i64", unit.span, b.const("i64", 1)), end)

        def close() -> None:
            r = self.totals.r
            before = folded_by_exchange(e, r, self.totals.own, found, WARP)
            self._leave(unit, level, number, combined(e, r, before, whole))

        e.when(last, close)

    def _leads(self) -> Val:
        return self.b.inst("IEqual", "bool", self.totals.own, self.b.const("i32", 0))

    def _leave(self, unit: Unit, level: int, place: Val, total: Partial) -> None:
        """A total, by the first invocation."""
        b = self.b

        def leave() -> None:
            address = self._address(unit, level, place)
            for number, half in enumerate(half for x in total for half in self._halves(x)):
                word = b.inst("BitwiseOr", "i64", half, b.const("i64", 1 << HALF))
                self.memory.store(self.e.offset(address, number * WORD), word)

        self.e.when(self._leads(), leave)

    def _look(self, unit: Unit, level: int, start: Val, end: Val) -> Look:
        """At the invocation's own of a level's totals from `start` to before `end`, if there is one."""
        e, b = self.e, self.b
        own = b.inst("IAdd", "i64", start, e.resize(self.totals.own, "i64", signed=False))
        needed = b.inst("SLessThan", "bool", own, end)
        return Look(self, self._address(unit, level, e.select(needed, own, b.const("i64", 0))), needed)

    def _address(self, unit: Unit, level: int, place: Val) -> Val:
        """Of the total number `place` of a level of the unit's row."""
        e, b = self.e, self.b
        number = b.inst("IAdd", "i64", b.inst("IMul", "i64", unit.group, b.const("i64", self.sizes[level])), place)
        first = self.plan.outer * sum(self.sizes[:level]) * self.words
        return e.offset(e.at(self.block, number, self.words * WORD), first * WORD)

    def _halves(self, x: Val) -> list[Val]:
        """Those of a number as i64, or itself, if it has 32 bits."""
        b = self.b
        x = widened(b, self.type, x)
        bits = x if x.type[0] == "i" else b.inst("Bitcast", f"i{x.type[1:]}", x)
        if bits.type == "i32":
            return [b.inst("UConvert", "i64", bits)]
        low = b.inst("BitwiseAnd", "i64", bits, b.const("i64", (1 << HALF) - 1))
        return [low, b.inst("ShiftRightLogical", "i64", bits, b.const("i64", HALF))]

    def joined(self, words: Sequence[Val]) -> Partial:
        """The total that these words are."""
        b, each = self.b, self.words // len(self.totals.kept)
        numbers = []
        for first in range(0, len(words), each):
            bits = b.inst("UConvert", "i32", words[first])
            if each == 2:
                high = b.inst("ShiftLeftLogical", "i64", words[first + 1], b.const("i64", HALF))
                bits = b.inst("BitwiseOr", "i64", b.inst("UConvert", "i64", bits), high)
            x = bits if self.kept[0] == "i" else b.inst("Bitcast", self.kept, bits)
            numbers.append(narrowed(b, self.type, x))
        return tuple(numbers)


class Look:
    """At one total: the words as they were when it began."""

    def __init__(self, chain: ChainedSpans, address: Val, needed: Val) -> None:
        self.chain, self.b, self.address, self.needed = chain, chain.b, address, needed
        self.words: list[Variable] = [self.b.local("i64") for _ in range(chain.words)]
        self._read()

    def _read(self) -> None:
        for number, word in enumerate(self.words):
            self.b.set(word, self.chain.memory.load(self.chain.e.offset(self.address, number * WORD), "i64"))

    def waited(self) -> Partial:
        """The total, once it is there; nothing, if it isn't needed."""
        b, e = self.b, self.chain.e

        def missing() -> Val:
            filled = b.get(self.words[0], "i64")
            for word in self.words[1:]:
                filled = b.inst("BitwiseAnd", "i64", filled, b.get(word, "i64"))
            return e.both(self.needed, b.inst("ULessThan", "bool", filled, b.const("i64", 1 << HALF)))

        emit_loop(e, missing, self._read)
        found = self.chain.joined([b.get(word, "i64") for word in self.words])
        none = nothing(e, self.chain.totals.r)
        return tuple([e.select(self.needed, x, y) for x, y in zip(found, none, strict=True)])
