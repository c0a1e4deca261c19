"""f32 division of our own, rounded to nearest like IEEE's, from an approximate reciprocal.

The quotient is corrected by its exact remainder (Markstein 1990), which needs the reciprocal rounded to nearest: one
step of Newton's makes that of the approximation. Where it could leave the range of normal numbers, a branch that is
rarely taken computes in f64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import Divide, Val
from loopgrad.codegen.targets.llvm_gpu.assembler import LlvmAssembler

LEAST_DIVIDEND: Final = 2.0**-100  # of those whose remainder is exact
SMALLEST: Final = 2.0**-125  # quotient that is correct: all that led to it was a normal number


class Quotients(LlvmAssembler, ABC):
    """Implements codegen.targets.gpu.assembler.Assembler, but for `_reciprocal`."""

    @abstractmethod
    def _reciprocal(self, y: Val) -> Val:
        """1 / y about, of f32 or f64; infinite, zero or no number where that is out of range."""

    def _division(self, type: str) -> Callable[[Val, Val], Val] | None:
        """Our own for a type, if there is one."""
        return self._quotient if type == "f32" else None

    def inst(self, name: str, type: str, *operands: Val) -> Val:
        divide = self._division(type) if name == "FDiv" and not self.fast else None
        return super().inst(name, type, *operands) if divide is None else divide(*operands)

    def exact(self, name: str, type: str, *operands: Val) -> Val:
        divide = self._division(type) if name == "FDiv" else None
        return super().exact(name, type, *operands) if divide is None else divide(*operands)

    @property
    def usual_quotients(self) -> Divide | None:
        return None if self.fast else self._usual_quotients

    # pieces

    def _fma(self, x: Val, y: Val, z: Val) -> Val:
        return super().extended("Fma", x.type, x, y, z)

    def _minus(self, x: Val) -> Val:
        return super().exact("FNegate", x.type, x)

    def _times(self, x: Val, y: Val) -> Val:
        return super().exact("FMul", x.type, x, y)

    def _rarely(self, usual: Val, common: Val, make: Callable[[], Val]) -> Val:
        """`common` where `usual` holds, else `make()`."""
        rare, after, before = self.block(), self.block(), self.label
        self._put(f"br i1 {usual.id}, label %{after}, label %{rare}, !prof !1")
        self.start(rare)
        other, leave = make(), self.label
        self.jump(after)
        self.start(after)
        return self.phi(common.type, (common, before), (other, leave))

    def _size(self, x: Val) -> Val:
        return self.extended("FAbs", x.type, x)

    def _above(self, x: Val, least: float) -> Val:
        return self.inst("FOrdGreaterThan", "bool", self._size(x), self.const("f32", least))

    def _all_above(self, values: Sequence[Val], least: float) -> Val:
        return reduce(lambda m, n: self.inst("LogicalAnd", "bool", m, n), [self._above(v, least) for v in values])

    def _is_zero(self, x: Val) -> Val:
        return self.inst("FOrdEqual", "bool", x, self.const(x.type, 0.0))

    # division

    def _quotient(self, x: Val, y: Val) -> Val:
        rough, fine = self._usual_quotient(x, y)
        usual = self.inst("LogicalAnd", "bool", self._above(x, LEAST_DIVIDEND), self._above(fine, SMALLEST))
        return self._rarely(usual, fine, lambda: self._unusual_quotient(x, y, rough))

    def _inverse(self, y: Val) -> Val:
        """1 / y to nearest, where all that leads to it is a normal number."""
        first = self._reciprocal(y)
        return self._fma(self._fma(self._minus(y), first, self.const("f32", 1.0)), first, first)

    def _usual_quotient(self, x: Val, y: Val) -> tuple[Val, Val]:
        """The product of x and 1/y, and the corrected one. That is right where the remainder is exact, and no step
        leaves the range of normal numbers: where one did, it is no number or less than SMALLEST."""
        inverse = self._inverse(y)
        rough = self._times(x, inverse)
        return rough, self._fma(self._fma(self._minus(y), rough, x), inverse, rough)

    def _usual_quotients(self, pairs: Sequence[tuple[Val, Val]]) -> tuple[Sequence[Val], Val]:
        """One test of all: those of each are then left to the rare way, instead of being kept for it."""
        values = [self._usual_quotient(x, y)[1] for x, y in pairs]
        dividends = self._all_above([x for x, _ in pairs], LEAST_DIVIDEND)
        return values, self.inst("LogicalAnd", "bool", dividends, self._all_above(values, SMALLEST))

    def _unusual_quotient(self, x: Val, y: Val, rough: Val) -> Val:
        """Zeros are frequent among gradients: the product has their sign, which the remainder loses."""
        zero = self.inst("LogicalAnd", "bool", self._is_zero(x), self._is_zero(rough))
        return self._rarely(zero, rough, lambda: self._wide_quotient(x, y))

    def _wide_quotient(self, x: Val, y: Val) -> Val:
        """In f64, whose rounding to f32 is the quotient's (2 * 24 + 2 bits would do). The approximation has about 20
        bits, a step of Newton's makes that 40, and the remainder corrects as many once more."""
        a, b = (self.exact("FConvert", "f64", v) for v in (x, y))
        minus, simple = self._minus(b), self._reciprocal(b)
        inverse = self._fma(simple, self._fma(minus, simple, self.const("f64", 1.0)), simple)
        rough = self._times(a, inverse)
        fine = self._fma(self._fma(minus, rough, a), inverse, rough)
        special = self.inst("LogicalOr", "bool", self.inst("IsNan", "bool", fine), self._is_zero(x))
        whole = self.inst("Select", "f64", special, self._times(a, simple), fine)  # or infinite operands
        return self.exact("FConvert", "f32", whole)
