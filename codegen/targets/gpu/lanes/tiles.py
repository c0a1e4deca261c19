"""A tiled kernel: each workgroup runs whole tiles, and leaves one partial result of every reduction.

Within a tile, invocation i runs the lanes i, i + group, ... and folds their contributions in that order;
then the workgroup folds what its invocations have, in an order that depends on nothing but the tile's size.
Barriers are reached by all invocations or by none: only conditions that a workgroup shares lead there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import ClassVar, Final

from loopgrad.codegen.kernel.nodes import Block, KOp, KValue, Reduction, Shards
from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.codegen.math.compensated import balanced
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter, register_type
from loopgrad.codegen.targets.gpu.emit.elementwise import operate
from loopgrad.codegen.targets.gpu.emit.joint_quotients import JointQuotients, emit_joined, with_joint_quotients
from loopgrad.codegen.targets.gpu.emit.loops import counted, emit_loop
from loopgrad.codegen.targets.gpu.emit.memory import contribution_place
from loopgrad.codegen.targets.gpu.emit.memory_form import to_memory
from loopgrad.codegen.targets.gpu.emit.shared_branches import for_all_lanes
from loopgrad.codegen.targets.gpu.lanes.interleaved import InterleavedLanes
from loopgrad.codegen.targets.gpu.lanes.partials import (
    GroupArray,
    GroupPartials,
    Partial,
    combined,
    nothing,
    number,
    of_term,
    with_term,
    with_terms,
)
from loopgrad.codegen.targets.gpu.lanes.plan import Tiles, fold_columns, parts
from loopgrad.codegen.targets.gpu.lanes.row_layouts import row_dims
from loopgrad.codegen.targets.gpu.lanes.shard_tiles import TilePieces
from loopgrad.codegen.targets.gpu.lanes.side_by_side import emit_access, side_by_side
from loopgrad.codegen.targets.gpu.lanes.warp_partials import WarpPartials

MOST_LOADED: Final = 16  # elements that an invocation reads before it computes

EmitOps = Callable[[Emitter, Block], tuple[Val, ...]]


class Tile:
    """One tile: its number (i64), its row, the column of its first lane, and how many lanes it has (i32)."""

    def __init__(self, e: Emitter, tiles: Tiles, number: Val) -> None:
        self.e, self.number = e, number
        b = e.b
        self.row, piece = b.const("i64", 0), number
        if tiles.rows > 1:
            self.row, piece = divided(e, number, tiles.per_row)
        self.column = b.inst("IMul", "i64", piece, b.const("i64", tiles.size))
        start = b.inst("IMul", "i64", self.row, b.const("i64", tiles.length))
        self.start = b.inst("IAdd", "i64", start, self.column)
        self.left = b.inst("ISub", "i64", b.const("i64", tiles.length), self.column)
        if tiles.shards is not None and tiles.shards.lanes % tiles.length:  # the last row is shorter
            left = b.inst("ISub", "i64", b.const("i64", tiles.shards.lanes), self.start)
            self.left = e.select(b.inst("SLessThan", "bool", left, self.left), left, self.left)
        size = b.const("i64", tiles.size)
        self.whole = b.inst("SGreaterThanEqual", "bool", self.left, size)
        self.count = e.resize(e.select(self.whole, size, self.left), "i32")
        cut = 0 if tiles.shards is not None else row_dims(e.kernel.domain, tiles.rows)
        self.outer = digits(e, self.row, e.kernel.domain[:cut])
        self.inner = e.kernel.domain[cut:]
        self.entered: list[Val] = []

    def enter(self, position: Val, arguments: Sequence[KValue], ahead: int = 0, beside: int = 0) -> None:
        """What follows is the lane at `position` (i32) + `ahead` of the tile; the one that many after the last entered
        with none, in the same row of the domain."""
        e, column = self.e, self.place(position, ahead)
        if not beside:
            self.entered = digits(e, column, self.inner)
        indices = list(self.entered)
        if beside and len(indices) < 2:
            indices = [column]
        elif beside:
            indices[-1] = e.b.inst("IAdd", "i64", indices[-1], e.b.const("i64", beside))
        e.values.update(zip(arguments, (*self.outer, *indices), strict=True))

    def place(self, position: Val, ahead: int = 0) -> Val:
        """The lane there is the one that runs; its number below the dims of the tile's row. Known distances are added
        last, so that one address serves several lanes."""
        e, b = self.e, self.e.b
        offset = e.resize(position, "i64", signed=False)

        def moved(start: Val) -> Val:
            number = short(e, b.inst("IAdd", "i64", start, offset))
            if not ahead:
                return number
            moved = b.inst("IAdd", "i64", number, b.const("i64", ahead))
            e.ahead[moved] = (number, ahead)
            return moved

        e.lane = column = moved(self.start)
        e.position = b.inst("IAdd", "i32", position, b.const("i32", ahead)) if ahead else position
        if self.outer:
            column = moved(self.column)
        return column


def short(e: Emitter, lane: Val) -> Val:
    """The same number, known to be no negative one and to need no more than 31 bits where that is so: on an H200 a sum
    of sines and exponentials takes 1.1 times as long without."""
    if not 1 < prod(e.kernel.domain) < 1 << 31:  # a domain of one lane may be launched with any number
        return lane
    return e.resize(e.resize(lane, "i32"), "i64", signed=False)


def divided(e: Emitter, x: Val, by: int) -> tuple[Val, Val]:
    """Quotient and remainder of a number that isn't negative."""
    quotient = e.b.inst("UDiv", "i64", x, e.b.const("i64", by))
    return quotient, e.b.inst("ISub", "i64", x, e.b.inst("IMul", "i64", quotient, e.b.const("i64", by)))


