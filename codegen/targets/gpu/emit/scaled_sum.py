"""Sums of floats in fixed point below each element's largest term, for tables too large for exact ones (exact_sum).

Two launches: the lanes run once to find the exponent of every element's largest term, by an atomic maximum; then they
add each term to words of 64 bits, its limbs: `bits` bits from that exponent down, and where a term has more the same
number again. Integers add up alike in any order, so bits don't depend on it. A term loses what is more than 2 * bits
below the largest one: 76 bits for 2**24 terms. A support kernel rounds the limbs to a float.

Lanes first try to do with one exponent for all (window_sum), in the same memory. It costs 20 bytes an element, of
float64 28. Where few elements have terms, all sums are in a hash table, of which neither size nor time depends on how
many elements there are. (Demmel and Nguyen, Fast Reproducible Floating-Point Summation, 2013, find a maximum first for
the same end.)
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
from loopgrad.codegen.targets.gpu.emit.accumulator import Accumulator, contributions, writers
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.float_parts import FloatFormat, FloatParts, float_format
from loopgrad.codegen.targets.gpu.emit.hash_slots import HashSlots, bucket_of, find_slot, slots_for
from loopgrad.codegen.targets.gpu.emit.instructions import Instructions
from loopgrad.codegen.targets.gpu.lanes.analysis import at_random
from loopgrad.graph.types import DType

NAN, ABOVE, BELOW = 1, 2, 4  # marks of terms that aren't finite, above the exponent in its word
MARKS: Final = 16  # where they begin
SPARSE: Final = 8  # a table of so many elements a term has its sums in a hash table
MOST_TERMS: Final = 1 << 28  # of one
FAILED, UNBEGUN = 1, 2  # in the header: a term doesn't fit into the window; the sample doesn't, so nothing was added
MORE_BITS: Final = 16  # than a mantissa has must be below the largest term
LIMBS: Final = 2  # below an element's largest term
WINDOW_LIMBS: Final = {"f32": 2, "f64": 3}
PAIR: Final = 2  # adjacent limbs
MOST_PAIRS: Final = 1 << 20  # of float32: more had better be near each other, where one limb is mostly enough
HEADER: Final = 4  # words before the exponents: window_sum's


@dataclass(frozen=True, slots=True)
class SumTable:
    """The scratch block of `sums` sums. Words of 64 bits: HEADER; of each sum 32 bits, 1 + the exponent of its largest
    term (0: there is none) and marks; its limbs, of which the `adjacent` first ones come first, then all next ones.
    Where there is a `bucket`, the sums are slots of a hash table (hash_slots), whose keys follow: 1 + an element."""

    sums: int
    limbs: int
    adjacent: int
    bucket: int = 0

    @property
    def first_limb(self) -> int:
        """Even, so that adjacent limbs of a sum are in one line."""
        return HEADER + -(-self.sums // 4) * 2

    @property
    def owners(self) -> int:
        return self.first_limb + self.limbs * self.sums

    @property
    def slots(self) -> HashSlots:
        return HashSlots(self.sums, self.owners, self.bucket)

    @property
    def words(self) -> int:
        return self.owners + (self.sums if self.bucket else 0)

    def limb(self, number: int) -> tuple[int, int]:
        """(step, start): sum i has this limb in the word start + step * i."""
        if number < self.adjacent:
            return self.adjacent, self.first_limb + number
        return 1, self.first_limb + number * self.sums


@dataclass(frozen=True, slots=True)
class ScaledSum(Accumulator):
    """Made only where a window was too small."""

    blocks: ClassVar[int] = 1

    bits: int
    table: SumTable

    def idle(self, e: Emitter, block: int) -> Val | None:
        return not_failed(e, e.table.scratch[block])

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        dtype, place = e.kernel.params[self.param].dtype, place_of_sum(e, block, index, self.table)
        parts, exponent = FloatParts(e, dtype, x), exponent_place(e, block, place)

        def add_parts() -> None:
            largest = e.b.inst("BitwiseAnd", "i32", e.b.load(exponent, "i32"), e.b.const("i32", (1 << MARKS) - 1))
            # one bit is left for exponents that come out otherwise in the second launch
            above = e.b.inst("ISub", "i32", largest, e.resize(parts.shift, "i32"))
            amounts = limb_amounts(e, dtype, parts, above, self.bits, LIMBS)
            add_limbs(e, block, place, self.table, amounts)

        def mark() -> None:
            word = parts.special(e, NAN << MARKS, ABOVE << MARKS, BELOW << MARKS)
            e.b.atomic("AtomicOr", exponent, e.resize(word, "i32"))

        e.one_of(parts.finite, lambda: e.when(nonzero(e, parts.mantissa), add_parts), mark)

    def way(self, kernel: Kernel) -> str:
        return f"fixed point, {LIMBS * self.bits} bits from the largest term down"


@dataclass(frozen=True, slots=True)
class LargestTerm(Accumulator):
    """Of the launch that finds each element's largest exponent, and clears its limbs where that is needed."""

    blocks: ClassVar[int] = 1

    sums: ScaledSum

    def idle(self, e: Emitter, block: int) -> Val | None:
        return self.sums.idle(e, block)

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        b, table = e.b, self.sums.table
        parts = FloatParts(e, e.kernel.params[self.param].dtype, x)
        place = place_of_sum(e, block, index, table)
        exponent = exponent_place(e, block, place)
        mine = e.resize(b.inst("IAdd", "i64", parts.shift, b.const("i64", 1)), "i32")
        # others may raise it meanwhile; it never falls, so who finds it large enough needn't do anything
        known = b.load(exponent, "i32")

        def clear() -> None:
            for number in range(table.limbs):
                b.store(limb_place(e, block, place, table, number), b.const("i64", 0))

        def enter() -> None:
            b.atomic("AtomicUMax", exponent, mine)
            first = b.inst("IEqual", "bool", known, b.const("i32", 0))
            state = b.load(e.offset(e.table.scratch[block], 4), "i32", invariant=True)
            e.when(e.both(first, b.inst("IEqual", "bool", state, b.const("i32", FAILED))), clear)

        term = e.both(parts.finite, nonzero(e, parts.mantissa))
        e.when(e.both(term, b.inst("ULessThan", "bool", known, mine)), enter)

    def way(self, kernel: Kernel) -> str:
        return "the largest exponents"


