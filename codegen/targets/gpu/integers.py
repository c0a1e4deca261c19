"""Integer arithmetic without undefined results: x / 0 is 0, MIN / -1 wraps, wide shifts shift out."""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.kernel.nodes import KOp
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.context import Emitter
from loopgrad.codegen.targets.gpu.ranges import Range
from loopgrad.graph.types import DType

PLAIN: Final = {
    "add": "IAdd",
    "sub": "ISub",
    "mul": "IMul",
    "and": "BitwiseAnd",
    "or": "BitwiseOr",
    "xor": "BitwiseXor",
}
DIVISIONS: Final = ("div", "floordiv", "rem", "mod")


def emit_integer(e: Emitter, name: str, dtype: DType, operands: list[Val]) -> Val:
    type = operands[0].type
    if name in PLAIN:
        return e.b.inst(PLAIN[name], type, *operands)
    if name in ("min", "max"):
        return extreme(e, name, dtype, *operands)
    if name in ("shl", "shr"):
        return shift(e, name, dtype, *operands)
    if name == "pow":
        return power(e, dtype, *operands)
    if name in DIVISIONS:
        return divide(e, name, dtype, *operands)
    return unary(e, name, dtype, operands[0])


def extreme(e: Emitter, name: str, dtype: DType, x: Val, y: Val) -> Val:
    letter = "S" if dtype.kind == "i" else "U"
    order = "LessThan" if name == "min" else "GreaterThan"
    return e.select(e.b.inst(letter + order, "bool", x, y), x, y)


def unary(e: Emitter, name: str, dtype: DType, x: Val) -> Val:
    b = e.b
    zero, signed = b.const(x.type, 0), dtype.kind == "i"
    if name == "neg":
        return negated(e, x) if dtype.bits <= 16 else b.inst("ISub", x.type, zero, x)
    if name == "invert":
        return b.inst("Not", x.type, x)
    if name == "abs" and signed:
        return e.select(b.inst("SLessThan", "bool", x, zero), negated(e, x), x)
    if name == "sign":
        up = e.select(b.inst("INotEqual", "bool", x, zero), b.const(x.type, 1), zero)
        return e.select(b.inst("SLessThan", "bool", x, zero), b.const(x.type, -1), up) if signed else up
    return x  # abs of an unsigned, floor, ceil, round, trunc


def negated(e: Emitter, x: Val) -> Val:
    """0 - x, where the compiler doesn't know that it is 0. NVIDIA's (ptxas 13, the Vulkan driver 580; seen on an H200)
    take the negation of 8 or 16 bits for one that doesn't wrap, and the size of a number for never negative: MIN,
    widened or compared, was positive."""
    zero = e.b.const(x.type, 0) if e.unknown_zero is None else e.resize(e.unknown_zero, x.type, signed=False)
    return e.b.inst("ISub", x.type, zero, x)


def emit_division(e: Emitter, op: KOp) -> Val:
    """div and rem truncate; floordiv and mod floor."""
    (x, y), name, dtype = (e.get(v) for v in op.operands), op.opcode, op.operands[0].dtype
    by, inside = e.ranges.constant(op.operands[1]), e.ranges.of(op.operands[0])
    if by is None or by <= 0 or (inside[0] < 0 and name in ("div", "rem")):
        return divide(e, name, dtype, x, y)
    return divide_by(e, name, x, by, inside)


def divide_by(e: Emitter, name: str, x: Val, by: int, inside: Range) -> Val:
    """By a positive constant, with a remainder that isn't negative; in half as many bits where x is known to fit."""
    if x.type == "i64" and inside[0] >= 0 and max(inside[1], by) < 1 << 31:
        return e.resize(divide_by(e, name, e.resize(x, "i32"), by, inside), "i64", signed=False)
    b, type, whole = e.b, x.type, name in ("div", "floordiv")
    if by & (by - 1) == 0:
        if not whole:
            return b.inst("BitwiseAnd", type, x, b.const(type, by - 1))
        shift = "ShiftRightArithmetic" if inside[0] < 0 else "ShiftRightLogical"
        return b.inst(shift, type, x, b.const(type, by.bit_length() - 1))
    divisor = b.const(type, by)
    if inside[0] < 0:  # -1 - x isn't negative, and its quotient is that of x in the same way
        sign = signs(e, x)
        quotient = b.inst("UDiv", type, b.inst("BitwiseXor", type, x, sign), divisor)
        quotient = b.inst("BitwiseXor", type, quotient, sign)
    else:
        quotient = b.inst("UDiv", type, x, divisor)
    return quotient if whole else b.inst("ISub", type, x, b.inst("IMul", type, quotient, divisor))


