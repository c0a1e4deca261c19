"""Sums of floats in fixed point as wide as the exponents, so that no addition rounds and any order has the same bits.

Kulisch, Computer Arithmetic and Validity, 2nd ed., 8; here with overlapping limbs. A limb is 64 bits and LIMB bits
above the one before, so that a part of a mantissa fits into one limb wherever it lies, and many of them before the limb
is full; where their number isn't bounded, who fills a limb carries into the next. A support kernel turns limbs into a
float, rounded about once. All elements' first limbs come first, then all second ones: neighbours' meet in one line.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import ClassVar, Final

from loopgrad.codegen.kernel.nodes import Kernel, KOp
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.accumulator import Accumulator, contributions
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.float_parts import FLOAT_FORMATS, FloatFormat, FloatParts, float_format
from loopgrad.codegen.targets.gpu.emit.loops import emit_loop
from loopgrad.graph.types import DType

LIMB: Final = 16
SPECIALS: Final = 16  # bits of each count in the word of specials: NaN, infinity, -infinity
FULL: Final = 61  # a limb of more bits carries
MOST_COPIES: Final = 256
PLACES: Final = 1024  # elements and their copies, among which lanes seldom wait for each other
LARGEST_SUMS: Final = 1 << 31  # bytes of exact sums of one parameter


@dataclass(frozen=True, slots=True)
class Format:
    """Of floats in exact sums: a mantissa with its leading one is cut into parts of `part` bits; the lowest bit of the
    lowest limb is worth 2**lowest."""

    float: FloatFormat
    part: int

    @property
    def lowest(self) -> int:
        return self.float.lowest

    @property
    def limbs(self) -> int:
        """One more than parts begin in, for carries."""
        largest = self.float.exponents - 3 + self.float.mantissa // self.part * self.part
        return largest // LIMB + 2

    @property
    def words(self) -> int:
        """Of 64 bits per element: limbs, then the count of specials."""
        return self.limbs + 1

    @property
    def bits(self) -> int:
        """Of the largest part in a limb."""
        return self.part + LIMB - 1


FORMATS: Final = {"f32": Format(FLOAT_FORMATS["f32"], 24), "f64": Format(FLOAT_FORMATS["f64"], 27)}


def exact_format(dtype: DType) -> Format:
    """16-bit floats are summed as f32."""
    return FORMATS[float_format(dtype).type]


@dataclass(frozen=True, slots=True)
class ExactSum(Accumulator):
    """`copies` of every limb of few elements, added up afterwards, so that fewer lanes wait for the same one; `carries`
    where limbs may fill up. On an H200 four million lanes that add to 4 elements take 5.3 times as long without copies,
    and to 1,000 elements 0.9 times; with carries that aren't needed 1.08 times."""

    blocks: ClassVar[int] = 1

    copies: int
    carries: bool

    def bytes(self, kernel: Kernel) -> int:
        """Of all limbs of one copy."""
        described = kernel.params[self.param]
        return described.size * exact_format(described.dtype).words * 8

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        _Addition(e, self, block).add(index, x)

    def way(self, kernel: Kernel) -> str:
        return f"exact sums of {exact_format(kernel.params[self.param].dtype).words} words, {self.copies} of each"


