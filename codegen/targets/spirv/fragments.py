"""Matrix units of Vulkan's devices: cooperative matrices of which it is known who has which element.

The extension leaves that to the driver, so a probe asks (`runtime/vulkan/fragments.py`): where matrices lie as
`MatrixUnits` has them, an invocation's numbers are the components of its part, in some order. What was loaded or made
as a matrix goes into products as it is; what was computed is put together component by component, which is nothing
where components are registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES, WARP, Val, When
from loopgrad.codegen.targets.gpu.emit.context import SIZE
from loopgrad.codegen.targets.gpu.interface import MatrixShape
from loopgrad.codegen.targets.spirv.cooperative_matrices import LEFT, RIGHT, SUMS, WORDS, CooperativeMatrices
from loopgrad.codegen.targets.spirv.features import UNIT

if TYPE_CHECKING:
    from loopgrad.codegen.targets.spirv.assembler import SpirvAssembler

PAIR: Final = 2  # numbers of a word
ITEM: Final = 2  # bytes of a number


def unit_shape(type: str) -> MatrixShape:
    return MatrixShape(type, UNIT, UNIT, UNIT)


class LoadedWord(NamedTuple):
    """A word of a matrix that was loaded: products take it, and nothing else does."""

    matrix: int
    number: int


class LoadedChunk(NamedTuple):
    """Words that were loaded, and the chunk of memory of the workgroup that they are for; of a single one its place
    among all words."""

    array: int
    place: Val
    words: Sequence[Val]


class KeptWords(NamedTuple):
    """The same in variables: the place, then the words."""

    array: int
    variables: Sequence[int]


class BegunCopies(NamedTuple):
    """Copies that were begun in a region of control flow, and whether they are `there`."""

    region: tuple[int, ...]
    copies: Sequence[LoadedChunk | KeptWords]
    there: Val | None = None
    when: When | None = None


class CopyingBranch(NamedTuple):
    """What is loaded in a branch."""

    region: tuple[int, ...]
    copies: list[KeptWords]


@dataclass(slots=True)
class FragmentUnits:
    """Implements codegen.targets.gpu.assembler.MatrixUnits for factors of 16 bits. Copies are loads whose words are
    stored when they are waited for, at the latest at the end of the region of control flow where they were begun."""

    b: SpirvAssembler
    _sums: dict[tuple[int, ...], int] = field(default_factory=dict)  # of a matrix its numbers -> the matrix
    _factors: dict[tuple[int, ...], int] = field(default_factory=dict)  # of a block, factors made of words
    _begun: list[BegunCopies] = field(default_factory=list)
    _branch: CopyingBranch | None = None

    def memory(self, type: str, count: int) -> int:
        return self.b.shared_vectors("i32", VECTOR_BYTES // 4, -(-count * SIZE[type] // VECTOR_BYTES))

    def put(self, array: int, index: Val, word: Val) -> None:
        CooperativeMatrices(self.b).put_word(array, index, word)

    def words_at(self, array: int, index: Val, count: int) -> list[Val]:
        matrices, b = CooperativeMatrices(self.b), self.b
        if count == WORDS:
            return matrices.words(array, b.inst("ShiftRightLogical", "i32", index, b.const("i32", 2)))
        places = [b.inst("IAdd", "i32", index, b.const("i32", n)) if n else index for n in range(count)]
        return [matrices.word(array, place) for place in places]

    # products

    @property
    def types(self) -> tuple[str, ...]:
        return tuple([order.type for order in self.b.features.fragments])

    def product(self, left: Sequence[Val], right: Sequence[Val], sums: Sequence[Val], type: str) -> list[Val]:
        if len(right) == 2:  # half as many columns as matrices have
            nothing = [self.b.const("i32", 0)] * 2, [self.b.const("f32", 0.0)] * 4
            return self.product(left, [*right, *nothing[0]], [*sums, *nothing[1]], type)[:4]
        matrices, shape = CooperativeMatrices(self.b), unit_shape(type)
        order = self.b.features.order_of(type)
        kind = matrices.kind(shape, SUMS)
        factors = [
            self._factor(words, matrices.kind(shape, use), type, places)
            for words, use, places in ((left, LEFT, order.left), (right, RIGHT, order.right))
        ]
        made = self.b.raw("CooperativeMatrixMulAddKHR", kind, *factors, self._initial(sums, kind, order.sums))
        f32 = self.b.type("f32")
        found = [Val(self.b.raw("CompositeExtract", f32, made, place), "f32") for place in order.sums]
        self._sums[tuple([x.id for x in found])] = made
        return found

    def _factor(self, words: Sequence[Val], kind: int, type: str, places: Sequence[int]) -> int:
        parts = [word.id for word in words]
        if all(isinstance(part, LoadedWord) for part in parts):
            assert {part.matrix for part in parts} == {parts[0].matrix}, "words of several matrices"
            return int(parts[0].matrix)
        key = (self.b.label, kind, *parts)
        if key not in self._factors:
            self._factors[key] = self._together(kind, self._numbers(words, type), places)
        return self._factors[key]

    def _numbers(self, words: Sequence[Val], type: str) -> list[int]:
        element = self._element(type)
        pair = self.b.vector_of(element, PAIR)
        found = []
        for word in words:
            both = self.b.raw("Bitcast", pair, word.id)
            found += [self.b.raw("CompositeExtract", element, both, half) for half in range(PAIR)]
        return found

    def _element(self, type: str) -> int:
        return self.b.bfloat() if type == "b16" else self.b.type("f16")

    def _initial(self, sums: Sequence[Val], kind: int, places: Sequence[int]) -> int:
        numbers = tuple([x.id for x in sums])
        known = self._sums.get(numbers)
        if known is not None:
            return known
        if all(number in self.b.zeros for number in numbers):
            return self.b.raw("CompositeConstruct", kind, numbers[0])
        return self._together(kind, numbers, places)

    def _together(self, kind: int, numbers: Sequence[int], places: Sequence[int]) -> int:
        whole = self.b.raw("CompositeConstruct", kind, numbers[0])
        for number, place in zip(numbers, places, strict=True):
            whole = self.b.raw("CompositeInsert", kind, number, whole, place)
        return whole

    def blocks(
        self, array: int, first: Val, pitch: int, type: str, right: bool, turned: bool
    ) -> Callable[[int], list[Val]]:
        if type == "f32":
            return self._float_blocks(array, first, pitch, right)
        matrices, shape, each = CooperativeMatrices(self.b), unit_shape(type), VECTOR_BYTES // ITEM
        begin = self.b.inst("ShiftRightLogical", "i32", first, self.b.const("i32", each.bit_length() - 1))

        def words(further: int) -> list[Val]:
            place = self._op("IAdd", begin, further // each)
            matrix = matrices.factor(array, place, pitch // each, shape, not right, turned != right)
            return [Val(LoadedWord(matrix, n), "i32") for n in range(4)]

        return words

    def _float_blocks(self, array: int, first: Val, pitch: int, right: bool) -> Callable[[int], list[Val]]:
        """Of words, which invocations load one by one: that of invocation l is number l % 4 of a chunk."""
        matrices = CooperativeMatrices(self.b)
        lane = self._op("BitwiseAnd", self.b.local_id(), WARP - 1)
        own, line = self._op("BitwiseAnd", lane, WORDS - 1), self._op("ShiftRightLogical", lane, 2)
        begin = self._op("ShiftRightLogical", first, 2)
        begin = self._op("IAdd", begin, self._op("IMul", line, pitch // WORDS))

        def words(further: int) -> list[Val]:
            found = []
            for number in range(4):
                below, beside = divmod(number, 2) if right else divmod(number, 2)[::-1]
                chunk = self._op("IAdd", begin, (further + 8 * below * pitch) // WORDS + beside)
                found.append(matrices.word_of(array, chunk, own))
            return found

        return words

    def _op(self, name: str, x: Val, y: Val | int) -> Val:
        return self.b.inst(name, "i32", x, self.b.const("i32", y) if isinstance(y, int) else y)

    # numbers

    def pair(self, low: Val, high: Val, type: str) -> Val:
        if type == "b16":
            return self._op("BitwiseOr", self._op("ShiftRightLogical", self._bfloat(low), 16), self._bfloat(high))
        element = self._element(type)
        halves = [self.b.raw("FConvert", element, x.id) for x in (low, high)]
        both = self.b.raw("CompositeConstruct", self.b.vector_of(element, PAIR), *halves)
        return Val(self.b.raw("Bitcast", self.b.type("i32"), both), "i32")

    def _bfloat(self, x: Val) -> Val:
        """The bits of the nearest one, the lower half 0. (NVIDIA's driver 580 cuts off what FConvert should round.)"""
        bits = self.b.inst("Bitcast", "i32", x)
        odd = self._op("BitwiseAnd", self._op("ShiftRightLogical", bits, 16), 1)
        near = self._op("IAdd", self._op("IAdd", bits, 0x7FFF), odd)
        nan = self._op("BitwiseOr", bits, 1 << 22)
        whole = self.b.inst("Select", "i32", self.b.inst("IsNan", "bool", x), nan, near)
        return self._op("BitwiseAnd", whole, -1 << 16)

    def larger(self, x: Val, y: Val) -> Val:
        return self.b.extended("NMax", "f32", x, y)

    def larger_integer(self, x: Val, y: Val) -> Val:
        return self.b.extended("SMax", "i32", x, y)

    def power(self, x: Val) -> Val:
        return self.b.extended("Exp2", "f32", x)

    def logarithm(self, x: Val) -> Val:
        return self.b.extended("Log2", "f32", x)

    # memory of the workgroup

    def copy(self, array: int, index: Val, type: str, source: Val, valid: Val, bytes: int = VECTOR_BYTES) -> None:
        count = bytes // SIZE["i32"]
        words = self.b.load_vector(source, "i32", count) if count > 1 else [self.b.load(source, "i32")]
        if valid != self.b.const("bool", True):
            words = [self.b.inst("Select", "i32", valid, word, self.b.const("i32", 0)) for word in words]
        each = bytes // SIZE[type]
        place = self._op("ShiftRightLogical", index, each.bit_length() - 1) if each > 1 else index
        region = tuple(self.b.open_blocks)
        if self._branch is None or self._branch.region != region:
            self._begun.append(BegunCopies(region, [LoadedChunk(array, place, words)]))
            return
        kept = [self.b.local("i32") for _ in range(len(words) + 1)]
        for variable, value in zip(kept, (place, *words), strict=True):
            self.b.set(variable, value)
        self._branch.copies.append(KeptWords(array, kept))

    def copies(self, there: Val, begin: Callable[[], None], when: When) -> None:
        """What a branch loads waits in variables, until another one stores it."""
        kept: list[KeptWords] = []

        def branch() -> None:
            self._branch = CopyingBranch(tuple(self.b.open_blocks), kept)
            begin()
            self._branch = None

        when(there, branch)
        if kept:
            self._begun.append(BegunCopies(tuple(self.b.open_blocks), kept, there, when))

    def copied(self) -> None:
        self.leaving()
        assert not self._begun, "copies that were begun where they may not be waited for"

    def leaving(self) -> None:
        """Store what was begun in the innermost region of control flow, whose values aren't known outside."""
        region = tuple(self.b.open_blocks)
        begun = [one for one in self._begun if one.region == region]
        self._begun = [one for one in self._begun if one.region != region]
        for one in begun:
            if one.when is None or one.there is None:
                self._store(one.copies)
            else:
                one.when(one.there, partial(self._store, one.copies))

    def _store(self, copies: Sequence[LoadedChunk | KeptWords]) -> None:
        for copy in copies:
            if isinstance(copy, KeptWords):
                place, *words = [self.b.get(variable, "i32") for variable in copy.variables]
                copy = LoadedChunk(copy.array, place, words)
            if len(copy.words) > 1:
                CooperativeMatrices(self.b).put(*copy)
            else:
                self.put(copy.array, copy.place, copy.words[0])
