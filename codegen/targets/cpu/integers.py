"""Integer arithmetic that can't trap: division by zero gives 0, MIN / -1 wraps, wide shifts shift out.

x86 has no vector integer division, and a scalar one traps where an inactive lane holds a zero. Operands
up to 32 bits divide exactly through f64; 64-bit lanes divide one by one, with harmless divisors put in.
Division by a constant is left to LLVM, which multiplies.
"""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import KOp
from loopgrad.codegen.targets.cpu.context import Emitter, llvm_type
from loopgrad.codegen.targets.cpu.outline import combine
from loopgrad.codegen.targets.cpu.vector import Val
from loopgrad.graph.types import DType

PLAIN = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}


def operands_of(e: Emitter, op: KOp) -> tuple[list[Val], str]:
    """The integer operands in one width: 32 bits where all operands and the result are narrow."""
    dtype = op.operands[0].dtype
    full = llvm_type(dtype)
    if dtype.kind == "i" and dtype.bits == 64:
        small = all(e.analysis.fits_int32(v) for v in op.operands)
        result = op.results[0]
        if result.dtype.kind == "i":
            small = small and e.analysis.narrow(result)
        if small and not all(e.analysis.uniform(v) for v in op.operands):
            return [e.resize(e.get(v), "i32") for v in op.operands], "i32"
    return [e.wide(v) for v in op.operands], full


def settle(e: Emitter, op: KOp, x: Val) -> Val:
    """The result in the width its consumers expect."""
    result = op.results[0]
    return e.resize(x, "i32") if result.dtype.is_integer and e.analysis.narrow(result) else x


def emit_integer(e: Emitter, op: KOp) -> Val:
    operands, type = operands_of(e, op)
    dtype = op.operands[0].dtype
    name = op.opcode
    if name in PLAIN:
        return settle(e, op, e.b.inst(type, PLAIN[name] + " {t0} {a}, {b}", *operands))
    if name in ("min", "max"):
        return settle(e, op, combine(e.b, name, dtype, *operands))
    if name in ("shl", "shr"):
        return shift(e, name, dtype, type, *operands)
    if name == "pow":
        return power(e, dtype, type, *operands)
    if name in ("div", "floordiv", "rem", "mod"):
        return settle(e, op, divide(e, name, dtype, type, *operands))
    return settle(e, op, unary(e, name, dtype, type, operands[0]))


def unary(e: Emitter, name: str, dtype: DType, type: str, x: Val) -> Val:
    b = e.b
    zero = b.const(type, 0)
    if name == "neg":
        return b.inst(type, "sub {t0} {a}, {b}", zero, x)
    if name == "invert":
        return b.inst(type, "xor {t0} {a}, {b}", x, b.const(type, -1 if type != "i1" else True))
    if name == "abs":
        if dtype.kind == "u":
            return x
        return b.inst(type, "call {r} @llvm.abs.{s}({t0} {a}, i1 false)", x)
    if name == "sign":
        negative = b.const(type, -1) if dtype.kind == "i" else zero
        positive = b.inst("i1", "icmp ne {t0} {a}, {b}", x, zero)
        up = b.inst(type, "select {t0} {a}, {t1} {b}, {t2} {c}", positive, b.const(type, 1), zero)
        if dtype.kind == "u":
            return up
        below = b.inst("i1", "icmp slt {t0} {a}, {b}", x, zero)
        return b.inst(type, "select {t0} {a}, {t1} {b}, {t2} {c}", below, negative, up)
    return x  # floor, ceil, round, trunc of an integer


def is_literal(x: Val) -> bool:
    return x.uniform and x.name[0] != "%"


