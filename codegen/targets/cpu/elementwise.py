"""Elementwise operations: floats, comparisons, select, cast, and the doors to integers and math recipes.

No fast-math flag is set by default: LLVM neither contracts a*b + c nor reassociates, so a program gives
the same bits on every width and a*a - b*b is 0 for a = b; what is fused is an `fma` of the kernel. The option
fast_math sets them all but those on NaN and infinity.
"""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import KOp
from loopgrad.codegen.math.power import whole_power
from loopgrad.codegen.targets.cpu.context import Emitter, llvm_type
from loopgrad.codegen.targets.cpu.halves import HALVES, narrowed
from loopgrad.codegen.targets.cpu.integers import emit_integer, operands_of
from loopgrad.codegen.targets.cpu.math_calls import emit_recipe
from loopgrad.codegen.targets.cpu.outline import combine
from loopgrad.codegen.targets.cpu.recipes import VectorOps
from loopgrad.codegen.targets.cpu.vector import Val
from loopgrad.graph.types import DType

FAST = "reassoc nsz arcp contract afn "
FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
FLOAT_INTRINSIC = {
    "abs": "fabs",
    "floor": "floor",
    "ceil": "ceil",
    "round": "roundeven",
    "trunc": "trunc",
    "sqrt": "sqrt",
}
FLOAT_ORDER = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def emit_elementwise(e: Emitter, op: KOp) -> Val:
    dtype = op.operands[0].dtype
    if not dtype.is_float:
        return emit_integer(e, op)
    operands = [e.get(v) for v in op.operands]
    type = llvm_type(dtype)
    if type in HALVES:  # computed in f32, rounded once
        operands = [e.b.inst("float", "fpext {t0} {a} to {r}", v) for v in operands]
        return narrowed(e.b, emit_float(e, op.opcode, dtype, "float", operands), type)
    return emit_float(e, op.opcode, dtype, type, operands)


def emit_whole_power(e: Emitter, op: KOp) -> Val:
    x, n, type = e.get(op.operands[0]), op.attrs["exponent"], llvm_type(op.results[0].dtype)
    if type in HALVES:  # f32 has digits enough for all the factors
        wide = e.b.inst("float", "fpext {t0} {a} to {r}", x)
        return narrowed(e.b, whole_power(VectorOps(e), wide, n, exact=False), type)
    return whole_power(VectorOps(e), x, n, exact=not e.fast)


def emit_float(e: Emitter, name: str, dtype: DType, type: str, operands: list[Val]) -> Val:
    b, flags = e.b, FAST if e.fast else ""
    if name in FLOAT_BINARY:
        return b.inst(type, f"{FLOAT_BINARY[name]} {flags}" + "{t0} {a}, {b}", *operands)
    if name == "neg":
        return b.inst(type, "fneg {t0} {a}", *operands)
    if name == "fma":
        return multiply_add(e, dtype, type, *operands)
    if name in FLOAT_INTRINSIC:
        return b.inst(type, f"call {{r}} @llvm.{FLOAT_INTRINSIC[name]}.{{s}}({{t0}} {{a}})", *operands)
    if name in ("min", "max"):
        return combine(b, name, dtype, *operands)
    if name == "sign":
        return sign(e, type, operands[0])
    if name == "rsqrt":
        root = b.inst(type, "call {r} @llvm.sqrt.{s}({t0} {a})", *operands)
        return b.inst(type, f"fdiv {flags}" + "{t0} {a}, {b}", b.const(type, 1.0), root)
    return emit_recipe(e, name, operands)


def multiply_add(e: Emitter, dtype: DType, type: str, x: Val, y: Val, z: Val) -> Val:
    """x * y + z, in two steps where a fused one would be a call of the C library, and where LLVM may fuse and
    reassociate them as it likes."""
    if e.machine.fused and not e.fast:
        return VectorOps(e).fma(x, y, z)
    product = emit_float(e, "mul", dtype, type, [x, y])
    return emit_float(e, "add", dtype, type, [product, z])


def sign(e: Emitter, type: str, x: Val) -> Val:
    b = e.b
    ordered = b.inst("i1", "fcmp une {t0} {a}, {b}", x, b.const(type, 0.0))  # true for NaN
    nan = b.inst("i1", "fcmp uno {t0} {a}, {b}", x, x)
    one = b.inst(type, "call {r} @llvm.copysign.{s}({t0} {a}, {t1} {b})", b.const(type, 1.0), x)
    return b.choose(nan, x, b.choose(ordered, one, b.const(type, 0.0)))