def divide(e: Emitter, name: str, dtype: DType, x: Val, y: Val) -> Val:
    """By any number."""
    b, type, signed = e.b, x.type, dtype.kind == "i"
    zero, one = b.const(type, 0), b.const(type, 1)
    fine = b.inst("INotEqual", "bool", y, zero)
    divisor = e.select(fine, y, one)
    quotient = signed_quotient(e, x, divisor) if signed else b.inst("UDiv", type, x, divisor)
    rest = b.inst("ISub", type, x, b.inst("IMul", type, quotient, divisor))
    if signed and name in ("floordiv", "mod"):
        inexact = b.inst("INotEqual", "bool", rest, zero)
        crossed = b.inst("SLessThan", "bool", b.inst("BitwiseXor", type, rest, divisor), zero)
        lower = e.both(inexact, crossed)
        if name == "mod":
            rest = b.inst("IAdd", type, rest, e.select(lower, divisor, zero))
        else:
            quotient = b.inst("ISub", type, quotient, e.select(lower, one, zero))
    return e.select(fine, quotient if name in ("div", "floordiv") else rest, zero)


def signed_quotient(e: Emitter, x: Val, y: Val) -> Val:
    """x / y for y != 0, of sizes without a sign: the size of MIN is right, and MIN / -1 wraps. NVIDIA's Vulkan driver
    580 gets signed divisions wrong whose dividend was 32 bits without a sign before (seen on an H200)."""
    b, type = e.b, x.type
    above, below = signs(e, x), signs(e, y)
    size = b.inst("UDiv", type, with_sign(e, x, above), with_sign(e, y, below))
    return with_sign(e, size, b.inst("BitwiseXor", type, above, below))


def signs(e: Emitter, x: Val) -> Val:
    """-1 where x is negative, 0 elsewhere."""
    return e.b.inst("ShiftRightArithmetic", x.type, x, e.b.const(x.type, int(x.type[1:]) - 1))


def with_sign(e: Emitter, x: Val, sign: Val) -> Val:
    """-x where the sign is -1, x where it is 0."""
    return e.b.inst("ISub", x.type, e.b.inst("BitwiseXor", x.type, x, sign), sign)


def shift(e: Emitter, name: str, dtype: DType, x: Val, y: Val) -> Val:
    b, type, bits = e.b, x.type, dtype.bits
    inside = b.inst("ULessThan", "bool", y, b.const(type, bits))
    if name == "shr" and dtype.kind == "i":
        return b.inst("ShiftRightArithmetic", type, x, e.select(inside, y, b.const(type, bits - 1)))
    move = "ShiftLeftLogical" if name == "shl" else "ShiftRightLogical"
    if bits == 64:
        # in two steps, which are always defined: LLVM 22 drops a test of the count for PTX, whose shifts have a
        # bound of their own but see only half of the count
        capped = e.select(inside, y, b.const(type, bits))
        half = b.inst("ShiftRightLogical", type, capped, b.const(type, 1))
        return b.inst(move, type, b.inst(move, type, x, half), b.inst("ISub", type, capped, half))
    shifted = b.inst(move, type, x, e.select(inside, y, b.const(type, 0)))
    return e.select(inside, shifted, b.const(type, 0))


def power(e: Emitter, dtype: DType, x: Val, y: Val) -> Val:
    """By squaring, as many rounds as the type has bits; a negative exponent truncates 1 / x**|y|."""
    b, type = e.b, x.type
    zero, one = b.const(type, 0), b.const(type, 1)
    result, square, rest = one, x, y
    for _ in range(dtype.bits):
        odd = b.inst("INotEqual", "bool", b.inst("BitwiseAnd", type, rest, one), zero)
        result = e.select(odd, b.inst("IMul", type, result, square), result)
        square = b.inst("IMul", type, square, square)
        rest = b.inst("ShiftRightLogical", type, rest, one)
    if dtype.kind == "u":
        return result
    negative = b.inst("SLessThan", "bool", y, zero)
    odd = b.inst("INotEqual", "bool", b.inst("BitwiseAnd", type, y, one), zero)
    flipped = e.select(odd, b.const(type, -1), one)
    flipped = e.select(b.inst("IEqual", "bool", x, b.const(type, -1)), flipped, zero)
    return e.select(negative, e.select(b.inst("IEqual", "bool", x, one), one, flipped), result)
