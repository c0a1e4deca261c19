"""Loops of a lane that make the same trips and read the same array, as one loop, which reads it once.

    for i: s += g[i] * x[i]
    for i: t += g[i] * x[i + 1]     ->     for i: s += g[i] * x[i]; t += g[i] * x[i + 1]

Derivatives by the taps of a filter, or by a layer's few weights, are such sums: one loop after the other would wait for
its own loads and read what is common to them again. Loops inside of these become one in their turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    while (joiner := _LoopJoiner(found)).joins():
        found = joiner.run()
    return found if found is kernel else optimise(found)


def in_one_loop(kernel: Kernel, block: Block, loops: Sequence[KOp]) -> Kernel | None:
    """The kernel with these loops of a block as one; None where they have other trips, or one needs another."""
    first, *others = loops
    if any(not _same_trips(first, op) for op in others):
        return None
    places, early = _places(block.ops), dict[int, KOp]()
    for n, op in enumerate(others, 1):
        needed = _needed(_read(op), places, loops[:n])
        if needed is None:
            return None
        early |= needed
    return _LoopJoiner(kernel, {id(block): (_following_each_other(block.ops, loops, early), [loops])}).run()


def quiet(op: KOp) -> bool:
    """Whether it only reads and computes."""
    return is_pure(op) or op.opcode == "load"


Order = tuple[Sequence[KOp], Sequence[Sequence[KOp]]]
"""A block's operations, and which loops, each behind the other there, become one."""


class _ReadingLoop:
    """A loop that only reads and computes, and what decides whether it is made with others."""

    def __init__(self, op: KOp) -> None:
        inside = list(walk(op.blocks[0]))
        self.op, self.weight, self.read = op, weight_of(inside), _read(op)
        self.params = {one.attrs["param"] for one in inside if one.opcode == "load"}


def _order(block: Block) -> Order | None:
    """The block with the loops together that had better be one; None where there are none."""
    ops, groups = list(block.ops), list[list[KOp]]()
    left = [_ReadingLoop(op) for op in ops if op.opcode == "for" and all(map(_only_reads, walk(op.blocks[0])))]
    while len(left) > 1:
        first, *others = left
        places, group, early = _places(ops), [first], dict[int, KOp]()
        for loop in others:
            if _same_trips(first.op, loop.op) and first.params & loop.params and _fit([*group, loop]):
                needed = _needed(loop.read, places, [one.op for one in group])
                if needed is not None:
                    group.append(loop)
                    early |= needed
        left = [loop for loop in others if loop not in group]
        if len(group) > 1:
            groups.append([loop.op for loop in group])
            ops = _following_each_other(ops, groups[-1], early)
    return (ops, groups) if groups else None


def _only_reads(op: KOp) -> bool:
    return quiet(op) or op.opcode == "for"


def _same_trips(one: KOp, other: KOp) -> bool:
    return one.operands[0] is other.operands[0] and one.attrs == other.attrs


def _fit(loops: Sequence[_ReadingLoop]) -> bool:
    carried = sum(len(loop.op.results) for loop in loops)
    return carried <= MOST_CARRIED and sum(loop.weight for loop in loops) <= HEAVIEST


def _places(ops: Sequence[KOp]) -> dict[int, int]:
    return {id(op): place for place, op in enumerate(ops)}


def _needed(read: Iterable[KValue], places: Mapping[int, int], before: Sequence[KOp]) -> dict[int, KOp] | None:
    """The operations behind the first of the loops `before` that make what is read; None where these loops are among
    them, or what can't be done sooner."""
    start, loops = places[id(before[0])], set(map(id, before))
    found, pending = dict[int, KOp](), [v.op for v in read]
    while pending:
        op = pending.pop()
        if op is None or id(op) in found or places.get(id(op), -1) < start:
            continue
        if id(op) in loops or not quiet(op):
            return None
        found[id(op)] = op
        pending += [v.op for v in op.operands]
    return found


def _following_each_other(ops: Sequence[KOp], loops: Sequence[KOp], early: Mapping[int, KOp]) -> list[KOp]:
    """The operations with the loops where the first of them is, behind what they need."""
    start, moved = _places(ops)[id(loops[0])], {*early, *map(id, loops)}
    sooner = [op for op in ops[start:] if id(op) in early]
    return [*ops[:start], *sooner, *loops, *[op for op in ops[start:] if id(op) not in moved]]


def _read(op: KOp) -> set[KValue]:
    """What it, and what is inside it, reads."""
    inside = [v for block in op.blocks for one in walk(block) for v in one.operands]
    return {*op.operands, *inside, *[v for block in op.blocks for b in _blocks(block) for v in b.yields]}


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in block.ops:
        for inner in op.blocks:
            yield from _blocks(inner)


class _LoopJoiner(Rebuilder):
    """The kernel, whose blocks are in that order, in which loops that follow each other become one."""

    def __init__(self, kernel: Kernel, orders: Mapping[int, Order] | None = None) -> None:
        super().__init__(kernel)
        self.orders = orders if orders is not None else self._found()

    def joins(self) -> bool:
        return bool(self.orders)

    def _found(self) -> dict[int, Order]:
        found = {id(block): _order(block) for block in _blocks(self.kernel.body)}
        return {block: order for block, order in found.items() if order is not None}

    def body(self, block: Block) -> None:
        if id(block) not in self.orders:
            super().body(block)
            return
        order, groups = self.orders[id(block)]
        first = {id(loops[0]): loops for loops in groups}
        behind = {id(op) for loops in groups for op in loops[1:]}
        for op in order:
            if id(op) in first:
                self.all_of_them(first[id(op)])
            elif id(op) not in behind:
                operands = tuple([self.env[v] for v in op.operands])
                self.env.update(zip(op.results, self.copy(op, operands), strict=True))

    def all_of_them(self, loops: Sequence[KOp]) -> None:
        first = loops[0]
        k, carried = KValue(first.blocks[0].arguments[0].dtype), list[KValue]()
        outer, self.out = self.out, []
        for loop in loops:
            own = [KValue(v.dtype) for v in loop.blocks[0].arguments[1:]]
            self.env.update(zip(loop.blocks[0].arguments, (k, *own), strict=True))
            self.body(loop.blocks[0])
            carried += own
        yields = tuple([self.env[v] for loop in loops for v in loop.blocks[0].yields])
        inner, self.out = Block((k, *carried), self.out, yields), outer
        inits = [v for loop in loops for v in loop.operands[1:]]
        operands = tuple([self.env[v] for v in (first.operands[0], *inits)])
        made = KOp("for", operands, tuple([v.dtype for v in carried]), first.attrs, (inner,))
        self.out.append(made)
        self.env.update(zip([v for loop in loops for v in loop.results], made.results, strict=True))
