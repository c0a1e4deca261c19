"""Functions of halves, computed in f32 by NVIDIA's approximations of 2**x, log2(x) and 1/x.

A result that is rounded to 8 or 11 bits needs few more, so approximations of 22 bits do. Where what they are added to
cancels them, near a function's zero, a few terms of its series are right to 17 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import log, pi, sqrt
from typing import Any, Final

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.llvm_gpu.quotients import Quotients

LOG2_E: Final = 1 / log(2)
FAR: Final = 2.0**64  # from which on numbers aren't near 1
NEAR_ZERO: Final = 2.0**-4  # where series are used
BINARY_EXPONENTIAL: Final = "llvm.nvvm.ex2.approx"
BINARY_LOGARITHM: Final = "llvm.nvvm.lg2.approx.f"
LOG1P: Final = (-1 / 4, 1 / 3, -1 / 2, 1.0)  # of x
EXPM1: Final = (1 / 24, 1 / 6, 1 / 2, 1.0)
TANH: Final = (-1 / 3, 1.0)  # of x**2
ERF: Final = (1 / (5 * sqrt(pi)), -2 / (3 * sqrt(pi)), 2 / sqrt(pi))  # of x**2
ERF_SCALE: Final = 0.3275911
ERF_FAR: Final = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


class HalfFunctions(Quotients):
    """Implements codegen.targets.gpu.assembler.Assembler's `for_half`."""

    def for_half(self, name: str, half: str, *operands: Val) -> Val | None:
        if name == "div" and not self.fast:
            return (self._bfloat_quotient if half == "b16" else self._half_quotient)(*operands)
        if name in POWERS:
            return self._small_power(half, operands[0], POWERS[name])
        function = FUNCTIONS.get(name)
        made: Val | None = None if function is None else function(self, *operands)
        return made

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

    def _power_of_two(self, x: Val, factor: float = 1.0) -> Val:
        """Of a product, where `factor` isn't 1: an operand of 8 bits times it has 24 bits, of which up to 7 are before
        the point. Where the power is subnormal it is 0, by which the instruction needs no scaling."""
        x = self._scaled(x, factor)
        return Val(self.called(BINARY_EXPONENTIAL + ".ftz.f", "float", f"float {x.id}"), "f32")

    def _small_power(self, half: str, x: Val, factor: float) -> Val:
        """Also where it is a subnormal bfloat16, as the square of its root; float16's numbers are all normal in f32."""
        if half == "f16":
            return self._power_of_two(x, factor)
        root = self._power_of_two(x, factor / 2)
        return self._times(root, root)

    def _scaled(self, x: Val, factor: float) -> Val:
        return x if factor == 1 else self._times(x, self.const(x.type, factor))

    def _series(self, x: Val, coefficients: tuple[float, ...]) -> Val:
        total = self.const(x.type, coefficients[0])
        for c in coefficients[1:]:
            total = self._fma(total, x, self.const(x.type, c))
        return total

    def _near_zero(self, x: Val, near: Val, far: Val, bound: float = NEAR_ZERO) -> Val:
        there = self.inst("FOrdLessThan", "bool", self._size(x), self.const(x.type, bound))
        return self.inst("Select", x.type, there, near, far)

    def _logarithm(self, x: Val, factor: float) -> Val:
        """The natural one times `factor`. The instruction is right to 22 bits after the point near 1, and to 22 bits
        elsewhere."""
        above = self.exact("FSub", x.type, x, self.const(x.type, 1.0))
        near = self._times(above, self._series(above, tuple([factor * c for c in LOG1P])))
        return self._near_zero(above, near, self._scaled(self._binary_logarithm(x), factor / LOG2_E))

    def _binary_logarithm(self, x: Val) -> Val:
        return Val(self.called(BINARY_LOGARITHM, "float", f"float {x.id}"), "f32")

    def _log1p(self, x: Val) -> Val:
        far = self._binary_logarithm(self.exact("FAdd", x.type, x, self.const(x.type, 1.0)))
        return self._near_zero(x, self._times(x, self._series(x, LOG1P)), self._scaled(far, 1 / LOG2_E))

    def _expm1(self, x: Val) -> Val:
        grown = self._power_of_two(x, LOG2_E)
        far = self.exact("FSub", x.type, grown, self.const(x.type, 1.0))
        return self._near_zero(x, self._times(x, self._series(x, EXPM1)), far)

    def _tanh(self, x: Val) -> Val:
        """1 - 2 / (exp(2|x|) + 1), with the sign of x."""
        one = self.const(x.type, 1.0)
        grown = self._power_of_two(self._size(x), 2 * LOG2_E)
        far = self._fma(self._reciprocal(self.exact("FAdd", x.type, grown, one)), self.const(x.type, -2.0), one)
        near = self._times(x, self._series(self._times(x, x), TANH))
        return self._near_zero(x, near, self._with_sign(far, x))

    def _erf(self, x: Val) -> Val:
        """Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: to 1.5e-7."""
        one, size, square = self.const(x.type, 1.0), self._size(x), self._times(x, x)
        t = self._reciprocal(self._fma(size, self.const(x.type, ERF_SCALE), one))
        shape = self._times(t, self._series(t, ERF_FAR))
        shrunk = self._power_of_two(square, -LOG2_E)
        far = self._fma(self._minus(shape), shrunk, one)
        near = self._times(x, self._series(square, ERF))
        return self._near_zero(x, near, self._with_sign(far, x), 2 * NEAR_ZERO)

    def _with_sign(self, x: Val, sign: Val) -> Val:
        return Val(self.called("llvm.copysign.f32", "float", f"float {x.id}, float {sign.id}"), x.type)

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


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "erf": HalfFunctions._erf,
    "expm1": HalfFunctions._expm1,
    "log": partial(HalfFunctions._logarithm, factor=1.0),
    "log10": partial(HalfFunctions._logarithm, factor=1 / log(10)),
    "log1p": HalfFunctions._log1p,
    "log2": partial(HalfFunctions._logarithm, factor=LOG2_E),
    "tanh": HalfFunctions._tanh,
}
POWERS: Final = {"exp": LOG2_E, "exp2": 1.0}
"""Of 2: the factors of their exponents."""
