"""Sums of floats in fixed point with one exponent for all elements, which is guessed.

A launch before looks at the terms of some lanes: the window of bits that sums have begins some bits above the largest
of them, the more the further apart they are. The lanes add each term to the limbs of that window where all its bits lie
in it; integers add up alike in any order, and since nothing is lost, the sums are the same whatever was guessed. Who
meets a term that doesn't fit, or that isn't finite, says so in a word, which ends the attempt, as does a sample that
doesn't fit: two more launches, which do nothing otherwise, then make the sums below each element's own largest term
(scaled_sum), in the same memory.

Terms of float32 mostly lie in the first limb: one atomic each. Where most lie in two, as those of float64, neighbours
add them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import ClassVar, Final, NamedTuple

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue, walk
from loopgrad.codegen.kernel.rebuild import Rebuilder, is_pure
from loopgrad.codegen.targets.gpu.assembler import Val, Variable
from loopgrad.codegen.targets.gpu.emit.accumulator import Accumulator
from loopgrad.codegen.targets.gpu.emit.context import Accumulation, Emitter
from loopgrad.codegen.targets.gpu.emit.float_parts import FloatFormat, FloatParts, bits_in_32, float_format
from loopgrad.codegen.targets.gpu.emit.instructions import Instructions
from loopgrad.codegen.targets.gpu.emit.scaled_sum import (
    FAILED,
    PAIR,
    UNBEGUN,
    ScaledSum,
    add_amount,
    add_limbs,
    limb_amounts,
    limb_place,
    nonzero,
    not_failed,
    place_of_sum,
    scaled_sum,
)
from loopgrad.codegen.targets.gpu.lanes.exchanged import exchanged
from loopgrad.graph.types import int64

SAMPLE: Final = 4096  # lanes whose terms are looked at first
GOLDEN: Final = 0.6180339887498949  # a part of all lanes, multiples of which are spread evenly
GUARD: Final = 4  # bits above the largest term of the sample, and half as many as it is above their mean, if they fit
HIGHEST: Final = 1 << 12  # no exponent reaches it
WIDE: Final = 1 << 16  # as a distance: some terms aren't finite
NOTED: Final = ("AtomicUMax", "AtomicUMax", "AtomicIAdd", "AtomicIAdd")  # how terms of the sample meet in the header
NO_SIGN: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class WindowSum(Accumulator):
    """Has the scratch block of `repair`, in whose header the lower halves of words are: 1 + the largest exponent of the
    sample (0: there was no term), HIGHEST - the smallest one, the sum of all, and their number; the upper half of the
    first one says whether the attempt has failed. `alone`: the lanes do nothing else."""

    blocks: ClassVar[int] = 1

    repair: ScaledSum
    alone: bool

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        raise AssertionError("lanes add to what `begun` made")

    def begun(self, kernel: Kernel, i: Instructions, scratch: Sequence[Val], block: int) -> Accumulation:
        b, form = i.b, float_format(kernel.params[self.param].dtype)
        words = [b.load(i.offset(scratch[block], 8 * n), "i32", invariant=True) for n in range(len(NOTED))]
        largest, below, total, count = words
        some = b.inst("IAdd", "i32", count, i.select(nonzero(i, count), b.const("i32", 0), b.const("i32", 1)))
        spread = b.inst("ISub", "i32", largest, b.inst("UDiv", "i32", total, some))
        wanted = b.inst("ShiftRightLogical", "i32", spread, b.const("i32", 1))
        wanted = b.inst("IAdd", "i32", wanted, b.const("i32", GUARD))
        most = most_apart(self.repair, form)
        left = b.inst("ISub", "i32", b.const("i32", most), b.inst("IAdd", "i32", largest, below))
        share = b.inst("ShiftRightArithmetic", "i32", left, b.const("i32", 1))
        above = i.select(b.inst("SLessThan", "bool", wanted, share), wanted, share)
        least = b.const("i32", GUARD)
        above = i.select(b.inst("SLessThan", "bool", above, least), least, above)
        top = b.inst("IAdd", "i32", largest, above)
        apart = b.inst("IAdd", "i32", top, below)  # HIGHEST + 1 + how far the sample's smallest term begins down
        fits = b.inst("SLessThan", "bool", apart, b.const("i32", most + 1))
        leader = b.inst("IEqual", "bool", b.local_id(), b.const("i32", 0))
        begun = i.either(fits, b.inst("LogicalNot", "bool", leader))
        i.when(b.inst("LogicalNot", "bool", begun), lambda: fail(i, scratch[block], UNBEGUN))
        going = i.both(fits, not_failed(i, scratch[block]))
        if form.type != "f32":
            return HeldWindow(self, top, going)
        base = b.inst("ISub", "i32", top, b.const("i32", self.repair.bits - form.mantissa - 1))
        least = b.inst("IMul", "i32", count, b.inst("ISub", "i32", base, b.const("i32", 1)))
        near = b.inst("SGreaterThanEqual", "bool", total, least)
        one = b.const("i32", 1)
        lowest = i.select(b.inst("SLessThan", "bool", base, one), one, base)
        end = i.bound_integer(b.inst("IAdd", "i32", top, one), form.exponents - 1)
        count = b.inst("ISub", "i32", end, lowest)
        return HeldFirstLimb(self, top, going, near, base, lowest, i.select(going, count, b.const("i32", 0)))

    def way(self, kernel: Kernel) -> str:
        return (
            f"fixed point, {self.repair.table.limbs * self.repair.bits} bits, or that many from the largest term down"
        )


def most_apart(sums: ScaledSum, form: FloatFormat) -> int:
    """HIGHEST + 1 + how far from the window's beginning a term may begin."""
    return sums.table.limbs * sums.bits - form.mantissa - 1 + HIGHEST + 1


