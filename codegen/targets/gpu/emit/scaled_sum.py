"""Sums of floats in fixed point below each element's largest term, for tables too large for exact ones (exact_sum).

Two launches: the lanes run once to find the exponent of every element's largest term, by an atomic maximum; then they
add each term to words of 64 bits, its limbs: `bits` bits from that exponent down, and where a term has more the same
number again. Integers add up alike in any order, so bits don't depend on it. A term loses what is more than 2 * bits
below the largest one: 76 bits for 2**24 terms. A support kernel rounds the limbs to a float.

Where nearly every element has terms, lanes first try to do with one exponent for all (window_sum), in the same memory.
It costs 20 bytes an element, of float64 28. (Demmel and Nguyen, Fast Reproducible Floating-Point Summation, 2013, find
a maximum first for the same end.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import ClassVar, Final

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.codegen.kernel.passes import dce
from loopgrad.codegen.kernel.rebuild import Rebuilder, is_pure
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.accumulator import Accumulator, contributions
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.float_parts import FloatFormat, FloatParts, float_format
from loopgrad.codegen.targets.gpu.emit.instructions import Instructions
from loopgrad.graph.types import DType

NAN, ABOVE, BELOW = 1, 2, 4  # marks of terms that aren't finite, above the exponent in its word
MARKS: Final = 16  # where they begin
SPARSE: Final = 8  # a table of so many elements a term is cleared where terms are
MORE_BITS: Final = 16  # than a mantissa has must be below the largest term
LIMBS: Final = 2  # below an element's largest term
HEADER: Final = 2  # words before the exponents: window_sum's


@dataclass(frozen=True, slots=True)
class ScaledSum(Accumulator):
    """A scratch block of `table_words`: HEADER; of each element 1 + the exponent of its largest term (0: there is none)
    and marks; the sums, all first limbs first, of which there are `limbs`. `lazy`: the first launch clears the sums of
    elements that it meets. `repairs`: only where a window was too small."""

    blocks: ClassVar[int] = 1

    bits: int
    limbs: int
    lazy: bool
    repairs: bool = False

    def idle(self, e: Emitter, block: int) -> Val | None:
        return not_failed(e, e.table.scratch[block]) if self.repairs else None

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        described = e.kernel.params[self.param]
        parts = FloatParts(e, described.dtype, x)
        exponent, sums = places(e, block, index, described.size)

        def add_parts() -> None:
            largest = e.b.inst("BitwiseAnd", "i32", e.b.load(exponent, "i32"), e.b.const("i32", (1 << MARKS) - 1))
            # one bit is left for exponents that come out otherwise in the second launch
            above = e.b.inst("ISub", "i32", largest, e.resize(parts.shift, "i32"))
            add_limbs(e, described.dtype, parts, above, self.bits, limb_places(e, sums, described.size, LIMBS))

        def mark() -> None:
            word = parts.special(e, NAN << MARKS, ABOVE << MARKS, BELOW << MARKS)
            e.b.atomic("AtomicOr", exponent, e.resize(word, "i32"))

        e.one_of(parts.finite, lambda: e.when(nonzero(e, parts.mantissa), add_parts), mark)

    def way(self, kernel: Kernel) -> str:
        return f"fixed point, {LIMBS * self.bits} bits from the largest term down"


@dataclass(frozen=True, slots=True)
class LargestTerm(Accumulator):
    """Of the launch that finds each element's largest exponent."""

    blocks: ClassVar[int] = 1

    sums: ScaledSum

    def idle(self, e: Emitter, block: int) -> Val | None:
        return self.sums.idle(e, block)

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        b, described = e.b, e.kernel.params[self.param]
        parts = FloatParts(e, described.dtype, x)
        place, sums = places(e, block, index, described.size)
        mine = e.resize(b.inst("IAdd", "i64", parts.shift, b.const("i64", 1)), "i32")
        # others may raise it meanwhile; it never falls, so who finds it large enough needn't do anything
        known = b.load(place, "i32")

        def clear() -> None:
            for address in limb_places(e, sums, described.size, self.sums.limbs):
                b.store(address, b.const("i64", 0))

        def enter() -> None:
            b.atomic("AtomicUMax", place, mine)
            if self.sums.lazy:
                e.when(b.inst("IEqual", "bool", known, b.const("i32", 0)), clear)

        term = e.both(parts.finite, nonzero(e, parts.mantissa))
        e.when(e.both(term, b.inst("ULessThan", "bool", known, mine)), enter)

    def way(self, kernel: Kernel) -> str:
        return "the largest exponents"


