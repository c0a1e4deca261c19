"""Functions of halves, computed in f32 by a GPU's approximations of 2**x, log2(x) and 1/x.

A result that is rounded to 8 or 11 bits needs few more, so approximations of 20 bits do. Where what they are added to
cancels them, near a function's zero, a few terms of its series are right to 17 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import log, pi, sqrt
from typing import Any, Final

from loopgrad.codegen.targets.gpu.assembler import Assembler, Val

LOG2_E: Final = 1 / log(2)
NEAR_ZERO: Final = 2.0**-4  # where series are used
LOG1P: Final = (-1 / 4, 1 / 3, -1 / 2, 1.0)  # of x
EXPM1: Final = (1 / 24, 1 / 6, 1 / 2, 1.0)
TANH: Final = (-1 / 3, 1.0)  # of x**2
ERF: Final = (1 / (5 * sqrt(pi)), -2 / (3 * sqrt(pi)), 2 / sqrt(pi))  # of x**2
ERF_SCALE: Final = 0.3275911
ERF_FAR: Final = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
Approximation = Callable[[Val], Val]


@dataclass(frozen=True, slots=True)
class HalfFunctions:
    """By approximations of f32: `power`, of 2, which may be 0 where it is subnormal; `logarithm`, to the base 2, right
    to 20 bits after the point between 1/2 and 2, and to 20 bits elsewhere; `inverse`, of numbers from 1 on."""

    b: Assembler
    power: Approximation
    logarithm: Approximation
    inverse: Approximation

    def of(self, name: str, half: str, x: Val) -> Val | None:
        """A primitive of f32 that were halves of a type, as gpu.assembler.Assembler.for_half says."""
        if name in POWERS:
            return self._small_power(half, x, POWERS[name])
        function = FUNCTIONS.get(name)
        made: Val | None = None if function is None else function(self, x)
        return made

    # pieces

    def _const(self, value: float) -> Val:
        return self.b.const("f32", value)

    def _times(self, x: Val, y: Val) -> Val:
        return self.b.exact("FMul", "f32", x, y)

    def _plus(self, x: Val, y: float) -> Val:
        return self.b.exact("FAdd", "f32", x, self._const(y))

    def _fma(self, x: Val, y: Val, z: Val) -> Val:
        return self.b.extended("Fma", "f32", x, y, z)

    def _size(self, x: Val) -> Val:
        return self.b.extended("FAbs", "f32", x)

    def _minus(self, x: Val) -> Val:
        return self.b.exact("FNegate", "f32", x)

    def _scaled(self, x: Val, factor: float) -> Val:
        return x if factor == 1 else self._times(x, self._const(factor))

    def _where_less(self, x: Val, bound: float, there: Val, elsewhere: Val) -> Val:
        less = self.b.inst("FOrdLessThan", "bool", x, self._const(bound))
        return self.b.inst("Select", "f32", less, there, elsewhere)

    def _near_zero(self, x: Val, near: Val, far: Val, bound: float = NEAR_ZERO) -> Val:
        return self._where_less(self._size(x), bound, near, far)

    def _series(self, x: Val, coefficients: tuple[float, ...]) -> Val:
        total = self._const(coefficients[0])
        for c in coefficients[1:]:
            total = self._fma(total, x, self._const(c))
        return total

    # functions

    def _power_of(self, x: Val, factor: float) -> Val:
        """2 to the product: an operand of 8 bits times the factor has 24 bits, up to 7 of them before the point."""
        return self.power(self._scaled(x, factor))

    def _small_power(self, half: str, x: Val, factor: float) -> Val:
        """Also where it is a subnormal bfloat16, as the square of its root; float16's numbers are all normal in f32."""
        if half == "f16":
            return self._power_of(x, factor)
        root = self._power_of(x, factor / 2)
        return self._times(root, root)

    def _logarithm(self, x: Val, factor: float) -> Val:
        """The natural one times `factor`."""
        above = self._plus(x, -1.0)
        near = self._times(above, self._series(above, tuple([factor * c for c in LOG1P])))
        return self._near_zero(above, near, self._scaled(self.logarithm(x), factor / LOG2_E))

    def _log1p(self, x: Val) -> Val:
        far = self.logarithm(self._plus(x, 1.0))
        return self._near_zero(x, self._times(x, self._series(x, LOG1P)), self._scaled(far, 1 / LOG2_E))

    def _expm1(self, x: Val) -> Val:
        far = self._plus(self._power_of(x, LOG2_E), -1.0)
        return self._near_zero(x, self._times(x, self._series(x, EXPM1)), far)

    def _tanh(self, x: Val) -> Val:
        """1 - 2 / (exp(2x) + 1)."""
        grown = self._power_of(x, 2 * LOG2_E)
        far = self._fma(self.inverse(self._plus(grown, 1.0)), self._const(-2.0), self._const(1.0))
        near = self._times(x, self._series(self._times(x, x), TANH))
        return self._near_zero(x, near, far)

    def _erf(self, x: Val) -> Val:
        """Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: to 1.5e-7."""
        one, size, square = self._const(1.0), self._size(x), self._times(x, x)
        t = self.inverse(self._fma(size, self._const(ERF_SCALE), one))
        shape = self._times(t, self._series(t, ERF_FAR))
        shrunk = self._power_of(square, -LOG2_E)
        far = self._fma(self._minus(shape), shrunk, one)
        near = self._times(x, self._series(square, ERF))
        return self._near_zero(x, near, self._where_less(x, 0.0, self._minus(far), far), 2 * NEAR_ZERO)


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