def fail(i: Instructions, words: Val, how: int = FAILED) -> None:
    """End the attempt."""
    i.b.store(i.offset(words, 4), i.b.const("i32", how))


@dataclass(frozen=True, slots=True)
class HeldWindow:
    """A WindowSum while code is emitted; implements Accumulation. A term with `top` - 1 as exponent begins with the
    window. `going`: the attempt hadn't failed when the first lane began."""

    sums: WindowSum
    top: Val
    going: Val

    def idle(self, e: Emitter, block: int) -> Val | None:
        return e.b.inst("LogicalNot", "bool", self.going) if self.sums.alone else None

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        table, term = self.sums.repair.table, self._term(e, x)

        def add_parts() -> None:
            place = place_of_sum(e, block, index, table)
            add_limbs(e, block, place, table, term.amounts())

        e.when(term.some, lambda: e.one_of(term.fits, add_parts, lambda: fail(e, e.table.scratch[block])))

    def add_with_neighbour(self, e: Emitter, block: int, op: KOp, index: Val, x: Val, pred: Val) -> None:
        """As `add` where `pred` holds; all neighbours come here. Two invocations add one's term, an adjacent limb each,
        then the other's: what a cache's atomics take is by the line, not by the word. On an H200 the sums of 2**21
        terms into 2**20 elements of float64 take 42 us, and 60 with a limb after the other."""
        b, table, term = e.b, self.sums.repair.table, self._term(e, x)
        some, none = e.both(pred, term.some), b.const("i64", 0)
        fits = e.both(some, term.fits)
        e.when(e.both(some, b.inst("LogicalNot", "bool", term.fits)), lambda: fail(e, e.table.scratch[block]))
        (place,) = e.choose(fits, lambda: (place_of_sum(e, block, index, table),), lambda: (none,))
        first, second, *rest = [e.select(fits, amount, none) for amount in term.amounts()]
        for number, amount in enumerate(rest, PAIR):
            limb = limb_place(e, block, place, table, number)
            e.when(nonzero(e, amount), partial(add_amount, e, limb, amount))
        odd = nonzero(e, b.inst("BitwiseAnd", "i32", b.local_id(), b.const("i32", 1)))
        across = partial(b.across, distance=1)
        mine = e.resize(place, "i32") if table.sums < 1 << 31 else place
        other, given = exchanged(e, mine, across), exchanged(e, e.select(odd, first, second), across)
        pairs = [(e.select(odd, other, mine), e.select(odd, given, first))]
        pairs.append((e.select(odd, mine, other), e.select(odd, second, given)))
        for sum, amount in pairs:
            low, high = [limb_place(e, block, e.resize(sum, "i64", signed=False), table, n) for n in range(PAIR)]
            e.when(nonzero(e, amount), partial(add_amount, e, e.select(odd, high, low), amount))

    def _term(self, e: Emitter, x: Val) -> _WindowTerm:
        b, repair, dtype = e.b, self.sums.repair, e.kernel.params[self.sums.param].dtype
        form, parts = float_format(dtype), FloatParts(e, dtype, x)
        above = b.inst("ISub", "i32", self.top, b.inst("IAdd", "i32", e.resize(parts.shift, "i32"), b.const("i32", 1)))
        room = b.const("i32", repair.table.limbs * repair.bits - form.mantissa)
        fits = e.both(parts.finite, b.inst("ULessThan", "bool", above, room))
        some = e.either(nonzero(e, parts.mantissa), b.inst("LogicalNot", "bool", parts.finite))
        amounts = partial(limb_amounts, e, dtype, parts, above, repair.bits, repair.table.limbs)
        return _WindowTerm(e.both(some, self.going), fits, amounts)


