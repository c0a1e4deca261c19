"""How values look in memory: a bool is one byte, a bfloat16 the upper half of an f32."""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.graph.types import DType


def from_memory(e: Emitter, x: Val, dtype: DType) -> Val:
    """A loaded element as a register value."""
    if dtype.kind == "b":
        return e.b.inst("INotEqual", "bool", x, e.b.const("i8", 0))
    if dtype.name == "bfloat16":
        wide = e.b.inst("UConvert", "i32", x)
        return e.bitcast(e.b.inst("ShiftLeftLogical", "i32", wide, e.b.const("i32", 16)), "f32")
    return x


def to_memory(e: Emitter, x: Val, dtype: DType) -> Val:
    """A register value as it is stored."""
    if dtype.kind == "b":
        return e.select(x, e.b.const("i8", 1), e.b.const("i8", 0))
    if dtype.name == "bfloat16":
        bits = e.b.inst("ShiftRightLogical", "i32", e.bitcast(x, "i32"), e.b.const("i32", 16))
        return e.b.inst("UConvert", "i16", bits)
    return x


def of_words(e: Emitter, words: Sequence[Val]) -> list[Val]:
    """The two bfloat16 of each word."""
    half, upper = e.b.const("i32", 16), e.b.const("i32", -1 << 16)
    parts = [
        part
        for word in words
        for part in (e.b.inst("ShiftLeftLogical", "i32", word, half), e.b.inst("BitwiseAnd", "i32", word, upper))
    ]
    return [e.bitcast(part, "f32") for part in parts]


def words_of(e: Emitter, values: Sequence[Val]) -> list[Val]:
    """Neighbouring bfloat16 in pairs."""
    return [_word_of(e, x, y) for x, y in zip(values[::2], values[1::2], strict=True)]


def _word_of(e: Emitter, x: Val, y: Val) -> Val:
    """The lower half of NaN may be anything: instructions have their own."""
    if x in e.unrounded and y in e.unrounded:
        x, y = e.unrounded[x], e.unrounded[y]
        nearest = e.b.nearest_bfloats(x, y)
        if nearest is not None:
            return nearest
    return e.b.upper_halves(x, y)
