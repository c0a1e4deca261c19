"""Elementwise operations on floats and bools, comparisons, select; doors to integers, casts and recipes."""

from __future__ import annotations

from typing import Final

import numpy as np

from loopgrad.codegen.kernel.nodes import KOp
from loopgrad.codegen.math.power import whole_power
from loopgrad.codegen.math.table import RECIPES
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.context import Emitter, register_type
from loopgrad.codegen.targets.gpu.conversions import convert
from loopgrad.codegen.targets.gpu.integers import DIVISIONS, emit_division, emit_integer
from loopgrad.codegen.targets.gpu.memory_form import rounded_bfloat
from loopgrad.codegen.targets.gpu.recipes import ScalarOps, quotient
from loopgrad.graph.types import DType

FLOAT_BINARY: Final = {"add": "FAdd", "sub": "FSub", "mul": "FMul", "div": "FDiv"}
FLOAT_ROUNDING: Final = {
    "abs": "FAbs",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "RoundEven",
    "trunc": "Trunc",
    "sqrt": "Sqrt",
}
FLOAT_ORDER: Final = {
    "eq": "FOrdEqual",
    "ne": "FUnordNotEqual",
    "lt": "FOrdLessThan",
    "le": "FOrdLessThanEqual",
    "gt": "FOrdGreaterThan",
    "ge": "FOrdGreaterThanEqual",
}
INTEGER_ORDER: Final = {"lt": "LessThan", "le": "LessThanEqual", "gt": "GreaterThan", "ge": "GreaterThanEqual"}
BOOL_BINARY: Final = {
    "and": "LogicalAnd",
    "or": "LogicalOr",
    "xor": "LogicalNotEqual",
    "eq": "LogicalEqual",
    "ne": "LogicalNotEqual",
    "min": "LogicalAnd",
    "mul": "LogicalAnd",
    "max": "LogicalOr",
    "add": "LogicalOr",
}
# a ? b on bools, as (negate a, negate b, how they meet)
BOOL_ORDER: Final = {"lt": (1, 0, "And"), "le": (1, 0, "Or"), "gt": (0, 1, "And"), "ge": (0, 1, "Or")}


def emit_elementwise(e: Emitter, op: KOp) -> Val:
    dtype = op.operands[0].dtype
    if op.opcode in DIVISIONS and dtype.is_integer:
        return emit_division(e, op)
    operands = [e.get(v) for v in op.operands]
    return operate(e, op.opcode, dtype, operands)


def operate(e: Emitter, name: str, dtype: DType, operands: list[Val]) -> Val:
    """Any elementwise primitive whose result has the operands' dtype."""
    if dtype.kind == "b":
        return boolean(e, name, operands)
    if not dtype.is_float:
        return emit_integer(e, name, dtype, operands)
    if dtype.name == "bfloat16":
        return rounded_bfloat(e, emit_float(e, name, dtype, operands))
    if dtype.bits == 16:  # computed in f32, rounded once
        wide = [widened(e, v) for v in operands]
        return e.b.inst("FConvert", "f16", emit_float(e, name, dtype, wide))
    return emit_float(e, name, dtype, operands)


def widened(e: Emitter, x: Val) -> Val:
    """A float16 as an f32; 0 stays a constant that `quotient` knows."""
    if e.b.is_constant(x) and x.id == e.b.const(x.type, 0.0).id:
        return e.b.const("f32", 0.0)
    return e.b.inst("FConvert", "f32", x)


def boolean(e: Emitter, name: str, operands: list[Val]) -> Val:
    if name == "invert":
        return e.b.inst("LogicalNot", "bool", *operands)
    return e.b.inst(BOOL_BINARY[name], "bool", *operands) if name in BOOL_BINARY else operands[0]


def emit_float(e: Emitter, name: str, dtype: DType, operands: list[Val]) -> Val:
    b, type = e.b, operands[0].type
    if name == "div":
        return quotient(b, e.floating, *operands)
    if name in FLOAT_BINARY:
        return e.floating(FLOAT_BINARY[name], type, *operands)
    if name == "fma":
        return multiply_add(e, *operands)
    if name == "neg":
        return e.floating("FNegate", type, *operands)
    if name in FLOAT_ROUNDING:
        return b.extended(FLOAT_ROUNDING[name], type, *operands)
    if name in ("min", "max"):
        return extreme(e, name, *operands)
    if name == "sign":
        return sign(e, operands[0])
    if name == "rsqrt":
        return e.floating("FDiv", type, b.const(type, 1.0), b.extended("Sqrt", type, *operands))
    quick = b.approximate(name, type, *operands) if e.fast else None
    result: Val = RECIPES[name](ScalarOps(e), *operands) if quick is None else quick
    return result


