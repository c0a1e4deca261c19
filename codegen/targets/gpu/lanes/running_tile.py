"""Where a running total's tiles lie in an array (see running_plan)."""

from __future__ import annotations

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.lanes.row_layouts import row_dims
from loopgrad.codegen.targets.gpu.lanes.running_plan import RunningTiles
from loopgrad.codegen.targets.gpu.lanes.tiles import Tile, digits, divided, short


class Unit:
    """What a workgroup takes at once: a span of a row, or some rows; a block of columns of it."""

    def __init__(self, e: Emitter, plan: RunningTiles, unit: Val) -> None:
        b, zero = e.b, e.b.const("i64", 0)
        rest, self.block = divided(e, unit, plan.blocks) if plan.blocks > 1 else (unit, zero)
        self.group, self.span = divided(e, rest, plan.spans) if plan.spans > 1 else (rest, zero)
        self.first_column = b.inst("IMul", "i64", self.block, b.const("i64", plan.columns))
        self.width: Val | None = None  # columns of a last, narrower block
        if plan.inner % plan.columns:
            left = b.inst("ISub", "i64", b.const("i64", plan.inner), self.first_column)
            self.width = e.resize(e.bound_integer(left, plan.columns), "i32")


class RunningTile(Tile):
    """Tile `piece` (i64) of a unit's row, counted from where the total begins. `valid`: positions of a row in it."""

    def __init__(self, e: Emitter, plan: RunningTiles, reverse: bool, unit: Unit, piece: Val) -> None:
        self.e, self.plan, self.unit, b = e, plan, unit, e.b
        domain, self.shift = e.kernel.domain, None
        self.row = b.inst("IMul", "i64", unit.group, b.const("i64", plan.rows))
        if plan.tiles == 1:
            present = e.bound_integer(b.inst("ISub", "i64", b.const("i64", plan.outer), self.row), plan.rows)
            self.valid = b.const("i32", plan.extent)
            first = b.const("i64", 0)
            count = b.inst("IMul", "i64", present, b.const("i64", plan.extent * plan.columns))
            self.outer, self.inner = [], domain
        else:
            positions = b.const("i64", plan.positions)
            begun = b.inst("IMul", "i64", piece, positions)
            left = b.inst("ISub", "i64", b.const("i64", plan.extent), begun)
            valid = e.bound_integer(left, plan.positions)
            self.valid = e.resize(valid, "i32")
            first = b.inst("ISub", "i64", left, valid) if reverse else begun
            count = b.inst("IMul", "i64", valid, b.const("i64", plan.columns))
            if reverse and plan.extent % plan.positions:
                missing = b.inst("ISub", "i32", b.const("i32", plan.positions), self.valid)
                self.shift = b.inst("IMul", "i32", missing, b.const("i32", plan.columns))
            self.outer, self.inner = _row_indices(e, plan, self.row)
        inner = b.const("i64", plan.inner)
        self.column = b.inst("IAdd", "i64", b.inst("IMul", "i64", first, inner), unit.first_column)
        start = b.inst("IMul", "i64", self.row, b.const("i64", plan.extent * plan.inner))
        self.start = b.inst("IAdd", "i64", start, self.column)
        self.count = e.resize(count, "i32")
        self.whole = b.inst("IEqual", "bool", self.count, b.const("i32", plan.size))

    def place(self, position: Val, ahead: int = 0) -> Val:
        if self.plan.columns == self.plan.inner:
            column = super().place(position, ahead)
        else:
            column = self._in_block(position, ahead)
        if self.shift is not None:
            self.e.position = self.e.b.inst("IAdd", "i32", self.e.position, self.shift)
        return column

    def _in_block(self, position: Val, ahead: int) -> Val:
        """Rows of a block lie apart; what a narrower block lacks is its last column again."""
        e, b = self.e, self.e.b
        e.position = b.inst("IAdd", "i32", position, b.const("i32", ahead)) if ahead else position
        line, column = self.split(e.position)
        if self.unit.width is not None:
            last = b.inst("ISub", "i32", self.unit.width, b.const("i32", 1))
            column = e.select(b.inst("ULessThan", "bool", column, last), column, last)
        line = b.inst("IMul", "i64", e.resize(line, "i64", signed=False), b.const("i64", self.plan.inner))
        offset = b.inst("IAdd", "i64", line, e.resize(column, "i64", signed=False))
        e.lane = short(e, b.inst("IAdd", "i64", self.start, offset))
        return short(e, b.inst("IAdd", "i64", self.column, offset)) if self.outer else e.lane

    def split(self, position: Val) -> tuple[Val, Val]:
        """The line of a position of the tile, and its column."""
        b, columns = self.e.b, self.e.b.const("i32", self.plan.columns)
        line = b.inst("UDiv", "i32", position, columns)
        return line, b.inst("ISub", "i32", position, b.inst("IMul", "i32", line, columns))

    def stored(self, position: Val) -> Val | None:
        """Whether the element is one of the block; None: it is."""
        if self.unit.width is None:
            return None
        return self.e.b.inst("ULessThan", "bool", self.split(position)[1], self.unit.width)


class OwnRow(Tile):
    """A whole row of a unit, number `near` (i32) of those that its tile may have. `there`: whether it has that."""

    def __init__(self, e: Emitter, plan: RunningTiles, unit: Unit, near: Val) -> None:
        self.e, b = e, e.b
        first = b.inst("IMul", "i64", unit.group, b.const("i64", plan.rows))
        row, last = e.offset(first, e.resize(near, "i64", signed=False)), b.const("i64", plan.outer - 1)
        self.there = b.inst("SLessThanEqual", "bool", row, last)
        if plan.owners < b.group:
            self.there = e.both(self.there, b.inst("ULessThan", "bool", near, b.const("i32", plan.rows)))
        row = e.select(self.there, row, last)
        self.outer, self.inner = _row_indices(e, plan, row)
        self.column = b.const("i64", 0)
        self.start = b.inst("IMul", "i64", row, b.const("i64", plan.extent))


def _row_indices(e: Emitter, plan: RunningTiles, row: Val) -> tuple[list[Val], tuple[int, ...]]:
    """The indices that number a row, and the dims of its lanes; none, and all, where those of all rows are numbered."""
    domain = e.kernel.domain
    cut = row_dims(domain, plan.outer) if len(domain) > 1 else 0
    return digits(e, row, domain[:cut]), domain[cut:]