class _WindowTerm(NamedTuple):
    """Whether there is `some` and it `fits` into the window; then what it adds to its limbs."""

    some: Val
    fits: Val
    amounts: Callable[[], list[Val]]


@dataclass(frozen=True, slots=True)
class HeldFirstLimb(HeldWindow):
    """The same of at most 32 bits. A term whose exponent (its field) is among the `count` ones from `lowest` on has all
    its bits in the first limb, where they begin at the field's distance from `base`: nearly all terms, for which little
    is to be done. `near`: so has the sample's
    mean exponent."""

    near: Val
    base: Val
    lowest: Val
    count: Val

    def add_with_neighbour(self, e: Emitter, block: int, op: KOp, index: Val, x: Val, pred: Val) -> None:
        def each() -> None:
            e.when(pred, lambda: self.add(e, block, op, index, x))

        e.one_of(self.near, each, lambda: HeldWindow.add_with_neighbour(self, e, block, op, index, x, pred))

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        b, described = e.b, e.kernel.params[self.sums.param]
        table = self.sums.repair.table
        form, bits = float_format(described.dtype), bits_in_32(e, x)
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
            b.atomic("AtomicIAdd", limb_place(e, block, place_of_sum(e, block, index, table), table, 0), amount)

        def add_parts() -> None:
            some = nonzero(e, b.inst("BitwiseAnd", "i32", bits, b.const("i32", NO_SIGN)))
            e.when(some, lambda: HeldWindow.add(self, e, block, op, index, x))

        e.one_of(near, add_whole, add_parts)


@dataclass(frozen=True, slots=True)
class SampledTerms(Accumulator):
    """Of the launch that looks at the exponents of the sample."""

    blocks: ClassVar[int] = 1

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        raise AssertionError("lanes add to what `begun` made")

    def begun(self, kernel: Kernel, i: Instructions, scratch: Sequence[Val], block: int) -> Accumulation:
        return HeldSample(self.param, block, tuple([i.b.local("i32") for _ in NOTED]), i.b.shared("i32", len(NOTED)))

    def way(self, kernel: Kernel) -> str:
        return "the exponents of a sample"


