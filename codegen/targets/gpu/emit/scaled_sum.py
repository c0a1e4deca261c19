"""Sums of floats in fixed point below each element's largest term, for tables too large for exact ones (exact_sum).

Two launches: the lanes run once to find the exponent of every element's largest term, by an atomic maximum; then they
run as usual, and add each term to two words of 64 bits: `high_bits` bits from that exponent down, and where a term
has more the same number again. Integers add up alike in any order, so bits don't depend on it. A term loses what is
more than 2 * high_bits below the largest one: 72 bits for 2**24 terms. A support kernel rounds the words to a float.

Terms of 32 bits mostly lie so close to each other that one exponent does for all elements, and nothing is lost. A
launch before finds the largest and the smallest exponent of all, by one atomic a tile, and if their distance allows
that (the sums are `narrow`) the lanes needn't look for every element's own. So bits depend on the terms, never on
their order.

It costs memory of 20 bytes an element. (Demmel and Nguyen, Fast Reproducible Floating-Point Summation, 2013, find a
maximum first for the same end.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import ClassVar, Final

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.codegen.kernel.passes import dce
from loopgrad.codegen.kernel.rebuild import Rebuilder, is_pure
from loopgrad.codegen.targets.gpu.assembler import Val, Variable
from loopgrad.codegen.targets.gpu.emit.accumulator import Accumulator, contributions
from loopgrad.codegen.targets.gpu.emit.context import Accumulation, Emitter
from loopgrad.codegen.targets.gpu.emit.float_parts import FloatFormat, FloatParts, bits_in_32, float_format
from loopgrad.codegen.targets.gpu.emit.instructions import Instructions
from loopgrad.graph.types import DType

NAN, ABOVE, BELOW = 1, 2, 4  # marks of terms that aren't finite, above the exponent in its word
MARKS: Final = 16  # where they begin
NO_SIGN: Final = (1 << 31) - 1
SPARE: Final = 2  # bits of a sum: a sign, and one for exponents that come out otherwise in the second launch
HIGHEST: Final = 1 << 12  # no exponent reaches it
WIDE: Final = 1 << 16  # as a distance: some terms aren't finite
SPARSE: Final = 16  # a table of so many elements a term is cleared where terms are
MORE_BITS: Final = 16  # than a mantissa has must be below the largest term


@dataclass(frozen=True, slots=True)
class ScaledSum(Accumulator):
    """A scratch block of `table_words`: of all terms 1 + the largest exponent, and HIGHEST - the smallest one; of each
    element 1 + the exponent of its largest term (0: there is none) and marks; the sums, all high ones first. `lazy`:
    the first launch clears the sums of elements that it meets; otherwise, where `ranged`, sums may be narrow."""

    blocks: ClassVar[int] = 1

    high_bits: int
    lazy: bool
    ranged: bool

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        self.add_term(e, block, index, x)

    def begun(self, kernel: Kernel, i: Instructions, scratch: Sequence[Val], block: int) -> Accumulation:
        """While code is emitted: knows whether sums are narrow before the first lane."""
        if not self.ranged:
            return self
        b, dtype = i.b, kernel.params[self.param].dtype
        largest = range_word(i, scratch[block], 0)
        held = narrow(i, scratch[block], self.high_bits, dtype)
        one, zero = b.const("i32", 1), b.const("i32", 0)
        base = b.inst("ISub", "i32", largest, b.const("i32", self.high_bits - float_format(dtype).mantissa - 1))
        lowest = i.select(b.inst("SLessThan", "bool", base, one), one, base)
        count = b.inst("IAdd", "i32", b.inst("ISub", "i32", largest, lowest), one)
        return HeldSum(self, held, largest, base, lowest, i.select(held, count, zero))

    def add_term(self, e: Emitter, block: int, index: Val, x: Val, common: tuple[Val, Val] | None = None) -> None:
        """`common`: whether sums are narrow, and 1 + the exponent that they then have."""
        described = e.kernel.params[self.param]
        parts = FloatParts(e, described.dtype, x)
        exponent, sums = places(e, block, index, described.size)

        def add_parts() -> None:
            places = sums, e.offset(sums, 8 * described.size)
            for place, part in zip(places, self.cut(e, parts, self.largest(e, exponent, common)), strict=True):
                e.when(_nonzero(e, part), partial(self._add, e, place, part, parts.negative))

        def mark() -> None:
            word = parts.special(e, NAN << MARKS, ABOVE << MARKS, BELOW << MARKS)
            e.b.atomic("AtomicOr", exponent, e.resize(word, "i32"))

        e.one_of(parts.finite, lambda: e.when(_nonzero(e, parts.mantissa), add_parts), mark)

    def way(self, kernel: Kernel) -> str:
        return f"fixed point, {2 * self.high_bits} bits from the largest term down"

    @staticmethod
    def _add(e: Emitter, place: Val, part: Val, negative: Val) -> None:
        minus = e.b.inst("ISub", "i64", e.b.const("i64", 0), part)
        e.b.atomic("AtomicIAdd", place, e.select(negative, minus, part))

    @staticmethod
    def largest(e: Emitter, exponent: Val, common: tuple[Val, Val] | None) -> Val:
        """1 + the exponent from which on an element's terms are added; `exponent` is the address of its own."""
        mask = e.b.const("i32", (1 << MARKS) - 1)

        def own() -> tuple[Val, ...]:
            return (e.b.inst("BitwiseAnd", "i32", e.b.load(exponent, "i32"), mask),)

        if common is None:
            return own()[0]
        (found,) = e.choose(common[0], lambda: common[1:], own)
        return found

    def cut(self, e: Emitter, parts: FloatParts, largest: Val) -> tuple[Val, Val]:
        """The mantissa's bits that go to the high and to the low sum."""
        b, high = e.b, self.high_bits
        bits = float_format(e.kernel.params[self.param].dtype).mantissa + 1
        below = b.inst("ISub", "i32", largest, e.resize(parts.shift, "i32"))  # 1 for the largest
        down = b.inst("IAdd", "i32", _at_least(e, below, 0), b.const("i32", bits - high - 1))
        right, left = (_shift(e, v) for v in (down, b.inst("ISub", "i32", b.const("i32", 0), down)))
        upper = b.inst("ShiftLeftLogical", "i64", b.inst("ShiftRightLogical", "i64", parts.mantissa, right), left)
        one = b.const("i64", 1)
        mask = b.inst("ISub", "i64", b.inst("ShiftLeftLogical", "i64", one, right), one)
        rest = b.inst("BitwiseAnd", "i64", parts.mantissa, mask)
        beyond = b.inst("ISub", "i32", down, b.const("i32", high))
        right, left = (_shift(e, v) for v in (beyond, b.inst("ISub", "i32", b.const("i32", 0), beyond)))
        lower = b.inst("ShiftRightLogical", "i64", b.inst("ShiftLeftLogical", "i64", rest, left), right)
        return upper, lower


