"""Quotients of one lane that don't need each other share one rare way, and what only guards them lies there.

Where a quotient has a usual way and a rare one behind a branch (see Assembler.usual_quotients), a run of operations

    z = eq(c, 0); q = div(c, y); r = div(x, y); p = mul(q, r); s = select(and(z, is_nan(p)), 0, p)

becomes: q, r and p by their usual ways; if not all quotients were usual, everything once more as it is written.
A numerator of 0 isn't usual, so that a select that asks for one passes its last operand on, and the guards that
reverse passes put around infinite derivatives cost nothing in the usual way. On an H200 Newton's iteration with its
gradient takes 1.07 times as long without, 1.05 times where only the guards stay. But where a numerator is often 0, as
what was chosen among a derivative and 0 is, zeros are usual and guards stay.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby
from operator import or_
from typing import Final

from loopgrad.codegen.kernel.nodes import KOp, KValue
from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.codegen.scalar.ops import value_type
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter

MOST_JOINED: Final = 4  # quotients, whose results and rare ways take registers
REACH: Final = 32  # operations that are looked at behind the first of them
MOST_LOOKED_AT: Final = 32  # operations before a numerator
LONGEST_RUN: Final = 256  # of which every operation knows all that it needs


@dataclass(frozen=True, slots=True, eq=False)
class JointQuotients:
    """Operations in order, among them `quotients`, and `guards`: selects that pass their last operand on where all
    quotients are usual. `zeros`: numerators of 0 are."""

    ops: tuple[KOp, ...]
    quotients: frozenset[KOp]
    guards: frozenset[KOp]
    zeros: bool = False


def with_joint_quotients(ops: Sequence[KOp], types: Container[str]) -> Iterator[KOp | JointQuotients]:
    """The operations of a block; those without effects may come earlier than they were. `types`: of quotients that
    have a rare way."""
    divides = partial(_divides, types)
    for plain, found in groupby(ops, lambda op: bool(op.results) and not op.blocks):
        run = list(found)
        for start in range(0, len(run), LONGEST_RUN):
            piece = run[start : start + LONGEST_RUN]
            yield from _PureRun(piece, divides).arranged() if plain and any(map(divides, piece)) else piece


def emit_joined(
    e: Emitter, group: JointQuotients, lanes: Sequence[dict[KValue, Val]], emit: Callable[[KOp], object]
) -> None:
    """For all lanes at once, whose values are in `lanes`; `emit` is one operation of all of them."""
    first = [op for op in group.ops if op in group.quotients]
    places = [(values, op.results[0]) for values in lanes for op in first]
    pairs = [(values[x], values[y]) for values in lanes for x, y in [op.operands for op in first]]
    found, usual = e.b.usual_quotients(pairs, group.zeros)
    for (values, result), quotient in zip(places, found, strict=True):
        values[result] = quotient
    for op in group.ops:
        if op in group.guards:
            for values in lanes:
                values[op.results[0]] = values[op.operands[-1]]
        elif op not in group.quotients:
            emit(op)
    results = [(values, v) for values in lanes for op in group.ops for v in op.results]
    common = tuple([values[v] for values, v in results])

    def rare() -> tuple[Val, ...]:
        for op in group.ops:
            emit(op)
        return tuple([values[v] for values, v in results])

    for (values, result), value in zip(results, e.choose(usual, lambda: common, rare), strict=True):
        values[result] = value


class _PureRun:
    """Operations without effects. `needs`: of each, as bits, those that it needs, itself among them; pops stay in
    their order."""

    def __init__(self, ops: Sequence[KOp], divides: Callable[[KOp], bool]) -> None:
        self.ops = ops
        self.needs: list[int] = []
        self.quotients = sum(1 << i for i, op in enumerate(ops) if divides(op))
        made: dict[KValue, int] = {}
        popped = 0
        for i, op in enumerate(ops):
            needed = reduce(or_, [made.get(v, 0) for v in op.operands], 1 << i)
            if op.opcode == "pop":
                needed |= popped
                popped = needed
            self.needs.append(needed)
            made.update(dict.fromkeys(op.results, needed))

    def arranged(self) -> Iterator[KOp | JointQuotients]:
        done = 0
        for i, op in enumerate(self.ops):
            if done >> i & 1:
                continue
            group = self._group(i, done) if self.quotients >> i & 1 else None
            if group is None:
                yield op
                done |= 1 << i
                continue
            taken, result = group
            before = reduce(or_, [self.needs[k] for k in _bits(taken)]) & ~(taken | done)
            yield from [self.ops[k] for k in _bits(before)]
            yield result
            done |= before | taken

    def _group(self, first: int, done: int) -> tuple[int, JointQuotients] | None:
        """What is joined with a quotient, if that is anything; as bits too."""
        end = min(first + REACH, len(self.ops))
        members = 1 << first
        for i in range(first + 1, end):
            alone = self.needs[i] & self.quotients & ~done == 1 << i
            if alone and not done >> i & 1 and members.bit_count() < MOST_JOINED:
                members |= 1 << i
        taken, guards = members, 0
        numerators = {_unsigned(self.ops[i].operands[0]) for i in _bits(members)}
        for i in range(first + 1, end):
            if self.ops[i].opcode == "select" and _asks_for(numerators, self.ops[i].operands[0]):
                way = self._way(members, i, done)
                taken, guards = taken | way, guards | (1 << i if way else 0)
        if taken == 1 << first:
            return None
        ops, quotients, selects = ([self.ops[i] for i in _bits(bits)] for bits in (taken, members, guards))
        zeros = any(often_zero(op.operands[0]) for op in quotients)
        return taken, JointQuotients(tuple(ops), frozenset(quotients), frozenset(() if zeros else selects), zeros)

    def _way(self, members: int, to: int, done: int) -> int:
        """The operations on the ways from the quotients to another one; none where they can't be in the group."""
        way = sum(1 << k for k in _bits(self.needs[to] & ~done) if self.needs[k] & members)
        cheap = all(OPCODES[self.ops[k].opcode].quick for k in _bits(way & ~members))
        return way if cheap and not self.needs[to] & self.quotients & ~(done | members) else 0