def place_of_sum(e: Emitter, block: int, index: Val, table: SumTable) -> Val:
    """Of an element that has terms: where its sum is among all."""
    return find_slot(e, e.table.scratch[block], table.slots, index) if table.bucket else index


def not_failed(i: Instructions, words: Val) -> Val:
    """Whether nobody has found a window too small; `words`: the address of the block."""
    return i.b.inst("IEqual", "bool", i.b.load(i.offset(words, 4), "i32"), i.b.const("i32", 0))


def limb_amounts(e: Emitter, dtype: DType, parts: FloatParts, above: Val, bits: int, limbs: int) -> list[Val]:
    """What a finite term adds to so many limbs, of which the first begins `above` bits (i32) over the term's leading
    one; what is below the last one is lost."""
    b, width = e.b, float_format(dtype).mantissa + 1
    above, mask, amounts = at_least(e, above, 0), b.const("i64", (1 << bits) - 1), []
    for number in range(limbs):
        up = b.inst("ISub", "i32", b.const("i32", (number + 1) * bits - width), above)
        down = b.inst("ISub", "i32", b.const("i32", 0), up)
        part = b.inst("ShiftRightLogical", "i64", parts.mantissa, _shift(e, down))
        part = b.inst("BitwiseAnd", "i64", b.inst("ShiftLeftLogical", "i64", part, _shift(e, up)), mask)
        amounts.append(e.select(parts.negative, b.inst("ISub", "i64", b.const("i64", 0), part), part))
    return amounts


