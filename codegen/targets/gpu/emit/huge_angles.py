"""Rare, exact and slow: large angles modulo pi/2 (Payne and Hanek 1983) and C's fmod.

Both work on the bits of the operands with integers, so that neither needs f64 for an f32.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Final

from loopgrad.codegen.math.compensated import two_sum
from loopgrad.codegen.scalar.ops import Ops
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.loops import counted

WORDS: Final = 44  # 32-bit pieces of 2/pi after two zero ones: enough for the largest exponent
# 32-bit words of 2/pi that take part: mantissa, 2 bits of quadrant, 64 that may cancel, 64 of result
WINDOW: Final = {"f32": 5, "f64": 6}
HALF_PI: Final = {
    "f32": (1.5707963705062866, -4.371139000186241e-08),
    "f64": (1.5707963267948966, 6.123233995736766e-17),
}
MANTISSA: Final = {"f32": (23, 127), "f64": (52, 1023)}


@cache
def two_over_pi() -> tuple[int, ...]:
    """2/pi in binary, most significant word first, after 64 zero bits (Machin's formula)."""
    bits = 32 * WORDS

    def arctangent(inverse: int) -> int:
        power, total, k = (1 << (bits + 64)) // inverse, 0, 1
        while power:
            total += power // k if k % 4 == 1 else -(power // k)
            power //= inverse * inverse
            k += 2
        return total

    scaled_pi = 16 * arctangent(5) - 4 * arctangent(239)
    value = (1 << (2 * bits + 1)) // scaled_pi
    return tuple([(value >> (32 * (WORDS - 1 - i))) & 0xFFFFFFFF for i in range(WORDS)])


class _Integers:
    """u64 arithmetic by name."""

    def __init__(self, e: Emitter) -> None:
        self.b = e.b

    def c(self, value: int) -> Val:
        return self.b.const("i64", value)

    def do(self, name: str, x: Val, y: Val | int) -> Val:
        return self.b.inst(name, "i64", x, self.c(y) if isinstance(y, int) else y)

    def low(self, x: Val) -> Val:
        return self.do("BitwiseAnd", x, 0xFFFFFFFF)

    def down(self, x: Val, y: Val | int) -> Val:
        return self.do("ShiftRightLogical", x, y)

    def up(self, x: Val, y: Val | int) -> Val:
        return self.do("ShiftLeftLogical", x, y)

    def test(self, name: str, x: Val, y: Val | int) -> Val:
        return self.b.inst(name, "bool", x, self.c(y) if isinstance(y, int) else y)


def parts(m: Ops[Val], e: Emitter, x: Val) -> tuple[Val, Val, Val]:
    """(biased exponent, mantissa with its leading bit, the exponent's field) as u64; the exponent of a
    subnormal number is 1."""
    i = _Integers(e)
    width = MANTISSA[x.type][0]
    bits = e.resize(m.as_int(m.abs(x)), "i64", signed=False)
    field = i.down(bits, width)
    normal = i.test("INotEqual", field, 0)
    implicit = e.select(normal, i.c(1 << width), i.c(0))
    mantissa = i.do("BitwiseOr", i.do("BitwiseAnd", bits, (1 << width) - 1), implicit)
    return e.select(normal, field, i.c(1)), mantissa, field


def reduce_large(m: Ops[Val], e: Emitter, x: Val) -> tuple[Val, Val]:
    """(quadrant, rest in [-pi/4, pi/4]) of x by exact arithmetic; NaN where x isn't finite."""
    x, i = e.b.opaque(x), _Integers(e)
    width, bias = MANTISSA[x.type]
    exponent, mantissa, field = parts(m, e, x)
    start = i.do("IAdd", exponent, 62 - bias - width)
    product = multiply(i, window(e, i, start, WINDOW[x.type]), mantissa, wide=width > 32)
    quarter = i.down(product[-1], 30)
    turn = [
        i.low(i.do("BitwiseOr", i.up(p, 2), i.down(product[n - 1], 30) if n else i.c(0))) for n, p in enumerate(product)
    ]
    half = i.down(turn[-1], 31)
    over = i.test("INotEqual", half, 0)
    size = [e.select(over, n, t) for n, t in zip(negated(i, turn), turn, strict=True)]
    rest = angle(m, e, x, size)
    flip = m.lt(x, m.const(x, 0.0))
    odd = e.b.inst("LogicalNotEqual", "bool", flip, over)
    rest = m.select(odd, m.neg(rest), rest)
    quadrant = i.do("IAdd", quarter, half)
    quadrant = e.select(flip, i.do("ISub", i.c(0), quadrant), quadrant)
    special = i.test("IEqual", field, 2 * bias + 1)
    rest = m.select(special, m.const(x, float("nan")), rest)
    return e.resize(quadrant, "i32" if x.type == "f32" else "i64"), rest


def angle(m: Ops[Val], e: Emitter, x: Val, fraction: list[Val]) -> Val:
    """pi/2 times a fraction in 32-bit limbs, rounded about once: a sum of pieces that are exact in x's type, with what
    its additions lose, times pi/2 and what that lacks."""
    i, step = _Integers(e), 16 if x.type == "f32" else 32
    total = lost = m.const(x, 0.0)
    for n, limb in enumerate(fraction):
        for place in range(0, 32, step):
            bits = limb if step == 32 else i.do("BitwiseAnd", i.down(limb, place), 0xFFFF)
            power = m.const(x, 2.0 ** (32 * (n - len(fraction)) + place))
            total, slip = two_sum(m, m.mul(e.b.inst("ConvertUToF", x.type, bits), power), total)
            lost = m.add(lost, slip)
    high, low = HALF_PI[x.type]
    product = m.mul(total, m.const(x, high))
    slip = m.fma(total, m.const(x, high), m.neg(product))
    small = m.add(m.mul(total, m.const(x, low)), m.mul(lost, m.const(x, high)))
    return m.add(product, m.add(slip, small))


def window(e: Emitter, i: _Integers, start: Val, count: int) -> list[Val]:
    """`count` words of 2/pi from bit `start` on, least significant word first."""
    first, shift = i.down(start, 5), i.do("BitwiseAnd", start, 31)
    words = [e.resize(word, "i64", signed=False) for word in e.b.lookup("i32", two_over_pi(), first, count + 1)]
    pairs = [i.do("BitwiseOr", i.up(x, 32), y) for x, y in pairwise(words)]
    return [i.low(i.down(i.up(pair, shift), 32)) for pair in reversed(pairs)]


def multiply(i: _Integers, limbs: list[Val], mantissa: Val, wide: bool) -> list[Val]:
    """limbs * mantissa, modulo their size."""
    result: list[Val] = [i.c(0)] * len(limbs)
    for place in range(2 if wide else 1):
        factor = i.low(i.down(mantissa, 32 * place))
        carry = i.c(0)
        for n in range(len(limbs) - place):
            total = i.do("IAdd", i.do("IAdd", i.do("IMul", limbs[n], factor), result[n + place]), carry)
            result[n + place], carry = i.low(total), i.down(total, 32)
    return result


def negated(i: _Integers, limbs: list[Val]) -> list[Val]:
    result, carry = [], i.c(1)
    for limb in limbs:
        total = i.do("IAdd", i.do("BitwiseXor", limb, 0xFFFFFFFF), carry)
        result.append(i.low(total))
        carry = i.down(total, 32)
    return result


def remainder(m: Ops[Val], e: Emitter, x: Val, y: Val) -> Val:
    """fmod: long division of the mantissas, bit by bit."""
    i, b = _Integers(e), e.b
    width, bias = MANTISSA[x.type]
    ex, mx, fx = parts(m, e, x)
    ey, my, _ = parts(m, e, y)
    zero = i.test("IEqual", my, 0)
    divisor = e.select(zero, i.c(1), my)
    left = b.local("i64")
    b.set(left, i.do("UMod", mx, divisor))

    def step(_k: Val) -> None:
        twice = i.up(b.get(left, "i64"), 1)
        over = i.test("UGreaterThanEqual", twice, divisor)
        b.set(left, e.select(over, i.do("ISub", twice, divisor), twice))

    counted(e, i.do("ISub", ex, ey), step)
    value = b.inst("ConvertSToF", x.type, b.get(left, "i64"))
    power = e.resize(i.do("ISub", ey, bias + width), "i32" if x.type == "f32" else "i64")
    rest = m.copysign(m.scale(value, power), x)
    rest = m.select(m.lt(m.abs(x), m.abs(y)), x, rest)
    highest = 2 * bias + 1
    bad = m.either(m.either(zero, i.test("IEqual", fx, highest)), m.is_nan(y))
    return m.select(bad, m.const(x, float("nan")), rest)
