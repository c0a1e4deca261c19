"""Functions of halves by NVIDIA's approximations of 2**x, log2(x) and 1/x, of 22 bits, and quotients."""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.half_functions import HalfFunctions
from loopgrad.codegen.targets.llvm_gpu.quotients import Quotients

FAR: Final = 2.0**64  # from which on numbers aren't near 1
BINARY_EXPONENTIAL: Final = "llvm.nvvm.ex2.approx.ftz.f"
BINARY_LOGARITHM: Final = "llvm.nvvm.lg2.approx.f"


class Halves(Quotients):
    """Implements codegen.targets.gpu.assembler.Assembler's `for_half`."""

    def for_half(self, name: str, half: str, *operands: Val) -> Val | None:
        if name == "div" and not self.fast:
            return (self._bfloat_quotient if half == "b16" else self._half_quotient)(*operands)
        functions = HalfFunctions(self, self._power_of_two, self._binary_logarithm, self._reciprocal)
        return functions.of(name, half, operands[0])

    def called(self, function: str, result: str, given: str) -> str:
        """An LLVM function of operands with their types; the name of its result."""
        types = ", ".join([operand.rsplit(" ", 1)[0] for operand in given.split(", ")]) if given else ""
        self.declarations[f"declare {result} @{function}({types})"] = None
        name = "" if result == "void" else self._name()
        self._put(f"{name}{' = ' * bool(name)}call {result} @{function}({given})")
        return name

    def _approximate(self, function: str, x: Val) -> Val:
        kind = {"f32": "float", "f64": "double"}[x.type]
        name = f"@llvm.nvvm.{function}.approx.ftz.{x.type[0] if x.type == 'f32' else 'd'}"
        self.declarations[f"declare {kind} {name}({kind})"] = None
        return self._value(x.type, f"call {kind} {name}({kind} {x.id})")

    def _reciprocal(self, y: Val) -> Val:
        return self._approximate("rcp", y)

    def _power_of_two(self, x: Val) -> Val:
        """Where it is subnormal it is 0, by which the instruction needs no scaling."""
        return Val(self.called(BINARY_EXPONENTIAL, "float", f"float {x.id}"), "f32")

    def _binary_logarithm(self, x: Val) -> Val:
        """To 22 bits after the point near 1, and to 22 bits elsewhere."""
        return Val(self.called(BINARY_LOGARITHM, "float", f"float {x.id}"), "f32")

    def _half_quotient(self, x: Val, y: Val) -> Val:
        """Of float16, whose inverses are normal numbers of f32: without a rare way, which f32 needs. What the remainder
        lacks where it isn't exact is far below a half's last place, and where it says nothing (of zeros and infinite
        numbers) the product is right."""
        inverse = self._reciprocal(y)
        rough = self._times(x, inverse)
        fine = self._fma(self._fma(self._minus(y), rough, x), inverse, rough)
        told = self.inst("FOrdGreaterThan", "bool", self._size(fine), self.const("f32", 0.0))
        return self.inst("Select", "f32", told, fine, rough)

    def _bfloat_quotient(self, x: Val, y: Val) -> Val:
        """The product with the inverse to the nearest, which no remainder need correct: a quotient of 8 bits by 8 is
        further than 2**-17 of it from the middle of two bfloat16, or, where these are subnormal, may be the middle; the
        product, of f32 that lie as far apart as it is off, is then rounded to it. A divisor far from 1 is brought
        nearer, so that its inverse is a normal number. All but two products is the same for all that one number
        divides, as the sum of a row does."""
        scale = self.const("f32", 1.0)
        for beyond, bound, factor in (("FOrdLessThan", 1 / FAR, FAR), ("FOrdGreaterThan", FAR, 1 / FAR)):
            there = self.inst(beyond, "bool", self._size(y), self.const("f32", bound))
            scale = self.inst("Select", "f32", there, self.const("f32", factor), scale)
        divisor = self._times(y, scale)
        inverse = self._reciprocal(divisor)
        off = self._fma(self._minus(divisor), inverse, self.const("f32", 1.0))
        known = self.inst("FOrdLessThan", "bool", self._size(off), self.const("f32", 1.0))  # neither 0 nor infinite
        nearest = self.inst("Select", "f32", known, self._fma(inverse, off, inverse), inverse)
        return self._times(self._times(x, scale), nearest)
