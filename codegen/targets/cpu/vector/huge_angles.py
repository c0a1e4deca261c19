"""Huge arguments of sin, cos, tan modulo pi/2: exact, by scalar integer arithmetic (Payne and Hanek, 1983).

|x| = mantissa * 2**exponent with a 53-bit mantissa. The bits of 2/pi above the point where a product with
the mantissa is a multiple of 4 don't matter; the next 256 bits times the mantissa, modulo 2**256, hold the
quadrant in the top two bits and 254 bits of the fraction: 190 correct ones after the worst cancellation. The first 64
of them times pi/2 are rounded once.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

LIMBS = 22  # 64-bit pieces of 2/pi: exponents up to 971 need 971 + 2 + 256 bits and one limb to spare


@cache
def two_over_pi_limbs() -> tuple[int, ...]:
    """2/pi in binary, most significant piece first, after 64 zero bits."""
    bits = 64 * LIMBS
    pi = machin_pi(bits + 64)
    value = (Fraction(2) / pi) * (1 << (bits - 64))
    whole = int(value)
    return tuple([(whole >> (64 * (LIMBS - 1 - i))) & (2**64 - 1) for i in range(LIMBS)])


def machin_pi(bits: int) -> Fraction:
    """pi = 16 atan(1/5) - 4 atan(1/239), to that many bits."""
    one = 1 << (bits + 16)

    def arctangent(inverse: int) -> int:
        power, total, k = one // inverse, 0, 1
        while power:
            total += power // k if k % 4 == 1 else -(power // k)
            power //= inverse * inverse
            k += 2
        return total

    return Fraction(16 * arctangent(5) - 4 * arctangent(239), one)


def large_name(type: str, width: int) -> str:
    return f"lg.reduce.{type}.{width}"


def large_text(type: str, width: int) -> str:
    """The outlined function: lanes of `mask` get (quadrant, rest), others keep theirs."""
    integer = {"float": "i32", "double": "i64"}[type]
    if not width:
        return scalar_text(type, integer)
    name, vf, vi, vm = large_name(type, width), f"<{width} x {type}>", f"<{width} x {integer}>", f"<{width} x i1>"
    return f"""
define internal {{ {vi}, {vf} }} @{name}({vf} %x, {vm} %mask, {vi} %q, {vf} %r) cold noinline {{
entry:
  br label %loop
loop:
  %lane = phi i64 [ 0, %entry ], [ %next, %skip ]
  %qs = phi {vi} [ %q, %entry ], [ %q3, %skip ]
  %rs = phi {vf} [ %r, %entry ], [ %r3, %skip ]
  %on = extractelement {vm} %mask, i64 %lane
  br i1 %on, label %do, label %skip
do:
  %xs = extractelement {vf} %x, i64 %lane
  %xd = {"fpext float %xs to double" if type == "float" else "fadd double %xs, -0.0"}
  %pair = call {{ i64, double }} @lg.reduce.exact(double %xd)
  %qd = extractvalue {{ i64, double }} %pair, 0
  %rd = extractvalue {{ i64, double }} %pair, 1
  %qn = {"trunc i64 %qd to i32" if type == "float" else "add i64 %qd, 0"}
  %rn = {"fptrunc double %rd to float" if type == "float" else "fadd double %rd, -0.0"}
  %q2 = insertelement {vi} %qs, {integer} %qn, i64 %lane
  %r2 = insertelement {vf} %rs, {type} %rn, i64 %lane
  br label %skip
skip:
  %q3 = phi {vi} [ %qs, %loop ], [ %q2, %do ]
  %r3 = phi {vf} [ %rs, %loop ], [ %r2, %do ]
  %next = add i64 %lane, 1
  %go = icmp ult i64 %next, {width}
  br i1 %go, label %loop, label %done
done:
  %one = insertvalue {{ {vi}, {vf} }} poison, {vi} %q3, 0
  %two = insertvalue {{ {vi}, {vf} }} %one, {vf} %r3, 1
  ret {{ {vi}, {vf} }} %two
}}
"""


def scalar_text(type: str, integer: str) -> str:
    """The same for one lane (only called where it is wanted)."""
    wide = "fpext float %x to double" if type == "float" else "fadd double %x, -0.0"
    whole = "trunc i64 %qd to i32" if type == "float" else "add i64 %qd, 0"
    rest = "fptrunc double %rd to float" if type == "float" else "fadd double %rd, -0.0"
    name = large_name(type, 0)
    return f"""
