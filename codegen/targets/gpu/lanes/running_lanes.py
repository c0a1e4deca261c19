"""The lanes of a running total's tile (see running_plan), dealt out among the invocations of the workgroup: neighbours
read and write neighbours, `side` lanes of an invocation at a time as vectors. What they make waits in memory of the
workgroup for the invocations that own it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from loopgrad.codegen.kernel.nodes import RunningTotal
from loopgrad.codegen.scalar.conversions import convert
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter, memory_type, register_type
from loopgrad.codegen.targets.gpu.emit.loops import counted, emit_loop
from loopgrad.codegen.targets.gpu.emit.memory_form import to_memory
from loopgrad.codegen.targets.gpu.emit.recipes import ScalarOps
from loopgrad.codegen.targets.gpu.lanes.partials import GroupArray, Partial
from loopgrad.codegen.targets.gpu.lanes.running_plan import RunningTiles
from loopgrad.codegen.targets.gpu.lanes.running_tile import OwnRow, RunningTile
from loopgrad.codegen.targets.gpu.lanes.side_by_side import WORD, store_side
from loopgrad.codegen.targets.gpu.lanes.tiles import EmitOps, Tile, emit_together


class DealtLanes:
    """The arrays of the workgroup, one for each leaf of a term, and this invocation's lanes. Implements
    Contribution."""

    meets = False

    def __init__(self, e: Emitter, plan: RunningTiles, running: RunningTotal, emit_block: EmitOps) -> None:
        self.e, self.b, self.plan, self.running, self.emit_block = e, e.b, plan, running, emit_block
        self.leaves = running.leaves or (running.dtype,)
        self.arrays = [GroupArray(e, register_type(dtype), plan.room) for dtype in self.leaves]
        self.own = e.b.local_id()
        self.near, self.member = self._of_row()
        self.even = plan.extent % plan.side == 0
        self.together = 1  # lanes that give what lies side by side
        self.given: list[tuple[Val, tuple[Val, ...]]] = []  # by those of them that have come: the place, the term

    @property
    def results(self) -> list[tuple[int, int]]:
        """The leaves that are stored, and the parameters where."""
        return [(leaf, self.running.param + n) for n, leaf in enumerate(self.running.taken or (0,))]

    def add(self, e: Emitter, slot: int, *terms: Val) -> None:
        self.given.append((e.position, terms))
        if len(self.given) < self.together:
            return
        place = self.place(self.given[0][0])
        for leaf, array in enumerate(self.arrays):
            values = [given[leaf] for _, given in self.given]
            if len(values) == 1:
                array.set(place, values[0])
            else:
                array.set_side(place, values)
        self.given = []

    def join(self, e: Emitter, slot: int, partial: Partial) -> None:
        raise AssertionError("a running total has terms only")

    def place(self, position: Val) -> Val:
        """Where a position of a tile is in the arrays: places that no element has are where the total ends."""
        b, plan = self.b, self.plan
        ahead = plan.slack + plan.padding if self.running.reverse else 0
        if plan.own_rows:
            position = b.inst("IAdd", "i32", b.inst("IMul", "i32", self.near, b.const("i32", plan.pitch)), position)
        elif plan.padding > 0 and plan.rows > 1:
            row = self._row_of(position)
            position = b.inst("IAdd", "i32", position, b.inst("IMul", "i32", row, b.const("i32", plan.padding)))
        return b.inst("IAdd", "i32", position, b.const("i32", ahead)) if ahead else position

    def _row_of(self, position: Val) -> Val:
        """By a product and a shift: of numbers known to be short LLVM makes products of 16 bits, and masks around
        them."""
        b, plan, shift = self.b, self.plan, 0
        factor = 1
        while plan.size * (factor * plan.positions - (1 << shift)) >= 1 << shift:
            shift += 1
            factor = -(-(1 << shift) // plan.positions)
        if plan.size * factor >= 1 << 32:
            return b.inst("UDiv", "i32", position, b.const("i32", plan.positions))
        return b.inst(
            "ShiftRightLogical", "i32", b.inst("IMul", "i32", position, b.const("i32", factor)), b.const("i32", shift)
        )

    def load(self, tile: RunningTile) -> None:
        """The terms of the tile's lanes, each where its owner finds it."""
        with self.e.contributing(self):
            self.run(tile)
        self.b.barrier()

    def run(self, tile: RunningTile) -> None:
        """This invocation's lanes of the tile, in the order of memory: every `stride`-th, or as many vectors."""
        if self.plan.own_rows:
            self._by_rows(tile, self._some)
            return
        e, b, plan, body = self.e, self.b, self.plan, self.e.kernel.body
        at_once = plan.stride * plan.unrolled

        def batch(k: Val) -> None:
            first = b.inst("IAdd", "i32", self._first(plan.side), b.inst("IMul", "i32", k, b.const("i32", at_once)))
            rounds = range(0, plan.unrolled, plan.side)
            self._some(tile, first, [plan.stride * u + i for u in rounds for i in range(plan.side)])

        def few(place: Val, many: int) -> None:
            if many > 1:
                self._some(tile, place, list(range(many)))
                return
            tile.enter(place, body.arguments)
            e.restart()
            self.emit_block(e, body)

        def whole() -> None:
            batches = plan.size // at_once
            counted(e, b.const("i32", batches), batch)
            if batches * at_once < plan.size:
                self._each(tile, few, batches * at_once)

        def dealt() -> None:
            if plan.unrolled > 1:
                e.one_of(tile.whole, whole, lambda: self._each(tile, few))
            else:
                self._each(tile, few)

        self._by_those_that_have_some(dealt)

    def _some(self, tile: Tile, first: Val, ahead: Sequence[int]) -> None:
        """The lanes so many after the first, `side` side by side."""
        side, body = self.plan.side, self.e.kernel.body
        self.together = side
        lanes = [partial(tile.enter, first, body.arguments, a, n % side) for n, a in enumerate(ahead)]
        emit_together(self.e, lanes, body, self.emit_block, side)
        self.together = 1

    # ---- lanes of the invocation's own row

    def _of_row(self) -> tuple[Val, Val]:
        """The number of the row of a tile in which the invocation owns positions, and which of those that do it is."""
        chunks = self.b.const("i32", self.plan.chunks)
        near = self.b.inst("UDiv", "i32", self.own, chunks)
        return near, self.b.inst("ISub", "i32", self.own, self.b.inst("IMul", "i32", near, chunks))

    def _by_rows(self, tile: RunningTile, body: Callable[[Tile, Val, Sequence[int]], None]) -> None:
        """body(row, a position of it, how far after that): those of the invocation, known distances at a time."""
        b, plan = self.b, self.plan
        row = OwnRow(self.e, plan, tile.unit, self.near)
        step, first = plan.chunks * plan.side, b.inst("IMul", "i32", self.member, b.const("i32", plan.side))
        rounds, at_once = plan.extent // step, plan.unrolled // plan.side

        def ahead(some: Iterable[int]) -> list[int]:
            return [k * step + i for k in some for i in range(plan.side)]

        def batch(k: Val) -> None:
            start = b.inst("IAdd", "i32", first, b.inst("IMul", "i32", k, b.const("i32", at_once * step)))
            body(row, start, ahead(range(at_once)))

        def lanes() -> None:
            counted(self.e, b.const("i32", rounds // at_once), batch)
            if rounds % at_once:
                body(row, first, ahead(range(rounds - rounds % at_once, rounds)))
            left = plan.extent - rounds * step
            if left:
                self.e.when(self._less(first, left), lambda: body(row, first, ahead([rounds])))

        self.e.when(row.there, lanes)

    # ---- those of the tile

    def _first(self, many: int) -> Val:
        """The first position of the invocation, where each has so many side by side. Where places of rows are computed,
        they had better not be kept from tile to tile: that were a register for each lane."""
        own = self.b.local_id(again=True) if self.plan.padding > 0 and self.plan.rows > 1 else self.own
        return self.b.inst("IMul", "i32", own, self.b.const("i32", many)) if many > 1 else own

    def _by_those_that_have_some(self, dealt: Callable[[], None]) -> None:
        if self.plan.stride < self.b.group:
            self.e.when(self._less(self.own, self.plan.stride), dealt)
        else:
            dealt()

    def _each(self, tile: RunningTile, body: Callable[[Val, int], None], start: int = 0) -> None:
        """body(place, lanes from there on) of the tile's places from `start` on that are this invocation's."""
        b, place = self.b, self.b.local("i32")
        many = self.plan.side if self.even else 1
        first = self._first(many)
        b.set(place, b.inst("IAdd", "i32", first, b.const("i32", start)) if start else first)

        def one() -> None:
            now = b.get(place, "i32")
            body(now, many)
            b.set(place, b.inst("IAdd", "i32", now, b.const("i32", self.plan.stride * many)))

        emit_loop(self.e, lambda: b.inst("SLessThan", "bool", b.get(place, "i32"), tile.count), one)

    def store(self, tile: RunningTile) -> None:
        """The tile's totals, in the order of memory."""
        b, plan = self.b, self.plan
        if plan.own_rows:
            self._by_rows(tile, self._store_some)
            return
        step, size = plan.stride * plan.side, plan.size

        def checked(position: Val, many: int, ahead: int = 0) -> None:
            at = b.inst("IAdd", "i32", position, b.const("i32", ahead)) if ahead else position
            inside = tile.stored(at)
            if inside is None:
                self._store(tile, position, ahead, many)
            else:
                self.e.when(inside, lambda: self._store(tile, position, ahead, many))

        def whole() -> None:
            first = self._first(plan.side)
            for ahead in range(0, size - step + 1, step):
                checked(first, plan.side, ahead)
            if size % step:
                ahead = size - size % step
                self.e.when(self._less(first, size - ahead), lambda: checked(first, plan.side, ahead))

        self._by_those_that_have_some(lambda: self.e.one_of(tile.whole, whole, lambda: self._each(tile, checked)))
        # other invocations read what the next tile's terms replace
        if tile.shift is not None or (plan.tiles > 1 and not self.even):
            b.barrier()

    def _store_some(self, tile: Tile, first: Val, ahead: Sequence[int]) -> None:
        for distance in ahead[:: self.plan.side]:
            self._store(tile, first, distance, self.plan.side)

    def _store(self, tile: Tile, position: Val, ahead: int, many: int) -> None:
        e, b = self.e, self.b
        tile.place(position, ahead)
        place = self.place(e.position)
        for leaf, param in self.results:
            dtype, address = e.kernel.params[param].dtype, e.element(param, e.lane)
            found = [self.arrays[leaf].get(place)] if many == 1 else self.arrays[leaf].get_side(place, many)
            if dtype is not self.leaves[leaf]:
                found = [convert(ScalarOps(e), value, self.leaves[leaf], dtype) for value in found]
            if many == 1:
                b.store(address, to_memory(e, found[0], dtype))
                continue
            size = SIZE[memory_type(dtype)]
            if many * size >= WORD:
                store_side(e, address, found, dtype)
                continue
            for i, value in enumerate(found):
                b.store(e.offset(address, i * size), to_memory(e, value, dtype))

    def _less(self, x: Val, limit: int) -> Val:
        return self.b.inst("ULessThan", "bool", x, self.b.const("i32", limit))
