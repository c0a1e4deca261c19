"""Reductions over many short rows: a tile is some whole rows, which the workgroup folds side by side.

Lanes leave their contributions in memory of the workgroup; then a few invocations fold parts of every row,
and one the parts. Every row's element is final, so no launch follows.
"""

from __future__ import annotations

from functools import partial

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter, register_type
from loopgrad.codegen.targets.gpu.emit.memory_form import to_memory
from loopgrad.codegen.targets.gpu.lanes.partials import (
    GroupArray,
    GroupPartials,
    Partial,
    combined,
    nothing,
    number,
    of_term,
    with_term,
)
from loopgrad.codegen.targets.gpu.lanes.plan import Tiles, row_pitch
from loopgrad.codegen.targets.gpu.lanes.tiles import Tile


class ShortRows:
    """The arrays of the workgroup, and the fold of one tile. Implements Contribution."""

    meets = False

    def __init__(self, e: Emitter, tiles: Tiles) -> None:
        self.e, self.b, self.tiles = e, e.b, tiles
        self.own, self.pitch = e.b.local_id(), row_pitch(tiles.row_length)
        rows = tiles.size // tiles.row_length
        self.wide = [GroupArray(e, register_type(r.dtype), rows * self.pitch) for r in e.kernel.reductions]
        self.narrow = [GroupPartials(e, r, rows * tiles.parts) for r in e.kernel.reductions]

    def i32(self, value: int) -> Val:
        return self.b.const("i32", value)

    def add(self, e: Emitter, slot: int, *terms: Val) -> None:
        (value,), at = terms, e.position
        if self.pitch > self.tiles.row_length:
            row = self.b.inst("UDiv", "i32", at, self.i32(self.tiles.row_length))
            skipped = self.b.inst("IMul", "i32", row, self.i32(self.pitch - self.tiles.row_length))
            at = self.b.inst("IAdd", "i32", at, skipped)
        self.wide[slot].set(at, value)

    def join(self, e: Emitter, slot: int, partial: Partial) -> None:
        raise AssertionError("rows are folded from the terms of their lanes")

    def fold(self, tile: Tile) -> None:
        """Each reduction's element of every row of the tile."""
        b, rows, parts = self.b, self.tiles.size // self.tiles.row_length, self.tiles.parts
        present = b.inst("UDiv", "i32", tile.count, self.i32(self.tiles.row_length))
        first_row = b.inst("UDiv", "i64", tile.column, b.const("i64", self.tiles.row_length))
        b.barrier()
        for first in range(0, rows * parts, b.group):
            place = b.inst("IAdd", "i32", self.own, self.i32(first))
            inside = b.inst("ULessThan", "bool", place, b.inst("IMul", "i32", present, self.i32(parts)))
            self.e.when(inside, partial(self._parts, place))
        b.barrier()
        for first in range(0, rows, b.group):
            row = b.inst("IAdd", "i32", self.own, self.i32(first))
            inside = b.inst("ULessThan", "bool", row, present)
            self.e.when(inside, partial(self._row, row, first_row))

    def _parts(self, place: Val) -> None:
        """Every `parts`-th element of a row, from the one that `place` stands for on."""
        b, parts, length = self.b, self.tiles.parts, self.tiles.row_length
        row = b.inst("UDiv", "i32", place, self.i32(parts))
        column = b.inst("ISub", "i32", place, b.inst("IMul", "i32", row, self.i32(parts)))
        start = b.inst("IAdd", "i32", b.inst("IMul", "i32", row, self.i32(self.pitch)), column)
        for r, source, target in zip(self.e.kernel.reductions, self.wide, self.narrow, strict=True):
            neutral = nothing(self.e, r)[0]
            total = of_term(self.e, r, source.get(start))
            for step in range(parts, length, parts):
                at = b.inst("IAdd", "i32", start, self.i32(step))
                if step + parts <= length:
                    value = source.get(at)
                else:
                    inside = b.inst("ULessThan", "bool", column, self.i32(length - step))
                    value = self.e.select(inside, source.get(self.e.select(inside, at, start)), neutral)
                total = with_term(self.e, r, total, value)
            target.set(place, total)

    def _row(self, row: Val, first_row: Val) -> None:
        b, parts = self.b, self.tiles.parts
        start = b.inst("IMul", "i32", row, self.i32(parts))
        index = b.inst("IAdd", "i64", first_row, self.e.resize(row, "i64", signed=False))
        for r, source in zip(self.e.kernel.reductions, self.narrow, strict=True):
            total = source.get(start)
            for part in range(1, parts):
                total = combined(self.e, r, total, source.get(b.inst("IAdd", "i32", start, self.i32(part))))
            value = number(self.e, r, total)
            if r.param in self.e.arrays:
                self.e.arrays[r.param].set(b.inst("IMul", "i32", row, self.i32(self.tiles.row_length)), value)
                continue
            stored = to_memory(self.e, value, r.dtype)
            b.store(self.e.at(self.e.table.params[r.param], index, SIZE[stored.type]), stored)
