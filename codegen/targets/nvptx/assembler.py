"""The LLVM assembler with f32 division and square root of our own, rounded to nearest like IEEE's.

`div.rn.f32` and `sqrt.rn.f32` call a subroutine for operands of unusual size (zero numerators among them),
and a call costs a loop its registers: Newton's iteration runs 4.5 times faster on an H200 with what follows.
A quotient or a root from the hardware's approximation is corrected by its exact remainder (Markstein 1990): that
of a quotient needs the reciprocal rounded to nearest, which one step of Newton's makes of the approximation. Where
it could leave the range of normal numbers, a branch that is rarely taken computes in f64 or scales.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import Divide, Val
from loopgrad.codegen.targets.llvm_gpu.assembler import LlvmAssembler

LEAST_DIVIDEND: Final = 2.0**-100  # of those whose remainder is exact
SMALLEST: Final = 2.0**-125  # quotient that is correct: all that led to it was a normal number
SMALLEST_ROOT: Final = 0x0D000000  # bits of 2**-101, below which a root's remainder isn't exact
ROOT_RANGE: Final = 0x7F7FFFFF - SMALLEST_ROOT  # up to the largest finite number
SCALE: Final = 64  # a power of two, even


class NvptxAssembler(LlvmAssembler):
    """Implements codegen.targets.gpu.assembler.Assembler."""

    def inst(self, name: str, type: str, *operands: Val) -> Val:
        if name == "FDiv" and type == "f32" and not self.fast:
            return self._quotient(*operands)
        return super().inst(name, type, *operands)

    def exact(self, name: str, type: str, *operands: Val) -> Val:
        if name == "FDiv" and type == "f32":
            return self._quotient(*operands)
        return super().exact(name, type, *operands)

    def extended(self, name: str, type: str, *operands: Val) -> Val:
        if name == "Sqrt" and type == "f32" and not self.fast:
            return self._root(*operands)
        return super().extended(name, type, *operands)

    def extreme(self, name: str, x: Val, y: Val) -> Val | None:
        return self._call({"min": "minimum", "max": "maximum"}[name], "f32", x, y) if x.type == "f32" else None

    def wide_product(self, x: Val, y: Val) -> Val:
        """ptxas makes one instruction of this and a sum. LLVM widens a factor that doesn't change before the loop,
        and neither compiler then finds that its upper half is zero."""
        return self._value("i64", f'call i64 asm "mul.wide.u32 $0, $1, $2;", "=l,r,r"(i32 {x.id}, i32 {y.id})')

    @property
    def usual_quotients(self) -> Divide | None:
        return None if self.fast else self._usual_quotients

    # pieces

    def _approximate(self, function: str, x: Val) -> Val:
        kind = {"f32": "float", "f64": "double"}[x.type]
        name = f"@llvm.nvvm.{function}.approx.ftz.{x.type[0] if x.type == 'f32' else 'd'}"
        self.declarations[f"declare {kind} {name}({kind})"] = None
        return self._value(x.type, f"call {kind} {name}({kind} {x.id})")

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

    # division

    def _quotient(self, x: Val, y: Val) -> Val:
        rough, fine = self._usual_quotient(x, y)
        usual = self.inst("LogicalAnd", "bool", self._above(x, LEAST_DIVIDEND), self._above(fine, SMALLEST))
        return self._rarely(usual, fine, lambda: self._unusual_quotient(x, y, rough))

    def _usual_quotient(self, x: Val, y: Val) -> tuple[Val, Val]:
        """The product of x and 1/y, and the corrected one. That is right where the remainder is exact, and no step
        leaves the range of normal numbers: where one did, it is no number or less than SMALLEST."""
        first = self._approximate("rcp", y)
        inverse = self._fma(self._fma(self._minus(y), first, self.const("f32", 1.0)), first, first)
        rough = self._times(x, inverse)
        return rough, self._fma(self._fma(self._minus(y), rough, x), inverse, rough)

    def _usual_quotients(self, pairs: Sequence[tuple[Val, Val]]) -> tuple[Sequence[Val], Val]:
        """One test of all: those of each are then left to the rare way, instead of being kept for it."""
        values = [self._usual_quotient(x, y)[1] for x, y in pairs]
        least = [self._least([x for x, _ in pairs]), self._least(values)]
        return values, self.inst("LogicalAnd", "bool", *map(self._above, least, (LEAST_DIVIDEND, SMALLEST)))

    def _least(self, values: Sequence[Val]) -> Val:
        """The smallest size; NaN where one is NaN."""
        sizes = [self._size(v) for v in values]
        return reduce(lambda x, y: self._call("minimum", "f32", x, y), sizes)

    def _above(self, x: Val, least: float) -> Val:
        return self.inst("FOrdGreaterThan", "bool", self._size(x), self.const("f32", least))

    def _size(self, x: Val) -> Val:
        """A flag of the instruction that uses it, which LLVM isn't told: it would keep the size beside the number."""
        if self.is_constant(x):
            return self.extended("FAbs", "f32", x)
        return self._value("f32", f'call float asm "abs.f32 $0, $1;", "=f,f"(float {x.id})')

    def _unusual_quotient(self, x: Val, y: Val, rough: Val) -> Val:
        """Zeros are frequent among gradients: the product has their sign, which the remainder loses."""
        zero = self.inst("LogicalAnd", "bool", self._is_zero(x), self._is_zero(rough))
        return self._rarely(zero, rough, lambda: self._wide_quotient(x, y))

    def _is_zero(self, x: Val) -> Val:
        return self.inst("FOrdEqual", "bool", x, self.const("f32", 0.0))

    def _wide_quotient(self, x: Val, y: Val) -> Val:
        """In f64, whose rounding to f32 is the quotient's (2 * 24 + 2 bits would do). The approximation has about 20
        bits, a step of Newton's makes that 40, and the remainder corrects as many once more."""
        a, b = (self.exact("FConvert", "f64", v) for v in (x, y))
        minus, simple = self._minus(b), self._approximate("rcp", b)
        inverse = self._fma(simple, self._fma(minus, simple, self.const("f64", 1.0)), simple)
        rough = self._times(a, inverse)
        fine = self._fma(self._fma(minus, rough, a), inverse, rough)
        special = self.inst("LogicalOr", "bool", self.inst("IsNan", "bool", fine), self._is_zero(x))
        whole = self.inst("Select", "f64", special, self._times(a, simple), fine)  # or infinite operands
        return self.exact("FConvert", "f32", whole)

    # square root

    def _root(self, x: Val) -> Val:
        bits = self.inst("Bitcast", "i32", x)
        offset = self.inst("ISub", "i32", bits, self.const("i32", SMALLEST_ROOT))
        usual = self.inst("ULessThanEqual", "bool", offset, self.const("i32", ROOT_RANGE))
        return self._rarely(usual, self._normal_root(x), lambda: self._scaled_root(x))

    def _normal_root(self, x: Val) -> Val:
        inverse = self._approximate("rsqrt", x)
        rough = self._times(x, inverse)
        half = self._times(inverse, self.const("f32", 0.5))
        return self._fma(self._fma(self._minus(rough), rough, x), half, rough)

    def _scaled_root(self, x: Val) -> Val:
        """Of tiny, negative, infinite numbers, zeros and NaN."""
        larger = self._normal_root(self._times(x, self.const("f32", 2.0**SCALE)))
        root = self._times(larger, self.const("f32", 2.0 ** (-SCALE // 2)))
        endless = self.inst("FOrdEqual", "bool", x, self.const("f32", float("inf")))
        itself = self.inst("LogicalOr", "bool", self._is_zero(x), endless)
        return self.inst("Select", "f32", itself, x, root)
