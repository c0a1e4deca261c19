"""Between which numbers integers of a kernel lie, where that follows from its domain, constants and arithmetic.

Indices take divisions by constants and remainders (of reshapes, rolls, pads, concatenations), which are an instruction
or two where the dividend is known not to be negative, and many in 64 bits with a sign.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel, KOp, KValue
from loopgrad.codegen.targets.gpu.analysis import walk
from loopgrad.graph.ranges import limits

Range = tuple[int, int]
DEEPEST: Final = 40  # operations that are followed back; an index is made of fewer


def _product(x: Range, y: Range) -> Range:
    corners = [a * b for a in x for b in y]
    return min(corners), max(corners)


def _floordiv(x: Range, y: Range) -> Range | None:
    """By a constant."""
    return (x[0] // y[0], x[1] // y[0]) if y[0] == y[1] > 0 else None


def _mod(x: Range, y: Range) -> Range | None:
    if y[0] <= 0:
        return None
    return x if x[0] >= 0 and x[1] < y[0] else (0, y[1] - 1)


def _and(x: Range, y: Range) -> Range | None:
    tops = [high for low, high in (x, y) if low >= 0]
    return (0, min(tops)) if tops else None


COMBINED: Final[dict[str, Callable[[Range, Range], Range | None]]] = {
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "sub": lambda x, y: (x[0] - y[1], x[1] - y[0]),
    "mul": _product,
    "min": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    "max": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    "floordiv": _floordiv,
    "mod": _mod,
    "div": lambda x, y: _floordiv(x, y) if x[0] >= 0 else None,
    "rem": lambda x, y: _mod(x, y) if x[0] >= 0 else None,
    "and": _and,
}


class Ranges:
    """The ranges of one kernel's integers, found when they are asked for."""

    def __init__(self, kernel: Kernel) -> None:
        self._known: dict[KValue, Range] = {}
        self._counts: dict[KValue, KValue] = {}  # of a loop's trips, by the loop's index
        if prod(kernel.domain) > 1:  # a domain of one lane may be launched with any number
            extents = zip(kernel.body.arguments, kernel.domain, strict=True)
            self._known.update({index: (0, extent - 1) for index, extent in extents})
        for op in walk(kernel.body):
            if op.opcode == "for":
                self._counts[op.blocks[0].arguments[0]] = op.operands[0]

    def of(self, value: KValue, depth: int = 0) -> Range:
        """The smallest and the largest number it may be, at worst those of its type."""
        if value not in self._known:
            widest = limits(value.dtype) if value.dtype.is_integer else (0, 1)
            found = self._found(value, depth) if depth < DEEPEST else None
            # what wraps around may be any number
            fits = found is not None and widest[0] <= found[0] and found[1] <= widest[1]
            self._known[value] = found if found is not None and fits else widest
        return self._known[value]

    def constant(self, value: KValue) -> int | None:
        low, high = self.of(value)
        return low if low == high else None

    def _found(self, value: KValue, depth: int) -> Range | None:
        if value in self._counts:
            return 0, max(self.of(self._counts[value], depth + 1)[1] - 1, 0)
        op = value.op
        if op is None or not (value.dtype.is_integer or value.dtype.kind == "b"):
            return None
        if op.opcode == "const":
            return int(op.attrs["value"]), int(op.attrs["value"])
        if op.opcode == "if":
            return self._either([block.yields[value.index] for block in op.blocks], depth)
        if op.opcode == "select":
            return self._either(op.operands[1:], depth)
        return self._computed(op, depth)

    def _either(self, values: tuple[KValue, ...] | list[KValue], depth: int) -> Range:
        ranges = [self.of(v, depth + 1) for v in values]
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    def _computed(self, op: KOp, depth: int) -> Range | None:
        whole = all(v.dtype.is_integer or v.dtype.kind == "b" for v in op.operands)
        if op.opcode in ("cast", "alias") and whole:
            return self.of(op.operands[0], depth + 1)
        if op.opcode not in COMBINED or not whole or not op.results[0].dtype.is_integer:
            return None
        x, y = (self.of(v, depth + 1) for v in op.operands)
        return COMBINED[op.opcode](x, y)
