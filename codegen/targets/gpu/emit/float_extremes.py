"""The largest or the smallest of floats that several lanes write, by atomics of integers.

The bits of floats that aren't negative are ordered as signed integers are, those of negative ones the other way round
as unsigned integers, and any of these is beyond all of those in both orders. So one atomic will do, by the sign of
what comes. Of zeros the smaller or larger by sign is left. A NaN has the sign with which it is beyond all others; one
that is there already stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel, KOp
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.accumulator import Accumulator
from loopgrad.codegen.targets.gpu.emit.context import Emitter

ATOMICS: Final = {"max": ("AtomicSMax", "AtomicUMin"), "min": ("AtomicSMin", "AtomicUMax")}
NAN: Final = {"max": {"i32": 0x7FC00000, "i64": 0x7FF8 << 48}, "min": {"i32": -0x400000, "i64": -8 << 48}}


@dataclass(frozen=True, slots=True)
class FloatExtreme(Accumulator):
    """Of float32 or float64. Who finds the element beyond its own value leaves it alone."""

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        b, kind = e.b, op.attrs["kind"]
        place, word = e.element(self.param, index), f"i{x.type[1:]}"
        known = b.load(place, x.type)
        bits = e.select(b.inst("IsNan", "bool", x), b.const(word, NAN[kind][word]), e.bitcast(x, word))
        beyond = b.inst("FOrdLessThan", "bool", *((x, known) if kind == "max" else (known, x)))
        left = e.either(beyond, b.inst("IsNan", "bool", known))

        def enter() -> None:
            negative = b.inst("SLessThan", "bool", bits, b.const(word, 0))
            above_zero, below_zero = ATOMICS[kind]
            e.one_of(negative, partial(_enter, e, below_zero, place, bits), partial(_enter, e, above_zero, place, bits))

        changes = b.inst("INotEqual", "bool", bits, e.bitcast(known, word))
        e.when(e.both(changes, b.inst("LogicalNot", "bool", left)), enter)

    def way(self, kernel: Kernel) -> str:
        return "atomics by the bits of floats"


def _enter(e: Emitter, atomic: str, place: Val, bits: Val) -> None:
    e.b.atomic(atomic, place, bits)
