"""Sums of floats in fixed point with one exponent for all elements, which is guessed.

A launch before looks at the terms of some lanes: the window of bits that sums have begins GUARD bits above the largest
of them. The lanes add each term to the limbs of that window where all its bits lie in it; integers add up alike in any
order, and since nothing is lost, the sums are the same whatever was guessed. Who meets a term that doesn't fit, or that
isn't finite, says so in a word, which ends the attempt: two more launches, which do nothing otherwise, then make the
sums below each element's own largest term (scaled_sum), in the same memory.

Terms of float32 mostly lie in the first limb: one atomic each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Final

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.codegen.kernel.rebuild import Rebuilder
from loopgrad.codegen.targets.gpu.assembler import Val, Variable
from loopgrad.codegen.targets.gpu.emit.accumulator import Accumulator
from loopgrad.codegen.targets.gpu.emit.context import Accumulation, Emitter
from loopgrad.codegen.targets.gpu.emit.float_parts import FloatParts, bits_in_32, float_format
from loopgrad.codegen.targets.gpu.emit.instructions import Instructions
from loopgrad.codegen.targets.gpu.emit.scaled_sum import (
    ScaledSum,
    add_limbs,
    limb_places,
    nonzero,
    not_failed,
    places,
    scaled_sum,
)
from loopgrad.graph.types import int64

SAMPLE: Final = 4096  # lanes whose terms are looked at first
GOLDEN: Final = 0.6180339887498949  # a part of all lanes, multiples of which are spread evenly
GUARD: Final = 4  # bits above the largest term of the sample
WINDOW_LIMBS: Final = {"f32": 2, "f64": 3}
NO_SIGN: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class WindowSum(Accumulator):
    """Has the scratch block of `repair`, whose header is, of 32 bits each: 1 + the largest exponent of the sample (0:
    there was no term), and whether the attempt has failed."""

    blocks: ClassVar[int] = 1

    repair: ScaledSum

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        raise AssertionError("lanes add to what `begun` made")

    def begun(self, kernel: Kernel, i: Instructions, scratch: Sequence[Val], block: int) -> Accumulation:
        b, form = i.b, float_format(kernel.params[self.param].dtype)
        top = b.inst("IAdd", "i32", b.load(scratch[block], "i32", invariant=True), b.const("i32", GUARD))
        going = not_failed(i, scratch[block])
        if form.type != "f32":
            return HeldWindow(self, top, going)
        base = b.inst("ISub", "i32", top, b.const("i32", self.repair.bits - form.mantissa - 1))
        one = b.const("i32", 1)
        lowest = i.select(b.inst("SLessThan", "bool", base, one), one, base)
        end = i.bound_integer(b.inst("IAdd", "i32", top, one), form.exponents - 1)
        count = b.inst("ISub", "i32", end, lowest)
        return HeldFirstLimb(self, top, going, base, lowest, i.select(going, count, b.const("i32", 0)))

    def way(self, kernel: Kernel) -> str:
        return f"fixed point, {self.repair.limbs * self.repair.bits} bits, or that many from the largest term down"


@dataclass(frozen=True, slots=True)
class HeldWindow:
    """A WindowSum while code is emitted; implements Accumulation. A term with `top` - 1 as exponent begins with the
    window. `going`: the attempt hadn't failed when the first lane began."""

    sums: WindowSum
    top: Val
    going: Val

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        b, repair, described = e.b, self.sums.repair, e.kernel.params[self.sums.param]
        form, parts = float_format(described.dtype), FloatParts(e, described.dtype, x)
        above = b.inst("ISub", "i32", self.top, b.inst("IAdd", "i32", e.resize(parts.shift, "i32"), b.const("i32", 1)))
        room = b.const("i32", repair.limbs * repair.bits - form.mantissa)
        fits = e.both(parts.finite, b.inst("ULessThan", "bool", above, room))

        def add_parts() -> None:
            limbs = limb_places(e, places(e, block, index, described.size)[1], described.size, repair.limbs)
            add_limbs(e, described.dtype, parts, above, repair.bits, limbs)

        def fail() -> None:
            b.store(e.offset(e.table.scratch[block], 4), b.const("i32", 1))

        some = e.either(nonzero(e, parts.mantissa), b.inst("LogicalNot", "bool", parts.finite))
        e.when(e.both(some, self.going), lambda: e.one_of(fits, add_parts, fail))