@dataclass(frozen=True, slots=True)
class HeldSample:
    """A SampledTerms while code is emitted; implements Accumulation. An invocation keeps what the header has of
    its own terms; that of a tile is in memory of the workgroup."""

    param: int
    block: int
    own: tuple[Variable, ...]
    words: Variable

    def idle(self, e: Emitter, block: int) -> Val | None:
        return None

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        b, parts = e.b, FloatParts(e, e.kernel.params[self.param].dtype, x)
        exponent, nothing = e.resize(parts.shift, "i32"), b.const("i32", 0)
        some = nonzero(e, parts.mantissa)
        above = b.inst("IAdd", "i32", exponent, b.const("i32", 1))
        below = b.inst("ISub", "i32", b.const("i32", HIGHEST), exponent)
        for variable, mine, special in zip(self.own, (above, below), (nothing, b.const("i32", WIDE)), strict=False):
            mine = e.select(parts.finite, e.select(some, mine, nothing), special)
            known = b.get(variable, "i32")
            b.set(variable, e.select(b.inst("ULessThan", "bool", known, mine), mine, known))
        for variable, mine in zip(self.own[2:], (exponent, b.const("i32", 1)), strict=True):
            mine = e.select(e.both(parts.finite, some), mine, nothing)
            b.set(variable, b.inst("IAdd", "i32", b.get(variable, "i32"), mine))

    def clear(self, e: Emitter) -> None:
        """All invocations come here; a barrier follows."""
        b, zero = e.b, e.b.const("i32", 0)
        for variable in self.own:
            b.set(variable, zero)
        self._by_leader(e, lambda number: b.shared_set(self.words, b.const("i32", number), zero))

    def flush(self, e: Emitter) -> None:
        """All invocations come here, after a barrier; one follows."""
        b = e.b

        def raise_own() -> None:
            for number, (name, variable) in enumerate(zip(NOTED, self.own, strict=True)):
                b.shared_atomic(name, self.words, b.const("i32", number), b.get(variable, "i32"))

        def raise_all(number: int) -> None:
            place, mine = e.offset(e.table.scratch[self.block], 8 * number), b.const("i32", number)
            b.atomic(NOTED[number], place, b.shared_get(self.words, mine, "i32"))

        e.when(nonzero(e, b.get(self.own[1], "i32")), raise_own)
        b.barrier()
        self._by_leader(e, raise_all)

    @staticmethod
    def _by_leader(e: Emitter, body: Callable[[int], None]) -> None:
        def each() -> None:
            for number in range(len(NOTED)):
                body(number)

        e.when(e.b.inst("IEqual", "bool", e.b.local_id(), e.b.const("i32", 0)), each)


def window_sum(kernel: Kernel, param: int) -> WindowSum | None:
    sums = scaled_sum(kernel, param)
    return None if sums is None else WindowSum(param, sums, _only_adds_to(kernel, param))


def by_pairs(acc: Accumulator) -> bool:
    """Whether two neighbours had better make such sums together."""
    return isinstance(acc, WindowSum) and acc.repair.table.adjacent == PAIR


def _only_adds_to(kernel: Kernel, param: int) -> bool:
    """Whether its lanes have no other effect."""
    effects = [op for op in walk(kernel.body) if not is_pure(op) and op.opcode not in ("load", "if")]
    return all(op.opcode == "accumulate" and op.attrs["param"] == param for op in effects)


def sampled(kernel: Kernel) -> Kernel:
    """Some of the kernel's lanes, evenly spread."""
    return _Sampled(kernel).run()


class _Sampled(Rebuilder):
    def run(self) -> Kernel:
        kernel, number = self.kernel, KValue(int64)
        lanes, rest = prod(kernel.domain), number
        # odd, so that powers of two among the extents don't repeat themselves in it
        rest = self._by("mod", self._by("mul", number, int(lanes * GOLDEN) | 1), lanes)
        for argument, extent in reversed([*zip(kernel.body.arguments, kernel.domain, strict=True)]):
            self.env[argument] = self._by("mod", rest, extent)
            rest = self._by("floordiv", rest, extent)
        self.body(kernel.body)
        return replace(kernel, domain=(min(lanes, SAMPLE),), body=Block((number,), self.out))

    def _by(self, opcode: str, x: KValue, number: int) -> KValue:
        made = KOp("const", (), (int64,), {"value": max(number, 1)})
        self.out += [made, KOp(opcode, (x, *made.results), (int64,))]
        return self.out[-1].results[0]
