"""A float as integers of 64 bits: what sums in fixed point add up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.graph.types import DType


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """Of a float: `mantissa` bits without the leading one; a mantissa with that one, `shift` bits up, is worth itself
    times 2**(shift + lowest)."""

    type: str
    mantissa: int
    exponents: int
    lowest: int


FLOAT_FORMATS: Final = {"f32": FloatFormat("f32", 23, 256, -149), "f64": FloatFormat("f64", 52, 2048, -1074)}


def float_format(dtype: DType) -> FloatFormat:
    """16-bit floats are summed as f32."""
    return FLOAT_FORMATS["f64" if dtype.bits == 64 else "f32"]


def bits_in_32(e: Emitter, x: Val) -> Val:
    """Of a float of at most 32 bits, as an f32."""
    return e.bitcast(e.b.inst("FConvert", "f32", x) if x.type == "f16" else x, "i32")


class FloatParts:
    """Of x, in registers: whether it is `negative` and `finite`; its `fraction`; its `mantissa` with the leading one,
    and by how many bits (`shift`) it stands higher than that of the smallest number."""

    def __init__(self, e: Emitter, dtype: DType, x: Val) -> None:
        form, b = float_format(dtype), e.b
        if x.type == "f16":
            x = b.inst("FConvert", "f32", x)
        bits = e.resize(e.bitcast(x, "i32" if form.type == "f32" else "i64"), "i64", signed=False)
        zero, top = b.const("i64", 0), b.const("i64", 31 if form.type == "f32" else 63)
        self.negative = b.inst("INotEqual", "bool", b.inst("ShiftRightLogical", "i64", bits, top), zero)
        field = b.inst("ShiftRightLogical", "i64", bits, b.const("i64", form.mantissa))
        field = b.inst("BitwiseAnd", "i64", field, b.const("i64", form.exponents - 1))
        self.fraction = b.inst("BitwiseAnd", "i64", bits, b.const("i64", (1 << form.mantissa) - 1))
        normal = b.inst("INotEqual", "bool", field, zero)
        leading = e.select(normal, b.const("i64", 1 << form.mantissa), zero)
        self.mantissa = b.inst("BitwiseOr", "i64", self.fraction, leading)
        self.shift = b.inst("ISub", "i64", field, e.select(normal, b.const("i64", 1), zero))
        self.finite = b.inst("INotEqual", "bool", field, b.const("i64", form.exponents - 1))

    def special(self, e: Emitter, nan: int, above: int, below: int) -> Val:
        """One of these words, where x isn't finite."""
        b = e.b
        infinite = b.inst("IEqual", "bool", self.fraction, b.const("i64", 0))
        word = e.select(self.negative, b.const("i64", below), b.const("i64", above))
        return e.select(infinite, word, b.const("i64", nan))
