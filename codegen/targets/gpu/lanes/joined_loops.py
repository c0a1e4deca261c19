"""Loops of a lane that make the same trips and read the same array, as one loop, which reads it once.

    for i: s += g[i] * x[i]
    for i: t += g[i] * x[i + 1]     ->     for i: s += g[i] * x[i]; t += g[i] * x[i + 1]

Derivatives by the taps of a filter, or by a layer's few weights, are such sums: one loop after the other would wait for
its own loads and read what is common to them again. Loops inside of these become one in their turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue, walk
from loopgrad.codegen.kernel.passes import optimise
from loopgrad.codegen.kernel.rebuild import Rebuilder, is_pure
from loopgrad.codegen.targets.gpu.lanes.analysis import weight_of

HEAVIEST: Final = 600  # loops together, before they share anything
MOST_CARRIED: Final = 32  # values from trip to trip, in registers


def with_joined_loops(kernel: Kernel) -> Kernel:
    """See the module's text."""
    found = kernel
    while (pair := _alike(found)) is not None:
        block, loops = pair
        joined = in_one_loop(found, block, loops)
        assert joined is not None, "those that are alike can follow each other"
        found = optimise(joined)
    return found


def in_one_loop(kernel: Kernel, block: Block, loops: Sequence[KOp]) -> Kernel | None:
    """The kernel with these loops of a block as one; None where they have other trips, or one needs another."""
    order = _following_each_other(block.ops, loops)
    return None if order is None else _OneLoop(kernel, block, order, loops).run()


def quiet(op: KOp) -> bool:
    """Whether it only reads and computes."""
    return is_pure(op) or op.opcode == "load"


def _alike(kernel: Kernel) -> tuple[Block, list[KOp]] | None:
    """The first loops of a block that had better be one."""
    for block in _blocks(kernel.body):
        loops = [op for op in block.ops if op.opcode == "for" and _only_reads(op)]
        for i, first in enumerate(loops):
            group = [first]
            for op in loops[i + 1 :]:
                shared = _params(first) & _params(op)
                if shared and _fit([*group, op]) and _following_each_other(block.ops, [*group, op]) is not None:
                    group.append(op)
            if len(group) > 1:
                return block, group
    return None


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in block.ops:
        for inner in op.blocks:
            yield from _blocks(inner)


def _only_reads(loop: KOp) -> bool:
    return all(quiet(op) or op.opcode == "for" for op in walk(loop.blocks[0]))


def _params(loop: KOp) -> set[int]:
    """What it loads from."""
    return {op.attrs["param"] for op in walk(loop.blocks[0]) if op.opcode == "load"}


def _fit(loops: Sequence[KOp]) -> bool:
    carried = sum(len(op.results) for op in loops)
    return carried <= MOST_CARRIED and weight_of(op for loop in loops for op in walk(loop.blocks[0])) <= HEAVIEST


def _following_each_other(ops: Sequence[KOp], loops: Sequence[KOp]) -> list[KOp] | None:
    """The operations in an order in which the loops follow each other; None where they have other trips, or one needs
    another."""
    first, *others = loops
    if any(op.operands[0] is not first.operands[0] or op.attrs != first.attrs for op in others):
        return None
    start, end = (next(i for i, op in enumerate(ops) if op is loop) for loop in (first, loops[-1]))
    needed, early = {v for op in others for v in _read(op)}, list[KOp]()
    chosen = {id(op) for op in loops}
    for op in reversed(ops[start + 1 : end]):
        if id(op) not in chosen and needed.intersection(op.results):
            early.append(op)
            needed |= _read(op)
    if any(needed.intersection(op.results) for op in loops) or not all(map(quiet, early)):
        return None
    moved = chosen.union(map(id, early))
    return [*ops[:start], *early[::-1], *loops, *[op for op in ops[start + 1 :] if id(op) not in moved]]


def _read(op: KOp) -> set[KValue]:
    """What it, and what is inside it, reads."""
    inside = [v for block in op.blocks for one in walk(block) for v in one.operands]
    return {*op.operands, *inside, *[v for block in op.blocks for b in _blocks(block) for v in b.yields]}


class _OneLoop(Rebuilder):
    """The kernel, one block in that order, in which its `loops` follow each other and become one."""

    def __init__(self, kernel: Kernel, block: Block, order: Sequence[KOp], loops: Sequence[KOp]) -> None:
        super().__init__(kernel)
        self.changed, self.order, self.loops = block, order, loops

    def body(self, block: Block) -> None:
        if block is not self.changed:
            super().body(block)
            return
        for op in self.order:
            if op is self.loops[0]:
                self.all_of_them()
            elif op not in self.loops:
                operands = tuple([self.env[v] for v in op.operands])
                self.env.update(zip(op.results, self.copy(op, operands), strict=True))

    def all_of_them(self) -> None:
        first = self.loops[0]
        k, carried = KValue(first.blocks[0].arguments[0].dtype), list[KValue]()
        outer, self.out = self.out, []
        for loop in self.loops:
            own = [KValue(v.dtype) for v in loop.blocks[0].arguments[1:]]
            self.env.update(zip(loop.blocks[0].arguments, (k, *own), strict=True))
            self.body(loop.blocks[0])
            carried += own
        yields = tuple([self.env[v] for loop in self.loops for v in loop.blocks[0].yields])
        inner, self.out = Block((k, *carried), self.out, yields), outer
        inits = [v for loop in self.loops for v in loop.operands[1:]]
        operands = tuple([self.env[v] for v in (first.operands[0], *inits)])
        made = KOp("for", operands, tuple([v.dtype for v in carried]), first.attrs, (inner,))
        self.out.append(made)
        self.env.update(zip([v for loop in self.loops for v in loop.results], made.results, strict=True))
