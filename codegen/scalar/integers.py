"""Integer arithmetic without undefined results: x / 0 is 0, MIN / -1 wraps, wide shifts shift out.

`known(i)`, between which numbers operand i lies, only makes code shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from loopgrad.codegen.scalar.ops import Ops, V
from loopgrad.codegen.scalar.philox import philox
from loopgrad.graph.primitives.intervals import Interval
from loopgrad.graph.types import DType

Known = Callable[[int], Interval]
Recipe = Callable[..., Any]  # of the Ops, the dtype, what is known, and the operands


def _row(opcode: str) -> Recipe:
    return lambda m, _dtype, _known, *operands: m.same(opcode, *operands)


# x / y


def _division(whole: bool, floors: bool) -> Recipe:
    """div and rem truncate; floordiv and mod floor."""

    def recipe(m: Ops[V], dtype: DType, known: Known, x: V, y: V) -> V:
        inside, (by, most) = known(0), known(1)
        constant = by if by == most else None
        if constant is not None and constant > 0 and (floors or inside[0] >= 0):
            return divide_by(m, x, constant, inside, whole)
        signed = dtype.kind == "i"
        if constant:
            divisor = m.const(y, constant)
            return _divided(m, x, divisor, m.quotient(x, divisor, signed, constant), signed, whole, floors)
        fine, zero = m.test("INotEqual", y, m.const(y, 0)), m.const(x, 0)
        quotient = m.quotient(x, m.select(fine, y, m.const(y, 1)), signed)
        return m.select(fine, _divided(m, x, y, quotient, signed, whole, floors), zero)

    return recipe


def _divided(m: Ops[V], x: V, y: V, quotient: V, signed: bool, whole: bool, floors: bool) -> V:
    """The quotient or the rest, from x / y toward zero."""
    zero, one = m.const(x, 0), m.const(x, 1)
    if whole and not (signed and floors):
        return quotient
    rest = m.isub(x, m.imul(quotient, y))
    if not (signed and floors):
        return rest
    inexact = m.test("INotEqual", rest, zero)
    crossed = m.test("SLessThan", m.ixor(rest, y), zero)
    lower = m.both(inexact, crossed)
    return m.isub(quotient, m.select(lower, one, zero)) if whole else m.iadd(rest, m.select(lower, y, zero))


def divide_by(m: Ops[V], x: V, by: int, inside: Interval, whole: bool) -> V:
    """The floored quotient by a positive constant, or its rest, which isn't negative; in half as many bits where x is
    known to fit."""
    if m.type(x) == "i64" and inside[0] >= 0 and max(inside[1], by) < 1 << 31:
        return m.resize(divide_by(m, m.resize(x, "i32"), by, inside, whole), "i64", signed=False)
    negative = inside[0] < 0
    if by & (by - 1) == 0:
        if not whole:
            return m.iand(x, m.const(x, by - 1))
        return (m.sar if negative else m.shr)(x, by.bit_length() - 1)
    divisor = m.const(x, by)
    if negative:  # -1 - x isn't negative, and its quotient is that of x in the same way
        sign = signs(m, x)
        quotient = m.ixor(m.same("UDiv", m.ixor(x, sign), divisor), sign)
    else:
        quotient = m.same("UDiv", x, divisor)
    return quotient if whole else m.isub(x, m.imul(quotient, divisor))


def unsigned_quotient(m: Ops[V], x: V, y: V) -> V:
    """x / y toward zero by a division of sizes: the size of MIN is right without a sign, and MIN / -1 wraps."""
    above, below = signs(m, x), signs(m, y)
    size = m.same("UDiv", _with_sign(m, x, above), _with_sign(m, y, below))
    return _with_sign(m, size, m.ixor(above, below))


def signs(m: Ops[V], x: V) -> V:
    """-1 where x is negative, 0 elsewhere."""
    return m.sar(x, m.bits(x) - 1)


def _with_sign(m: Ops[V], x: V, sign: V) -> V:
    """-x where the sign is -1, x where it is 0."""
    return m.isub(m.ixor(x, sign), sign)


# others


def _extreme(name: str) -> Recipe:
    def recipe(m: Ops[V], dtype: DType, known: Known, x: V, y: V) -> V:
        letter = "S" if dtype.kind == "i" else "U"
        if f"{letter}{name}" in m.own:
            return m.same(f"{letter}{name}", x, y)
        order = "LessThan" if name == "Min" else "GreaterThan"
        return m.select(m.test(letter + order, x, y), x, y)

    return recipe


def _neg(m: Ops[V], dtype: DType, known: Known, x: V) -> V:
    return m.minus(x) if dtype.bits <= 16 else m.isub(m.const(x, 0), x)  # see `minus` of GPUs: of narrow numbers


def _abs(m: Ops[V], dtype: DType, known: Known, x: V) -> V:
    if dtype.kind == "u":
        return x
    if "SAbs" in m.own:
        return m.same("SAbs", x)
    return m.select(m.test("SLessThan", x, m.const(x, 0)), m.minus(x), x)


def _sign(m: Ops[V], dtype: DType, known: Known, x: V) -> V:
    zero = m.const(x, 0)
    up = m.select(m.test("INotEqual", x, zero), m.const(x, 1), zero)
    return up if dtype.kind == "u" else m.select(m.test("SLessThan", x, zero), m.const(x, -1), up)


def _shift(left: bool) -> Recipe:
    def recipe(m: Ops[V], dtype: DType, known: Known, x: V, y: V) -> V:
        bits = m.bits(x)
        inside = m.test("ULessThan", y, m.const(y, bits))
        if not left and dtype.kind == "i":
            return m.same("ShiftRightArithmetic", x, m.select(inside, y, m.const(y, bits - 1)))
        move = "ShiftLeftLogical" if left else "ShiftRightLogical"
        if bits == 64 and m.halved_shifts:  # by halves, which are always defined
            capped = m.select(inside, y, m.const(y, bits))
            half = m.shr(capped, 1)
            return m.same(move, m.same(move, x, half), m.isub(capped, half))
        return m.select(inside, m.same(move, x, m.select(inside, y, m.const(y, 0))), m.const(x, 0))

    return recipe


def _pow(m: Ops[V], dtype: DType, known: Known, x: V, y: V) -> V:
    """By squaring, as many rounds as the exponent may have bits; a negative one truncates 1 / x**|y|."""
    low, high = known(1)
    zero, one = m.const(x, 0), m.const(x, 1)
    result, square, rest = one, x, y
    for _ in range(m.bits(x) if low < 0 else high.bit_length()):
        odd = m.test("INotEqual", m.iand(rest, one), zero)
        result = m.select(odd, m.imul(result, square), result)
        square = m.imul(square, square)
        rest = m.shr(rest, 1)
    if low >= 0:
        return result
    minus = m.const(x, -1)
    odd = m.test("INotEqual", m.iand(y, one), zero)
    flipped = m.select(m.test("IEqual", x, minus), m.select(odd, minus, one), zero)
    return m.select(m.test("SLessThan", y, zero), m.select(m.test("IEqual", x, one), one, flipped), result)


def _bit_count(m: Ops[V], dtype: DType, _known: Known, x: V) -> V:
    """Where no instruction counts: in pairs of bits, fours, bytes, then those (Warren, "Hacker's Delight", 5-1)."""
    if "BitCount" in m.own:
        return m.same("BitCount", x)
    ones, pairs, fours = (m.const(x, (2**dtype.bits - 1) // (2**each + 1)) for each in (1, 2, 4))
    x = m.isub(x, m.iand(m.shr(x, 1), ones))
    x = m.iadd(m.iand(x, pairs), m.iand(m.shr(x, 2), pairs))
    x = m.iand(m.iadd(x, m.shr(x, 4)), fours)
    for shift in (8, 16, 32)[: (dtype.bits // 8).bit_length() - 1]:  # a byte holds any of the counts
        x = m.iadd(x, m.shr(x, shift))
    return m.iand(x, m.const(x, 0xFF))


RECIPES: Final[dict[str, Recipe]] = {
    "add": _row("IAdd"),
    "sub": _row("ISub"),
    "mul": _row("IMul"),
    "and": _row("BitwiseAnd"),
    "or": _row("BitwiseOr"),
    "xor": _row("BitwiseXor"),
    "div": _division(whole=True, floors=False),
    "rem": _division(whole=False, floors=False),
    "floordiv": _division(whole=True, floors=True),
    "mod": _division(whole=False, floors=True),
    "min": _extreme("Min"),
    "max": _extreme("Max"),
    "shl": _shift(left=True),
    "shr": _shift(left=False),
    "pow": _pow,
    "neg": _neg,
    "abs": _abs,
    "invert": _row("Not"),
    "bit_count": _bit_count,
    "sign": _sign,
    "philox": lambda m, _dtype, known, *operands: philox(m, operands, known(6)),
}
