"""Numbers of 8 and 16 bits that lie side by side in words, as loads and stores of several have them: vectors of narrow
elements have four at most."""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import SIZE
from loopgrad.codegen.targets.spirv.assembly import Words


def words_for(type: str, count: int) -> tuple[str, int, int]:
    """Of so many elements side by side: the type of a word, how many words, elements in each."""
    each = max(4 // SIZE[type], 1)
    return (type if each == 1 else "i32"), count // each, each


def elements_of(b: Words, word: Val, type: str) -> list[Val]:
    """The elements of a word. Two float16 are a vector, as they are in GPUs' registers: instructions take either."""
    if type == "f16":
        pair = b.raw("Bitcast", b.vector(type, 2), word.id)
        return [Val(b.raw("CompositeExtract", b.type(type), pair, i), type) for i in range(2)]
    bits, found = 8 * SIZE[type], []
    for start in range(0, 32, bits):
        moved = b.inst("ShiftRightLogical", word.type, word, b.const(word.type, start)) if start else word
        found.append(b.inst("UConvert", type, moved))
    return found


def word_of(b: Words, parts: Sequence[Val]) -> Val:
    """A word of these parts."""
    type = parts[0].type
    if len(parts) == 1:
        return parts[0]
    if type == "f16":
        return _pair(b, type, [x.id for x in parts])
    bits, found = 8 * SIZE[type], b.const("i32", 0)
    for i, x in enumerate(parts):
        whole = b.inst("UConvert", "i32", x)
        moved = b.inst("ShiftLeftLogical", "i32", whole, b.const("i32", i * bits)) if i else whole
        found = b.inst("BitwiseOr", "i32", found, moved) if i else moved
    return found


def upper_halves(b: Words, lower: Val, upper: Val) -> Val:
    """The i32 whose halves are the upper ones of two f32. Of vectors one instruction of GPUs picks both."""
    pairs = [b.raw("Bitcast", b.vector("i16", 2), x.id) for x in (lower, upper)]
    return _pair(b, "i16", [b.raw("CompositeExtract", b.type("i16"), pair, 1) for pair in pairs])


def hidden_half(b: Words, x: Val, zero: Val) -> Val:
    """A float16 that a driver doesn't know how was computed, by an i32 that it doesn't know to be 0."""
    word = _pair(b, x.type, [x.id, b.const(x.type, 0.0).id])
    return elements_of(b, Val(b.raw("BitwiseXor", b.type("i32"), word.id, zero.id), "i32"), x.type)[0]


def _pair(b: Words, type: str, parts: Sequence[int]) -> Val:
    return Val(b.raw("Bitcast", b.type("i32"), b.raw("CompositeConstruct", b.vector(type, 2), *parts)), "i32")