def _bits(mask: int) -> Iterator[int]:
    """The places of the ones, rising."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def _divides(types: Container[str], op: KOp) -> bool:
    return op.opcode == "div" and value_type(op.results[0].dtype) in types


def _unsigned(v: KValue) -> KValue:
    """What it is but for its sign."""
    while v.op is not None and v.op.opcode in ("neg", "abs"):
        (v,) = v.op.operands
    return v


def _asks_for(zeros: set[KValue], condition: KValue) -> bool:
    """Whether it holds only where one of these is 0."""
    op = condition.op
    if op is None or op.opcode not in ("and", "eq"):
        return False
    if op.opcode == "and":
        return any(_asks_for(zeros, v) for v in op.operands)
    return any(_unsigned(x) in zeros and _is_zero(y) for x, y in (op.operands, op.operands[::-1]))


def often_zero(v: KValue) -> bool:
    """Whether it is made of what was chosen among some number and 0: a derivative of what was cut off, or masked.
    Guards choose so, too, but seldom the 0."""
    pending, seen = [v], {v}
    while pending and len(seen) <= MOST_LOOKED_AT:
        op = pending.pop().op
        if op is None:
            continue
        match op.opcode:
            case "select":
                condition, *chosen = op.operands
                guards = condition.op is not None and condition.op.opcode in ("and", "is_nan")
                if not guards and any(map(_is_zero, chosen)):
                    return True
            case "mul" | "neg":
                chosen = [*op.operands]
            case _:
                continue
        fresh = [x for x in chosen if x not in seen]
        seen.update(fresh)
        pending += fresh
    return False


def _is_zero(v: KValue) -> bool:
    return v.op is not None and v.op.opcode == "const" and v.op.attrs["value"] == 0
