"""The trip count of a loop whose end nobody can foresee, as a block of its own: the loop without what it leaves behind.

A workgroup can run it for some lanes of a tile, to see how uneven they are, and for all of them, to sort them (see
measured_order). It must not have effects, and what it reads must not change meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue, walk
from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.codegen.kernel.passes import dce
from loopgrad.codegen.kernel.rebuild import Rebuilder
from loopgrad.codegen.targets.gpu.lanes.analysis import weight_of
from loopgrad.graph.types import int64

# without checks an index may be outside, and a loop may not end; arrays are filled once
REFUSED: Final = frozenset({"pop", "check", "array_load", "array_store"})
SORTING: Final = 10  # percent that sorting costs besides


@dataclass(frozen=True, slots=True)
class TripCount:
    """`before` computes what the `while` begins with; the last of the loop's carries counts its trips. `arguments` are
    the lane's indices. `pays`: how many hundredths of the mean the longest among neighbours must take for it to be
    worthwhile to count first."""

    arguments: tuple[KValue, ...]
    before: list[KOp]
    loop: KOp
    pays: int

    @property
    def outside(self) -> list[KValue]:
        """What the loop takes from the lane besides its carries, but for constants."""
        made = {*self.arguments, *(result for op in self.before if op.opcode != "const" for result in op.results)}
        taken = {v: None for op in inside(self.loop) for v in (*op.operands, *_yields(op)) if op is not self.loop}
        taken |= dict.fromkeys(_yields(self.loop))
        return [v for v in taken if v in made]


def _yields(op: KOp) -> list[KValue]:
    return [v for block in op.blocks for v in block.yields]


def inside(op: KOp) -> Iterator[KOp]:
    """The operation and those in its blocks."""
    yield op
    for block in op.blocks:
        yield from walk(block)


class _WithoutEffects(Rebuilder):
    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        return () if OPCODES[op.opcode].leaves else self.copy(op, operands)


def trip_count(kernel: Kernel) -> TripCount | None:
    """Of the kernel's first loop on values that isn't inside of another region; None where there is none, or where
    it can't be run by itself."""
    ops = kernel.body.ops
    at = next((i for i, op in enumerate(ops) if op.opcode == "while"), None)
    if at is None or any(op.blocks for op in ops[:at]):
        return None
    part = _WithoutEffects(kernel).block(Block(kernel.body.arguments, ops[: at + 1], ()))
    *before, loop = part.ops
    zero = KOp("const", (), (int64,), {"value": 0})
    counted = _counting(loop, zero)
    store = KOp("store", (part.arguments[0], counted.results[-1]), (), {"param": len(kernel.params)})
    body = Block(part.arguments, [*before, zero, counted, store])
    params = (*kernel.params, BufferParam(int64, 1, "write"))
    swept = dce.run(replace(kernel, params=params, body=body, reductions=(), order_key=None)).body
    *before, loop, _ = swept.ops
    if any(_refused(kernel, op) for op in (*before, *inside(loop))):
        return None
    loops = [op for top in ops if top.blocks for op in inside(top)]
    pays = 100 + SORTING + 100 * weight_of(inside(loop)) // weight_of(loops)
    return TripCount(swept.arguments, before, loop, pays)


def _counting(loop: KOp, zero: KOp) -> KOp:
    """The loop with a last carry that counts its trips."""
    condition, body = loop.blocks
    seen, trips = KValue(int64), KValue(int64)
    one = KOp("const", (), (int64,), {"value": 1})
    more = KOp("add", (trips, one.results[0]), (int64,))
    blocks = (
        Block((*condition.arguments, seen), condition.ops, condition.yields),
        Block((*body.arguments, trips), [*body.ops, one, more], (*body.yields, more.results[0])),
    )
    types = (*(v.dtype for v in loop.results), int64)
    return KOp("while", (*loop.operands, *zero.results), types, loop.attrs, blocks)


def _refused(kernel: Kernel, op: KOp) -> bool:
    return op.opcode in REFUSED or (op.opcode == "load" and kernel.params[op.attrs["param"]].access != "read")
