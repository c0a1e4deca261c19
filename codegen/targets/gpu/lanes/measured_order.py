"""Sorted lanes whose trip counts nobody can foresee: a workgroup counts before it runs them, where that pays.

The loop without its effects (trip_counts) runs for the first lanes of the workgroup's first tile. How long neighbours
wait for each other there decides whether the workgroup counts the trips of all lanes and sorts them, or takes them as
they come. On an H200 a Zipf law's lanes take 5.3 times as long unsorted, and Newton's, which are even, 1.9 times where
they are sorted in any case. While it counts, an invocation whose lane is done takes the next lane
of the tile, so that nobody waits (Aila and Laine, Understanding the efficiency of ray traversal on GPUs, 2009:
persistent threads).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, KValue
from loopgrad.codegen.targets.gpu.assembler import Val, Variable
from loopgrad.codegen.targets.gpu.emit.context import Emitter, register_type
from loopgrad.codegen.targets.gpu.emit.loops import counted, emit_loop
from loopgrad.codegen.targets.gpu.lanes.order import LaneOrder
from loopgrad.codegen.targets.gpu.lanes.plan import Tiles
from loopgrad.codegen.targets.gpu.lanes.tiles import EmitOps, Tile
from loopgrad.codegen.targets.gpu.lanes.trip_counts import TripCount

UNKNOWN, AS_THEY_COME, SORTED = 0, 1, 2
NEIGHBOURS: Final = 32  # lanes that step together, on most devices
MOST_TRIPS: Final = (1 << 16) - 1  # more count as so many, so that sums fit


class MeasuredOrder(LaneOrder):
    """As LaneOrder; the trip counts wait where the order will be. `state` is what the workgroup has found out."""

    def __init__(self, e: Emitter, tiles: Tiles, trips: TripCount) -> None:
        super().__init__(e, tiles)
        self.trips, self.state = trips, e.b.local("i32")
        self.next: Variable = e.b.shared("i32", 1)
        e.b.set(self.state, self.i32(UNKNOWN))

    def emit_tile(self, number: Val, emit_block: EmitOps) -> None:
        tile = Tile(self.e, self.tiles, number)
        self._count_trips(tile, emit_block)
        self.e.when(self._is(SORTED), partial(self._sort, tile, emit_block))
        self._run_and_fold(tile, emit_block)

    def _is(self, state: int) -> Val:
        return self.b.inst("IEqual", "bool", self.b.get(self.state, "i32"), self.i32(state))

    def _count(self, tile: Tile, emit_block: EmitOps) -> list[Val]:
        """By the trips that wait where the order will be."""
        buckets = []
        for rank, place in zip(self.ranks, self._places(), strict=True):
            inside = self.below(place, tile.count)
            safe = self.e.select(inside, place, self.i32(0))
            buckets.append(self._bucket(self.b.shared_get(self.order, safe, "i32")))
            self.e.when(inside, partial(self._enter_bucket, rank, buckets[-1]))
        return buckets

    def _lane_at(self, at: Val) -> Val:
        found, e = self.b.local("i32"), self.e
        self.b.set(found, at)
        e.when(self._is(SORTED), lambda: self.b.set(found, self.b.shared_get(self.order, at, "i32")))
        return self.b.get(found, "i32")

    # counting

    def _count_trips(self, tile: Tile, emit_block: EmitOps) -> None:
        """Of the first lanes where nothing is known, then of the others where lanes are sorted. The same conditions
        for all invocations lead to its barriers."""
        e, b = self.e, self.b
        start, end = b.local("i32"), b.local("i32")
        all_lanes = e.select(self._is(SORTED), tile.count, self.i32(0))
        b.set(start, self.i32(0))
        b.set(end, e.select(self._is(UNKNOWN), e.bound_integer(tile.count, self.group), all_lanes))

        def go_on() -> Val:
            return self.below(b.get(start, "i32"), b.get(end, "i32"))

        def phase() -> None:
            first, last = b.get(start, "i32"), b.get(end, "i32")
            leader = b.inst("IEqual", "bool", self.own, self.i32(0))
            e.when(leader, lambda: b.shared_set(self.next, self.i32(0), self.add(first, self.group)))
            b.barrier()
            self._count_lanes(tile, self.add(first, self.own), last, emit_block)
            b.barrier()
            e.when(self._is(UNKNOWN), partial(self._decide, last))
            b.set(start, last)
            b.set(end, e.select(self._is(SORTED), tile.count, self.i32(0)))

        emit_loop(e, go_on, phase)

    def _count_lanes(self, tile: Tile, start: Val, end: Val, emit_block: EmitOps) -> None:
        """From `start` on, the lanes that this invocation gets among those before `end`."""
        e, b, loop = self.e, self.b, self.trips.loop
        place, taken = b.local("i32"), [*self.trips.outside]
        carries = [(b.local(register_type(v.dtype)), register_type(v.dtype)) for v in loop.operands]
        kept = [(b.local(register_type(v.dtype)), register_type(v.dtype)) for v in taken]
        condition, body = loop.blocks

        def begin() -> None:
            tile.enter(b.get(place, "i32"), self.trips.arguments)
            e.restart()
            emit_block(e, Block((), self.trips.before))
            for (variable, _), value in zip([*carries, *kept], [*loop.operands, *taken], strict=True):
                b.set(variable, e.get(value))

        def bind(targets: tuple[KValue, ...]) -> None:
            for (variable, type), value in zip([*carries, *kept], [*targets, *taken], strict=True):
                e.values[value] = b.get(variable, type)

        def advance() -> None:
            bind(body.arguments)
            for (variable, _), value in zip(carries, emit_block(e, body), strict=True):
                b.set(variable, value)

        def finish() -> None:
            b.shared_set(self.order, b.get(place, "i32"), e.resize(b.get(*carries[-1]), "i32"))
            b.set(place, b.shared_atomic("AtomicIAdd", self.next, self.i32(0), self.i32(1)))
            e.when(self.below(b.get(place, "i32"), end), begin)

        def trip() -> None:
            bind(condition.arguments)
            (go,) = emit_block(e, condition)
            if (limit := loop.attrs.get("max_steps")) is not None:
                go = e.both(go, b.inst("SLessThan", "bool", b.get(*carries[-1]), b.const("i64", limit)))
            e.one_of(go, advance, finish)

        b.set(place, start)
        e.when(self.below(start, end), begin)
        emit_loop(e, lambda: self.below(b.get(place, "i32"), end), trip)

    def _decide(self, last: Val) -> None:
        """Whether the longest of neighbours take so much more than the mean that counting pays."""
        b, teams = self.b, self.group // NEIGHBOURS

        def sum_team() -> None:
            total, longest = b.local("i32"), b.local("i32")
            for variable in (total, longest):
                b.set(variable, self.i32(0))
            first = b.inst("IMul", "i32", self.own, self.i32(NEIGHBOURS))

            def add(n: Val) -> None:
                place = self.add(first, n)
                inside = self.below(place, last)
                trips = b.shared_get(self.order, self.e.select(inside, place, self.i32(0)), "i32")
                trips = self.e.select(inside, self.e.bound_integer(trips, MOST_TRIPS), self.i32(0))
                b.set(total, self.add(b.get(total, "i32"), trips))
                before = b.get(longest, "i32")
                b.set(longest, self.e.select(self.below(before, trips), trips, before))

            counted(self.e, self.i32(NEIGHBOURS), add)
            b.shared_set(self.sums, self.own, b.get(total, "i32"))
            b.shared_set(self.sums, self.add(self.own, teams), b.get(longest, "i32"))

        self.e.when(self.below(self.own, self.i32(teams)), sum_team)
        b.barrier()
        parts = [b.shared_get(self.sums, self.i32(n), "i32") for n in range(2 * teams)]
        needed = b.inst("IMul", "i32", self._total(parts[:teams]), self.i32(self.trips.pays))
        waited = b.inst("IMul", "i32", self._total(parts[teams:]), self.i32(100 * NEIGHBOURS))
        pays = self.below(needed, waited)
        b.set(self.state, self.e.select(pays, self.i32(SORTED), self.i32(AS_THEY_COME)))
