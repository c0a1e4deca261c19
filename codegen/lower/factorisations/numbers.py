"""Arithmetic of a lane's numbers, real or complex: each is its parts, which are computed as
`graph.complex_numbers.arithmetic` does it, operation by operation.
"""

from __future__ import annotations

from typing import Any

from loopgrad.codegen.kernel.nodes import KValue
from loopgrad.codegen.lower.emitter import KernelBuilder
from loopgrad.graph.types import DType, bool_

Number = tuple[KValue, ...]  # a real one, or the real and the imaginary part


class Reals:
    """Of numbers of one dtype."""

    def __init__(self, e: KernelBuilder, dtype: DType) -> None:
        self.e, self.dtype = e, dtype

    def const(self, value: Any) -> KValue:
        return self.e.const(value, self.dtype)

    def op(self, opcode: str, *operands: KValue) -> KValue:
        return self.e.op(opcode, operands, self.dtype)

    def less(self, x: KValue, factor: KValue, y: KValue) -> KValue:
        """x - factor * y"""
        return self.op("sub", x, self.op("mul", factor, y))

    def test(self, opcode: str, *operands: KValue) -> KValue:
        return self.e.op(opcode, operands, bool_)

    def select(self, condition: KValue, yes: KValue, no: KValue) -> KValue:
        return self.e.op("select", (condition, yes, no), yes.dtype)

    def both(self, one: KValue, other: KValue) -> KValue:
        return self.e.op("and", (one, other), bool_)


class Numbers:
    """Of numbers of so many parts, which `real` computes."""

    def __init__(self, real: Reals, parts: int) -> None:
        self.real, self.parts = real, parts

    def const(self, value: float) -> Number:
        return (self.real.const(value), self.real.const(0))[: self.parts]

    def of_real(self, x: KValue) -> Number:
        return (x, self.real.const(0))[: self.parts]

    def each(self, opcode: str, *operands: Number) -> Number:
        """The operation on each part."""
        return tuple([self.real.op(opcode, *parts) for parts in zip(*operands, strict=True)])

    def conj(self, v: Number) -> Number:
        return (v[0], *[self.real.op("neg", x) for x in v[1:]])

    def mul(self, v: Number, w: Number) -> Number:
        op = self.real.op
        if self.parts == 1:
            return self.each("mul", v, w)
        (a, b), (c, d) = v, w
        return op("sub", op("mul", a, c), op("mul", b, d)), op("add", op("mul", a, d), op("mul", b, c))

    def less(self, v: Number, factor: Number, w: Number) -> Number:
        """v - factor * w"""
        return self.each("sub", v, self.mul(factor, w))

    def times(self, v: Number, by: KValue) -> Number:
        return tuple([self.real.op("mul", x, by) for x in v])

    def over(self, v: Number, by: KValue) -> Number:
        return tuple([self.real.op("div", x, by) for x in v])

    def div(self, v: Number, w: Number) -> Number:
        return self.each("div", v, w) if self.parts == 1 else self._quotient(v, w)

    def _quotient(self, v: Number, w: Number) -> Number:
        """Smith's algorithm; by 0 the parts are divided by 0."""
        x, op, ((a, b), (c, d)) = self.real, self.real.op, (v, w)
        first = x.test("ge", op("abs", c), op("abs", d))
        large, small = x.select(first, c, d), x.select(first, d, c)
        p, q = x.select(first, a, b), x.select(first, b, a)
        zero = x.test("eq", large, x.const(0))
        ratio = op("div", small, x.select(zero, x.const(1), large))
        scale = op("div", x.const(1), op("add", large, op("mul", small, ratio)))
        crossed = op("mul", p, ratio)
        re = op("mul", op("add", p, op("mul", q, ratio)), scale)
        im = op("mul", x.select(first, op("sub", q, crossed), op("sub", crossed, q)), scale)
        return tuple([x.select(zero, op("div", y, op("abs", c)), z) for y, z in ((a, re), (b, im))])

    def size(self, v: Number) -> KValue:
        """By which rows are exchanged: the sum of the absolute values of the parts."""
        first, *rest = [self.real.op("abs", x) for x in v]
        return self.real.op("add", first, *rest) if rest else first

    def largest(self, v: Number) -> KValue:
        """The largest absolute value of a part."""
        first, *rest = [self.real.op("abs", x) for x in v]
        return self.real.op("max", first, *rest) if rest else first

    def is_zero(self, v: Number) -> KValue:
        first, *rest = [self.real.test("eq", x, self.real.const(0)) for x in v]
        return self.real.both(first, *rest) if rest else first

    def squared(self, v: Number) -> KValue:
        """Of the absolute value."""
        first, *rest = self.each("mul", v, v)
        return self.real.op("add", first, *rest) if rest else first

    def select(self, condition: KValue, yes: Number, no: Number) -> Number:
        return tuple([self.real.select(condition, x, y) for x, y in zip(yes, no, strict=True)])

    def polar(self, v: Number) -> tuple[KValue, Number]:
        """An absolute value and a factor of that of 1 whose product is `v`; of a real number itself and 1."""
        x = self.real
        if self.parts == 1:
            return v[0], self.const(1)
        largest = self.largest(v)
        still = x.test("eq", largest, x.const(0))
        small = self.over(v, x.select(still, x.const(1), largest))
        length = x.op("sqrt", self.squared(small))
        unit = self.over(small, x.select(still, x.const(1), length))
        return x.op("mul", largest, length), unit
