"""Between which numbers integers of a kernel lie, where that follows from its domain, constants and arithmetic.

The rules are those of the graph's primitives (`graph.primitives.intervals`), which take an operation of a kernel as
well as a node. Loop carries and what is loaded may be any number of their dtype.
"""

from __future__ import annotations

from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.graph.primitives.intervals import Interval, hull
from loopgrad.graph.ranges import limits

INT32: Final[Interval] = (-(1 << 31), (1 << 31) - 1)


class Ranges:
    """The ranges of one kernel's integers and bools, found in program order when one is first asked for."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._found: dict[KValue, Interval] | None = None  # of numbers that are congruent to the values

    def of(self, value: KValue) -> Interval:
        """The smallest and the largest number it may be, at worst those of its type."""
        return self.bounds(value)

    def constant(self, value: KValue) -> int | None:
        low, high = self.of(value)
        return low if low == high else None

    def fits_int32(self, value: KValue) -> bool:
        low, high = self.of(value)
        return INT32[0] <= low and high <= INT32[1]

    def exact(self, op: KOp) -> bool:
        """Whether the operation can't wrap around."""
        rule, result = OPCODES[op.opcode].interval, op.results[0]
        found = None if rule is None else rule(op, _Actual(self))
        return found is not None and _within(found, limits(result.dtype))

    # for the rules

    def bounds(self, value: KValue) -> Interval:
        found, widest = self.residues(value), _widest(value)
        return found if _within(found, widest) else widest

    def residues(self, value: KValue) -> Interval:
        if self._found is None:
            self._found = {}
            self._walk()
        return self._found.get(value) or _widest(value)

    # the walk

    def _walk(self) -> None:
        kernel, found = self._kernel, self._found
        assert found is not None
        for block in (kernel.body, kernel.order_key):
            if block is None:
                continue
            if prod(kernel.domain) > 1:  # a domain of one lane may be launched with any number
                extents = zip(block.arguments, kernel.domain, strict=True)
                found.update({index: (0, max(extent - 1, 0)) for index, extent in extents})
            self._block(block, found)

    def _block(self, block: Block, found: dict[KValue, Interval]) -> None:
        for op in block.ops:
            if op.opcode == "for":
                found[op.blocks[0].arguments[0]] = 0, max(self.bounds(op.operands[0])[1] - 1, 0)
            for inner in op.blocks:
                self._block(inner, found)
            if op.opcode == "if":
                ways = zip(*[block.yields for block in op.blocks], strict=True)
                found.update(
                    (r, hull(*map(self.bounds, way)))
                    for r, way in zip(op.results, ways, strict=True)
                    if not r.dtype.is_float
                )
            rule = OPCODES[op.opcode].interval
            if rule is not None and op.results[0].dtype.is_integer:
                made, widest = rule(op, self), limits(op.results[0].dtype)
                if made is not None and made[1] - made[0] <= widest[1] - widest[0]:
                    found[op.results[0]] = made


class _Actual:
    """What is known of values without regard to what they are congruent to."""

    def __init__(self, ranges: Ranges) -> None:
        self.bounds = self.residues = ranges.bounds


def _widest(value: KValue) -> Interval:
    return (0, 0) if value.dtype.is_float else limits(value.dtype)


def _within(x: Interval, y: Interval) -> bool:
    return y[0] <= x[0] and x[1] <= y[1]
