"""Sums of floats in fixed point with one exponent for all elements, which is guessed.

A launch before looks at the terms of some lanes: the window of bits that sums have begins GUARD bits above the largest
of them. The lanes add each term to the limbs of that window where all its bits lie in it; integers add up alike in any
order, and since nothing is lost, the sums are the same whatever was guessed. Who meets a term that doesn't fit, or that
isn't finite, says so in a word, which ends the attempt, as does a sample that doesn't fit: two more launches, which do
nothing otherwise, then make the sums below each element's own largest term (scaled_sum), in the same memory.

Terms of float32 mostly lie in the first limb: one atomic each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Final

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue, walk
from loopgrad.codegen.kernel.rebuild import Rebuilder, is_pure
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
HIGHEST: Final = 1 << 12  # no exponent reaches it
WIDE: Final = 1 << 16  # as a distance: some terms aren't finite
WINDOW_LIMBS: Final = {"f32": 2, "f64": 3}
NO_SIGN: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class WindowSum(Accumulator):
    """Has the scratch block of `repair`, whose header is, of 32 bits each: 1 + the largest exponent of the sample (0:
    there was no term), whether the attempt has failed, and HIGHEST - the smallest exponent of the sample. `alone`: the
    lanes do nothing else."""

    blocks: ClassVar[int] = 1

    repair: ScaledSum
    alone: bool

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        raise AssertionError("lanes add to what `begun` made")

    def begun(self, kernel: Kernel, i: Instructions, scratch: Sequence[Val], block: int) -> Accumulation:
        b, form = i.b, float_format(kernel.params[self.param].dtype)
        largest, below = (b.load(i.offset(scratch[block], 4 * n), "i32", invariant=True) for n in (0, 2))
        top = b.inst("IAdd", "i32", largest, b.const("i32", GUARD))
        apart = b.inst("IAdd", "i32", top, below)  # HIGHEST + 1 + how far the sample's smallest term begins down
        most = self.repair.limbs * self.repair.bits - form.mantissa - 1 + HIGHEST + 1
        fits = b.inst("SLessThan", "bool", apart, b.const("i32", most + 1))
        i.when(b.inst("LogicalNot", "bool", fits), lambda: fail(i, scratch[block]))
        going = i.both(fits, not_failed(i, scratch[block]))
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


def fail(i: Instructions, words: Val) -> None:
    """End the attempt."""
    i.b.store(i.offset(words, 4), i.b.const("i32", 1))


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
        b, repair, described = e.b, self.sums.repair, e.kernel.params[self.sums.param]
        form, parts = float_format(described.dtype), FloatParts(e, described.dtype, x)
        above = b.inst("ISub", "i32", self.top, b.inst("IAdd", "i32", e.resize(parts.shift, "i32"), b.const("i32", 1)))
        room = b.const("i32", repair.limbs * repair.bits - form.mantissa)
        fits = e.both(parts.finite, b.inst("ULessThan", "bool", above, room))

        def add_parts() -> None:
            limbs = limb_places(e, places(e, block, index, described.size)[1], described.size, repair.limbs)
            add_limbs(e, described.dtype, parts, above, repair.bits, limbs)

        some = e.either(nonzero(e, parts.mantissa), b.inst("LogicalNot", "bool", parts.finite))
        e.when(e.both(some, self.going), lambda: e.one_of(fits, add_parts, lambda: fail(e, e.table.scratch[block])))


@dataclass(frozen=True, slots=True)
class HeldFirstLimb(HeldWindow):
    """The same of at most 32 bits. A term whose exponent (its field) is among the `count` ones from `lowest` on has all
    its bits in the first limb, where they begin at the field's distance from `base`: nearly all terms, for which little
    is to be done."""

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
            e.when(some, lambda: HeldWindow.add(self, e, block, op, index, x))

        e.one_of(near, add_whole, add_parts)


@dataclass(frozen=True, slots=True)
class SampledTerms(Accumulator):
    """Of the launch that finds the largest and the smallest exponent of the sample."""

    blocks: ClassVar[int] = 1

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        raise AssertionError("lanes add to what `begun` made")

    def begun(self, kernel: Kernel, i: Instructions, scratch: Sequence[Val], block: int) -> Accumulation:
        return HeldSample(self.param, block, (i.b.local("i32"), i.b.local("i32")), i.b.shared("i32", 2))

    def way(self, kernel: Kernel) -> str:
        return "the largest and the smallest exponent of a sample"


@dataclass(frozen=True, slots=True)
class HeldSample:
    """A SampledTerms while code is emitted; implements Accumulation. An invocation keeps 1 + the exponent of its
    largest term and HIGHEST - that of its smallest one; those of a tile are in memory of the workgroup."""

    param: int
    block: int
    own: tuple[Variable, Variable]
    words: Variable

    def idle(self, e: Emitter, block: int) -> Val | None:
        return None

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        b, parts = e.b, FloatParts(e, e.kernel.params[self.param].dtype, x)
        exponent, nothing = e.resize(parts.shift, "i32"), b.const("i32", 0)
        some = nonzero(e, parts.mantissa)
        above = b.inst("IAdd", "i32", exponent, b.const("i32", 1))
        below = b.inst("ISub", "i32", b.const("i32", HIGHEST), exponent)
        for variable, mine, special in zip(self.own, (above, below), (nothing, b.const("i32", WIDE)), strict=True):
            mine = e.select(parts.finite, e.select(some, mine, nothing), special)
            known = b.get(variable, "i32")
            b.set(variable, e.select(b.inst("ULessThan", "bool", known, mine), mine, known))

    def clear(self, e: Emitter) -> None:
        """All invocations come here; a barrier follows."""
        b, zero = e.b, e.b.const("i32", 0)
        for variable in self.own:
            b.set(variable, zero)
        self._by_leader(e, lambda number: b.shared_set(self.words, number, zero))

    def flush(self, e: Emitter) -> None:
        """All invocations come here, after a barrier; one follows."""
        b = e.b

        def raise_own() -> None:
            for number, variable in enumerate(self.own):
                b.shared_atomic("AtomicUMax", self.words, b.const("i32", number), b.get(variable, "i32"))

        def raise_all(number: Val) -> None:
            place = e.at(e.table.scratch[self.block], e.resize(number, "i64"), 8)
            b.atomic("AtomicUMax", place, b.shared_get(self.words, number, "i32"))

        e.when(nonzero(e, b.get(self.own[1], "i32")), raise_own)
        b.barrier()
        self._by_leader(e, raise_all)

    @staticmethod
    def _by_leader(e: Emitter, body: Callable[[Val], None]) -> None:
        def both() -> None:
            for number in range(2):
                body(e.b.const("i32", number))

        e.when(e.b.inst("IEqual", "bool", e.b.local_id(), e.b.const("i32", 0)), both)


def window_sum(kernel: Kernel, param: int) -> ScaledSum | WindowSum | None:
    """Sums in a window, where nearly all elements have terms; where few have, each has its own exponent."""
    sums = scaled_sum(kernel, param)
    if sums is None or sums.lazy:
        return sums
    limbs = WINDOW_LIMBS[float_format(kernel.params[param].dtype).type]
    return WindowSum(param, replace(sums, limbs=limbs, lazy=True, repairs=True), _only_adds_to(kernel, param))


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
