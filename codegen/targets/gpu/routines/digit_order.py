"""A tile of elements in the registers of a workgroup, put in order digit by digit: stable, and the same every time.

Each invocation holds `each` elements that lie side by side. A digit has four bits. Every invocation counts its
elements of each digit in a column of its own; a sum over these columns, digit by digit and invocation by invocation,
says how many elements come before (Satish, Harris, Garland, Designing efficient sorting algorithms for manycore GPUs,
2009; Merrill and Grimshaw, Revisiting sorting for GPGPU stream architectures, 2010). Elements then change places
through memory of the workgroup. A tile may be several rows, each in some neighbouring invocations, which are put in
order by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import SIZE
from loopgrad.codegen.targets.gpu.routines.group_code import GroupCode, GroupSums

DIGIT: Final = 4  # bits
WORDS: Final = 8  # of an invocation's counters: two digits in each
HALF: Final = 16  # bits of a counter


def tile_bytes(group: int, each: int, type: str) -> int:
    """Memory of the workgroup for one tile of elements of that type."""
    return group * (each + 1) * SIZE[type] + 4 * group * (WORDS + 1) + 8 * group


class DigitOrder:
    """`members`: invocations that hold a row, `each`: elements of an invocation; powers of two. `type`: of elements."""

    def __init__(self, code: GroupCode, members: int, each: int, type: str) -> None:
        self.code, self.members, self.each, self.type = code, members, each, type
        self.elements = code.b.shared(type, code.group * (each + 1))
        self.counters = code.b.shared("i32", code.group * (WORDS + 1))
        self.sums = GroupSums(code, members)
        row, member = code.divided(code.own, members)
        self.row_start = code.times(row, members * each)
        self.column = code.plus(code.times(row, WORDS * members), member)

    # places of elements in memory of the workgroup: those of one invocation begin in different banks

    def place(self, number: Val) -> Val:
        return self.code.plus(number, self.code.divided(number, self.each)[0])

    def held(self) -> list[Val]:
        """Where the elements of this invocation are."""
        first = self.code.times(self.code.own, self.each + 1)
        return [self.code.plus(first, k) for k in range(self.each)]

    def in_turn(self) -> list[Val]:
        """Where elements are that neighbours take in turn: this one those of number own, own + group, ..."""
        first = self.place(self.code.own)
        return [self.code.plus(first, k * (self.code.group + self.code.group // self.each)) for k in range(self.each)]

    def exchanged(self, values: Sequence[Val], to: Sequence[Val], back: Sequence[Val]) -> list[Val]:
        """Put the values there and take others from there. A barrier comes before the next time."""
        b = self.code.b
        wide = [self.code.e.resize(v, self.type, signed=False) for v in values]
        for place, value in zip(to, wide, strict=True):
            b.shared_set(self.elements, place, value)
        b.barrier()
        found = [b.shared_get(self.elements, place, self.type) for place in back]
        return [self.code.e.resize(v, values[0].type, signed=False) for v in found]

    # order

    def places(self, digits: Sequence[Val]) -> list[Val]:
        """Where this invocation's elements go, by their digits (i32)."""
        c, b = self.code, self.code.b
        for number in range(WORDS):
            b.shared_set(self.counters, self._cell(c.i32(number)), c.i32(0))
        counted = []
        for digit in digits:
            cell = self._cell(c.op("BitwiseAnd", digit, WORDS - 1))
            half = c.times(c.op("ShiftRightLogical", digit, WORDS.bit_length() - 1), HALF)
            word = b.shared_get(self.counters, cell, "i32")
            b.shared_set(self.counters, cell, c.plus(word, c.op("ShiftLeftLogical", c.i32(1), half)))
            counted.append((cell, half, self._half(word, half)))
        b.barrier()
        self._add_up()
        b.barrier()
        found = []
        for cell, half, before in counted:
            start = self._half(b.shared_get(self.counters, cell, "i32"), half)
            found.append(self.place(c.plus(self.row_start, c.plus(start, before))))
        return found

    def _cell(self, word: Val) -> Val:
        """Of this invocation: rows, then words, then invocations."""
        number = self.code.plus(self.column, self.code.times(word, self.members))
        return self.code.plus(number, self.code.op("ShiftRightLogical", number, WORDS.bit_length() - 1))

    def _half(self, word: Val, half: Val) -> Val:
        return self.code.op("BitwiseAnd", self.code.op("ShiftRightLogical", word, half), (1 << HALF) - 1)

    def _add_up(self) -> None:
        """Every counter becomes the number of elements of its row that come before: those of lower digits, and those of
        this digit in invocations before. All high digits come after all low ones."""
        c, b = self.code, self.code.b
        first = c.times(c.own, WORDS + 1)
        cells = [c.plus(first, k) for k in range(WORDS)]
        words = [b.shared_get(self.counters, cell, "i32") for cell in cells]
        own = words[0]
        for word in words[1:]:
            own = c.plus(own, word)
        ((before, total),) = self.sums.before([own])
        running = c.plus(before, c.times(total, 1 << HALF))
        for cell, word in zip(cells, words, strict=True):
            b.shared_set(self.counters, cell, running)
            running = c.plus(running, word)
