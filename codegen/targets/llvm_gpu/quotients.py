"""Division of our own, rounded to nearest like IEEE's, from an approximate reciprocal.

The quotient is corrected by its exact remainder (Markstein 1990), which needs the reciprocal rounded to nearest: one
step of Newton's makes that of the approximation, and that of a constant is one. Where the quotient could leave the
range of normal numbers, a branch that is rarely taken computes in f64; of f64 by LLVM's division, whose usual way is
the same, but not for several at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Final

import numpy as np

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.llvm_gpu.assembler import LlvmAssembler
from loopgrad.codegen.targets.llvm_gpu.spelling import number_in

# Bounds of numbers, of f64 of their upper halves as f32: these compare alike, and are no number from 2**1017 on
LEAST_DIVIDEND: Final = {"f32": 2.0**-100, "f64": 1.875 * 2.0**-120}  # (2**-960) of those whose remainder is exact
SMALLEST: Final = {"f32": 2.0**-125, "f64": 3 * 2.0**-129}  # (2**-1020) quotient that all normal numbers led to
MODERATE: Final = 2.0**60  # constant divisors up to it, and down to its inverse, can't lead out of the range
SMALLEST_BY: Final = {"f32": 2.0**-99, "f64": 2.0**-959}  # quotient by 1 whose remainder is exact
NUMBERS: Final = {"f32": np.float32, "f64": np.float64}


def moderate(y: Val) -> float | None:
    """A constant divisor that is neither very large nor very small."""
    known = number_in(y.id, y.type)
    return known if known is not None and 1 / MODERATE <= abs(known) <= MODERATE else None


def comparable(bound: float, type: str) -> float:
    """The upper half of an f64, as an f32; an f32 as it is."""
    return bound if type == "f32" else float((np.float64(bound).view(np.int64) >> 32).astype(np.int32).view(np.float32))


class Quotients(LlvmAssembler, ABC):
    """Implements codegen.targets.gpu.assembler.Assembler, but for `_reciprocal`."""

    corrected_quotients: tuple[str, ...] = ("f32",)  # types

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
    def shared_quotients(self) -> tuple[str, ...]:
        return () if self.fast else self.corrected_quotients

    def near_quotient(self, x: Val, y: Val) -> Val | None:
        """The quotient by the inverse, corrected by its remainder."""
        return self._corrected(x, y, self._near_inverse(y))[1]

    def near_inverse(self, y: Val) -> Val | None:
        return self._near_inverse(y)

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

    def _above(self, x: Val, least: Mapping[str, float]) -> Val:
        return self._beyond(x, least[x.type])

    def _beyond(self, x: Val, least: float) -> Val:
        bound = self.const("f32", least)
        return self.inst("FOrdGreaterThan", "bool", self._size(self._comparable(x)), bound)

    def _comparable(self, x: Val) -> Val:
        """The upper half of an f64 as an f32; an f32 as it is."""
        if x.type == "f32":
            return x
        upper, _ = self._halves(self.inst("Bitcast", "i64", x))
        return self.inst("Bitcast", "f32", upper)

    def _all(self, tests: Iterable[Val]) -> Val:
        return reduce(lambda m, n: self.inst("LogicalAnd", "bool", m, n), tests)

    def _is_zero(self, x: Val) -> Val:
        return self.inst("FOrdEqual", "bool", x, self.const(x.type, 0.0))

    # division

    def _quotient(self, x: Val, y: Val) -> Val:
        rough, fine = self._usual_quotient(x, y)
        return self._rarely(self._all(self._tests([(x, y)], [fine])), fine, lambda: self._unusual_quotient(x, y, rough))

    def _inverse(self, y: Val) -> Val:
        """1 / y to nearest, where all that leads to it is a normal number."""
        first = self._near_inverse(y)
        return self._fma(self._fma(self._minus(y), first, self.const(y.type, 1.0)), first, first)

    def _near_inverse(self, y: Val) -> Val:
        """To a unit or so. An approximation of f64 has 20 bits, which a step of the third order makes 60. Its last one
        is set, as NVIDIA's own division sets it: else one next to the middle, for a y of ones alone, ends beyond it."""
        first = self._reciprocal(y)
        if y.type == "f32":
            return first
        bits = self.inst("Bitcast", "i64", first)
        first = self.inst("Bitcast", "f64", self.inst("BitwiseOr", "i64", bits, self.const("i64", 1)))
        error = self._fma(self._minus(y), first, self.const(y.type, 1.0))
        return self._fma(first, self._fma(error, error, error), first)

    def _corrected(self, x: Val, y: Val, inverse: Val) -> tuple[Val, Val]:
        """The product of x and 1/y, and what its remainder makes of it."""
        rough = self._times(x, inverse)
        return rough, self._fma(self._fma(self._minus(y), rough, x), inverse, rough)

    def _usual_quotient(self, x: Val, y: Val) -> tuple[Val, Val]:
        """The product of x and 1/y, and the corrected one. That is right where the remainder is exact, and no step
        leaves the range of normal numbers: where one did, it is no number or less than SMALLEST."""
        known = moderate(y)
        return self._corrected(x, y, self._inverse(y)) if known is None else self._by_constant(x, known)

    def _by_constant(self, x: Val, y: float) -> tuple[Val, Val]:
        """The same, with signs such that 0 / y has that of the product."""
        divisor, size = self.const(x.type, abs(y)), float((1 / np.float64(abs(y))).astype(NUMBERS[x.type]))
        rough = self._times(x, self.const(x.type, size if y > 0 else -size))
        beyond = self._fma(divisor, rough, self._minus(x) if y > 0 else x)
        return rough, self._fma(beyond, self.const(x.type, -size), rough)

    def usual_quotients(self, pairs: Sequence[tuple[Val, Val]], zeros: bool = False) -> tuple[Sequence[Val], Val]:
        """One test of all: those of each are then left to the rare way, instead of being kept for it."""
        if zeros:
            found = [self._quotient_or_zero(x, y) for x, y in pairs]
            return [value for value, _ in found], self._all(test for _, test in found)
        values = [self._usual_quotient(x, y)[1] for x, y in pairs]
        return values, self._all(self._tests(pairs, values))

    def _tests(self, pairs: Sequence[tuple[Val, Val]], values: Sequence[Val]) -> list[Val]:
        """Whether quotients are right. Those by constants are where they are large enough, or of 0."""
        large, right = [], []
        for (x, y), value in zip(pairs, values, strict=True):
            known = moderate(y)
            if known is None:
                large.append(self._above(x, LEAST_DIVIDEND))
                right.append(self._right(value, y))
            else:
                large_enough = self._beyond(value, comparable(SMALLEST_BY[y.type] / abs(known), y.type))
                right.append(self.inst("LogicalOr", "bool", large_enough, self._is_zero(x)))
        return large + right

    def _quotient_or_zero(self, x: Val, y: Val) -> tuple[Val, Val]:
        """The usual one, or a 0 that a 0 leads to; whether it is right."""
        rough, fine = self._usual_quotient(x, y)
        zero = self._leads_to_zero(x, rough)
        right = self._all([self._above(x, LEAST_DIVIDEND), self._right(fine, y)])
        return self.inst("Select", x.type, zero, rough, fine), self.inst("LogicalOr", "bool", zero, right)

    def _leads_to_zero(self, x: Val, rough: Val) -> Val:
        """The product has the quotient's sign, which the remainder loses."""
        return self.inst("LogicalAnd", "bool", self._is_zero(x), self._is_zero(rough))

    def _right(self, quotient: Val, y: Val) -> Val:
        """Whether normal numbers led to it. The inverse of an f64 from 2**1022 on is none, and flushed to zero, whose
        last bit is set: 0 * y is no number there."""
        if y.type == "f32":
            return self._above(quotient, SMALLEST)
        upper = self._fma(self.const("f32", 0.0), self._comparable(y), self._comparable(quotient))
        return self.inst("FOrdGreaterThan", "bool", self._size(upper), self.const("f32", SMALLEST["f64"]))

    def _unusual_quotient(self, x: Val, y: Val, rough: Val) -> Val:
        """Zeros are frequent among gradients."""
        return self._rarely(self._leads_to_zero(x, rough), rough, lambda: self._wide_quotient(x, y))

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
