"""Stages over short rows, each row in the registers of some neighbouring invocations (see row_members).

What an invocation makes of its elements it keeps for the next stage. What a stage reduces, members fold first each for
itself, then in a tree over all of a row, by exchanging registers where the target has instructions for that, else by
memory of the workgroup, as the warps do that have a long row together; afterwards each of them has the row's number.
Of what a stage reduces of all rows, as a loss beside its derivatives, each tile leaves its number, as elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, Kernel, Reduction
from loopgrad.codegen.math.compensated import balanced
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter, KernelTable, LaneArray
from loopgrad.codegen.targets.gpu.emit.memory_form import to_memory
from loopgrad.codegen.targets.gpu.lanes.exchanged import folded_by_exchange
from loopgrad.codegen.targets.gpu.lanes.partials import (
    GroupArray,
    GroupPartials,
    Partial,
    combined,
    nothing,
    number,
    with_terms,
)
from loopgrad.codegen.targets.gpu.lanes.plan import LaneMapping
from loopgrad.codegen.targets.gpu.lanes.stage_tiles import reduces_rows
from loopgrad.codegen.targets.gpu.lanes.tiles import Tile, digits, emit_together, fold_group, short
from loopgrad.codegen.targets.gpu.lanes.warp_partials import added_by_exchange, in_f64, widened_sum

MOST_AT_ONCE: Final = 16  # lanes whose operations are written one beside the other; of more
SOME_AT_ONCE: Final = 8

EmitOps = Callable[[Emitter, Block], tuple[Val, ...]]


class _Registers:
    """An array with an element for each lane of the invocation, or for its row. Implements LaneArray."""

    def __init__(self, of_row: bool) -> None:
        self.one, self.values = of_row, dict[Val | None, Val]()

    def get(self, index: Val) -> Val:
        return self.values[None if self.one else index]

    def set(self, index: Val, value: Val) -> None:
        self.values[None if self.one else index] = value


class RegisterRows:
    """The rows of a kernel with stages. `emit` is the program of a tile: as many rows as a workgroup has."""

    def __init__(self, e: Emitter, plan: LaneMapping, tables: Sequence[KernelTable], emit_block: EmitOps) -> None:
        """`tables`: those of the stages."""
        shape, tiles = plan.members, plan.tiles
        assert shape is not None, "rows are held"
        assert tiles is not None, "in tiles"
        self.e, self.b, self.shape, self.tiles, self.tables, self.emit_block = e, e.b, shape, tiles, tables, emit_block
        self.rows, self.length = e.kernel.domain
        own = e.b.local_id()
        self.across = e.b.group // shape.members  # rows of a tile
        if shape.columns:
            self.member, self.near = self._split(own, self.across)
        else:
            self.near, self.member = self._split(own, shape.members)
        vectors = -(-self.length // shape.side)
        self.inside: list[Val | None] = []  # whether the vector of a turn is this member's alone; None: always
        self.columns: list[Val] = []  # of the first element of each (i32)
        for turn in range(shape.turns):
            vector = e.b.inst("IAdd", "i32", self.member, e.b.const("i32", turn * shape.members))
            whole = (turn + 1) * shape.members <= vectors
            inside = e.b.inst("ULessThan", "bool", vector, e.b.const("i32", vectors))
            self.inside.append(None if whole else inside)
            vector = vector if whole else e.select(inside, vector, e.b.const("i32", vectors - 1))
            self.columns.append(e.b.inst("IMul", "i32", vector, e.b.const("i32", shape.side)))
        self.positions = [e.b.const("i32", n) for n in range(shape.turns * shape.side)]
        self.apart = self.across if shape.columns else 1  # one member from the next
        self.exchanging = min(shape.members, max(e.b.neighbours // self.apart, 1))  # members who exchange registers
        self.parts = shape.members // self.exchanging  # of a row
        self.partials = self._in_memory(e.kernel, e.b.group // self.exchanging) if self.parts > 1 else {}
        self.wide: dict[tuple[int, int], GroupArray] = {}  # the same of sums in f64

    def _split(self, own: Val, members: int) -> tuple[Val, Val]:
        b = self.b
        shift, mask = b.const("i32", members.bit_length() - 1), b.const("i32", members - 1)
        return b.inst("ShiftRightLogical", "i32", own, shift), b.inst("BitwiseAnd", "i32", own, mask)

    def _in_memory(self, kernel: Kernel, count: int) -> dict[tuple[int, int], GroupPartials]:
        """Of each stage's reductions, where more have a row than exchange registers."""
        return {
            (n, slot): GroupPartials(self.e, r, count)
            for n, stage in enumerate(kernel.stages)
            for slot, r in enumerate(stage.reductions)
            if reduces_rows(stage, self.rows) and not in_f64(self.e, r)
        }

    def emit(self, tile: Val) -> None:
        e, b, kernel, row = self.e, self.b, self.e.kernel, self._row(tile)
        arrays: dict[int, LaneArray] = {
            param: _Registers(kernel.stages[0].params[param].size == self.rows)
            for param in range(len(kernel.params), len(kernel.stages[0].params))
        }
        for n, (stage, table) in enumerate(zip(kernel.stages, self.tables, strict=True)):
            inner = Emitter(stage, b, e.fast, table=table, reporting=e.reporting, arrays=arrays)
            self._stage(inner, n, tile, row)
        if self.parts > 1:
            b.barrier()

    def _row(self, tile: Val) -> Val:
        """The invocation's; of a last tile the last one, where there are none left."""
        row, last = self._number(tile), self.b.const("i64", self.rows - 1)
        return short(self.e, self.e.select(self.b.inst("SLessThan", "bool", row, last), row, last))

    def _number(self, tile: Val) -> Val:
        first = self.b.inst("IMul", "i64", tile, self.b.const("i64", self.across))
        return self.e.offset(first, self.e.resize(self.near, "i64", signed=False))

    def there(self, tile: Val) -> Val | None:
        """Whether the invocation's row is its alone; None: always."""
        if self.rows % self.across == 0:
            return None
        return self.b.inst("SLessThan", "bool", self._number(tile), self.b.const("i64", self.rows))

    def _stage(self, e: Emitter, n: int, tile: Val, row: Val) -> None:
        body, domain = e.kernel.body, e.kernel.domain
        if prod(domain) == self.rows:
            e.lane = row
            e.restart()
            e.values.update(zip(body.arguments, digits(e, row, domain), strict=True))
            self.emit_block(e, body)
            return
        cut = next(cut for cut in range(len(domain) + 1) if prod(domain[:cut]) == self.rows)
        outer, shape = digits(e, row, domain[:cut]), self.shape
        start = self.b.inst("IMul", "i64", row, self.b.const("i64", self.length))
        enter = []
        for turn, column in enumerate(self.columns):
            wide = e.resize(column, "i64", signed=False)
            indices = digits(e, wide, domain[cut:])
            for beside in range(shape.side):
                position = self.positions[turn * shape.side + beside]
                enter.append(partial(self._enter, e, position, start, wide, (*outer, *indices), beside))
        of_all = e.kernel.reductions and not reduces_rows(e.kernel, self.rows)
        folds = _Totals(self, e, n, row, tile) if of_all else _Folds(self, e, n, row)
        at_once = len(enter) if len(enter) <= MOST_AT_ONCE else max(SOME_AT_ONCE, shape.side)
        at_once = shape.at_once or at_once
        for first in range(0, len(enter), at_once):
            folds.first = first
            with e.contributing(folds):
                emit_together(e, enter[first : first + at_once], body, self.emit_block, shape.side)
        folds.finish()

    def _enter(self, e: Emitter, position: Val, start: Val, column: Val, indices: tuple[Val, ...], beside: int) -> None:
        """What follows is the lane so many after the first of its turn."""

        def moved(x: Val) -> Val:
            return self.b.inst("IAdd", "i64", x, self.b.const("i64", beside)) if beside else x

        e.lane, e.position = short(e, moved(e.offset(start, column))), position
        e.values.update(zip(e.kernel.body.arguments, (*indices[:-1], moved(indices[-1])), strict=True))

    # what members exchange

    def number(self, n: int, slot: int, r: Reduction, mine: Partial) -> Val:
        """That of the whole row."""
        if in_f64(self.e, r):
            return self._wide_sum(n, slot, *mine)
        return number(self.e, r, self._folded(n, slot, r, mine))

    def _wide_sum(self, n: int, slot: int, total: Val, rest: Val) -> Val:
        """Of f32 in f64."""
        e, b = self.e, self.b
        x = added_by_exchange(e, widened_sum(e, total, rest), self.exchanging, self.apart)
        if self.parts > 1:
            array = self.wide.setdefault((n, slot), GroupArray(e, "f64", b.group // self.exchanging))
            array.set(self._own_place(), x)
            b.barrier()
            x = balanced(partial(b.exact, "FAdd", "f64"), [array.get(place) for place in self._places()])
        return b.exact("FConvert", "f32", x)

    def _folded(self, n: int, slot: int, r: Reduction, mine: Partial) -> Partial:
        e, b = self.e, self.b
        own = b.local_id()
        mine = folded_by_exchange(e, r, own, mine, self.exchanging, self.apart)
        return self._gathered(self.partials[n, slot], r, mine) if self.parts > 1 else mine

    def _gathered(self, array: GroupPartials, r: Reduction, mine: Partial) -> Partial:
        """What the parts of a row make in memory of the workgroup. Each member adds up all: exchanges would wait for
        each other (on an H200 a layer norm of rows of 8,192 takes 1.04 times as long with them, its gradient 1.08
        times)."""
        array.set(self._own_place(), mine)
        self.b.barrier()
        return balanced(partial(combined, self.e, r), [array.get(place) for place in self._places()])

    def _own_place(self) -> Val:
        """Where the invocation's part of its row is; parts of rows that lie side by side do so, too."""
        b = self.b
        if not self.shape.columns:
            return self._split(b.local_id(), self.exchanging)[0]
        part = self._split(self.member, self.exchanging)[0]
        return b.inst("IAdd", "i32", b.inst("IMul", "i32", part, b.const("i32", self.across)), self.near)

    def _places(self) -> list[Val]:
        """Where the parts of the invocation's row are."""
        b, step = self.b, self.across if self.shape.columns else 1
        first = self.near if self.shape.columns else b.inst("IMul", "i32", self.near, b.const("i32", self.parts))
        return [b.inst("IAdd", "i32", first, b.const("i32", k * step)) for k in range(self.parts)]


class _Folds:
    """What the lanes of a stage give to its reductions. Implements Contribution."""

    meets = True

    def __init__(self, rows: RegisterRows, e: Emitter, n: int, row: Val) -> None:
        self.rows, self.e, self.n, self.row = rows, e, n, row
        self.first = 0  # of the lanes that give now
        self.given = {slot: nothing(e, r) for slot, r in enumerate(e.kernel.reductions)}

    def add(self, e: Emitter, slot: int, *terms: Val) -> None:
        r, side = e.kernel.reductions[slot], self.rows.shape.side
        none, counted = nothing(e, r), []
        for place, x in enumerate(terms, self.first):
            inside = self._counts(self.rows.inside[place // side])
            counted.append(x if inside is None else e.select(inside, x, none[0]))
        self.given[slot] = with_terms(e, r, self.given[slot], counted)

    def _counts(self, inside: Val | None) -> Val | None:
        """Whether an element does that is the invocation's alone in its row; None: always."""
        return inside

    def finish(self) -> None:
        """All lanes have given what they have."""
        for slot, mine in self.given.items():
            self._leave(slot, mine)

    def _leave(self, slot: int, mine: Partial) -> None:
        e, rows, b = self.e, self.rows, self.e.b
        r = e.kernel.reductions[slot]
        value = rows.number(self.n, slot, r, mine)
        if r.param in e.arrays:
            e.arrays[r.param].set(e.position, value)
            return
        stored = to_memory(e, value, r.dtype)
        address = e.at(e.table.params[r.param], self.row, SIZE[stored.type])
        e.when(b.inst("IEqual", "bool", rows.member, b.const("i32", 0)), lambda: b.store(address, stored))

    def join(self, e: Emitter, slot: int, partial: Partial) -> None:
        raise AssertionError("rows are folded from the terms of their lanes")


class _Totals(_Folds):
    """The same of all rows: what a tile has of them is left in scratch memory."""

    def __init__(self, rows: RegisterRows, e: Emitter, n: int, row: Val, tile: Val) -> None:
        super().__init__(rows, e, n, row)
        self.tile, self.there = tile, rows.there(tile)

    def _counts(self, inside: Val | None) -> Val | None:
        if inside is None or self.there is None:
            return inside if self.there is None else self.there
        return self.e.both(self.there, inside)

    def finish(self) -> None:
        tiles = self.rows.tiles
        fold_group(self.e, tiles, Tile(self.e, tiles, self.tile), [*self.given.values()])
