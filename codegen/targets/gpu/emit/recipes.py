"""The GPUs' side of codegen.scalar: operations as scalar instructions of one lane.

Every float operation is marked as not contractible. Where the driver's fma rounds twice, an f32 one runs in
f64, and an f64 one is built from exact products and sums (Dekker 1971, Knuth TAOCP 2, 4.2.2), but for
additions of a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import numpy as np

from loopgrad.codegen.math import trigonometric
from loopgrad.codegen.math.table import RECIPES, SINE_COSINE
from loopgrad.codegen.scalar.halves import nearest_bits, odd_float
from loopgrad.codegen.scalar.integers import unsigned_quotient
from loopgrad.codegen.scalar.ops import Ops, value_type
from loopgrad.codegen.targets.gpu.assembler import ARITHMETIC, EXTENDED, Assembler, Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter, register_type
from loopgrad.codegen.targets.gpu.emit.huge_angles import reduce_large, remainder
from loopgrad.graph.types import DType

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


def upper_half(m: Ops[Val], x: Val) -> Val:
    """The upper 32 bits of an f64: GPUs have a register for them."""
    return m.resize(m.shr(m.as_int(x), 32), "i32", signed=False)


class ScalarOps(Ops[Val]):
    """Implements codegen.scalar.ops.Ops over `Val`; a bfloat16 is an f32."""

    halved_shifts = True  # LLVM 22 drops a test of the count for PTX, whose shifts have a bound but see half of it

    def __init__(self, e: Emitter) -> None:
        self.e = e
        self.b = e.b
        self.fast, self.fused, self.rearranges, self.flushes = e.fast, e.b.fused, e.b.rearranges, e.b.flushes

    def inst(self, opcode: str, type: str, *operands: Val) -> Val:
        if opcode == "FDiv":
            return quotient(self.b, self.b.exact, *operands)
        if opcode in ARITHMETIC:
            return self.b.exact(opcode, type, *operands)
        return (self.b.extended if opcode in EXTENDED else self.b.inst)(opcode, type, *operands)

    def same(self, opcode: str, *operands: Val) -> Val:
        return self.inst(opcode, operands[0].type, *operands)

    def loose(self, opcode: str, *operands: Val) -> Val:
        make = self.b.inst if self.fast else self.b.exact
        return quotient(self.b, make, *operands) if opcode == "FDiv" else make(opcode, operands[0].type, *operands)

    def type(self, x: Val, /) -> str:
        return x.type

    def const(self, like: Val, value: float, /) -> Val:
        return self.b.const(like.type, value)

    def number(self, type: str, value: float | int | bool, /) -> Val:
        return self.b.const(type, value)

    def element(self, dtype: DType, value: float | int | bool, /) -> Val:
        if dtype.name == "bfloat16":
            value = float(np.asarray(value).astype(dtype.np).astype(np.float32))
        if dtype.kind == "c":
            value = dtype.pattern(value)
        return self.b.const(register_type(dtype), value)

    def resize(self, i: Val, type: str, /, signed: bool = True) -> Val:
        return self.e.resize(i, type, signed)

    def widened(self, x: Val, dtype: DType, /) -> Val:
        if x.type != "f16":
            return x
        if self.b.is_constant(x) and x.id == self.b.const(x.type, 0.0).id:
            return self.b.const("f32", 0.0)  # a constant that `quotient` knows
        return self.b.inst("FConvert", "f32", x)

    def rounded(self, x: Val, dtype: DType, /, exact: bool = False, signed: bool = False) -> Val:
        if dtype.name == "bfloat16":
            return x if exact else self._bfloat(x, dtype, signed)
        type = register_type(dtype)
        return x if x.type == type else self.b.inst("FConvert", type, x)

    def _bfloat(self, x: Val, dtype: DType, signed: bool) -> Val:
        x = odd_float(self, x) if x.type == "f64" else self.widened(x, dtype)
        nearest = self.b.nearest_bfloats(self.b.const("f32", 0.0), x)
        made_of = x
        if nearest is None:
            zero = self.const(x, 0.0)
            bits = nearest_bits(self, self.as_int(x), self.b.upper_halves(x, zero))
            made_of = self.select(self.is_nan(x), self.const(x, float("nan")), self.as_float(bits))
            nearest = self.b.upper_halves(zero, made_of)
        if signed:
            return self.as_float(self.ior(nearest, self.iand(self.as_int(x), self.b.const("i32", 1 << 31))))
        found = self.as_float(nearest)
        self.e.unrounded[found] = made_of
        return found

    def quotient(self, i: Val, j: Val, /, signed: bool, constant: int | None = None) -> Val:
        """Without a sign: GPUs have no instruction for division, and signed ones take more of others. NVIDIA's Vulkan
        driver 580 gets signed divisions wrong whose dividend was 32 bits without a sign before (seen on an H200)."""
        return unsigned_quotient(self, i, j) if signed else self.same("UDiv", i, j)

    def minus(self, i: Val, /) -> Val:
        """0 - i, where the compiler doesn't know that it is 0. NVIDIA's (ptxas 13, the Vulkan driver 580; seen on an
        H200) take the negation of 8 or 16 bits for one that doesn't wrap, and the size of a number for never negative:
        MIN, widened or compared, was positive."""
        zero = self.e.unknown_zero
        return self.isub(self.const(i, 0) if zero is None else self.resize(zero, i.type, signed=False), i)

    def recipe(self, name: str, operands: Sequence[Val], /) -> Val:
        quick = self.b.approximate(name, operands[0].type, *operands) if self.fast else None
        if quick is None:
            quick = self.b.own(name, *operands)
        if quick is not None:
            return quick
        if name not in trigonometric.RECIPES and (name, operands[0].type) in self.e.outlined:
            return self._called(name, lambda *values: (RECIPES[name](self, *values),), operands)[0]
        result: Val = RECIPES[name](self, *operands)
        return result

    def _called(self, name: str, make: Callable[..., Sequence[Val]], operands: Sequence[Val]) -> tuple[Val, ...]:
        """`make` of the operands, as a function."""
        e, count, zero = self.e, len(operands), self.e.unknown_zero

        def code(given: Sequence[Val]) -> Sequence[Val]:
            with e.in_function(given[count] if zero is not None else None):
                return make(*given[:count])

        given = operands if zero is None else [*operands, zero]
        return self.b.outlined(f"{name}.{operands[0].type}.{len(given)}{'.fast' * self.fast}", given, code)

    def for_half(self, name: str, dtype: DType, operands: Sequence[Val], /) -> Val | None:
        return self.b.for_half(name, value_type(dtype), *operands)

    def extreme(self, name: str, x: Val, y: Val, /) -> Val:
        own = self.b.extreme(name, x, y)
        return super().extreme(name, x, y) if own is None else own

    def near_quotient(self, x: Val, y: Val, /) -> Val:
        near = None if self.fast else self.b.near_quotient(x, y)
        return self.div(x, y) if near is None else near

    def near_inverse(self, y: Val, /) -> Val | None:
        return self.b.near_inverse(y)

    def near_exp(self, x: Val, /) -> Val | None:
        return self.b.near_exp(x)

    def known(self, x: Val, /) -> float | None:
        return self.b.known(x)

    def usual(self, x: Val, /) -> Val:
        """Of an f64 by its upper half."""
        if x.type != "f64":
            return super().usual(x)
        above = self.isub(upper_half(self, x), self.number("i32", 1 << 20))
        return self.test("ULessThan", above, self.number("i32", 0x7FE << 20))

    def abs(self, x: Val, /) -> Val:
        if self.b.is_constant(x) and x.id == self.b.const(x.type, -0.0).id:
            return self.b.const(x.type, 0.0)  # a constant that `quotient` knows
        return super().abs(x)

    def fma(self, x: Val, y: Val, z: Val, /) -> Val:
        if self.fused:
            return super().fma(x, y, z)
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

    def wide_product(self, i: Val, j: Val, /) -> tuple[Val, Val]:
        return self.b.wide_product(i, j)

    def remainder(self, x: Val, y: Val, /) -> Val:
        return remainder(self, self.e, x, y)

    def times_power(self, x: Val, shifted: Val, /) -> Val:
        return self.scale(x, self.as_int(shifted))

    def once(self, key: Hashable, make: Callable[[], tuple[Val, ...]], /) -> tuple[Val, ...]:
        if isinstance(key, tuple) and key[0] == SINE_COSINE and (SINE_COSINE, key[1].type) in self.e.outlined:
            return self.e.once(key, lambda: self._called(SINE_COSINE, partial(trigonometric.shared, self), key[1:]))
        return self.e.once(key, make)

    def rarely(self, m: Val, make: Callable[[], Val], common: Val, /) -> Val:
        (result,) = self.e.choose(m, lambda: (make(),), lambda: (common,))
        return result

    def reduce_large(self, x: Val, large: Val, quadrant: Val, rest: Val, /) -> tuple[Val, Val]:
        first, second = self.e.choose(large, lambda: reduce_large(self, self.e, x), lambda: (quadrant, rest))
        return first, second