def divide(e: Emitter, name: str, dtype: DType, type: str, x: Val, y: Val) -> Val:
    """div and rem truncate; floordiv and mod floor."""
    b, signed = e.b, dtype.kind == "i"
    letter = "s" if signed else "u"
    zero, one = b.const(type, 0), b.const(type, 1)
    if is_literal(y) and int(y.name) not in (0, -1):
        quotient = b.inst(type, letter + "div {t0} {a}, {b}", x, y)
        fine: Val | None = None
    else:
        fine = b.inst("i1", "icmp ne {t0} {a}, {b}", y, zero)
        safe = b.inst(type, "select {t0} {a}, {t1} {b}, {t2} {c}", fine, y, one)
        quotient = safe_quotient(e, type, signed, x, safe)
    rest = b.inst(type, "sub {t0} {a}, {b}", x, b.inst(type, "mul {t0} {a}, {b}", quotient, y))
    if signed and name in ("floordiv", "mod"):
        inexact = b.inst("i1", "icmp ne {t0} {a}, {b}", rest, zero)
        crossed = b.inst("i1", "icmp slt {t0} {a}, {b}", b.inst(type, "xor {t0} {a}, {b}", rest, y), zero)
        lower = b.inst("i1", "and {t0} {a}, {b}", inexact, crossed)
        if name == "mod":
            rest = b.inst(type, "add {t0} {a}, {b}", rest, b.choose(lower, y, zero))
        else:
            quotient = b.inst(type, "sub {t0} {a}, {b}", quotient, b.choose(lower, one, zero))
    result = quotient if name in ("div", "floordiv") else rest
    return result if fine is None else b.choose(fine, result, zero)


def safe_quotient(e: Emitter, type: str, signed: bool, x: Val, y: Val) -> Val:
    """x / y for y != 0."""
    b = e.b
    letter = "s" if signed else "u"
    if (x.uniform and y.uniform) or int(type[1:]) > 32:
        if signed:  # MIN / -1 would trap: divide by 1 and negate (which wraps)
            minus = b.inst("i1", "icmp eq {t0} {a}, {b}", y, b.const(type, -1))
            divisor = b.choose(minus, b.const(type, 1), y)
            dividend = b.choose(minus, b.inst(type, "sub {t0} {a}, {b}", b.const(type, 0), x), x)
            return b.inst(type, "sdiv {t0} {a}, {b}", dividend, divisor)
        return b.inst(type, "udiv {t0} {a}, {b}", x, y)
    wide = [b.inst("double", f"{letter}itofp " + "{t0} {a} to {r}", v) for v in (x, y)]
    ratio = b.inst("double", "fdiv {t0} {a}, {b}", *wide)
    whole = b.inst("i64", f"fpto{letter}i " + "{t0} {a} to {r}", ratio)
    return b.inst(type, "trunc {t0} {a} to {r}", whole)


def shift(e: Emitter, name: str, dtype: DType, type: str, x: Val, y: Val) -> Val:
    b, bits = e.b, dtype.bits
    inside = b.inst("i1", "icmp ult {t0} {a}, {b}", y, b.const(type, bits))
    if name == "shr" and dtype.kind == "i":
        amount = b.choose(inside, y, b.const(type, bits - 1))
        return b.inst(type, "ashr {t0} {a}, {b}", x, amount)
    amount = b.choose(inside, y, b.const(type, 0))
    shifted = b.inst(type, ("shl" if name == "shl" else "lshr") + " {t0} {a}, {b}", x, amount)
    return b.choose(inside, shifted, b.const(type, 0))


def power(e: Emitter, dtype: DType, type: str, x: Val, y: Val) -> Val:
    """By squaring, as many rounds as the type has bits; a negative exponent truncates 1 / x**|y|."""
    b = e.b
    zero, one = b.const(type, 0), b.const(type, 1)
    result: Val = one
    square, rest = x, y
    rounds = int(y.name).bit_length() if is_literal(y) and int(y.name) >= 0 else dtype.bits
    for _ in range(rounds):
        odd = b.inst("i1", "icmp ne {t0} {a}, {b}", b.inst(type, "and {t0} {a}, {b}", rest, one), zero)
        result = b.choose(odd, b.inst(type, "mul {t0} {a}, {b}", result, square), result)
        square = b.inst(type, "mul {t0} {a}, {b}", square, square)
        rest = b.inst(type, "lshr {t0} {a}, {b}", rest, one)
    if dtype.kind == "u" or (is_literal(y) and int(y.name) >= 0):
        return result
    negative = b.inst("i1", "icmp slt {t0} {a}, {b}", y, zero)
    odd = b.inst("i1", "icmp ne {t0} {a}, {b}", b.inst(type, "and {t0} {a}, {b}", y, one), zero)
    is_one = b.inst("i1", "icmp eq {t0} {a}, {b}", x, one)
    is_minus = b.inst("i1", "icmp eq {t0} {a}, {b}", x, b.const(type, -1))
    flipped = b.choose(is_minus, b.choose(odd, b.const(type, -1), one), zero)
    return b.choose(negative, b.choose(is_one, one, flipped), result)