def add_amount(e: Emitter, limb: Val, amount: Val) -> None:
    """Adds to the limb at this address."""
    e.b.atomic("AtomicIAdd", limb, amount)


def add_limbs(e: Emitter, block: int, place: Val, table: SumTable, amounts: Sequence[Val]) -> None:
    """Adds these to the first limbs of a sum."""
    for number, amount in enumerate(amounts):
        limb = limb_place(e, block, place, table, number)
        e.when(nonzero(e, amount), partial(add_amount, e, limb, amount))


def exponent_place(e: Emitter, block: int, place: Val) -> Val:
    """The address of a sum's exponent."""
    return e.at(e.offset(e.table.scratch[block], 8 * HEADER), place, 4)


def limb_place(e: Emitter, block: int, place: Val, table: SumTable, number: int) -> Val:
    """The address of a sum's limb."""
    step, start = table.limb(number)
    return e.at(e.offset(e.table.scratch[block], 8 * start), place, 8 * step)


def limb_bits(terms: int) -> int:
    """Of a term in a limb where so many may meet in it."""
    return 63 - terms.bit_length()


def scaled_sum(kernel: Kernel, param: int) -> ScaledSum | None:
    """None where lanes can't run twice, or limbs have too few bits for so many terms."""
    numbers, described = contributions(kernel.body, param), kernel.params[param]
    if numbers is None or kernel.stacks or not runs_twice(kernel, kernel.body):
        return None
    terms, form = numbers * prod(kernel.domain), float_format(described.dtype)
    bits = limb_bits(terms)
    return ScaledSum(param, bits, sum_table(kernel, param, terms)) if enough(form, bits) else None


def sum_table(kernel: Kernel, param: int, terms: int) -> SumTable:
    """For the sums of so many terms."""
    sums, type = kernel.params[param].size, float_format(kernel.params[param].dtype).type
    # neighbouring lanes that add to neighbours had better find their first limbs side by side
    random = all(at_random(op.operands[0]) for op in writers(kernel, param))
    limbs, bucket = WINDOW_LIMBS[type], 0
    if terms * SPARSE < sums and terms < MOST_TERMS:
        bucket = bucket_of(0 if random else row_width(kernel, param))
        sums = slots_for(terms, bucket)
    return SumTable(sums, limbs, PAIR if random and (type == "f64" or sums <= MOST_PAIRS) else 1, bucket)


def row_width(kernel: Kernel, param: int) -> int:
    """Of the rows of the parameter to which lanes add that differ in their last number alone; 0 where they add to no
    rows, or to rows of several widths."""

    def width(index: KValue) -> int:
        """Of `row * width + k`, k the last number of the lane, of which there are as many."""
        *_, last = kernel.body.arguments
        op = index.op
        if op is None or op.opcode != "add" or last not in op.operands:
            return 0
        (row,) = [x for x in op.operands if x is not last] or [last]
        factors = row.op.operands if row.op is not None and row.op.opcode == "mul" else ()
        constants = [x.op.attrs["value"] for x in factors if x.op is not None and x.op.opcode == "const"]
        return kernel.domain[-1] if kernel.domain[-1] in constants else 0

    found = {width(op.operands[0]) for op in writers(kernel, param)} if kernel.domain else set()
    return found.pop() if len(found) == 1 else 0


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


def nonzero(e: Instructions, x: Val) -> Val:
    return e.b.inst("INotEqual", "bool", x, e.b.const(x.type, 0))


def at_least(e: Emitter, x: Val, least: int) -> Val:
    bound = e.b.const(x.type, least)
    return e.select(e.b.inst("SLessThan", "bool", x, bound), bound, x)


def _shift(e: Emitter, x: Val) -> Val:
    """An i32 as a number of bits by which 64 can be shifted."""
    bounded = e.bound_integer(at_least(e, x, 0), 63)
    return e.resize(bounded, "i64", signed=False)