def emit_compare(e: Emitter, op: KOp) -> Val:
    dtype, name = op.operands[0].dtype, op.opcode
    if dtype.is_float:
        return e.b.inst("i1", f"fcmp {FLOAT_ORDER[name]} " + "{t0} {a}, {b}", *[e.get(v) for v in op.operands])
    operands, _ = operands_of(e, op)
    letter = "" if name in ("eq", "ne") else "s" if dtype.kind == "i" else "u"
    return e.b.inst("i1", f"icmp {letter}{name} " + "{t0} {a}, {b}", *operands)


def emit_predicate(e: Emitter, op: KOp) -> Val:
    b, x = e.b, e.get(op.operands[0])
    if op.opcode == "is_nan":
        return b.inst("i1", "fcmp uno {t0} {a}, {b}", x, x)
    size = b.inst(x.type, "call {r} @llvm.fabs.{s}({t0} {a})", x)
    return b.inst("i1", "fcmp oeq {t0} {a}, {b}", size, b.const(x.type, float("inf")))


def emit_signbit(e: Emitter, op: KOp) -> Val:
    b, x = e.b, e.get(op.operands[0])
    type = f"i{op.operands[0].dtype.bits}"
    return b.inst("i1", "icmp slt {t0} {a}, {b}", b.inst(type, "bitcast {t0} {a} to {r}", x), b.const(type, 0))


def emit_select(e: Emitter, op: KOp) -> Val:
    pred, *arms = op.operands
    result = op.results[0]
    values = [e.get(v) for v in arms]
    if result.dtype.kind == "i":
        type = "i32" if e.analysis.narrow(result) else llvm_type(result.dtype)
        values = [e.resize(v, type) for v in values]
    return e.b.inst(values[0].type, "select {t0} {a}, {t1} {b}, {t2} {c}", e.get(pred), *values)


def emit_cast(e: Emitter, op: KOp) -> Val:
    source, result = op.operands[0], op.results[0]
    to = result.dtype
    if source.dtype.kind == "i" and to.kind == "i":
        return e.resize(e.get(source), "i32" if e.analysis.narrow(result) else llvm_type(to))
    x, out = e.wide(source), llvm_type(to)
    if source.dtype is to:
        return x
    value = convert(e, x, source.dtype, to, out)
    return e.resize(value, "i32") if to.kind == "i" and e.analysis.narrow(result) else value


def convert(e: Emitter, x: Val, source: DType, to: DType, out: str) -> Val:
    b = e.b
    if to.kind == "b":
        if source.is_float:
            return b.inst("i1", "fcmp une {t0} {a}, {b}", x, b.const(x.type, 0.0))
        return b.inst("i1", "icmp ne {t0} {a}, {b}", x, b.const(x.type, 0))
    if source.is_float and to.is_float:
        if to.bits > source.bits:
            return b.inst(out, "fpext {t0} {a} to {r}", x)
        if to.bits == source.bits:  # float16 and bfloat16: every value of either is one of float
            x = b.inst("float", "fpext {t0} {a} to {r}", x)
        return narrowed(b, x, out) if out in HALVES else b.inst(out, "fptrunc {t0} {a} to {r}", x)
    if source.is_float:
        letter = "s" if to.kind == "i" else "u"
        return saturating(e, x, out, letter)
    if to.is_float:
        instruction = ("sitofp" if source.kind == "i" else "uitofp") + " {t0} {a} to {r}"
        if out in HALVES:  # by way of double: only beyond 2**53 is that more than one rounding
            return narrowed(b, b.inst("double", instruction, x), out)
        return b.inst(out, instruction, x)
    if to.bits == source.bits:
        return x
    grow = "sext" if source.kind == "i" else "zext"
    return b.inst(out, (grow if to.bits > source.bits else "trunc") + " {t0} {a} to {r}", x)


def saturating(e: Emitter, x: Val, out: str, letter: str) -> Val:
    """Toward zero, saturating, NaN to 0: the intrinsic means exactly this."""
    pattern = f"call {{r}} @llvm.fpto{letter}i.sat.{{s}}.{{s0}}({{t0}} {{a}})"
    return e.b.inst(out, pattern, x)


def emit_const(e: Emitter, op: KOp) -> Val:
    dtype, value = op.results[0].dtype, op.attrs["value"]
    return e.b.const(llvm_type(dtype), dtype.pattern(value) if dtype.kind == "c" else value)


def emit_alias(e: Emitter, op: KOp) -> Val:
    result = op.results[0]
    x = e.get(op.operands[0])
    return (
        e.resize(x, "i32" if e.analysis.narrow(result) else llvm_type(result.dtype)) if result.dtype.kind == "i" else x
    )
