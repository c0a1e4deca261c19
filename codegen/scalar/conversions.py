"""Casts: float to integer goes toward zero and saturates, NaN gives 0; integers wrap; anything to bool is x != 0;
floats are rounded once, to nearest, ties to even. And the same bits as elements of another dtype."""

from __future__ import annotations

from loopgrad.codegen.scalar.ops import Ops, V, value_type
from loopgrad.graph.types import DType


def convert(m: Ops[V], x: V, source: DType, to: DType) -> V:
    if source is to:
        return x
    if to.kind == "b":
        return _nonzero(m, x, source)
    if source.kind == "b":
        return m.select(x, m.element(to, 1), m.element(to, 0))
    if source.is_float:
        return m.rounded(x, to, signed=True) if to.is_float else _saturated(m, x, source, to)
    if not to.is_float:
        return m.resize(x, value_type(to), source.kind == "i")
    return _from_integer(m, x, source, to)


def reinterpret(m: Ops[V], x: V, source: DType, to: DType) -> V:
    """The same bits, of a dtype as wide; where a bfloat16 is held as an f32, its bits are the upper half of that."""
    if source.is_float:
        wider = m.bits(x) - source.bits
        x = m.as_int(x)
        if wider:
            x = m.resize(m.shr(x, wider), f"i{source.bits}")
    if not to.is_float:
        return x
    form = m.type(m.element(to, 0.0))
    wider = int(form[1:]) - to.bits
    if wider:
        x = m.shl(m.resize(x, f"i{form[1:]}"), wider)
    return m.inst("Bitcast", form, x)


def _nonzero(m: Ops[V], x: V, source: DType) -> V:
    if not source.is_float:
        return m.test("INotEqual", x, m.const(x, 0))
    x = m.widened(x, source)
    return m.test("FUnordNotEqual", x, m.const(x, 0.0))


def _from_integer(m: Ops[V], x: V, source: DType, to: DType) -> V:
    signed = source.kind == "i"
    if source.bits < 32:  # processors convert words best
        x = m.resize(x, "i32", signed)
    type = value_type(to)
    if to.bits == 16:
        type = "f32" if source.bits <= 16 else m.from_integer
    return m.rounded(m.inst("ConvertSToF" if signed else "ConvertUToF", type, x), to)


def _saturated(m: Ops[V], x: V, source: DType, to: DType) -> V:
    """Conversion is defined only within range: out of it, the bounds are selected. LLVM's functions that saturate do
    vectors number by number."""
    signed = to.kind == "i"
    x = m.widened(x, source)
    low = -(1 << (to.bits - 1)) if signed else 0
    high = (1 << (to.bits - (1 if signed else 0))) - 1
    above = m.test("FOrdGreaterThanEqual", x, m.const(x, float(high + 1)))
    below = m.lt(x, m.const(x, float(low) if signed else 1.0))
    outside = m.either(m.either(above, below), m.is_nan(x))
    inside = m.select(outside, m.const(x, 0.0), x)
    value = m.inst("ConvertFToS" if signed else "ConvertFToU", "i64" if to.bits == 64 else "i32", inside)
    value = m.select(above, m.const(value, high), value)
    value = m.select(below, m.const(value, low), value)
    return m.resize(value, value_type(to), signed)