def digits(e: Emitter, number: Val, extents: tuple[int, ...]) -> list[Val]:
    """A row-major number's index along every extent, in 32-bit arithmetic where that suffices."""
    if len(extents) < 2:
        return [number] * len(extents)
    b = e.b
    type = "i32" if prod(extents) < 1 << 31 else "i64"
    rest, found = e.resize(number, type), []
    for extent in reversed(extents[1:]):
        size = b.const(type, max(extent, 1))
        above = b.inst("UDiv", type, rest, size)
        found.append(b.inst("ISub", type, rest, b.inst("IMul", type, above, size)))
        rest = above
    return [e.resize(v, "i64", signed=False) for v in (rest, *reversed(found))]


def emit_tile(e: Emitter, tiles: Tiles, number: Val, emit_block: EmitOps) -> Tile:
    """A tile in the order of its lanes."""
    tile = Tile(e, tiles, number)
    folds = invocation_folds(e, tiles) if tiles.partials and not tiles.row_length else []
    emit_lanes(e, tiles, tile, folds, emit_block)
    fold_group(e, tiles, tile, [fold.get() for fold in folds])
    return tile


def emit_lanes(e: Emitter, tiles: Tiles, tile: Tile, folds: Sequence[RegisterFold], emit_block: EmitOps) -> None:
    """This invocation's lanes of a tile, in order."""
    b = e.b
    own, body = b.local_id(), e.kernel.body

    def batch(k: Val) -> None:
        side = tiles.side
        near = b.inst("IMul", "i32", own, b.const("i32", side)) if side > 1 else own
        first = b.inst("IAdd", "i32", near, b.inst("IMul", "i32", k, b.const("i32", b.group * tiles.unrolled)))
        ahead = [b.group * u + i for u in range(0, tiles.unrolled, side) for i in range(side)]
        lanes = [partial(tile.enter, first, body.arguments, a, n % side) for n, a in enumerate(ahead)]
        e.convergent = tiles.convergent and b.neighbours > 1
        emit_together(e, lanes, body, emit_block, side)
        e.convergent = False

    def rest(start: int = 0) -> None:
        many = tiles.side if tiles.length % tiles.side == 0 else 1
        place, near = b.local("i32"), b.inst("IMul", "i32", own, b.const("i32", many)) if many > 1 else own
        b.set(place, b.inst("IAdd", "i32", near, b.const("i32", start)) if start else near)

        def some() -> None:
            now = b.get(place, "i32")
            if many > 1:
                lanes = [partial(tile.enter, now, body.arguments, i, i) for i in range(many)]
                emit_together(e, lanes, body, emit_block, many)
            else:
                single(now)
            b.set(place, b.inst("IAdd", "i32", now, b.const("i32", b.group * many)))

        emit_loop(e, lambda: b.inst("SLessThan", "bool", b.get(place, "i32"), tile.count), some)

    def single(place: Val) -> None:
        tile.enter(place, body.arguments)
        e.restart()
        emit_block(e, body)

    def whole() -> None:
        at_once = b.group * tiles.unrolled
        batches = tiles.size // at_once
        if batches:
            counted(e, b.const("i32", batches), batch)
        if batches * at_once < tiles.size:
            rest(batches * at_once)

    with e.contributing(RegisterFolds(folds)) if folds else nullcontext():
        by_batches = tiles.unrolled > 1 or tiles.convergent
        if by_batches and tiles.even:
            whole()
        elif by_batches:
            e.one_of(tile.whole, whole, rest)
        elif tiles.size > b.group:
            rest()
        else:
            e.when(b.inst("SLessThan", "bool", own, tile.count), lambda: single(own))


