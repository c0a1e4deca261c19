"""Elements that several lanes write, by compare-and-swap of the word that holds the element.

It is repeated until nobody else wrote in between: for products of integers, integers of 8 and 16 bits, minima and
maxima of floats of 16 bits (of zeros the smaller or larger by sign, NaN always the same one).
"""

from __future__ import annotations

from dataclasses import dataclass

from loopgrad.codegen.kernel.nodes import Kernel, KOp
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.accumulator import Accumulator
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter, memory_type
from loopgrad.codegen.targets.gpu.emit.elementwise import operate
from loopgrad.codegen.targets.gpu.emit.loops import emit_loop
from loopgrad.codegen.targets.gpu.emit.memory_form import from_memory, to_memory
from loopgrad.graph.types import DType


@dataclass(frozen=True, slots=True)
class CompareAndSwap(Accumulator):
    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        swap(e, op.attrs["kind"], e.kernel.params[self.param].dtype, e.element(self.param, index), x)

    def way(self, kernel: Kernel) -> str:
        return "compare and swap"


def swap(e: Emitter, kind: str, dtype: DType, place: Val, x: Val) -> None:
    """param[place] = param[place] kind x, by compare-and-swap of the word that holds it."""
    b, size = e.b, SIZE[memory_type(dtype)]
    word = "i64" if size == 8 else "i32"
    offset = b.inst("BitwiseAnd", "i64", place, b.const("i64", SIZE[word] - 1))
    address = b.inst("ISub", "i64", place, offset) if size < 4 else place
    shift = e.resize(b.inst("ShiftLeftLogical", "i64", offset, b.const("i64", 3)), word) if size < 4 else None
    known, going = b.local(word), b.local("bool")
    b.set(known, b.load(address, word))
    b.set(going, b.const("bool", True))

    def step() -> None:
        old = b.get(known, word)
        new = combined(e, kind, dtype, old, shift, x)
        b.set(going, b.const("bool", False))

        def exchange() -> None:
            seen = b.compare_exchange(address, old, new)
            b.set(known, seen)
            b.set(going, b.inst("INotEqual", "bool", seen, old))

        e.when(b.inst("INotEqual", "bool", new, old), exchange)

    emit_loop(e, lambda: b.get(going, "bool"), step)


def combined(e: Emitter, kind: str, dtype: DType, word: Val, shift: Val | None, x: Val) -> Val:
    """The word with its element (which begins at bit `shift`) combined with x."""
    b, type = e.b, memory_type(dtype)
    if shift is None:
        return as_bits(e, element_of(e, kind, dtype, word if type == word.type else e.bitcast(word, type), x))
    bits = 8 * SIZE[type]
    small = e.resize(b.inst("ShiftRightLogical", "i32", word, shift), f"i{bits}")
    new = as_bits(e, element_of(e, kind, dtype, small if type == small.type else e.bitcast(small, type), x))
    mask = b.inst("ShiftLeftLogical", "i32", b.const("i32", (1 << bits) - 1), shift)
    kept = b.inst("BitwiseAnd", "i32", word, b.inst("Not", "i32", mask))
    placed = b.inst("ShiftLeftLogical", "i32", e.resize(new, "i32", signed=False), shift)
    return b.inst("BitwiseOr", "i32", kept, placed)


def as_bits(e: Emitter, x: Val) -> Val:
    return x if x.type[0] == "i" else e.bitcast(x, f"i{x.type[1:]}")


def element_of(e: Emitter, kind: str, dtype: DType, old: Val, x: Val) -> Val:
    """Two elements combined, as memory has them, to the same bits in either order."""
    known = from_memory(e, old, dtype)
    new = operate(e, kind, dtype, [known, x])
    if dtype.is_float and kind in ("min", "max"):
        new = ordered_extreme(e, kind, known, x, new)
    return to_memory(e, new, dtype)


def ordered_extreme(e: Emitter, kind: str, x: Val, y: Val, either: Val) -> Val:
    """`either` of the two, but of equal ones that with the smaller or larger sign, and one NaN for all."""
    b = e.b
    bits = f"i{x.type[1:]}"
    p, q = e.bitcast(x, bits), e.bitcast(y, bits)
    sign = e.bitcast(b.inst("BitwiseAnd" if kind == "max" else "BitwiseOr", bits, p, q), x.type)
    if x.type == "f16":
        x, y = (b.inst("FConvert", "f32", v) for v in (x, y))
    best = e.select(b.inst("FOrdEqual", "bool", x, y), sign, either)
    nan = b.inst("LogicalOr", "bool", b.inst("IsNan", "bool", x), b.inst("IsNan", "bool", y))
    return e.select(nan, b.const(sign.type, float("nan")), best)