def exact_sum(kernel: Kernel, param: int) -> ExactSum | None:
    described = kernel.params[param]
    form = exact_format(described.dtype)
    size = max(described.size, 1) * form.words * 8
    if size > LARGEST_SUMS:
        return None
    most = min(PLACES // max(described.size, 1), MOST_COPIES, prod(kernel.domain) // 64)
    copies = 1 << max(most.bit_length() - 1, 0)
    numbers = contributions(kernel.body, param)
    carries = numbers is None or numbers * prod(kernel.domain) >= 1 << (62 - form.bits)
    return ExactSum(param, copies, carries)


class _Addition:
    """One float added to an element's limbs."""

    def __init__(self, e: Emitter, acc: ExactSum, block: int) -> None:
        self.e, self.b, self.acc, self.block = e, e.b, acc, block
        self.form = exact_format(e.kernel.params[acc.param].dtype)
        self.size = e.kernel.params[acc.param].size

    def add(self, index: Val, x: Val) -> None:
        e, b, form = self.e, self.b, self.form
        x_parts = FloatParts(e, e.kernel.params[self.acc.param].dtype, x)

        def add_parts() -> None:
            for low in range(0, form.float.mantissa + 1, form.part):
                part = b.inst("ShiftRightLogical", "i64", x_parts.mantissa, b.const("i64", low))
                part = b.inst("BitwiseAnd", "i64", part, b.const("i64", (1 << form.part) - 1))
                place = b.inst("IAdd", "i64", x_parts.shift, b.const("i64", low))
                nonzero = b.inst("INotEqual", "bool", part, b.const("i64", 0))
                e.when(nonzero, partial(self._add_part, index, place, part, x_parts.negative))

        def count_special() -> None:
            count = x_parts.special(e, 1, 1 << SPECIALS, 1 << 2 * SPECIALS)
            b.atomic("AtomicOr", self._word(index, b.const("i64", form.limbs)), count)

        e.one_of(x_parts.finite, add_parts, count_special)

    def _word(self, index: Val, word: Val) -> Val:
        """The address of a word of element `index`, in this invocation's copy."""
        e, b, copies = self.e, self.b, self.acc.copies
        at = b.inst("IAdd", "i64", b.inst("IMul", "i64", word, b.const("i64", self.size)), index)
        if copies > 1:
            own = b.inst("BitwiseAnd", "i64", e.table.invocation, b.const("i64", copies - 1))
            at = b.inst("IAdd", "i64", b.inst("IMul", "i64", at, b.const("i64", copies)), own)
        return e.at(e.table.scratch[self.block], at, 8)

    def _add_part(self, index: Val, place: Val, part: Val, negative: Val) -> None:
        e, b = self.e, self.b
        limb = b.inst("ShiftRightLogical", "i64", place, b.const("i64", LIMB.bit_length() - 1))
        up = b.inst("BitwiseAnd", "i64", place, b.const("i64", LIMB - 1))
        size = b.inst("ShiftLeftLogical", "i64", part, up)
        amount = e.select(negative, b.inst("ISub", "i64", b.const("i64", 0), size), size)
        address = self._word(index, limb)
        if not self.acc.carries:
            b.atomic("AtomicIAdd", address, amount)
            return
        now = b.inst("IAdd", "i64", b.atomic("AtomicIAdd", address, amount), amount)
        e.when(self._full(now), lambda: self._carry(index, limb, now))

    def _full(self, value: Val) -> Val:
        """Whether a limb, or the sum of its copies, could overflow before all who write now are done."""
        b, limit = self.b, 1 << (FULL - (self.acc.copies.bit_length() - 1))
        moved = b.inst("IAdd", "i64", value, b.const("i64", limit))
        return b.inst("UGreaterThan", "bool", moved, b.const("i64", 2 * limit))

    def _carry(self, index: Val, limb: Val, now: Val) -> None:
        """What is above the limb goes to the next one, in one step that nobody else comes between; whoever adds
        meanwhile finds the limb full as well, and does the same."""
        e, b = self.e, self.b
        at, value, going = b.local("i64"), b.local("i64"), b.local("bool")
        b.set(at, limb)
        b.set(value, now)
        b.set(going, b.const("bool", True))
        above = self.size * self.acc.copies * 8

        def step() -> None:
            found, here = b.get(value, "i64"), self._word(index, b.get(at, "i64"))
            carry = b.inst("ShiftRightArithmetic", "i64", found, b.const("i64", LIMB))
            left = b.inst("BitwiseAnd", "i64", found, b.const("i64", (1 << LIMB) - 1))
            seen = b.compare_exchange(here, found, left)

            def moved() -> tuple[Val, ...]:
                old = b.atomic("AtomicIAdd", e.offset(here, above), carry)
                b.set(at, b.inst("IAdd", "i64", b.get(at, "i64"), b.const("i64", 1)))
                return (b.inst("IAdd", "i64", old, carry),)

            (after,) = e.choose(b.inst("IEqual", "bool", seen, found), moved, lambda: (seen,))
            b.set(value, after)
            b.set(going, self._full(after))

        emit_loop(e, lambda: b.get(going, "bool"), step)