def emit_together(
    e: Emitter,
    enter: Sequence[Callable[[], None]],
    block: Block,
    emit_block: EmitOps,
    side: int = 1,
    inside: KValue | None = None,
) -> list[tuple[Val, ...]]:
    """A block without regions for several lanes, one operation of all of them after the other, so that loads
    come first for all. `side` of them at a time lie side by side, and store where `inside` holds. The values that it
    yields, for each lane."""
    outer, lanes = e.values, []
    vectors = {op for op in side_by_side(e.kernel, side) if op.attrs["param"] not in e.arrays}
    for start in enter:
        e.values = dict(outer)
        start()
        lanes.append((e.values, e.lane, e.position))
    own = [values for values, _, _ in lanes]
    turns = InterleavedLanes(e, side, len(lanes)) if block is e.kernel.body and inside is None else None

    def emit(op: KOp) -> None:
        if turns is not None and turns.emit(op, own):
            return
        operands = [[values[v] for v in op.operands] for values, _, _ in lanes]
        if op.opcode in ("reduce", "scan") and len(op.operands) == 1 and e.contribution.meets:
            e.contribution.add(e, op.attrs.get("slot", 0), *[x for (x,) in operands])
        elif op in vectors:
            stores = [] if inside is None else [values[inside] for values, _, _ in lanes]
            loaded = emit_access(e, op, operands, side, stores)
            for (values, _, _), x in zip(lanes, loaded, strict=bool(op.results)):
                values[op.results[0]] = x
        elif one_for_all(e, op, operands):
            e.values, e.lane, e.position = lanes[0]
            emit_block(e, Block((), [op]))
            for values, _, _ in lanes[1:]:
                values.update((result, lanes[0][0][result]) for result in op.results)
        else:
            results = for_all_lanes(e, op, operands)
            for i, (values, lane, position) in enumerate(lanes):
                e.values, e.lane, e.position = values, lane, position
                if results is None:
                    emit_block(e, Block((), [op]))
                else:
                    values[op.results[0]] = results[i]

    for step in with_joint_quotients(loads_first(e, block, len(lanes)), e.b.shared_quotients):
        if isinstance(step, JointQuotients):
            emit_joined(e, step, own, emit)
        else:
            emit(step)
    yielded = [tuple([values[v] for v in block.yields]) for values, _, _ in lanes]
    e.values = outer
    return yielded


def one_for_all(e: Emitter, op: KOp, operands: Sequence[Sequence[Val]]) -> bool:
    """Whether what the lanes compute is the same: of their row, for example."""
    if not op.results or op.blocks or OPCODES[op.opcode].effect or any(row != operands[0] for row in operands[1:]):
        return False
    if op.opcode != "load":
        return True
    param = op.attrs["param"]
    return e.arrays[param].one if param in e.arrays else e.kernel.params[param].access == "read"


def loads_first(e: Emitter, block: Block, lanes: int) -> list[KOp]:
    """The operations with those before the others that read what nobody writes, at places that only depend on what
    is read and on integers; as they are, where that were more than registers should hold. On an H200 a sum of sines and
    exponentials takes 1.21 times as long without."""
    known, early, rest, loads = set(block.arguments), [], [], 0
    for op in block.ops:
        load = op.opcode == "load" and e.kernel.params[op.attrs["param"]].access == "read"
        whole = op.opcode == "const" or (bool(op.results) and op.opcode != "load" and op.results[0].dtype.is_integer)
        if known.issuperset(op.operands) and (load or whole):
            early.append(op)
            known.update(op.results)
            loads += load
        else:
            rest.append(op)
    return early + rest if loads * lanes <= MOST_LOADED else block.ops


