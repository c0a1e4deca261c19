"""Constants are computed here, and identities that hold for every input disappear.

    %1 = const {value=0} : int64
    %2 = add %0 %1                 ->   uses of %2 read %0

Float identities are limited to those exact for NaN, infinities and signed zeros (x * 1, x / 1). An index that lies
within its array, as those of windows do, isn't clamped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loopgrad.codegen.kernel.nodes import Kernel, KOp, KValue
from loopgrad.codegen.kernel.ranges import Ranges
from loopgrad.codegen.kernel.rebuild import Rebuilder, is_pure
from loopgrad.graph.primitives import PRIMITIVES, REFERENCE


class _Fold(Rebuilder):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.constants: dict[KValue, Any] = {}
        self.ranges = Ranges(kernel)

    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        if op.opcode == "const":
            results = self.copy(op, operands)
            self.constants[results[0]] = op.attrs["value"]
            return results
        if op.opcode == "select":
            return (self.select(op, operands),)
        if op.opcode == "cast" and operands[0].dtype is op.results[0].dtype:
            return operands
        if op.opcode == "for" and (trips := self.constants.get(operands[0])) is not None and trips <= 0:
            return operands[1:]
        if op.opcode not in REFERENCE or not is_pure(op) or not operands:
            return self.copy(op, operands)
        if all(v in self.constants for v in operands):
            return self.evaluate(op, operands)
        same = self.bound(op, operands) if op.opcode in ("min", "max") else self.identity(op, operands)
        return self.copy(op, operands) if same is None else (same,)

    def select(self, op: KOp, operands: tuple[KValue, ...]) -> KValue:
        pred, a, b = operands
        if a is b:
            return a
        if pred in self.constants:
            return a if self.constants[pred] else b
        return self.copy(op, operands)[0]

    def evaluate(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        arrays = [np.asarray(self.constants[v], v.dtype.np) for v in operands]
        attrs = {"dtype": op.results[0].dtype} if op.opcode == "cast" else op.attrs
        with np.errstate(all="ignore"):
            value = np.asarray(REFERENCE[op.opcode](attrs, *arrays)[0]).item()
        folded = KOp("const", (), (op.results[0].dtype,), {"value": value})
        self.out.append(folded)
        self.constants[folded.results[0]] = value
        return folded.results

    def identity(self, op: KOp, operands: tuple[KValue, ...]) -> KValue | None:
        if len(operands) != 2:
            return None
        row = PRIMITIVES.get(op.opcode)
        exact = not operands[0].dtype.is_float or op.opcode in ("mul", "div")  # -0.0 + 0 is 0.0
        if row is not None and row.neutral is not None and exact:
            if self.constants.get(operands[1]) == row.neutral:
                return operands[0]
            if row.commutes and self.constants.get(operands[0]) == row.neutral:
                return operands[1]
        return self.logic(op, operands)

    def bound(self, op: KOp, operands: tuple[KValue, ...]) -> KValue | None:
        """Which operand a minimum or maximum of integers is, where their ranges say so."""
        if not operands[0].dtype.is_integer:
            return None
        (low, high), (other_low, other_high) = (self.ranges.of(v) for v in op.operands)
        if op.opcode == "max":
            low, high, other_low, other_high = other_low, other_high, low, high
        if high <= other_low:
            return operands[0]
        return operands[1] if other_high <= low else None

    def logic(self, op: KOp, operands: tuple[KValue, ...]) -> KValue | None:
        if op.opcode not in ("and", "or") or operands[0].dtype.kind != "b":
            return None
        for known, other in (operands, operands[::-1]):
            if known in self.constants:
                decides = bool(self.constants[known]) == (op.opcode == "or")
                return known if decides else other
        return operands[0] if operands[0] is operands[1] else None


def run(kernel: Kernel) -> Kernel:
    """See the module's text."""
    return _Fold(kernel).run()
