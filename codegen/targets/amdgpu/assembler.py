"""The LLVM assembler with division of our own, and without tables in memory: their addresses would need `s_getpc` and
relocations.

LLVM's quotients aren't the nearest wherever the hardware is only as accurate as it is documented to be: where all bits
of the divisor's mantissa are ones, or in f64 nearly all, 1/y is so close to the middle between two numbers that a step
of Newton's ends at the one or the other, by where it began.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.llvm_gpu.quotients import Quotients
from loopgrad.codegen.targets.llvm_gpu.spelling import llvm_type

UPWARDS: Final = {"f32": 1.5 * 2.0**-24, "f64": 1.5 * 2.0**-53}  # times a number: one or two of its ulps


class AmdgpuAssembler(Quotients):
    """Implements codegen.targets.gpu.assembler.Assembler."""

    functions = False  # calls would need their addresses

    # division

    def _division(self, type: str) -> Callable[[Val, Val], Val] | None:
        return self._double_quotient if type == "f64" else super()._division(type)

    def _function(self, name: str, type: str, *operands: Val) -> Val:
        """A function of the backend's on operands of one float type, and perhaps a flag as the last."""
        kind, kinds = llvm_type(type), [llvm_type(v.type) for v in operands]
        result = f"{{ {kind}, i1 }}" if name == "div.scale" else kind
        function = f"@llvm.amdgcn.{name}.{type}"
        self.declarations[f"declare {result} {function}({', '.join(kinds)})"] = None
        values = ", ".join(f"{k} {v.id}" for k, v in zip(kinds, operands, strict=True))
        return self._value(type, f"call {result} {function}({values})")

    def _reciprocal(self, y: Val) -> Val:
        return self._function("rcp", y.type, y)

    def _step(self, y: Val, inverse: Val, last: bool) -> Val:
        """Newton's for 1 / y. It leaves out the square of the error. Where the bits of y are all ones, or nearly so,
        1/y lies above the middle between two numbers, by as much as that square or more: the sum might end in the
        middle. So the last error is moved up, by an ulp or two."""
        error = self._fma(self._minus(y), inverse, self.const(y.type, 1.0))
        if last:
            error = self._fma(self._size(error), self.const(y.type, UPWARDS[y.type]), error)
        return self._fma(error, inverse, inverse)

    def _inverse(self, y: Val) -> Val:
        return self._step(y, self._reciprocal(y), last=True)

    def _double_quotient(self, x: Val, y: Val) -> Val:
        """As LLVM makes it, with a third step for the reciprocal: it and the remainder are then as exact as they need
        to be, and what hardware has for division does the scaling."""
        (below, _), (above, far) = (self._scaled(x, y, numerator) for numerator in (False, True))
        inverse = self._reciprocal(below)
        for last in (False, False, True):
            inverse = self._step(below, inverse, last)
        rough = self._times(above, inverse)
        rest = self._fma(self._minus(below), rough, above)
        whole = self._function("div.fmas", "f64", rest, inverse, rough, far)
        return self._function("div.fixup", "f64", whole, y, x)

    def _scaled(self, x: Val, y: Val, numerator: bool) -> tuple[Val, Val]:
        """x or y of a quotient, by a power of two if need be, and whether the quotient has to be scaled back."""
        pair = self._function("div.scale", "f64", x, y, self.const("bool", numerator))
        parts = [f"extractvalue {{ double, i1 }} {pair.id}, {i}" for i in range(2)]
        return self._value("f64", parts[0]), self._value("bool", parts[1])

    # places

    def opaque(self, x: Val) -> Val:
        """LLVM computes branches that are rarely taken always, where nothing hinders it. It also adds the constant of
        an index to the array's place in memory of the workgroup, and leaves an address below zero."""
        kind = llvm_type(x.type)
        return self._value(x.type, f'call {kind} asm "", "=v,0"({kind} {x.id})')

    # tables

    def lookup(self, type: str, values: tuple[int, ...], first: Val, count: int) -> list[Val]:
        """By selects that the elements share: each bit of `first`, from the highest on, moves what is left of the
        table. Values stay in the code."""
        left = [self.const(type, value) for value in values]
        for bit in reversed(range((len(values) - 1).bit_length())):
            distance = 1 << bit
            mask = self.inst("BitwiseAnd", first.type, first, self.const(first.type, distance))
            moved = self.inst("INotEqual", "bool", mask, self.const(first.type, 0))
            pairs = list(zip(left, left[distance:], strict=False))[: distance + count - 1]
            rest = left[len(pairs) : distance + count - 1]  # beyond the table if moved
            left = [*[x if x == y else self.inst("Select", type, moved, y, x) for x, y in pairs], *rest]
        return left[:count]