class RegisterFold:
    """What one invocation has folded of one reduction. `once`: there is one contribution at most."""

    def __init__(self, e: Emitter, reduction: Reduction, once: bool = False) -> None:
        self.e, self.reduction, self.once = e, reduction, once
        start = nothing(e, reduction)
        self.variables = [(e.b.local(v.type), v.type) for v in start]
        self.set(start)

    def add(self, *terms: Val) -> None:
        """One contribution of each of some lanes."""
        if self.once:
            self.set(of_term(self.e, self.reduction, *terms))
        elif self.reduction.shards is None:
            self.set(with_terms(self.e, self.reduction, self.get(), terms))
        else:  # in one order, however many run at once
            for x in terms:
                self.set(with_term(self.e, self.reduction, self.get(), x))

    def join(self, partial: Partial) -> None:
        """What was folded elsewhere."""
        self.set(partial if self.once else combined(self.e, self.reduction, self.get(), partial))

    def get(self) -> Partial:
        return tuple([self.e.b.get(*variable) for variable in self.variables])

    def set(self, partial: Partial) -> None:
        for (variable, _), value in zip(self.variables, partial, strict=True):
            self.e.b.set(variable, value)


class KeptFold(RegisterFold):
    """As RegisterFold, in memory of the workgroup: no register is taken while lanes run. One number, since what waits
    there limits how many workgroups run at once: the few lanes of an invocation are added up plainly."""

    def __init__(self, e: Emitter, reduction: Reduction) -> None:
        self.e, self.reduction, self.once = e, reduction, False
        self.array = GroupArray(e, register_type(reduction.dtype), e.b.group)
        self.set(nothing(e, reduction))

    def add(self, *terms: Val) -> None:
        for x in terms:
            self.set((operate(self.e, self.reduction.kind, self.reduction.dtype, [self._value(), x]),))

    def join(self, partial: Partial) -> None:
        self.add(number(self.e, self.reduction, partial))

    def get(self) -> Partial:
        return of_term(self.e, self.reduction, self._value())

    def set(self, partial: Partial) -> None:
        self.array.set(self.e.b.local_id(), partial[0])

    def _value(self) -> Val:
        return self.array.get(self.e.b.local_id())


class KeptShardFold(RegisterFold):
    """As RegisterFold, in memory of the workgroup."""

    def __init__(self, e: Emitter, reduction: Reduction) -> None:
        self.e, self.reduction, self.once = e, reduction, False
        self.partials = GroupPartials(e, reduction, e.b.group)
        self.set(nothing(e, reduction))

    def get(self) -> Partial:
        return self.partials.get(self.e.b.local_id())

    def set(self, partial: Partial) -> None:
        self.partials.set(self.e.b.local_id(), partial)


@dataclass(frozen=True, slots=True)
class RegisterFolds:
    """Implements Contribution: one fold of this invocation per reduction."""

    folds: Sequence[RegisterFold]
    meets: ClassVar[bool] = True

    def add(self, e: Emitter, slot: int, *terms: Val) -> None:
        self.folds[slot].add(*terms)

    def join(self, e: Emitter, slot: int, partial: Partial) -> None:
        self.folds[slot].join(partial)


def invocation_folds(e: Emitter, tiles: Tiles) -> Sequence[RegisterFold]:
    """What one invocation folds of each reduction while it runs its lanes of a tile."""
    if tiles.spilled:
        return [KeptFold(e, r) if r.shards is None else KeptShardFold(e, r) for r in e.kernel.reductions]
    once = tiles.size <= e.b.group and tiles.unrolled == 1
    return [RegisterFold(e, r, once) for r in e.kernel.reductions]


def fold_group(e: Emitter, tiles: Tiles, tile: Tile, values: Sequence[Partial]) -> None:
    """One element per reduction from those of all invocations (`values`: this one's): some invocations fold columns,
    then one each the row that is left, for several reductions of one kind at a time (a sum takes 1.23 times as long on
    an H200 where one invocation folds all). Two arrays, so that a barrier before each fold is enough, also for what
    follows in the same arrays."""
    arrays: dict[tuple[str, int, bool], tuple[GroupPartials, GroupPartials]] = {}
    warps: dict[tuple[str, str], WarpPartials] = {}
    for slots in alike(e.kernel.reductions, tiles.per_pass) if values else ():
        r, given = e.kernel.reductions[slots[0]], {slot: values[slot] for slot in slots}
        pieces = None if r.shards is None else tiles.shards
        if pieces is None and e.b.neighbours > 1 and e.b.group % e.b.neighbours == 0:
            kind = (r.kind, r.dtype.name)
            warps[kind] = warps.get(kind) or WarpPartials(e, r, tiles.per_pass)
            warps[kind].fold([*given.values()], partial(_leave_all, e, tiles, tile, [*given]))
            continue
        form = (register_type(r.dtype), parts(r), pieces is None)
        if form not in arrays:
            columns = fold_columns(e.b.group) if pieces is None else pieces.beside * fold_columns(pieces.width)
            wide, narrow = (GroupPartials(e, r, tiles.per_pass * size) for size in (e.b.group, columns))
            arrays[form] = (wide, narrow)
        if pieces is None:
            _fold_slots(e, tiles, tile, given, arrays[form])
        else:
            TilePieces(e, tiles, given, arrays[form]).fold(tile.number)