def not_failed(i: Instructions, words: Val) -> Val:
    """Whether nobody has found a window too small; `words`: the address of the block."""
    return i.b.inst("IEqual", "bool", i.b.load(i.offset(words, 4), "i32"), i.b.const("i32", 0))


def add_limbs(e: Emitter, dtype: DType, parts: FloatParts, above: Val, bits: int, limbs: Sequence[Val]) -> None:
    """Adds a finite term to limbs at these addresses, of which the first begins `above` bits (i32) over the term's
    leading one; what is below the last one is lost."""
    b, width = e.b, float_format(dtype).mantissa + 1
    above = at_least(e, above, 0)
    mask = b.const("i64", (1 << bits) - 1)
    for number, place in enumerate(limbs):
        up = b.inst("ISub", "i32", b.const("i32", (number + 1) * bits - width), above)
        down = b.inst("ISub", "i32", b.const("i32", 0), up)
        part = b.inst("ShiftRightLogical", "i64", parts.mantissa, _shift(e, down))
        part = b.inst("BitwiseAnd", "i64", b.inst("ShiftLeftLogical", "i64", part, _shift(e, up)), mask)
        e.when(nonzero(e, part), partial(_add, e, place, part, parts.negative))


def _add(e: Emitter, place: Val, part: Val, negative: Val) -> None:
    minus = e.b.inst("ISub", "i64", e.b.const("i64", 0), part)
    e.b.atomic("AtomicIAdd", place, e.select(negative, minus, part))


def table_words(size: int, limbs: int) -> int:
    """Of 64 bits: of a table of so many elements; without limbs, those before its sums."""
    return HEADER + -(-size // 2) + limbs * size


def places(e: Emitter, block: int, index: Val, size: int) -> tuple[Val, Val]:
    """The addresses of an element's exponent and of its first limb."""
    words = e.table.scratch[block]
    return e.at(e.offset(words, 8 * HEADER), index, 4), e.at(e.offset(words, 8 * table_words(size, 0)), index, 8)


def limb_places(e: Emitter, first: Val, size: int, limbs: int) -> list[Val]:
    return [e.offset(first, 8 * size * k) if k else first for k in range(limbs)]


def limb_bits(terms: int) -> int:
    """Of a term in a limb where so many may meet in it."""
    return 63 - terms.bit_length()


def scaled_sum(kernel: Kernel, param: int) -> ScaledSum | None:
    """None where the lanes can't run twice, or a limb hasn't enough bits for so many terms."""
    numbers, described = contributions(kernel.body, param), kernel.params[param]
    if numbers is None or kernel.stacks or not runs_twice(kernel, kernel.body):
        return None
    terms, form = numbers * prod(kernel.domain), float_format(described.dtype)
    bits = limb_bits(terms)
    return ScaledSum(param, bits, LIMBS, terms * SPARSE < described.size) if enough(form, bits) else None


def enough(form: FloatFormat, bits: int) -> bool:
    return LIMBS * bits >= form.mantissa + 1 + MORE_BITS


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
    bare = replace(kernel, name=f"{kernel.name}_terms", reductions=(), errors=(), order_key=None)
    return dce.run(_OnlyTerms(bare, param).run())


class _OnlyTerms(Rebuilder):
    def __init__(self, kernel: Kernel, param: int) -> None:
        super().__init__(kernel)
        self.param = param

    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        if is_pure(op) or op.blocks or (op.opcode == "accumulate" and op.attrs["param"] == self.param):
            return self.copy(op, operands)
        return ()


def nonzero(e: Emitter, x: Val) -> Val:
    return e.b.inst("INotEqual", "bool", x, e.b.const(x.type, 0))


def at_least(e: Emitter, x: Val, least: int) -> Val:
    bound = e.b.const(x.type, least)
    return e.select(e.b.inst("SLessThan", "bool", x, bound), bound, x)


def _shift(e: Emitter, x: Val) -> Val:
    """An i32 as a number of bits by which 64 can be shifted."""
    bounded = e.bound_integer(at_least(e, x, 0), 63)
    return e.resize(bounded, "i64", signed=False)
