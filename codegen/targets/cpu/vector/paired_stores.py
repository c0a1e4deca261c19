"""Which stores of a kernel write the two sides of pairs of neighbours, element 2i and element 2i + 1.

The first one waits for the second one of its block, since nobody reads an array that the kernel only writes.
"""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue, walk
from loopgrad.codegen.kernel.ranges import Ranges
from loopgrad.codegen.targets.cpu.vector.vectors import Vector

Place = tuple[KValue, int]  # the index of the first one of a pair, and which of the two


def pair_of(index: KValue, ranges: Ranges) -> Place:
    """An index as the first one of a pair, or as the one after it."""
    if index.op is not None and index.op.opcode == "add":
        for one, other in (index.op.operands, index.op.operands[::-1]):
            if ranges.constant(other) == 1:
                return one, 1
    return index, 0


class PairedStores:
    """The pairs of one kernel, and what the first stores wait with while it is emitted."""

    def __init__(self, kernel: Kernel, ranges: Ranges) -> None:
        self._second: dict[KOp, KOp] = {}  # of a first store
        self._waiting: dict[KOp, Vector] = {}  # at a second one
        read = {op.attrs["param"] for op in walk(kernel.body) if op.opcode in ("load", "accumulate")}
        self._find(kernel.body, ranges, read)

    def _find(self, block: Block, ranges: Ranges, read: set[int]) -> None:
        firsts: dict[tuple[int, KValue], KOp] = {}
        for op in block.ops:
            for inner in op.blocks:
                self._find(inner, ranges, read)
            if op.opcode != "store" or op.attrs["param"] in read:
                continue
            index, side = pair_of(op.operands[0], ranges)
            if side == 0:
                firsts[op.attrs["param"], index] = op
            elif (first := firsts.pop((op.attrs["param"], index), None)) is not None:
                self._second[first] = op

    def is_first(self, op: KOp) -> bool:
        return op in self._second

    def wait(self, op: KOp, value: Vector) -> None:
        """Keep the value of a first store for the second one."""
        self._waiting[self._second[op]] = value

    def before(self, op: KOp) -> Vector | None:
        """The value that waits for this store."""
        return self._waiting.pop(op, None)
