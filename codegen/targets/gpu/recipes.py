"""The GPUs' side of codegen.math: abstract operations as scalar instructions of one lane.

Every float operation is marked as not contractible. Where the driver's fma rounds twice, an f32 one runs in
f64, and an f64 one is built from exact products and sums (Dekker 1971, Knuth TAOCP 2, 4.2.2), but for
additions of a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

from loopgrad.codegen.targets.gpu.assembler import Assembler, Val
from loopgrad.codegen.targets.gpu.context import Emitter
from loopgrad.codegen.targets.gpu.large import reduce_large, remainder

INTEGER = {"f32": "i32", "f64": "i64"}
FLOAT = {"i32": "f32", "i64": "f64"}
SPLITTER = float(2**27 + 1)


def quotient(b: Assembler, make: Callable[..., Val], x: Val, y: Val) -> Val:
    """x / y by `make`. lavapipe takes x / 0 for undefined and 0 / x for 0, where it knows the 0: written otherwise."""
    if any(map(b.is_constant, (x, y))):
        zero = b.const(x.type, 0.0).id
        if y.id == zero:
            return make("FMul", x.type, x, b.const(x.type, math.inf))
        if x.id == zero:
            return make("FNegate", x.type, make("FDiv", x.type, b.const(x.type, -0.0), y))
    return make("FDiv", x.type, x, y)


class ScalarOps:
    """Implements codegen.math.ops.Ops over `Val`."""

    def __init__(self, e: Emitter) -> None:
        self.e = e
        self.b = e.b

    def bits(self, x: Val, /) -> int:
        return int(x.type[1:])

    def const(self, like: Val, value: float, /) -> Val:
        return self.b.const(like.type, value)

    def integer(self, like: Val, value: int, /) -> Val:
        return self.b.const(INTEGER.get(like.type, like.type), value)

    def add(self, x: Val, y: Val, /) -> Val:
        return self.b.exact("FAdd", x.type, x, y)

    def sub(self, x: Val, y: Val, /) -> Val:
        return self.b.exact("FSub", x.type, x, y)

    def mul(self, x: Val, y: Val, /) -> Val:
        return self.b.exact("FMul", x.type, x, y)

    def div(self, x: Val, y: Val, /) -> Val:
        return quotient(self.b, self.b.exact, x, y)

    def fma(self, x: Val, y: Val, z: Val, /) -> Val:
        if self.b.fused:
            return self.b.extended("Fma", x.type, x, y, z)
        if x.type == "f32":
            product = self.mul(self.widen(x), self.widen(y))
            return self.narrow(self.add(product, self.widen(z)))
        if self.b.is_constant(z):  # a step of Horner's rule: the lost half unit shrinks with every power
            return self.add(self.mul(x, y), z)
        return self._fused_from_parts(x, y, z)

    def _fused_from_parts(self, x: Val, y: Val, z: Val) -> Val:
        """x*y = p + q exactly, p + z = s + t exactly; s + (t + q). Beyond 2**996 the split overflows: plain."""
        product = self.mul(x, y)
        lost = self._product_error(x, y, product)
        total = self.add(product, z)
        back = self.sub(total, product)
        slip = self.add(self.sub(product, self.sub(total, back)), self.sub(z, back))
        rest = self.add(slip, lost)
        result = self.add(total, rest)
        finite = self.lt(self.abs(result), self.const(x, float("inf")))
        inexact = self.lt(self.const(x, 0.0), self.abs(rest))  # -0.0 + 0.0 would be 0.0
        return self.select(self.both(inexact, finite), result, total)

    def _product_error(self, x: Val, y: Val, product: Val) -> Val:
        xh, xl = self._halves(x)
        yh, yl = self._halves(y)
        error = self.sub(self.mul(xh, yh), product)
        error = self.add(self.add(error, self.mul(xh, yl)), self.mul(xl, yh))
        return self.add(error, self.mul(xl, yl))

    def _halves(self, x: Val) -> tuple[Val, Val]:
        def make() -> tuple[Val, ...]:
            wide = self.mul(x, self.const(x, SPLITTER))
            high = self.sub(wide, self.sub(wide, x))
            return high, self.sub(x, high)

        high, low = self.once(("halves", x), make)
        return high, low

    def neg(self, x: Val, /) -> Val:
        return self.b.exact("FNegate", x.type, x)

    def abs(self, x: Val, /) -> Val:
        if self.b.is_constant(x) and x.id == self.b.const(x.type, -0.0).id:
            return self.b.const(x.type, 0.0)  # a constant that `quotient` knows
        return self.b.extended("FAbs", x.type, x)

    def sqrt(self, x: Val, /) -> Val:
        return self.b.extended("Sqrt", x.type, x)

    def round_even(self, x: Val, /) -> Val:
        return self.b.extended("RoundEven", x.type, x)

    def floor(self, x: Val, /) -> Val:
        return self.b.extended("Floor", x.type, x)

    def trunc(self, x: Val, /) -> Val:
        return self.b.extended("Trunc", x.type, x)

    def remainder(self, x: Val, y: Val, /) -> Val:
        return remainder(self, self.e, x, y)

    def copysign(self, magnitude: Val, sign: Val, /) -> Val:
        bits = self.bits(magnitude)
        top = self.integer(magnitude, -(1 << (bits - 1)))
        rest = self.integer(magnitude, (1 << (bits - 1)) - 1)
        size = self.iand(self.as_int(magnitude), rest)
        return self.as_float(self.b.inst("BitwiseOr", size.type, size, self.iand(self.as_int(sign), top)))

    def lt(self, x: Val, y: Val, /) -> Val:
        return self.b.inst("FOrdLessThan", "bool", x, y)

    def le(self, x: Val, y: Val, /) -> Val:
        return self.b.inst("FOrdLessThanEqual", "bool", x, y)

    def eq(self, x: Val, y: Val, /) -> Val:
        return self.b.inst("FOrdEqual", "bool", x, y)

    def is_nan(self, x: Val, /) -> Val:
        return self.b.inst("IsNan", "bool", x)

    def exceeds(self, x: Val, limit: float, /) -> Val:
        return self.invert(self.le(self.abs(x), self.const(x, limit)))

    def either(self, m: Val, n: Val, /) -> Val:
        return self.e.either(m, n)

    def both(self, m: Val, n: Val, /) -> Val:
        return self.e.both(m, n)

    def invert(self, m: Val, /) -> Val:
        return self.b.inst("LogicalNot", "bool", m)

    def select(self, m: Val, x: Val, y: Val, /) -> Val:
        return self.e.select(m, x, y)

    def as_int(self, x: Val, /) -> Val:
        return self.e.bitcast(x, INTEGER[x.type])

    def as_float(self, i: Val, /) -> Val:
        return self.e.bitcast(i, FLOAT[i.type])

    def to_int(self, x: Val, /) -> Val:
        return self.b.inst("ConvertFToS", INTEGER[x.type], x)

    def to_float(self, i: Val, /) -> Val:
        return self.b.inst("ConvertSToF", FLOAT[i.type], i)

    def iadd(self, i: Val, j: Val, /) -> Val:
        return self.b.inst("IAdd", i.type, i, j)

    def isub(self, i: Val, j: Val, /) -> Val:
        return self.b.inst("ISub", i.type, i, j)

    def iand(self, i: Val, j: Val, /) -> Val:
        return self.b.inst("BitwiseAnd", i.type, i, j)

    def ixor(self, i: Val, j: Val, /) -> Val:
        return self.b.inst("BitwiseXor", i.type, i, j)

    def shl(self, i: Val, count: int, /) -> Val:
        return self.b.inst("ShiftLeftLogical", i.type, i, self.b.const(i.type, count))

    def shr(self, i: Val, count: int, /) -> Val:
        return self.b.inst("ShiftRightLogical", i.type, i, self.b.const(i.type, count))

    def sar(self, i: Val, count: int, /) -> Val:
        return self.b.inst("ShiftRightArithmetic", i.type, i, self.b.const(i.type, count))

    def is_zero(self, i: Val, /) -> Val:
        return self.b.inst("IEqual", "bool", i, self.b.const(i.type, 0))

    def widen(self, x: Val, /) -> Val:
        return self.b.inst("FConvert", "f64", x)

    def narrow(self, x: Val, /) -> Val:
        return self.b.inst("FConvert", "f32", x)

    def clamp(self, x: Val, low: float, high: float, /) -> Val:
        lowest, highest = self.const(x, low), self.const(x, high)
        return self.e.bound("max", self.e.bound("min", x, highest), lowest)

    def times_power(self, x: Val, shifted: Val, /) -> Val:
        return self.scale(x, self.as_int(shifted))

    def scale(self, x: Val, n: Val) -> Val:
        """x * 2**n for an integer, of which the lowest bits count; two factors, so that 2**n itself may overflow."""
        half = self.sar(n, 1)
        first, second = self._power_of_two(half), self._power_of_two(self.isub(n, half))
        return self.mul(self.mul(x, first), second)

    def _power_of_two(self, n: Val) -> Val:
        bias, place = {"i32": (127, 23), "i64": (1023, 52)}[n.type]
        return self.as_float(self.shl(self.iadd(n, self.b.const(n.type, bias)), place))

    def once(self, key: Hashable, make: Callable[[], tuple[Val, ...]], /) -> tuple[Val, ...]:
        return self.e.once(key, make)

    def rarely(self, m: Val, make: Callable[[], Val], common: Val, /) -> Val:
        (result,) = self.e.choose(m, lambda: (make(),), lambda: (common,))
        return result

    def reduce_large(self, x: Val, large: Val, quadrant: Val, rest: Val, /) -> tuple[Val, Val]:
        first, second = self.e.choose(large, lambda: reduce_large(self, self.e, x), lambda: (quadrant, rest))
        return first, second
