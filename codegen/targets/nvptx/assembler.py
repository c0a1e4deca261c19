"""The LLVM assembler with f32 division and square root of our own, rounded to nearest like IEEE's.

`div.rn.f32` and `sqrt.rn.f32` call a subroutine for operands of unusual size (zero numerators among them),
and a call costs a loop its registers: Newton's iteration runs 4.5 times faster on an H200 with `Quotients` and the root
below, which is corrected by its exact remainder likewise, and scaled where that isn't exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.llvm_gpu.quotients import Quotients

SMALLEST_ROOT: Final = 0x0D000000  # bits of 2**-101, below which a root's remainder isn't exact
ROOT_RANGE: Final = 0x7F7FFFFF - SMALLEST_ROOT  # up to the largest finite number
SCALE: Final = 64  # a power of two, even


class NvptxAssembler(Quotients):
    """Implements codegen.targets.gpu.assembler.Assembler."""

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

    # pieces

    def _approximate(self, function: str, x: Val) -> Val:
        kind = {"f32": "float", "f64": "double"}[x.type]
        name = f"@llvm.nvvm.{function}.approx.ftz.{x.type[0] if x.type == 'f32' else 'd'}"
        self.declarations[f"declare {kind} {name}({kind})"] = None
        return self._value(x.type, f"call {kind} {name}({kind} {x.id})")

    def _reciprocal(self, y: Val) -> Val:
        return self._approximate("rcp", y)

    def _all_above(self, values: Sequence[Val], least: float) -> Val:
        """By the smallest size, which is NaN where one of them is."""
        sizes = [self._size(v) for v in values]
        smallest = reduce(lambda x, y: self._call("minimum", "f32", x, y), sizes)
        return self._above(smallest, least)

    def _size(self, x: Val) -> Val:
        """A flag of the instruction that uses it, which LLVM isn't told: it would keep the size beside the number."""
        if self.is_constant(x):
            return self.extended("FAbs", "f32", x)
        return self._value("f32", f'call float asm "abs.f32 $0, $1;", "=f,f"(float {x.id})')

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
