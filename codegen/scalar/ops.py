"""What a target provides so that elementwise operations and the recipes of codegen.math can run on it: a table.

A value is opaque (`V`): on the CPU a vector of lanes, on a GPU one number. Its type is named bool, i8 .. i64
(signless), f16, b16 (bfloat16), f32 or f64. Opcodes have SPIR-V's names (Khronos, SPIR-V specification 3.49). A target
has a row for each of them in a table, and may have rows of its own (`own`) for what is otherwise made of several: SAbs
SMin SMax UMin UMax BitCount of integers, FCopySign.

Recipes are written once for all widths and take the width from `bits(x)`. Arithmetic is IEEE, rounded to nearest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, Final, Generic, TypeVar

from loopgrad.graph.types import DType

V = TypeVar("V")

EXPONENT: Final = {32: (127, 23), 64: (1023, 52)}
"""Bits of a float -> the bias of its exponent, and the bits below it."""


def value_type(dtype: DType) -> str:
    """What elements of a dtype are computed as."""
    if dtype.kind == "b":
        return "bool"
    if dtype.name == "bfloat16":
        return "b16"
    return f"{'f' if dtype.is_float else 'i'}{dtype.bits}"


class Ops(ABC, Generic[V]):
    """Operations on floats `x y z`, integers `i j`, masks `m n`. `fused`: whether `fma` is one instruction, rounded
    once. `rearranges`: what is made of `fma` may be factored anew, which can't be forbidden. `flushes`: subnormal f32
    may be taken for 0. `halved_shifts`: a shift of 64 bits is made in two steps. `words_in_64`: what is multiplied to
    64 bits again and again is better held in 64. `from_integer`: the type by whose way an integer becomes a half."""

    own: ClassVar[frozenset[str]] = frozenset()
    fused: bool = True
    rearranges: bool = False
    flushes: bool = False
    halved_shifts: bool = False
    words_in_64: bool = False
    from_integer: str = "f32"
    fast: bool = False

    # what a target implements

    @abstractmethod
    def inst(self, opcode: str, type: str, *operands: V) -> V:
        """The result, of that type, of a row of the target's table; rounded by itself."""

    @abstractmethod
    def loose(self, opcode: str, *operands: V) -> V:
        """Float arithmetic in the operands' type; under fast_math it may be contracted and reassociated."""

    @abstractmethod
    def type(self, x: V, /) -> str: ...

    @abstractmethod
    def number(self, type: str, value: float | int | bool, /) -> V: ...

    @abstractmethod
    def element(self, dtype: DType, value: float | int | bool, /) -> V:
        """A constant, as an array of that dtype would hold it."""

    @abstractmethod
    def resize(self, i: V, type: str, /, signed: bool = True) -> V:
        """An integer in another width."""

    @abstractmethod
    def widened(self, x: V, dtype: DType, /) -> V:
        """A half as an f32; other floats as they are."""

    @abstractmethod
    def rounded(self, x: V, dtype: DType, /, exact: bool = False, signed: bool = False) -> V:
        """A float as an element of a float dtype, rounded once. `exact`: it is one. `signed`: NaN keeps its sign, which
        that of arithmetic needn't have."""

    @abstractmethod
    def quotient(self, i: V, j: V, /, signed: bool, constant: int | None = None) -> V:
        """i / j toward zero, for j other than 0; MIN / -1 wraps. `constant`: j, where it is known."""

    @abstractmethod
    def recipe(self, name: str, operands: Sequence[V], /) -> V:
        """A float primitive of codegen.math's table."""

    @abstractmethod
    def times_power(self, x: V, shifted: V, /) -> V:
        """x * 2**n, rounded once where it under- or overflows, for x in [1/2, 4) or NaN. `shifted` is n + 1.5 * 2**23
        (2**52 in f64): its lowest bits are those of n."""

    @abstractmethod
    def remainder(self, x: V, y: V, /) -> V:
        """C's fmod; may be slow."""

    @abstractmethod
    def rarely(self, m: V, make: Callable[[], V], common: V, /) -> V:
        """`make()` where m holds, else `common`; `make` is jumped over where m holds nowhere."""

    @abstractmethod
    def once(self, key: Hashable, make: Callable[[], tuple[V, ...]], /) -> tuple[V, ...]:
        """`make()`, shared by recipes that ask for the same key."""

    @abstractmethod
    def reduce_large(self, x: V, large: V, quadrant: V, rest: V, /) -> tuple[V, V]:
        """Where `large`, x mod pi/2 by exact arithmetic: (quadrant, rest in [-pi/4, pi/4]); elsewhere the given
        ones."""

    # what follows

    def for_half(self, name: str, dtype: DType, operands: Sequence[V], /) -> V | None:
        """A float primitive of f32 operands that were halves of this dtype, to so many bits that it is nearly always
        rounded to the nearest half; None where nothing is gained by that."""
        return None

    def near_quotient(self, x: V, y: V, /) -> V:
        """x / y to a unit in the last place, where 1 / y is a normal number and x / y one too, or 0."""
        return self.div(x, y)

    def near_inverse(self, y: V, /) -> V | None:
        """1 / y to a unit or so in the last place, where both are normal numbers, by few instructions; None where there
        are none for it."""
        return None

    def near_exp(self, x: V, /) -> V | None:
        """exp(x) of an f32 between -80 and 80 to 20 bits by few instructions; None where there are none for it."""
        return None

    def known(self, x: V, /) -> float | None:
        """The number that a float is, where the target sees that it is a constant."""
        return None

    def usual(self, x: V, /) -> V:
        """Whether a float is positive, normal and finite: by one comparison of its bits."""
        bits = self.bits(x)
        place = EXPONENT[bits][1]
        least, endless = 1 << place, ((1 << (bits - place - 1)) - 1) << place
        above = self.isub(self.as_int(x), self.integer(x, least))
        return self.test("ULessThan", above, self.integer(x, endless - least))

    def same(self, opcode: str, *operands: V) -> V:
        """A result of the operands' type."""
        return self.inst(opcode, self.type(operands[0]), *operands)

    def test(self, opcode: str, *operands: V) -> V:
        return self.inst(opcode, "bool", *operands)

    def bits(self, x: V, /) -> int:
        return int(self.type(x)[1:])

    def const(self, like: V, value: float, /) -> V:
        return self.number(self.type(like), value)

    def integer(self, like: V, value: int, /) -> V:
        """An integer as wide as a float or an integer."""
        return self.number(f"i{self.bits(like)}", value)

    # floats

    def add(self, x: V, y: V, /) -> V:
        return self.same("FAdd", x, y)

    def sub(self, x: V, y: V, /) -> V:
        return self.same("FSub", x, y)

    def mul(self, x: V, y: V, /) -> V:
        return self.same("FMul", x, y)

    def div(self, x: V, y: V, /) -> V:
        return self.same("FDiv", x, y)

    def fma(self, x: V, y: V, z: V, /) -> V:
        return self.same("Fma", x, y, z)

    def neg(self, x: V, /) -> V:
        return self.same("FNegate", x)

    def abs(self, x: V, /) -> V:
        return self.same("FAbs", x)

    def sqrt(self, x: V, /) -> V:
        return self.same("Sqrt", x)

    def round_even(self, x: V, /) -> V:
        return self.same("RoundEven", x)

    def floor(self, x: V, /) -> V:
        return self.same("Floor", x)

    def trunc(self, x: V, /) -> V:
        return self.same("Trunc", x)

    def copysign(self, magnitude: V, sign: V, /) -> V:
        if "FCopySign" in self.own:
            return self.same("FCopySign", magnitude, sign)
        bits = self.bits(magnitude)
        top, rest = self.integer(magnitude, -(1 << (bits - 1))), self.integer(magnitude, (1 << (bits - 1)) - 1)
        size = self.iand(self.as_int(magnitude), rest)
        return self.as_float(self.ior(size, self.iand(self.as_int(sign), top)))

    def clamp(self, x: V, low: float, high: float, /) -> V:
        """x within [low, high]; NaN stays."""
        return self.bound("max", self.bound("min", x, self.const(x, high)), self.const(x, low))

    def bound(self, name: str, x: V, limit: V, /) -> V:
        """min or max of x and a number; NaN stays."""
        outside = self.test("FOrdLessThan" if name == "max" else "FOrdGreaterThan", x, limit)
        return self.select(outside, limit, x)

    def extreme(self, name: str, x: V, y: V, /) -> V:
        """min or max; NaN where either is NaN."""
        first = self.test("FOrdLessThan" if name == "min" else "FOrdGreaterThan", x, y)
        best = self.select(first, x, y)
        return self.select(self.is_nan(x), x, best)

    def widen(self, x: V, /) -> V:
        """f32 to f64."""
        return self.inst("FConvert", "f64", x)

    def narrow(self, x: V, /) -> V:
        """f64 to f32."""
        return self.inst("FConvert", "f32", x)

    # masks

    def lt(self, x: V, y: V, /) -> V:
        return self.test("FOrdLessThan", x, y)

    def le(self, x: V, y: V, /) -> V:
        return self.test("FOrdLessThanEqual", x, y)

    def eq(self, x: V, y: V, /) -> V:
        return self.test("FOrdEqual", x, y)

    def is_nan(self, x: V, /) -> V:
        return self.test("IsNan", x)

    def either(self, m: V, n: V, /) -> V:
        return self.test("LogicalOr", m, n)

    def both(self, m: V, n: V, /) -> V:
        return self.test("LogicalAnd", m, n)

    def invert(self, m: V, /) -> V:
        return self.test("LogicalNot", m)

    def select(self, m: V, x: V, y: V, /) -> V:
        return self.inst("Select", self.type(x), m, x, y)

    # integers

    def as_int(self, x: V, /) -> V:
        return self.inst("Bitcast", f"i{self.bits(x)}", x)

    def as_float(self, i: V, /) -> V:
        return self.inst("Bitcast", f"f{self.bits(i)}", i)

    def to_float(self, i: V, /) -> V:
        return self.inst("ConvertSToF", f"f{self.bits(i)}", i)

    def iadd(self, i: V, j: V, /) -> V:
        return self.same("IAdd", i, j)

    def isub(self, i: V, j: V, /) -> V:
        return self.same("ISub", i, j)

    def imul(self, i: V, j: V, /) -> V:
        return self.same("IMul", i, j)

    def iand(self, i: V, j: V, /) -> V:
        return self.same("BitwiseAnd", i, j)

    def ior(self, i: V, j: V, /) -> V:
        return self.same("BitwiseOr", i, j)

    def ixor(self, i: V, j: V, /) -> V:
        return self.same("BitwiseXor", i, j)

    def shl(self, i: V, count: int, /) -> V:
        return self.same("ShiftLeftLogical", i, self.const(i, count))

    def shr(self, i: V, count: int, /) -> V:
        return self.same("ShiftRightLogical", i, self.const(i, count))

    def sar(self, i: V, count: int, /) -> V:
        return self.same("ShiftRightArithmetic", i, self.const(i, count))

    def is_zero(self, i: V, /) -> V:
        return self.test("IEqual", i, self.const(i, 0))

    def minus(self, i: V, /) -> V:
        """0 - i, which wraps."""
        return self.isub(self.const(i, 0), i)

    def wide_product(self, i: V, j: V, /) -> tuple[V, V]:
        """The upper and the lower half of the product of two i32 without sign."""
        wide = self.imul(self.resize(i, "i64", signed=False), self.resize(j, "i64", signed=False))
        return self.resize(self.shr(wide, 32), "i32"), self.resize(wide, "i32")

    def scale(self, x: V, n: V, /) -> V:
        """x * 2**n for an integer, of which the lowest bits count; two factors, so that 2**n itself may overflow."""
        half = self.sar(n, 1)
        first, second = self._power_of_two(half), self._power_of_two(self.isub(n, half))
        return self.mul(self.mul(x, first), second)

    def _power_of_two(self, n: V) -> V:
        bias, place = EXPONENT[self.bits(n)]
        return self.as_float(self.shl(self.iadd(n, self.const(n, bias)), place))


def polynomial(m: Ops[V], x: V, coefficients: tuple[float, ...]) -> V:
    """Horner's rule, highest power first."""
    total = m.const(x, coefficients[0])
    for c in coefficients[1:]:
        total = m.fma(total, x, m.const(x, c))
    return total
