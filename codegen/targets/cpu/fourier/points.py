"""Discrete Fourier transforms of few points as straight-line vector code.

Radix 4 and 8 are 2 x 2 and 2 x 4; an odd radix adds and subtracts points j and r - j first, whose cosines and sines are
the same (Singleton, "An algorithm for computing the mixed radix fast Fourier transform", 1969).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi, sin
from typing import NamedTuple

import numpy as np

from loopgrad.codegen.targets.cpu.ir_text import IrText
from loopgrad.codegen.targets.cpu.vector.vectors import literal


class LanePoint(NamedTuple):
    """Names of two vectors."""

    real: str
    imaginary: str


class PointArithmetic:
    """Arithmetic on points, of vectors of so many `scalar`s, into one function's text."""

    def __init__(self, t: IrText, scalar: str, width: int, fused: bool) -> None:
        self.t, self.scalar, self.fused = t, scalar, fused
        self.vector, self._suffix = f"<{width} x {scalar}>", f"v{width}{'f32' if scalar == 'float' else 'f64'}"

    def real(self, opcode: str, a: str, b: str) -> str:
        return self.t.let(f"{opcode} {self.vector} {a}, {b}")

    def number(self, value: float) -> str:
        """In all lanes."""
        value = float(np.float32(value)) if self.scalar == "float" else value
        return f"splat ({self.scalar} {literal(self.scalar, value)})"

    def fma(self, a: str, b: str, c: str) -> str:
        """a * b + c, rounded once where that is one instruction."""
        if not self.fused:
            return self.real("fadd", self.real("fmul", a, b), c)
        v = self.vector
        return self.t.let(f"call {v} @llvm.fma.{self._suffix}({v} {a}, {v} {b}, {v} {c})")

    def negative(self, a: str) -> str:
        return self.t.let(f"fneg {self.vector} {a}")

    def add(self, a: LanePoint, b: LanePoint) -> LanePoint:
        return LanePoint(self.real("fadd", a.real, b.real), self.real("fadd", a.imaginary, b.imaginary))

    def sub(self, a: LanePoint, b: LanePoint) -> LanePoint:
        return LanePoint(self.real("fsub", a.real, b.real), self.real("fsub", a.imaginary, b.imaginary))

    def times(self, a: LanePoint, w: LanePoint) -> LanePoint:
        real = self.fma(a.real, w.real, self.negative(self.real("fmul", a.imaginary, w.imaginary)))
        return LanePoint(real, self.fma(a.real, w.imaginary, self.real("fmul", a.imaginary, w.real)))

    def turned(self, a: LanePoint) -> LanePoint:
        """Times -i."""
        return LanePoint(a.imaginary, self.negative(a.real))

    def transform(self, points: Sequence[LanePoint]) -> list[LanePoint]:
        radix = len(points)
        if radix == 2:
            return [self.add(*points), self.sub(*points)]
        return self._halves(points) if radix % 2 == 0 else self._odd(points)

    def _halves(self, points: Sequence[LanePoint]) -> list[LanePoint]:
        """Of those at even places and those at odd ones."""
        radix = len(points)
        even, odd = self.transform(points[::2]), self.transform(points[1::2])
        moved = [self._root(point, k, radix) for k, point in enumerate(odd)]
        pairs = [*zip(even, moved, strict=True)]
        return [self.add(*pair) for pair in pairs] + [self.sub(*pair) for pair in pairs]

    def _root(self, a: LanePoint, k: int, radix: int) -> LanePoint:
        """Times exp(-2 pi i k / radix), of one or two eighths of a turn by additions."""
        if k == 0:
            return a
        if 4 * k == radix:
            return self.turned(a)
        half = self.number(0.5**0.5)
        if 8 * k == radix:
            total, rest = self.real("fadd", a.real, a.imaginary), self.real("fsub", a.imaginary, a.real)
            return LanePoint(self.real("fmul", total, half), self.real("fmul", rest, half))
        assert 8 * k == 3 * radix
        total, rest = self.real("fadd", a.real, a.imaginary), self.real("fsub", a.imaginary, a.real)
        return LanePoint(self.real("fmul", rest, half), self.negative(self.real("fmul", total, half)))

    def _odd(self, points: Sequence[LanePoint]) -> list[LanePoint]:
        radix, first = len(points), points[0]
        pairs = [(points[j], points[radix - j]) for j in range(1, (radix + 1) // 2)]
        sums, rests = [self.add(*pair) for pair in pairs], [self.sub(*pair) for pair in pairs]
        total = first
        for one in sums:
            total = self.add(total, one)
        found = [total] * radix
        for k in range(1, (radix + 1) // 2):
            angles = [2 * pi * (j * k % radix) / radix for j in range(1, (radix + 1) // 2)]
            even, odd = first, None
            for angle, one, rest in zip(angles, sums, rests, strict=True):
                cosine, sine = self.number(cos(angle)), self.number(sin(angle))
                even = LanePoint(self.fma(one.real, cosine, even.real), self.fma(one.imaginary, cosine, even.imaginary))
                if odd is None:
                    odd = LanePoint(self.real("fmul", rest.real, sine), self.real("fmul", rest.imaginary, sine))
                else:
                    odd = LanePoint(self.fma(rest.real, sine, odd.real), self.fma(rest.imaginary, sine, odd.imaginary))
            assert odd is not None
            moved = self.turned(odd)
            found[k], found[radix - k] = self.add(even, moved), self.sub(even, moved)
        return found
