"""Matrix units for the simulator: what a warp has in registers meets in memory of the workgroup, between barriers.

Each of these is what PTX says of its instruction, element by element; nothing is shared with `nvptx/matrix_units.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES, WARP, Val, Variable, When

if TYPE_CHECKING:
    from tests.simulator.code import HostAssembler


class HostUnits:
    """Implements codegen.targets.gpu.assembler.MatrixUnits."""

    types = ("b16", "f16", "tf32")

    def __init__(self, b: HostAssembler) -> None:
        self.b = b
        self.words = b.shared("i32", 8 * b.group)  # eight of each invocation

    def i32(self, value: int) -> Val:
        return self.b.const("i32", value)

    def op(self, name: str, x: Val, y: Val | int) -> Val:
        return self.b.inst(name, "i32", x, self.i32(y) if isinstance(y, int) else y)

    @property
    def lane(self) -> Val:
        return self.op("BitwiseAnd", self.b.local_id(), WARP - 1)

    @property
    def first(self) -> Val:
        """Of the warp's invocations."""
        return self.op("ISub", self.b.local_id(), self.lane)

    def cell(self, invocation: Val, word: Val | int) -> Val:
        place = self.op("IMul", self.op("IAdd", self.first, invocation), 8)
        return self.op("IAdd", place, word)

    def shown(self, words: Sequence[Val]) -> None:
        """To the others, once they have read what was there."""
        self.b.barrier()
        for n, word in enumerate(words):
            self.b.shared_set(self.words, self.cell(self.lane, n), word)
        self.b.barrier()

    def seen(self, invocation: Val, word: Val | int) -> Val:
        return self.b.shared_get(self.words, self.cell(invocation, word), "i32")

    def number(self, pair: Val, half: int, type: str) -> Val:
        """One of a pair as an f32; of 32 bits those that are read."""
        if type == "tf32":
            return self.b.inst("Bitcast", "f32", self.op("BitwiseAnd", pair, -1 << 13))
        bits = self.op("ShiftRightLogical", pair, 16 * half)
        if type == "b16":
            return self.b.inst("Bitcast", "f32", self.op("ShiftLeftLogical", bits, 16))
        narrow = self.b.inst("Bitcast", "f16", self.b.inst("UConvert", "i16", bits))
        return self.b.inst("FConvert", "f32", narrow)

    def product(self, left: Sequence[Val], right: Sequence[Val], sums: Sequence[Val], type: str) -> list[Val]:
        if len(right) > 2:
            return [*self.product(left, right[:2], sums[:4], type), *self.product(left, right[2:], sums[4:], type)]
        self.shown([*left, *right])
        start = self.b.place_of(self.words, self.cell(self.i32(0), 0))
        return [self._own(type, i, start, total) for i, total in enumerate(sums)]

    def _own(self, type: str, i: int, start: Val, total: Val) -> Val:
        """One of the sums. Each has a function of its own: of several floats some would come back in x87's registers,
        which LLVM 22 moves to those of AVX-512 by instructions of processors that nobody has."""
        (found,) = self.b.outlined(f"product.{type}.{i}", [start, self.lane, total], partial(self._sum, type, i))
        return found

    def _sum(self, type: str, i: int, given: Sequence[Val]) -> list[Val]:
        """As code for it is long, it is a function: of where the warp's words are, the lane and the sum."""
        start, lane, total = given
        row, quarter = self.op("UDiv", lane, 4), self.op("BitwiseAnd", lane, 3)
        column = self.op("IAdd", self.op("IMul", quarter, 2), i % 2)

        def word(invocation: Val, number: int) -> Val:
            place = self.op("IAdd", self.op("IMul", invocation, 8), number)
            wide = self.b.inst("UConvert", "i64", self.op("IMul", place, 4))
            return self.b.load(self.b.inst("IAdd", "i64", start, wide), "i32")

        together = 1 if type == "tf32" else 2  # numbers in a word
        for k in range(8 * together):
            whole, part = divmod(k, together)
            mine = word(self.op("IAdd", self.op("IMul", row, 4), whole % 4), i // 2 + 2 * (whole // 4))
            other = word(self.op("IAdd", self.op("IMul", column, 4), whole % 4), 4 + whole // 4)
            total = self.b.extended("Fma", "f32", *[self.number(pair, part, type) for pair in (mine, other)], total)
        return [total]

    def memory(self, type: str, count: int) -> Variable:
        return self.b.shared(type, count)

    def put(self, array: Variable, index: Val, word: Val) -> None:
        self.b.shared_set(array, index, word)

    def words_at(self, array: Variable, index: Val, count: int) -> list[Val]:
        places = [self.op("IAdd", index, n) if n else index for n in range(count)]
        return [self.b.shared_get(array, place, "i32") for place in places]

    def blocks(
        self, array: Variable, first: Val, pitch: int, type: str, right: bool, turned: bool
    ) -> Callable[[int], list[Val]]:
        """As arrays have them: numbers are of 16 bits, and one of 32 is two."""
        each = 2 if type in ("tf32", "f32") else 1

        def words(further: int) -> list[Val]:
            start = self.op("IMul", self.op("IAdd", first, further), each)
            return [self._word(array, start, pitch * each, right, turned, number) for number in range(4)]

        return words

    def _word(self, array: Variable, start: Val, pitch: int, right: bool, turned: bool, number: int) -> Val:
        """Number `number` of four: of rows (of right factors: columns) and terms."""
        row, quarter = self.op("UDiv", self.lane, 4), self.op("BitwiseAnd", self.lane, 3)
        side, term = (number // 2, number % 2) if right else (number % 2, number // 2)
        halves = []
        for n in (0, 1):
            place = (self.op("IAdd", row, 8 * side), self.op("IAdd", self.op("IMul", quarter, 2), 8 * term + n))
            line, column = reversed(place) if turned else place
            at = self.op("IAdd", start, self.op("IAdd", self.op("IMul", line, pitch), column))
            value = self.b.shared_get(array, at, "i16")
            halves.append(self.op("ShiftLeftLogical", self.b.inst("UConvert", "i32", value), 16 * n))
        return self.op("BitwiseOr", *halves)

    def halves(self, index: Val, type: str) -> Val:
        """The number of an element among elements of 16 bits."""
        return self.op("IMul", index, 2) if type == "i32" else index

    def pair(self, low: Val, high: Val, type: str) -> Val:
        bits = [self._rounded(x, type) for x in (low, high)]
        return self.op("BitwiseOr", bits[0], self.op("ShiftLeftLogical", bits[1], 16))

    def _rounded(self, x: Val, type: str) -> Val:
        """The bits of 16."""
        if type == "f16":
            narrow = self.b.inst("Bitcast", "i16", self.b.inst("FConvert", "f16", x))
            return self.b.inst("UConvert", "i32", narrow)
        bits = self.b.inst("Bitcast", "i32", x)
        odd = self.op("BitwiseAnd", self.op("ShiftRightLogical", bits, 16), 1)
        near = self.op("ShiftRightLogical", self.op("IAdd", self.op("IAdd", bits, 0x7FFF), odd), 16)
        nan = self.b.inst("IsNan", "bool", x)
        return self.b.inst("Select", "i32", nan, self.i32(0x7FC0), near)

    def across(self, x: Val, distance: int) -> Val:
        self.shown([self.b.inst("Bitcast", "i32", x)])
        return self.b.inst("Bitcast", "f32", self.seen(self.op("BitwiseXor", self.lane, distance), 0))

    def behind(self, x: Val, distance: int) -> Val:
        self.shown([self.b.inst("Bitcast", "i32", x)])
        enough = self.b.inst("UGreaterThanEqual", "bool", self.lane, self.i32(distance))
        place = self.b.inst("Select", "i32", enough, self.op("ISub", self.lane, distance), self.lane)
        return self.b.inst("Bitcast", "f32", self.seen(place, 0))

    def larger_integer(self, x: Val, y: Val) -> Val:
        return self.b.inst("Select", "i32", self.b.inst("SLessThan", "bool", x, y), y, x)

    def larger(self, x: Val, y: Val) -> Val:
        return self._function("maxnum", x, y)

    def power(self, x: Val) -> Val:
        return self._function("exp2", x)

    def logarithm(self, x: Val) -> Val:
        return self._function("log2", x)

    def _function(self, name: str, *operands: Val) -> Val:
        call: Callable[..., Val] = self.b._call
        return call(name, "f32", *operands)

    def copy(self, array: Variable, index: Val, type: str, source: Val, valid: Val, bytes: int = VECTOR_BYTES) -> None:
        index = self.halves(index, type)
        for n, word in enumerate(self.b.load_vector(source, "i32", bytes // 4)):
            kept = self.b.inst("Select", "i32", valid, word, self.i32(0))
            for half in (0, 1):
                bits = self.b.inst("UConvert", "i16", self.op("ShiftRightLogical", kept, 16 * half))
                self.b.shared_set(array, self.op("IAdd", index, 2 * n + half), bits)

    def copies(self, there: Val, begin: Callable[[], None], when: When) -> None:
        when(there, begin)

    def copied(self) -> None:
        """Everything was copied at once."""
