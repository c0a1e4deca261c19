"""Transforms of a few numbers in registers, and the factors of longer ones.

Of 2, 4 and 8 numbers by the usual sums and differences; of an odd number of them with the sums and differences of x[m]
and x[r - m], which takes half the products that the definition does.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi, sin, sqrt
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.routines.group_code import GroupCode

Number = tuple[Val, Val]  # real and imaginary part

ODD: Final = (3, 5, 7, 11, 13)


def radices(length: int) -> tuple[int, ...] | None:
    """Factors for which there are butterflies; None where there are others."""
    odd = []
    for prime in reversed(ODD):
        while length % prime == 0:
            length //= prime
            odd.append(prime)
    twos = length.bit_length() - 1
    if length != 1 << twos:
        return None
    fours = -twos % 3 if twos > 1 else 0  # 16 = 4 * 4 rather than 8 * 2
    eights, rest = (twos - 2 * fours) // 3, twos % 3 if twos == 1 else 0
    return (*[8] * eights, *[4] * fours, *[2] * rest, *odd) or (1,)


class Butterflies:
    """Of numbers of type `type`, in one direction."""

    def __init__(self, code: GroupCode, type: str, inverse: bool) -> None:
        self.code, self.b, self.type, self.inverse = code, code.b, type, inverse

    # arithmetic

    def constant(self, value: float) -> Val:
        return self.b.const(self.type, value)

    def op(self, name: str, x: Val, y: Val) -> Val:
        return self.b.inst(name, self.type, x, y)

    def plus(self, x: Number, y: Number) -> Number:
        return self.op("FAdd", x[0], y[0]), self.op("FAdd", x[1], y[1])

    def minus(self, x: Number, y: Number) -> Number:
        return self.op("FSub", x[0], y[0]), self.op("FSub", x[1], y[1])

    def scaled(self, x: Number, factor: Val) -> Number:
        return self.op("FMul", x[0], factor), self.op("FMul", x[1], factor)

    def times(self, x: Number, y: Number) -> Number:
        re = self.op("FSub", self.op("FMul", x[0], y[0]), self.op("FMul", x[1], y[1]))
        return re, self.op("FAdd", self.op("FMul", x[0], y[1]), self.op("FMul", x[1], y[0]))

    def conjugate(self, x: Number) -> Number:
        return x[0], self.b.inst("FNegate", self.type, x[1])

    def quarter(self, x: Number) -> Number:
        """Times exp(-pi i / 2), or its conjugate for the inverse."""
        if self.inverse:
            return self.b.inst("FNegate", self.type, x[1]), x[0]
        return x[1], self.b.inst("FNegate", self.type, x[0])

    # transforms

    def of(self, x: Sequence[Number]) -> list[Number]:
        match len(x):
            case 1:
                return list(x)
            case 2:
                return [self.plus(*x), self.minus(*x)]
            case 4:
                return self._of_four(x)
            case 8:
                return self._of_eight(x)
        return self._of_odd(x)

    def _of_four(self, x: Sequence[Number]) -> list[Number]:
        even, odd = self.plus(x[0], x[2]), self.plus(x[1], x[3])
        below, turned = self.minus(x[0], x[2]), self.quarter(self.minus(x[1], x[3]))
        return [self.plus(even, odd), self.plus(below, turned), self.minus(even, odd), self.minus(below, turned)]

    def _of_eight(self, x: Sequence[Number]) -> list[Number]:
        even, odd = self._of_four(x[::2]), self._of_four(x[1::2])
        half = self.constant(sqrt(0.5))
        eighth = self.scaled(self.plus(odd[1], self.quarter(odd[1])), half)
        turned = self.quarter(odd[3])
        third = self.scaled(self.minus(turned, odd[3]), half)
        moved = [odd[0], eighth, self.quarter(odd[2]), third]
        above = [self.plus(x, y) for x, y in zip(even, moved, strict=True)]
        return above + [self.minus(x, y) for x, y in zip(even, moved, strict=True)]

    def _of_odd(self, x: Sequence[Number]) -> list[Number]:
        r, half = len(x), len(x) // 2
        sums = [self.plus(x[m], x[r - m]) for m in range(1, half + 1)]
        rests = [self.quarter(self.minus(x[m], x[r - m])) for m in range(1, half + 1)]
        total = x[0]
        for s in sums:
            total = self.plus(total, s)
        first, last = [total], []
        for k in range(1, half + 1):
            even, odd = x[0], None
            for m, (s, d) in enumerate(zip(sums, rests, strict=True), 1):
                angle = 2 * pi * (k * m % r) / r
                even = self.plus(even, self.scaled(s, self.constant(cos(angle))))
                turned = self.scaled(d, self.constant(sin(angle)))
                odd = turned if odd is None else self.plus(odd, turned)
            assert odd is not None
            first.append(self.plus(even, odd))
            last.append(self.minus(even, odd))
        return first + last[::-1]
