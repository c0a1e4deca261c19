"""What workgroups make of reductions by shards (see shard_plan): the pieces of a tile, and what all pieces make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from loopgrad.codegen.kernel.nodes import Reduction, Shards
from loopgrad.codegen.math.compensated import balanced
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter, memory_type
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.emit.memory import contribution_place
from loopgrad.codegen.targets.gpu.emit.memory_form import from_memory, to_memory
from loopgrad.codegen.targets.gpu.lanes.partials import GroupPartials, Partial, combined, nothing, number
from loopgrad.codegen.targets.gpu.lanes.plan import Tiles, at_once, fold_columns, parts
from loopgrad.codegen.targets.gpu.lanes.shard_plan import FAN_IN, ShardPieces

TOGETHER: Final = 8  # pieces that an invocation reads before it combines them
ROUNDS: Final = 4  # of pieces that wait for each other
FEW_SHARDS: Final = 256  # more leave less memory for those

Shares = Callable[[Val, Partial], None]


class ShardFold:
    """The instructions of one invocation. `arrays`: two in memory of the workgroup, which take turns."""

    def __init__(self, e: Emitter, r: Reduction, arrays: tuple[GroupPartials, GroupPartials]) -> None:
        assert r.shards is not None
        self.e, self.b, self.r, self.shards, self.arrays = e, e.b, r, r.shards, arrays
        self.own = e.b.local_id()

    def i32(self, value: int) -> Val:
        return self.b.const("i32", value)

    def plus(self, x: Val, y: int) -> Val:
        return self.b.inst("IAdd", "i32", x, self.i32(y)) if y else x

    def times(self, x: Val, y: int) -> Val:
        return self.b.inst("IMul", "i32", x, self.i32(y))

    def below(self, x: Val, y: Val | int) -> Val:
        return self.b.inst("ULessThan", "bool", x, self.i32(y) if isinstance(y, int) else y)

    def divided(self, x: Val, by: int) -> tuple[Val, Val]:
        if by == 1:
            return x, self.i32(0)
        above = self.b.inst("UDiv", "i32", x, self.i32(by))
        return above, self.b.inst("ISub", "i32", x, self.times(above, by))

    def only(self, condition: Val | None, partial: Partial) -> Partial:
        """The partial result where the condition holds, identities elsewhere."""
        if condition is None:
            return partial
        return tuple([self.e.select(condition, x, y) for x, y in zip(partial, nothing(self.e, self.r), strict=True)])

    def balanced(self, elements: list[Partial]) -> Partial:
        return balanced(partial(combined, self.e, self.r), elements)

    def neighbours(self, sets: int, apart: int, count: int, then: Shares) -> None:
        """`then(set, result)` in one invocation for each of some sets of `count` shards, which begin `apart` in the
        first array."""
        source, target = self.arrays
        while count > FAN_IN:
            apart = count = self._level(source, target, sets, apart, count)
            source, target = target, source

        def whole(which: Val) -> None:
            then(which, self._chunk(source, self.times(which, apart), self.i32(0), count))

        self.each(sets, whole)

    def _level(self, source: GroupPartials, target: GroupPartials, sets: int, apart: int, count: int) -> int:
        """Neighbours of each set as one; how many are left of it, which lie together."""
        chunks = -(-count // FAN_IN)

        def chunk(number: Val) -> None:
            which, nth = self.divided(number, chunks)
            target.set(number, self._chunk(source, self.times(which, apart), nth, count))

        self.each(sets * chunks, chunk)
        self.b.barrier()
        return chunks

    def _chunk(self, source: GroupPartials, start: Val, nth: Val, count: int) -> Partial:
        """Neighbours of `count` elements from `start` on, which are that many times FAN_IN behind it."""
        first, found = self.times(nth, FAN_IN), []
        start = self.b.inst("IAdd", "i32", start, first)
        for k in range(min(FAN_IN, count)):
            sure = count <= FAN_IN or count % FAN_IN == 0
            inside = None if sure else self.below(self.plus(first, k), count)
            found.append(self.only(inside, source.get(self.plus(start, k))))
        return self.balanced(found)

    def each(self, count: int, body: Callable[[Val], None]) -> None:
        """body(number) for the numbers below `count`, each by an invocation."""
        for first in range(0, count, self.b.group):
            number = self.plus(self.own, first)
            if first + self.b.group <= count:
                body(number)
            else:
                self.e.when(self.below(number, count), partial(body, number))

    def result(self, total: Partial) -> list[Val]:
        """What is stored of a root."""
        found = (number(self.e, self.r, total),) if self.shards.rounded else total
        return [to_memory(self.e, v, self.r.dtype) for v in found]

    def store(self, param: int, root: Val, stored: list[Val]) -> None:
        """`root`: which one (i64)."""
        row = self.b.inst("IMul", "i64", root, self.b.const("i64", len(stored)))
        for k, value in enumerate(stored):
            at = self.b.inst("IAdd", "i64", row, self.b.const("i64", k)) if k else row
            self.b.store(self.e.at(self.e.table.params[param], at, SIZE[value.type]), value)


class TilePieces(ShardFold):
    """Those of one tile, of the reductions in some slots."""

    def __init__(
        self, e: Emitter, tiles: Tiles, slots: dict[int, Partial], arrays: tuple[GroupPartials, GroupPartials]
    ) -> None:
        super().__init__(e, e.kernel.reductions[next(iter(slots))], arrays)
        assert tiles.shards is not None
        self.pieces, self.slots, self.at_once = tiles.shards, slots, at_once(tiles, self.shards)

    def fold(self, tile: Val) -> None:
        """`tile`: its number (i64)."""
        b, (wide, narrow), pieces = self.b, self.arrays, self.pieces
        columns = fold_columns(pieces.width)
        for j, value in enumerate(self.slots.values()):
            wide.set(self.plus(self.own, j * b.group), value)
        b.barrier()

        def fold_columns_of_piece(number: Val) -> None:
            piece, column = self.divided(number, columns)
            which, beside = self.divided(piece, pieces.beside)
            start = b.inst("IAdd", "i32", self.times(which, b.group), self.times(beside, pieces.width))
            found = []
            for k in range(0, pieces.width, columns):
                place = self.plus(column, k)
                inside = None if k + columns <= pieces.width else self.below(place, pieces.width)
                found.append(self.only(inside, wide.get(b.inst("IAdd", "i32", start, place))))
            narrow.set(number, self.balanced(found))

        def fold_piece(number: Val) -> None:
            first = self.times(number, columns)
            total = self.balanced([narrow.get(self.plus(first, k)) for k in range(columns)])
            if self.at_once:
                wide.set(number, total)
                return
            for j, slot in enumerate(self.slots):
                nth = self.plus(number, -j * pieces.beside)
                self.e.when(self.below(nth, pieces.beside), partial(self._leave, slot, tile, nth, total))

        all_pieces = len(self.slots) * pieces.beside
        self.each(all_pieces * columns, fold_columns_of_piece)
        b.barrier()
        self.each(all_pieces, fold_piece)
        if self.at_once:
            b.barrier()
            self.neighbours(len(self.slots), pieces.beside, pieces.shards, self._finish)
            b.barrier()

    def _leave(self, slot: int, tile: Val, nth: Val, total: Partial) -> None:
        """Of the nth piece of the tile, among those of other tiles."""
        b = self.b
        place = b.inst("IMul", "i64", tile, b.const("i64", self.pieces.beside))
        place = b.inst("IAdd", "i64", place, self.e.resize(nth, "i64", signed=False))

        def leave() -> None:
            for k, value in enumerate([to_memory(self.e, v, self.r.dtype) for v in total]):
                b.store(self.e.at(*contribution_place(self.e, slot, place, k), SIZE[value.type]), value)

        if self.pieces.beside == 1:
            leave()
        else:
            self.e.when(b.inst("SLessThan", "bool", place, b.const("i64", self.pieces.count)), leave)

    def _finish(self, which: Val, total: Partial) -> None:
        stored = self.result(total)
        for j, slot in enumerate(self.slots):
            mine = self.b.inst("IEqual", "bool", which, self.i32(j))
            param = self.e.kernel.reductions[slot].param
            self.e.when(mine, partial(self.store, param, self.b.const("i64", 0), stored))


@dataclass(frozen=True, slots=True)
class ShardRoots:
    """What the pieces in param 0 make, a workgroup for each root of each of `sums` alike reductions. Implements
    GroupProgram."""

    reduction: Reduction
    pieces: ShardPieces
    sums: int

    def emit(self, e: Emitter, tile: Val) -> None:
        most = max(count for _, count in _shards(self.reduction).roots)
        together = e.b.group // self.pieces.columns
        rounds = -(-most // together)
        rounds = min(rounds, ROUNDS if most <= FEW_SHARDS else ROUNDS // 2)
        times = -(-most // (rounds * together))
        tops = GroupPartials(e, self.reduction, times * rounds * together)
        spare = GroupPartials(e, self.reduction, -(-most // FAN_IN))
        waiting = GroupPartials(e, self.reduction, rounds * e.b.group) if self.pieces.columns > 1 else tops
        _RootFold(e, self, (tops, spare), waiting, tile).run(most, rounds, times)


def _shards(r: Reduction) -> Shards:
    assert r.shards is not None
    return r.shards


class _RootFold(ShardFold):
    """One root. `first`, `count`: of its shards."""

    def __init__(
        self,
        e: Emitter,
        program: ShardRoots,
        arrays: tuple[GroupPartials, GroupPartials],
        waiting: GroupPartials,
        tile: Val,
    ) -> None:
        super().__init__(e, program.reduction, arrays)
        b, roots = self.b, self.shards.roots
        self.pieces, self.sums, self.waiting = program.pieces, program.sums, waiting
        item = e.resize(tile, "i32")
        self.slot, self.root = self.divided(item, len(roots))
        self.first, self.count = self.i32(roots[0][0]), self.i32(roots[0][1])
        for k, (first, count) in enumerate(roots[1:], 1):
            chosen = b.inst("IEqual", "bool", self.root, self.i32(k))
            self.first = e.select(chosen, self.i32(first), self.first)
            self.count = e.select(chosen, self.i32(count), self.count)

    def run(self, most: int, rounds: int, times: int) -> None:
        b, columns, (tops, _) = self.b, self.pieces.columns, self.arrays
        together = rounds * b.group // columns

        def shards(k: Val | None) -> None:
            start = self.i32(0) if k is None else self.times(k, together)
            found = [self._column(start, self.plus(self.own, n * b.group)) for n in range(rounds)]
            for n, column in enumerate(found):
                at = self.plus(self.own, n * b.group)
                self.waiting.set(at if columns > 1 else b.inst("IAdd", "i32", at, start), column)
            if columns == 1:
                return
            b.barrier()
            self.each(together, partial(shard, start))
            b.barrier()

        def shard(start: Val, place: Val) -> None:
            at = self.times(place, columns)
            total = self.balanced([self.waiting.get(self.plus(at, c)) for c in range(columns)])
            tops.set(b.inst("IAdd", "i32", start, place), total)

        if times == 1:
            shards(None)
        else:
            counted(self.e, self.i32(times), shards)
        b.barrier()
        self.neighbours(1, 0, most, self._finish)
        b.barrier()

    def _column(self, start: Val, place: Val) -> Partial:
        """What the pieces of a column make: that at `place` among those of the shards from `start` on."""
        pieces, b = self.pieces, self.b
        nth, column = self.divided(place, pieces.columns)
        shard = b.inst("IAdd", "i32", start, nth)
        there = self.below(shard, self.count)
        before = self.times(b.inst("IAdd", "i32", self.first, shard), pieces.pieces)
        turns = -(-pieces.pieces // pieces.columns)
        if turns <= TOGETHER:
            return self._pieces(there, before, column, turns)[0]
        so_far = [(b.local(v.type), v) for v in nothing(self.e, self.r)]
        for variable, value in so_far:
            b.set(variable, value)

        def some(k: Val) -> None:
            first = b.inst("IAdd", "i32", column, self.times(k, TOGETHER * pieces.columns))
            total: Partial = tuple([b.get(variable, v.type) for variable, v in so_far])
            for x in self._pieces(there, before, first, TOGETHER, apart=True):
                total = combined(self.e, self.r, total, x)
            for (variable, _), value in zip(so_far, total, strict=True):
                b.set(variable, value)

        counted(self.e, self.i32(-(-turns // TOGETHER)), some)
        return tuple([b.get(variable, v.type) for variable, v in so_far])

    def _pieces(self, there: Val, before: Val, first: Val, turns: int, apart: bool = False) -> list[Partial]:
        """Those of a column from its `first` on, or what they make."""
        found = []
        for k in range(turns):
            piece = self.plus(first, k * self.pieces.columns)
            inside = self.e.both(there, self.below(piece, self.pieces.pieces))
            place = self.b.inst("IAdd", "i32", before, piece)
            inside = self.e.both(inside, self.below(place, self.pieces.count))
            found.append(self.only(inside, self._load(self.e.select(inside, place, self.i32(0)))))
        if apart:
            return found
        total = found[0]
        for x in found[1:]:
            total = combined(self.e, self.r, total, x)
        return [total]

    def _load(self, place: Val) -> Partial:
        b, dtype, count = self.b, self.r.dtype, self.pieces.count
        at = self.e.resize(b.inst("IAdd", "i32", self.times(self.slot, count), place), "i64", signed=False)
        type, loaded = memory_type(dtype), []
        for part in range(parts(self.r)):
            address = self.e.offset(
                self.e.at(self.e.table.params[0], at, SIZE[type]), part * self.sums * count * SIZE[type]
            )
            loaded.append(from_memory(self.e, b.load(address, type, invariant=True), dtype))
        return tuple(loaded)

    def _finish(self, _: Val, total: Partial) -> None:
        stored, root = self.result(total), self.e.resize(self.root, "i64", signed=False)
        for i in range(self.sums):
            mine = self.b.inst("IEqual", "bool", self.slot, self.i32(i))
            self.e.when(mine, partial(self.store, 1 + i, root, stored))