def emit_whole_power(e: Emitter, op: KOp) -> Val:
    x, n, dtype = e.get(op.operands[0]), op.attrs["exponent"], op.results[0].dtype
    m = ScalarOps(e)
    if dtype.name == "float32" and e.b.rearranges and not e.fast:  # f64 has digits and range enough for all the factors
        return m.narrow(whole_power(m, m.widen(x), n, exact=False))
    if dtype.bits > 16:
        return whole_power(m, x, n, exact=not e.fast)
    if dtype.name == "bfloat16":  # f32 has digits enough for all the factors
        return rounded_bfloat(e, whole_power(m, x, n, exact=False))
    return e.b.inst("FConvert", "f16", whole_power(m, widened(e, x), n, exact=False))


def multiply_add(e: Emitter, x: Val, y: Val, z: Val) -> Val:
    """x * y + z, in two steps where a fused one would have to be built from many, and where the compiler may fuse
    and reassociate them as it likes."""
    if e.b.fused and not e.fast:
        return ScalarOps(e).fma(x, y, z)
    return e.floating("FAdd", x.type, e.floating("FMul", x.type, x, y), z)


def extreme(e: Emitter, name: str, x: Val, y: Val) -> Val:
    """min or max; NaN where either is NaN."""
    best = e.b.extreme(name, x, y)
    if best is not None:
        return best
    first = e.b.inst("FOrdLessThan" if name == "min" else "FOrdGreaterThan", "bool", x, y)
    best = e.select(first, x, y)
    return e.select(e.b.inst("IsNan", "bool", x), x, best)


def sign(e: Emitter, x: Val) -> Val:
    m = ScalarOps(e)
    zero, one = m.const(x, 0.0), m.const(x, 1.0)
    signed = e.select(m.eq(x, zero), zero, m.copysign(one, x))
    return e.select(m.is_nan(x), x, signed)


def emit_compare(e: Emitter, op: KOp) -> Val:
    dtype, name = op.operands[0].dtype, op.opcode
    x, y = (e.get(v) for v in op.operands)
    if dtype.is_float:
        if x.type == "f16":
            x, y = (e.b.inst("FConvert", "f32", v) for v in (x, y))
        return e.b.inst(FLOAT_ORDER[name], "bool", x, y)
    if dtype.kind == "b":
        return compare_bools(e, name, x, y)
    if name in ("eq", "ne"):
        return e.b.inst("IEqual" if name == "eq" else "INotEqual", "bool", x, y)
    return e.b.inst(("S" if dtype.kind == "i" else "U") + INTEGER_ORDER[name], "bool", x, y)


def compare_bools(e: Emitter, name: str, x: Val, y: Val) -> Val:
    if name in BOOL_BINARY:
        return e.b.inst(BOOL_BINARY[name], "bool", x, y)
    negate_x, negate_y, meet = BOOL_ORDER[name]
    x = e.b.inst("LogicalNot", "bool", x) if negate_x else x
    y = e.b.inst("LogicalNot", "bool", y) if negate_y else y
    return e.b.inst(f"Logical{meet}", "bool", x, y)


def emit_predicate(e: Emitter, op: KOp) -> Val:
    x = e.get(op.operands[0])
    if not op.operands[0].dtype.is_float:
        return e.b.const("bool", False)
    if x.type == "f16":
        x = e.b.inst("FConvert", "f32", x)
    return e.b.inst("IsNan" if op.opcode == "is_nan" else "IsInf", "bool", x)


def emit_signbit(e: Emitter, op: KOp) -> Val:
    x = e.get(op.operands[0])
    bits = e.bitcast(x, "i" + x.type[1:])
    return e.b.inst("SLessThan", "bool", bits, e.b.const(bits.type, 0))


def emit_select(e: Emitter, op: KOp) -> Val:
    pred, x, y = (e.get(v) for v in op.operands)
    return e.select(pred, x, y)


def emit_cast(e: Emitter, op: KOp) -> Val:
    source = op.operands[0]
    return convert(e, e.get(source), source.dtype, op.results[0].dtype)


def emit_const(e: Emitter, op: KOp) -> Val:
    return constant(e, op.results[0].dtype, op.attrs["value"])


def constant(e: Emitter, dtype: DType, value: float | int | bool) -> Val:
    """A scalar as a register value of that dtype, rounded as an array of that dtype would be."""
    if dtype.name == "bfloat16":
        value = float(np.asarray(value).astype(dtype.np).astype(np.float32))
    if dtype.kind == "c":
        value = dtype.pattern(value)
    return e.b.const(register_type(dtype), value)