def table_words(size: int, cleared: bool = False) -> int:
    """Of 64 bits: of a table of so many elements, or those before its sums."""
    return 1 + -(-size // 2) + (0 if cleared else 2 * size)


def places(e: Emitter, block: int, index: Val, size: int) -> tuple[Val, Val]:
    """The addresses of an element's exponent and of its high sum."""
    words = e.table.scratch[block]
    return e.at(e.offset(words, 8), index, 4), e.at(e.offset(words, 8 * table_words(size, cleared=True)), index, 8)


def distance(high_bits: int, dtype: DType) -> int:
    """What the two words of all terms make together, at most, where sums are narrow."""
    return 2 * high_bits - (float_format(dtype).mantissa + 1) + HIGHEST + 1


def range_word(i: Instructions, words: Val, number: int) -> Val:
    return i.b.load(i.offset(words, 4 * number), "i32", invariant=True)


def narrow(i: Instructions, words: Val, high_bits: int, dtype: DType) -> Val:
    """Whether no bit of any term is lost where all have the exponent of the largest; `words`: the address of those of
    all terms."""
    sum = i.b.inst("IAdd", "i32", range_word(i, words, 0), range_word(i, words, 1))
    return i.b.inst("SLessThan", "bool", sum, i.b.const("i32", distance(high_bits, dtype) + 1))


@dataclass(frozen=True, slots=True)
class HeldSum:
    """A ScaledSum of 32 bits that may be narrow, while code is emitted; implements Accumulation. Then a term whose
    exponent (its field) is among the `count` ones from `lowest` on has all its bits in the high sum, where they begin
    at the field's distance from `base`: nearly all terms, for which little is to be done."""

    sums: ScaledSum
    narrow: Val
    largest: Val
    base: Val
    lowest: Val
    count: Val

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        b, form = e.b, float_format(e.kernel.params[self.sums.param].dtype)
        bits = bits_in_32(e, x)
        field = b.inst("ShiftRightLogical", "i32", bits, b.const("i32", form.mantissa))
        field = b.inst("BitwiseAnd", "i32", field, b.const("i32", form.exponents - 1))
        near = b.inst("ULessThan", "bool", b.inst("ISub", "i32", field, self.lowest), self.count)

        def add_whole() -> None:
            mantissa = b.inst("BitwiseAnd", "i32", bits, b.const("i32", (1 << form.mantissa) - 1))
            mantissa = b.inst("BitwiseOr", "i32", mantissa, b.const("i32", 1 << form.mantissa))
            minus = b.inst("ISub", "i32", b.const("i32", 0), mantissa)
            negative = b.inst("SLessThan", "bool", bits, b.const("i32", 0))
            up = e.resize(b.inst("ISub", "i32", field, self.base), "i64", signed=False)
            amount = b.inst("ShiftLeftLogical", "i64", e.resize(e.select(negative, minus, mantissa), "i64"), up)
            b.atomic("AtomicIAdd", places(e, block, index, e.kernel.params[self.sums.param].size)[1], amount)

        def add_parts() -> None:
            some = _nonzero(e, b.inst("BitwiseAnd", "i32", bits, b.const("i32", NO_SIGN)))
            e.when(some, lambda: self.sums.add_term(e, block, index, x, (self.narrow, self.largest)))

        e.one_of(near, add_whole, add_parts)


@dataclass(frozen=True, slots=True)
class TermRange(Accumulator):
    """Of the launch that finds between which exponents all terms lie."""

    blocks: ClassVar[int] = 1

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        raise AssertionError("lanes add to what `begun` made")

    def begun(self, kernel: Kernel, i: Instructions, scratch: Sequence[Val], block: int) -> Accumulation:
        return HeldRange(self.param, block, i.b.local("i32"), i.b.local("i32"), i.b.shared("i32", 2))

    def way(self, kernel: Kernel) -> str:
        return "the largest and the smallest exponent"


@dataclass(frozen=True, slots=True)
class HeldRange:
    """A TermRange while code is emitted; implements Accumulation. An invocation keeps the bits of its largest term
    without a sign, and those of its smallest one but zeros, less one, by which zeros come out largest. The words of a
    tile are in memory of the workgroup."""

    param: int
    block: int
    largest: Variable
    smallest: Variable
    words: Variable

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        b = e.b
        size = b.inst("BitwiseAnd", "i32", bits_in_32(e, x), b.const("i32", NO_SIGN))
        less = b.inst("ISub", "i32", size, b.const("i32", 1))
        largest, smallest = b.get(self.largest, "i32"), b.get(self.smallest, "i32")
        b.set(self.largest, e.select(b.inst("ULessThan", "bool", largest, size), size, largest))
        b.set(self.smallest, e.select(b.inst("ULessThan", "bool", less, smallest), less, smallest))

    def clear(self, e: Emitter) -> None:
        """All invocations come here; a barrier follows."""
        e.b.set(self.largest, e.b.const("i32", 0))
        e.b.set(self.smallest, e.b.const("i32", -1))
        self._by_leader(e, lambda number: e.b.shared_set(self.words, number, e.b.const("i32", 0)))

    def flush(self, e: Emitter) -> None:
        """All invocations come here, after a barrier; one follows."""
        b = e.b

        def raise_mine() -> None:
            for number, mine in enumerate(self._found(e)):
                b.shared_atomic("AtomicUMax", self.words, b.const("i32", number), mine)

        def raise_all(number: Val) -> None:
            found = b.shared_get(self.words, number, "i32")
            b.atomic("AtomicUMax", e.at(e.table.scratch[self.block], e.resize(number, "i64"), 4), found)

        e.when(_nonzero(e, b.get(self.largest, "i32")), raise_mine)
        b.barrier()
        self._by_leader(e, raise_all)

    def _found(self, e: Emitter) -> tuple[Val, Val]:
        """1 + the largest exponent of this invocation, and HIGHEST - the smallest one, where it has met a term."""
        b, form = e.b, float_format(e.kernel.params[self.param].dtype)
        largest = b.get(self.largest, "i32")
        smallest = b.inst("IAdd", "i32", b.get(self.smallest, "i32"), b.const("i32", 1))
        above, below = (
            _at_least(e, b.inst("ShiftRightLogical", "i32", size, b.const("i32", form.mantissa)), 1)
            for size in (largest, smallest)
        )
        below = b.inst("ISub", "i32", b.const("i32", HIGHEST + 1), below)
        finite = b.inst("ULessThan", "bool", largest, b.const("i32", (form.exponents - 1) << form.mantissa))
        return above, e.select(finite, below, b.const("i32", WIDE))

    @staticmethod
    def _by_leader(e: Emitter, body: Callable[[Val], None]) -> None:
        def both() -> None:
            for number in range(2):
                body(e.b.const("i32", number))

        e.when(e.b.inst("IEqual", "bool", e.b.local_id(), e.b.const("i32", 0)), both)


@dataclass(frozen=True, slots=True)
class LargestTerm(Accumulator):
    """Of the launch that finds each element's largest exponent, and does nothing where sums are narrow."""

    blocks: ClassVar[int] = 1

    sums: ScaledSum

    def idle(self, e: Emitter, block: int) -> Val | None:
        """Whether nothing is to be done, where that may be so."""
        if not self.sums.ranged:
            return None
        return narrow(e, e.table.scratch[block], self.sums.high_bits, e.kernel.params[self.param].dtype)

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        b, described = e.b, e.kernel.params[self.param]
        parts = FloatParts(e, described.dtype, x)
        place, sums = places(e, block, index, described.size)
        mine = e.resize(b.inst("IAdd", "i64", parts.shift, b.const("i64", 1)), "i32")
        # others may raise it meanwhile; it never falls, so who finds it large enough needn't do anything
        known = b.load(place, "i32")

        def clear() -> None:
            for address in (sums, e.offset(sums, 8 * described.size)):
                b.store(address, b.const("i64", 0))

        def enter() -> None:
            b.atomic("AtomicUMax", place, mine)
            if self.sums.lazy:
                e.when(b.inst("IEqual", "bool", known, b.const("i32", 0)), clear)

        term = e.both(parts.finite, _nonzero(e, parts.mantissa))
        e.when(e.both(term, b.inst("ULessThan", "bool", known, mine)), enter)

    def way(self, kernel: Kernel) -> str:
        return "the largest exponents"


def scaled_sum(kernel: Kernel, param: int) -> ScaledSum | None:
    """None where the lanes can't run twice, or a word hasn't enough bits for so many terms."""
    numbers, described = contributions(kernel.body, param), kernel.params[param]
    if numbers is None or kernel.stacks or not runs_twice(kernel, kernel.body):
        return None
    terms, form = numbers * prod(kernel.domain), float_format(described.dtype)
    high = 64 - SPARE - terms.bit_length() - 1
    if not enough(form, high):
        return None
    lazy = terms * SPARSE < described.size
    return ScaledSum(param, high, lazy, not lazy and form.type == "f32")


def enough(form: FloatFormat, high_bits: int) -> bool:
    return 2 * high_bits >= form.mantissa + 1 + MORE_BITS


def runs_twice(kernel: Kernel, block: Block) -> bool:
    """Whether lanes find the same again, at little cost: no loops, nothing read that they write."""
    for op in block.ops:
        if op.blocks and op.opcode != "if":
            return False
        if op.opcode == "load" and kernel.params[op.attrs["param"]].access != "read":
            return False
        if not all(runs_twice(kernel, inner) for inner in op.blocks):
            return False
    return True


def only_terms(kernel: Kernel, param: int) -> Kernel:
    """The kernel without other effects than what it adds to the parameter."""
    bare = replace(kernel, name=f"{kernel.name}_largest", reductions=(), errors=(), order_key=None)
    return dce.run(_OnlyTerms(bare, param).run())


class _OnlyTerms(Rebuilder):
    def __init__(self, kernel: Kernel, param: int) -> None:
        super().__init__(kernel)
        self.param = param

    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        if is_pure(op) or op.blocks or (op.opcode == "accumulate" and op.attrs["param"] == self.param):
            return self.copy(op, operands)
        return ()


def _nonzero(e: Emitter, x: Val) -> Val:
    return e.b.inst("INotEqual", "bool", x, e.b.const(x.type, 0))


def _at_least(e: Emitter, x: Val, least: int) -> Val:
    bound = e.b.const(x.type, least)
    return e.select(e.b.inst("SLessThan", "bool", x, bound), bound, x)


def _shift(e: Emitter, x: Val) -> Val:
    """An i32 as a number of bits by which 64 can be shifted."""
    bounded = e.bound_integer(_at_least(e, x, 0), 63)
    return e.resize(bounded, "i64", signed=False)