@dataclass(frozen=True, slots=True)
class HeldFirstLimb:
    """The same of at most 32 bits. A term whose exponent (its field) is among the `count` ones from `lowest` on has all
    its bits in the first limb, where they begin at the field's distance from `base`: nearly all terms, for which little
    is to be done."""

    sums: WindowSum
    top: Val
    going: Val
    base: Val
    lowest: Val
    count: Val

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        b, described = e.b, e.kernel.params[self.sums.param]
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
            b.atomic("AtomicIAdd", places(e, block, index, described.size)[1], amount)

        def add_parts() -> None:
            some = nonzero(e, b.inst("BitwiseAnd", "i32", bits, b.const("i32", NO_SIGN)))
            e.when(some, lambda: HeldWindow(self.sums, self.top, self.going).add(e, block, op, index, x))

        e.one_of(near, add_whole, add_parts)


@dataclass(frozen=True, slots=True)
class SampledTerms(Accumulator):
    """Of the launch that finds the largest exponent of the sample."""

    blocks: ClassVar[int] = 1

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        raise AssertionError("lanes add to what `begun` made")

    def begun(self, kernel: Kernel, i: Instructions, scratch: Sequence[Val], block: int) -> Accumulation:
        return HeldSample(self.param, block, i.b.local("i32"), i.b.shared("i32", 1))

    def way(self, kernel: Kernel) -> str:
        return "the largest exponent of a sample"


@dataclass(frozen=True, slots=True)
class HeldSample:
    """A SampledTerms while code is emitted; implements Accumulation. An invocation keeps 1 + the exponent of its
    largest term; that of a tile is in memory of the workgroup."""

    param: int
    block: int
    largest: Variable
    word: Variable

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        b, parts = e.b, FloatParts(e, e.kernel.params[self.param].dtype, x)
        mine = e.resize(b.inst("IAdd", "i64", parts.shift, b.const("i64", 1)), "i32")
        mine = e.select(e.both(parts.finite, nonzero(e, parts.mantissa)), mine, b.const("i32", 0))
        largest = b.get(self.largest, "i32")
        b.set(self.largest, e.select(b.inst("ULessThan", "bool", largest, mine), mine, largest))

    def clear(self, e: Emitter) -> None:
        """All invocations come here; a barrier follows."""
        b, zero = e.b, e.b.const("i32", 0)
        b.set(self.largest, zero)
        e.when(b.inst("IEqual", "bool", b.local_id(), zero), lambda: b.shared_set(self.word, zero, zero))

    def flush(self, e: Emitter) -> None:
        """All invocations come here, after a barrier; one follows."""
        b, zero = e.b, e.b.const("i32", 0)
        mine = b.get(self.largest, "i32")

        def raise_own() -> None:
            b.shared_atomic("AtomicUMax", self.word, zero, mine)

        e.when(nonzero(e, mine), raise_own)
        b.barrier()

        def raise_all() -> None:
            b.atomic("AtomicUMax", e.table.scratch[self.block], b.shared_get(self.word, zero, "i32"))

        e.when(b.inst("IEqual", "bool", b.local_id(), zero), raise_all)


def window_sum(kernel: Kernel, param: int) -> ScaledSum | WindowSum | None:
    """Sums in a window, where nearly all elements have terms; where few have, each has its own exponent."""
    sums = scaled_sum(kernel, param)
    if sums is None or sums.lazy:
        return sums
    limbs = WINDOW_LIMBS[float_format(kernel.params[param].dtype).type]
    return WindowSum(param, replace(sums, limbs=limbs, lazy=True, repairs=True))


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
