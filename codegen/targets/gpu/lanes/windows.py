"""Lanes that read windows of an array, as convolutions and finite differences do.

Neighbouring lanes' windows overlap, so lanes side by side of one invocation load most of their elements once for all of
them, whatever they weigh otherwise: 4 lanes of a window of 5 x 5 load 40 elements, and not 100. A loop over a window
that is as long for all lanes is written out before, so that it is seen what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from loopgrad.codegen.kernel.linear_index import linear
from loopgrad.codegen.kernel.nodes import Kernel, KOp, KValue
from loopgrad.codegen.kernel.passes import cse, dce, fold
from loopgrad.codegen.kernel.rebuild import Rebuilder, is_pure
from loopgrad.codegen.targets.gpu.lanes.analysis import weight_of

FEWEST: Final = 1 << 17  # lanes of a kernel whose loops are written out
LONGEST: Final = 1000  # the loops of a lane, as they weigh
TOGETHER: Final = 1600  # the lanes of an invocation whose windows overlap
SMALLEST: Final = 3  # elements of a window
SHARED: Final = 0.7  # of the elements that lanes side by side read, those that differ


def written_out(kernel: Kernel) -> Kernel:
    """The kernel without its loops, if these are short and over windows."""
    loops = [op for op in kernel.body.ops if op.blocks]
    if not loops or kernel.stages or prod(kernel.domain) < FEWEST or not all(map(_over_windows, loops)):
        return kernel
    if _length(loops) > LONGEST:
        return kernel
    plain = dce.run(cse.run(fold.run(_WrittenOut(kernel).run())))
    return plain if overlapping(plain, 4) else kernel


def overlapping(kernel: Kernel, side: int) -> bool:
    """Whether so many lanes side by side read much of what their neighbours read."""
    forms = linear(kernel)
    groups: dict[tuple[int, tuple[int, ...]], set[int]] = {}
    for op in kernel.body.ops:
        form = forms.get(op.operands[0]) if op.opcode == "load" else None
        if form is not None and form.factors and form.factors[-1] == 1:
            groups.setdefault((op.attrs["param"], form.factors), set()).add(form.constant)
    read = side * sum(len(places) for places in groups.values())
    different = sum(len({place + i for place in places for i in range(side)}) for places in groups.values())
    return read >= side * SMALLEST and different <= SHARED * read


def _over_windows(op: KOp) -> bool:
    """A loop of so many trips for all lanes, that loads and computes, or has such loops in it."""
    if op.opcode != "for" or op.operands[0].op is None or op.operands[0].op.opcode != "const":
        return False
    ops = op.blocks[0].ops
    reads = any(inner.opcode == "load" or inner.blocks for inner in ops)
    return reads and all(_over_windows(inner) if inner.blocks else is_pure(inner) for inner in ops)


def _length(ops: Sequence[KOp]) -> int:
    """As code, written out."""
    return weight_of([op for op in ops if not op.blocks]) + sum(
        _trips(op) * _length(op.blocks[0].ops) for op in ops if op.blocks
    )


def _trips(op: KOp) -> int:
    assert op.operands[0].op is not None
    count: int = op.operands[0].op.attrs["value"]
    return max(count, 0)


class _WrittenOut(Rebuilder):
    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        if not op.blocks:
            return self.copy(op, operands)
        (block,), carried = op.blocks, operands[1:]
        trips = range(_trips(op))
        for trip in reversed(trips) if op.attrs["reverse"] else trips:
            index = KOp("const", (), (block.arguments[0].dtype,), {"value": trip})
            self.out.append(index)
            self.env.update(zip(block.arguments, (index.results[0], *carried), strict=True))
            self.body(block)
            carried = tuple([self.env[v] for v in block.yields])
        return carried