def alike(reductions: Sequence[Reduction], most: int) -> list[list[int]]:
    """Slots of one kind and dtype, and by the same shards, `most` at a time."""
    found: dict[tuple[str, str, Shards | None], list[list[int]]] = {}
    for slot, r in enumerate(reductions):
        chunks = found.setdefault((r.kind, r.dtype.name, r.shards), [[]])
        if len(chunks[-1]) == most:
            chunks.append([])
        chunks[-1].append(slot)
    return [chunk for chunks in found.values() for chunk in chunks]


def _fold_slots(
    e: Emitter, tiles: Tiles, tile: Tile, values: dict[int, Partial], arrays: tuple[GroupPartials, GroupPartials]
) -> None:
    b, (wide, narrow), columns = e.b, arrays, fold_columns(e.b.group)
    r, own = e.kernel.reductions[next(iter(values))], b.local_id()
    for j, value in enumerate(values.values()):
        wide.set(b.inst("IAdd", "i32", own, b.const("i32", j * b.group)) if j else own, value)
    b.barrier()

    def fold_columns_of_row() -> None:
        row = b.inst("UDiv", "i32", own, b.const("i32", columns))
        skipped = b.inst("IMul", "i32", row, b.const("i32", b.group - columns))
        narrow.set(own, folded(e, r, wide, b.inst("IAdd", "i32", own, skipped), columns, b.group))

    def fold_row() -> None:
        total = folded(e, r, narrow, b.inst("IMul", "i32", own, b.const("i32", columns)), 1, columns)
        _leave_all(e, tiles, tile, [*values], total)

    e.when(b.inst("ULessThan", "bool", own, b.const("i32", len(values) * columns)), fold_columns_of_row)
    b.barrier()
    e.when(b.inst("ULessThan", "bool", own, b.const("i32", len(values))), fold_row)


def _leave_all(e: Emitter, tiles: Tiles, tile: Tile, slots: Sequence[int], total: Partial) -> None:
    """Each invocation of the first ones has the total of one of these."""
    if not _continues(tiles):
        total = (number(e, e.kernel.reductions[slots[0]], total),)
    for j, slot in enumerate(slots):
        mine = e.b.inst("IEqual", "bool", e.b.local_id(), e.b.const("i32", j))
        e.when(mine, partial(_leave, e, tiles, tile, slot, total))


def _continues(tiles: Tiles) -> bool:
    """Whether other tiles have more of a row."""
    return tiles.count > 1 if tiles.shards is not None else tiles.per_row > 1


def _leave(e: Emitter, tiles: Tiles, tile: Tile, slot: int, total: Sequence[Val]) -> None:
    """The tile's result to its row's element, or its parts among those of the other tiles."""
    r, b = e.kernel.reductions[slot], e.b
    if r.param in e.arrays:
        e.arrays[r.param].set(b.const("i32", 0), *total)
        return
    stored = [to_memory(e, v, r.dtype) for v in total]
    size = SIZE[stored[0].type]
    if _continues(tiles):
        for part, value in enumerate(stored):
            b.store(e.at(*contribution_place(e, slot, tile.number, part), size), value)
        return
    if tiles.targets == 1:
        b.store(e.at(e.table.params[r.param], tile.row, size), *stored)
        return
    target, row = divided(e, tile.row, tiles.rows // tiles.targets)
    for i in range(tiles.targets):
        chosen = b.inst("IEqual", "bool", target, b.const("i64", i))
        e.when(chosen, partial(_store, e, r.param + i, row, *stored))


def _store(e: Emitter, param: int, index: Val, value: Val) -> None:
    e.b.store(e.at(e.table.params[param], index, SIZE[value.type]), value)


def folded(e: Emitter, r: Reduction, source: GroupPartials, first: Val, step: int, end: int) -> Partial:
    """The elements first, first + step, ... as many as there are below `end` steps of one, in a tree."""
    b = e.b
    places = [first] + [b.inst("IAdd", "i32", first, b.const("i32", k)) for k in range(step, end, step)]
    return balanced(partial(combined, e, r), [source.get(place) for place in places])
