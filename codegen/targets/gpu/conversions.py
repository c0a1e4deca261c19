"""Casts: float to integer goes toward zero and saturates, NaN gives 0; anything to bool is x != 0."""

from __future__ import annotations

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.context import Emitter, register_type
from loopgrad.codegen.targets.gpu.memory_form import rounded_bfloat
from loopgrad.graph.types import DType


def convert(e: Emitter, x: Val, source: DType, to: DType) -> Val:
    if source is to:
        return x
    if to.kind == "b":
        return nonzero(e, x, source)
    if source.kind == "b":
        type = register_type(to)
        return e.select(x, e.b.const(type, 1), e.b.const(type, 0))
    if source.is_float:
        return to_float(e, x, to) if to.is_float else saturated(e, x, to)
    if not to.is_float:
        return e.resize(x, register_type(to), source.kind == "i")
    return from_integer(e, x, source, to)


def nonzero(e: Emitter, x: Val, source: DType) -> Val:
    if not source.is_float:
        return e.b.inst("INotEqual", "bool", x, e.b.const(x.type, 0))
    if x.type == "f16":
        x = e.b.inst("FConvert", "f32", x)
    return e.b.inst("FUnordNotEqual", "bool", x, e.b.const(x.type, 0.0))


def to_float(e: Emitter, x: Val, to: DType) -> Val:
    if to.name == "bfloat16":
        return rounded_bfloat(e, x if x.type == "f32" else e.b.inst("FConvert", "f32", x))
    type = register_type(to)
    return x if x.type == type else e.b.inst("FConvert", type, x)


def from_integer(e: Emitter, x: Val, source: DType, to: DType) -> Val:
    signed = source.kind == "i"
    if source.bits < 32:  # drivers convert words best
        x = e.resize(x, "i32", signed)
    type = "f32" if to.bits == 16 else register_type(to)
    value = e.b.inst("ConvertSToF" if signed else "ConvertUToF", type, x)
    return to_float(e, value, to)


def saturated(e: Emitter, x: Val, to: DType) -> Val:
    """Conversion is defined only within range: out of it, the bounds are selected."""
    b, signed = e.b, to.kind == "i"
    if x.type == "f16":
        x = b.inst("FConvert", "f32", x)
    low = -(1 << (to.bits - 1)) if signed else 0
    high = (1 << (to.bits - (1 if signed else 0))) - 1
    above = b.inst("FOrdGreaterThanEqual", "bool", x, b.const(x.type, float(high + 1)))
    if signed:
        below = b.inst("FOrdLessThan", "bool", x, b.const(x.type, float(low)))
    else:
        below = b.inst("FOrdLessThan", "bool", x, b.const(x.type, 1.0))
    outside = e.either(e.either(above, below), b.inst("IsNan", "bool", x))
    inside = e.select(outside, b.const(x.type, 0.0), x)
    wide = "i64" if to.bits == 64 else "i32"
    value = b.inst("ConvertFToS" if signed else "ConvertFToU", wide, inside)
    value = e.select(above, b.const(wide, high), value)
    value = e.select(below, b.const(wide, low), value)
    return e.resize(value, register_type(to), signed)
