"""Sorted lanes: a workgroup runs the lanes of a tile in the order of their expected trip counts, longest first.

A counting sort in memory of the workgroup, by buckets (see codegen.scalar.sort_key). Lanes of one bucket come
in any order, and who runs a lane may differ from run to run: results go to the lane's own elements,
contributions to reductions by the lane's number to memory of the workgroup, and nothing else may depend on it.

The order is dealt out in rows as wide as the workgroup: neighbours of the order have about equal trip counts and step
together, and every invocation gets long and short lanes. On an H200 lanes of 0 to 63 trips take 1.75 times as long
unsorted, those of a Zipf law 8.8 times; invocations that take the next lane from a shared counter when they are done
with one take a third more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from loopgrad.codegen.scalar import sort_key
from loopgrad.codegen.scalar.sort_key import BUCKETS, FIRST
from loopgrad.codegen.targets.gpu.assembler import Val, Variable
from loopgrad.codegen.targets.gpu.emit.context import Emitter, register_type
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.emit.recipes import ScalarOps
from loopgrad.codegen.targets.gpu.lanes.partials import GroupArray, Partial
from loopgrad.codegen.targets.gpu.lanes.plan import Tiles, power_below
from loopgrad.codegen.targets.gpu.lanes.tiles import (
    EmitOps,
    RegisterFold,
    Tile,
    emit_together,
    fold_group,
    invocation_folds,
)


@dataclass(frozen=True, slots=True)
class LeftByPosition:
    """Implements Contribution: terms wait in memory of the workgroup, where their lane is in the tile."""

    values: Sequence[GroupArray]
    meets: ClassVar[bool] = False

    def add(self, e: Emitter, slot: int, *terms: Val) -> None:
        (value,) = terms
        self.values[slot].set(e.position, value)

    def join(self, e: Emitter, slot: int, partial: Partial) -> None:
        raise AssertionError("lanes that are sorted give single terms")


class LaneOrder:
    """The arrays of the workgroup that sorting needs, and the program of one tile."""

    def __init__(self, e: Emitter, tiles: Tiles) -> None:
        self.e, self.b, self.tiles = e, e.b, tiles
        b = self.b
        self.group = b.group
        self.each = -(-tiles.size // b.group)
        self.rows = power_below(max(int(b.group**0.5), 1))  # of the scan's sums, each row one invocation's
        self.buckets: Variable = b.shared("i32", BUCKETS)
        self.sums: Variable = b.shared("i32", b.group)
        self.row_sums: Variable = b.shared("i32", self.rows)
        self.order: Variable = b.shared("i32", tiles.size)
        self.ranks = [b.local("i32") for _ in range(self.each)]
        self.values: list[GroupArray] = []

    def emit_tile(self, number: Val, emit_block: EmitOps) -> None:
        tile = Tile(self.e, self.tiles, number)
        self._sort(tile, emit_block)
        self._run_and_fold(tile, emit_block)

    # pieces

    def _sort(self, tile: Tile, emit_block: EmitOps) -> None:
        b = self.b
        self._clear()
        b.barrier()
        buckets = self._count(tile, emit_block)
        b.barrier()
        self._scan()
        b.barrier()
        self._place(tile, buckets)
        b.barrier()

    @property
    def own(self) -> Val:
        """This invocation's number, read again by each phase: what follows from it needn't live through the lanes'
        loops, which need the registers (on an H200 a Zipf law's lanes take 1.5 times as long otherwise)."""
        return self.b.local_id(again=True)

    def i32(self, value: int) -> Val:
        return self.b.const("i32", value)

    def add(self, x: Val, y: Val | int) -> Val:
        return self.b.inst("IAdd", "i32", x, self.i32(y) if isinstance(y, int) else y)

    def below(self, x: Val, y: Val) -> Val:
        return self.b.inst("ULessThan", "bool", x, y)

    def _clear(self) -> None:
        """The tile before has read all buckets long ago."""
        for first in range(0, BUCKETS, self.group):
            place = self.add(self.own, first)
            if first + self.group <= BUCKETS:
                self.b.shared_set(self.buckets, place, self.i32(0))
            else:
                inside = self.below(place, self.i32(BUCKETS))
                self.e.when(inside, partial(self.b.shared_set, self.buckets, place, self.i32(0)))

    def _count(self, tile: Tile, emit_block: EmitOps) -> list[Val]:
        """The bucket of each of this invocation's lanes; its rank there goes to a variable."""
        key = self.e.kernel.order_key
        assert key is not None
        last = self.add(tile.count, -1)
        places = self._places()
        inside = [self.below(place, tile.count) for place in places]
        safe = [self.e.select(i, place, last) for i, place in zip(inside, places, strict=True)]
        enter = [partial(tile.enter, place, key.arguments) for place in safe]
        buckets = [self._bucket(k) for (k,) in emit_together(self.e, enter, key, emit_block)]
        for rank, bucket, condition in zip(self.ranks, buckets, inside, strict=True):
            self.e.when(condition, partial(self._enter_bucket, rank, bucket))
        return buckets

    def _places(self) -> list[Val]:
        return [self.add(self.own, self.group * n) for n in range(self.each)]

    def _enter_bucket(self, rank: Variable, bucket: Val) -> None:
        self.b.set(rank, self.b.shared_atomic("AtomicIAdd", self.buckets, bucket, self.i32(1)))

    def _bucket(self, key: Val) -> Val:
        """0 .. BUCKETS - 1, falling with the key."""
        m = ScalarOps(self.e)
        return self.b.opaque(m.isub(self.i32(BUCKETS - 1 + FIRST), sort_key.bucket(m, key)))

    def _scan(self) -> None:
        """Every bucket becomes the number of lanes in those before it."""
        e, b, row = self.e, self.b, self.group // self.rows
        mine = -(-BUCKETS // self.group)
        first = b.inst("IMul", "i32", self.own, self.i32(mine))
        cells = [self.add(first, n) for n in range(mine)]
        counts = [b.shared_get(self.buckets, cell, "i32") for cell in cells]
        b.shared_set(self.sums, self.own, self._total(counts))
        b.barrier()

        def sum_row() -> None:
            start = b.inst("IMul", "i32", self.own, self.i32(row))
            parts = [b.shared_get(self.sums, self.add(start, n), "i32") for n in range(row)]
            b.shared_set(self.row_sums, self.own, self._total(parts))

        e.when(self.below(self.own, self.i32(self.rows)), sum_row)
        b.barrier()
        above = b.inst("UDiv", "i32", self.own, self.i32(row))
        start = b.inst("IMul", "i32", above, self.i32(row))
        before = self._sum_below(self.row_sums, [self.i32(n) for n in range(self.rows)], above)
        inside = self._sum_below(self.sums, [self.add(start, n) for n in range(row)], self.own)
        running = self.add(before, inside)
        for cell, count in zip(cells, counts, strict=True):
            b.shared_set(self.buckets, cell, running)
            running = self.add(running, count)

    def _total(self, values: list[Val]) -> Val:
        total = values[0]
        for value in values[1:]:
            total = self.add(total, value)
        return total

    def _sum_below(self, array: Variable, places: list[Val], end: Val) -> Val:
        """The sum of the elements at those places that are below `end`."""
        found = [
            self.e.select(self.below(place, end), self.b.shared_get(array, place, "i32"), self.i32(0))
            for place in places
        ]
        return self._total(found)

    def _place(self, tile: Tile, buckets: list[Val]) -> None:
        """The order: which lane is at each position."""

        def put(rank: Variable, bucket: Val, place: Val) -> None:
            start = self.b.shared_get(self.buckets, bucket, "i32")
            self.b.shared_set(self.order, self.add(start, self.b.get(rank, "i32")), place)

        for rank, bucket, place in zip(self.ranks, buckets, self._places(), strict=True):
            self.e.when(self.below(place, tile.count), partial(put, rank, bucket, place))

    def _run_and_fold(self, tile: Tile, emit_block: EmitOps) -> None:
        self._run(tile, emit_block)
        if self.tiles.partials:
            folds = invocation_folds(self.e, self.tiles)
            self._contribute(tile, folds)
            fold_group(self.e, self.tiles, tile, [fold.get() for fold in folds])

    def _lane_at(self, at: Val) -> Val:
        """The place in the tile of the lane at this position of the order."""
        return self.b.shared_get(self.order, at, "i32")

    def _run(self, tile: Tile, emit_block: EmitOps) -> None:
        e, body = self.e, self.e.kernel.body
        if self.tiles.partials:
            self.values = [GroupArray(e, register_type(r.dtype), self.tiles.size) for r in e.kernel.reductions]

        def lane(at: Val) -> None:
            tile.enter(self._lane_at(at), body.arguments)
            e.restart()
            emit_block(e, body)

        with e.contributing(LeftByPosition(self.values)) if self.values else nullcontext():
            counted(e, self.i32(self.each), lambda n: self._dealt(n, tile, lane))

    def _dealt(self, n: Val, tile: Tile, lane: Callable[[Val], None]) -> None:
        """The n-th lane of this invocation."""
        at = self.add(self.b.inst("IMul", "i32", n, self.i32(self.group)), self.own)
        self.e.when(self.below(at, tile.count), partial(lane, at))

    def _contribute(self, tile: Tile, folds: Sequence[RegisterFold]) -> None:
        """Fold this invocation's lanes of the tile in their order, after all have run."""
        self.b.barrier()
        for place in self._places():
            for fold, array in zip(folds, self.values, strict=True):
                self.e.when(self.below(place, tile.count), partial(self._fold, fold, array, place))

    @staticmethod
    def _fold(fold: RegisterFold, array: GroupArray, place: Val) -> None:
        fold.add(array.get(place))