define internal {{ {integer}, {type} }} @{name}({type} %x, i1 %m, {integer} %q, {type} %r) cold noinline {{
  %xd = {wide}
  %pair = call {{ i64, double }} @lg.reduce.exact(double %xd)
  %qd = extractvalue {{ i64, double }} %pair, 0
  %rd = extractvalue {{ i64, double }} %pair, 1
  %qn = {whole}
  %rn = {rest}
  %one = insertvalue {{ {integer}, {type} }} poison, {integer} %qn, 0
  %two = insertvalue {{ {integer}, {type} }} %one, {type} %rn, 1
  ret {{ {integer}, {type} }} %two
}}
"""


EXACT = """
@lg.two.over.pi = private unnamed_addr constant [COUNT x i64] [VALUES], align 64

define internal { i64, double } @lg.reduce.exact(double %x) cold noinline {
entry:
  %bits = bitcast double %x to i64
  %raw = lshr i64 %bits, 52
  %biased = and i64 %raw, 2047
  %special = icmp eq i64 %biased, 2047
  br i1 %special, label %bad, label %good
bad:
  ret { i64, double } { i64 0, double 0x7FF8000000000000 }
good:
  %fraction = and i64 %bits, 4503599627370495
  %mantissa = or i64 %fraction, 4503599627370496
  %exponent0 = sub i64 %biased, 1075
  %start0 = add i64 %exponent0, 62
  %start = call i64 @llvm.smax.i64(i64 %start0, i64 0)
  %limb = lshr i64 %start, 6
  %offset = and i64 %start, 63
  %back = sub i64 LAST, %limb
  %at = getelementptr i64, ptr @lg.two.over.pi, i64 %back
  %window = load i320, ptr %at, align 8
  %offset.w = zext i64 %offset to i320
  %moved = shl i320 %window, %offset.w
  %top = lshr i320 %moved, 64
  %part = trunc i320 %top to i256
  %m = zext i64 %mantissa to i256
  %product = mul i256 %part, %m
  %q.w = lshr i256 %product, 254
  %q0 = trunc i256 %q.w to i64
  %turn = shl i256 %product, 2
  %half = icmp slt i256 %turn, 0
  %up = zext i1 %half to i64
  %q1 = add i64 %q0, %up
  %negated = sub i256 0, %turn
  %size = select i1 %half, i256 %negated, i256 %turn
  %zeros.w = call i256 @llvm.ctlz.i256(i256 %size, i1 false)
  %zeros = trunc i256 %zeros.w to i64
  %lined = shl i256 %size, %zeros.w
  %head.w = lshr i256 %lined, 192
  %head = trunc i256 %head.w to i64
  %head.wide = zext i64 %head to i128
  %angle.wide = mul i128 %head.wide, HALF_PI
  %angle.high = lshr i128 %angle.wide, 64
  %angle = trunc i128 %angle.high to i64
  %angle.f = uitofp i64 %angle to double
  %scale.e = sub i64 960, %zeros
  %scale.bits = shl i64 %scale.e, 52
  %scale = bitcast i64 %scale.bits to double
  %rest0 = fmul double %angle.f, %scale
  %minus = fneg double %rest0
  %flip = icmp slt i64 %bits, 0
  %odd = xor i1 %flip, %half
  %rest = select i1 %odd, double %minus, double %rest0
  %q.minus = sub i64 0, %q1
  %q = select i1 %flip, i64 %q.minus, i64 %q1
  %one = insertvalue { i64, double } poison, i64 %q, 0
  %two = insertvalue { i64, double } %one, double %rest, 1
  ret { i64, double } %two
}
"""


def exact_text() -> str:
    """`@lg.reduce.exact(double) -> { quadrant, rest }` and its table; NaN and infinity give NaN."""
    limbs = ", ".join(f"i64 {v - (1 << 64) if v >> 63 else v}" for v in reversed(two_over_pi_limbs()))
    half_pi = round(machin_pi(128) * (1 << 62))
    text = EXACT.replace("VALUES", limbs).replace("COUNT", str(LIMBS)).replace("LAST", str(LIMBS - 5))
    return text.replace("HALF_PI", str(half_pi))
