"""Fourier transforms of rows in memory of workgroups, by Stockham's algorithm, which needs no reordering.

A stage of radix r takes the numbers r places of `length / r` apart, multiplies them by twiddle factors, transforms
these few (`butterflies`) and leaves the results where the next stage finds them (N. K. Govindaraju et al., High
performance discrete Fourier transforms on graphics processors, 2008). The first stage reads the source, the last one
writes the target; what is between waits in memory of the workgroup.

Rows are those of an array, or columns, or parts of longer transforms. Of the last two neighbours lie side by side and
the numbers of one far apart: then neighbouring invocations take neighbouring rows where they read or write memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter
from loopgrad.codegen.targets.gpu.routines.butterflies import Butterflies, Number
from loopgrad.codegen.targets.gpu.routines.group_code import GroupCode

BANKS: Final = 32  # an element is skipped after so many, so that those a power of two apart lie in different banks
COARSE: Final = 1024  # powers of a root of unity between those in the table of coarse ones


class Side(NamedTuple):
    """Where numbers lie. Number `j` of row `i` of an array is at place `i * across + j * along`, counted from where the
    array begins; these are `pitch` apart. A row is a transform, or part of one whose numbers are those of the array by
    their places. Numbers of a transform from `valid` on are 0, or aren't written.

    form: "complex", "real", or "half", where numbers after the middle of `whole` are conjugates of those before.
    base: where the first array begins."""

    pitch: int
    across: int
    along: int
    valid: int
    form: str = "complex"
    whole: int = 0
    base: int = 0


@dataclass(frozen=True, slots=True)
class DftRows:
    """Transforms of `length`, the product of `radices`, of `rows` rows in each of `count` arrays, `tile_rows` rows a
    tile. `parts`: rows are parts of longer transforms. Arrays: source, target, the powers of the root of unity of
    `length`; where results are `turned`, the powers of the longer one's from 0 to COARSE - 1, and each COARSEth;
    factors for each place of the source where there are some `before`; for each of the target `after`."""

    type: str
    length: int
    radices: tuple[int, ...]
    inverse: bool
    count: int
    rows: int
    tile_rows: int
    source: Side
    target: Side
    factor: float = 1.0
    parts: bool = False
    turned: bool = False
    before: bool = False
    after: bool = False

    @property
    def per_array(self) -> int:
        """Tiles."""
        return -(-self.rows // self.tile_rows)

    @property
    def tiles(self) -> int:
        return self.count * self.per_array

    def emit(self, e: Emitter, tile: Val) -> None:
        _Stages(e, self, tile).emit()


def is_power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


def padded(numbers: int) -> int:
    """Elements of memory of a workgroup that so many take."""
    return numbers + numbers // BANKS


class _Butterfly(NamedTuple):
    """One of a stage: the row's number in the tile, its own in the row, and whether there is one (None: always)."""

    row: Val
    number: Val
    inside: Val | None


class _Stages:
    """Of one tile."""

    def __init__(self, e: Emitter, program: DftRows, tile: Val) -> None:
        self.e, self.b, self.p = e, e.b, program
        self.code = code = GroupCode(e)
        self.math = Butterflies(code, program.type, program.inverse)
        self.size = SIZE[program.type]
        array, part = code.divided(tile, program.per_array)
        self.array = array
        self.first_row = code.op("IMul", part, program.tile_rows)  # i64, of the array
        left = code.op("ISub", code.b.const("i64", program.rows), self.first_row)
        most = code.b.const("i64", program.tile_rows)
        self.rows = e.resize(e.select(code.test("SLessThan", left, most), left, most), "i32")
        params = list(e.table.params)
        self.given, self.result, self.powers = params[:3]
        rest = iter(params[3:])
        self.fine = next(rest) if program.turned else None
        self.coarse = next(rest) if program.turned else None
        self.before = next(rest) if program.before else None
        self.after = next(rest) if program.after else None
        held = padded(program.tile_rows * program.length) if len(program.radices) > 1 else 0
        self.held = [code.b.shared(program.type, held) for _ in range(2)] if held else []

    def emit(self) -> None:
        done, last = 1, len(self.p.radices) - 1
        for stage, radix in enumerate(self.p.radices):
            side = self.p.source if stage == 0 else self.p.target if stage == last else None
            places = list(self._butterflies(radix, side))
            found = []
            for place in places:
                read = self._read(place, radix) if stage == 0 else self._taken(place, radix, done)
                found.append(self.math.of(read))
            if stage:
                self.b.barrier()
            for place, numbers in zip(places, found, strict=True):
                leave = self._write if stage == last else self._put
                self._guarded(place, partial(leave, place, numbers, done))
            if stage != last:
                self.b.barrier()
            done *= radix

    def _butterflies(self, radix: int, side: Side | None) -> Iterator[_Butterfly]:
        """This invocation's of a stage."""
        c, together, each = self.code, self.p.tile_rows, self.p.length // radix
        total = together * each
        for first in range(0, total, c.group):
            number, inside = c.plus(c.own, first), None
            if first + c.group > total:
                inside = c.test("ULessThan", number, total)
                number = self.e.select(inside, number, c.i32(0))
            if side is not None and side.across < side.along:
                own, row = c.divided(number, together)
            else:
                row, own = c.divided(number, each)
            yield _Butterfly(row, own, inside)

    def _guarded(self, place: _Butterfly, then: partial[None]) -> None:
        if place.inside is None:
            then()
        else:
            self.e.when(place.inside, then)

    # memory of the workgroup

    def _cells(self, row: Val, first: Val, step: int, count: int) -> list[Val]:
        """Of `count` numbers that are `step` apart, of which the first is less than `step` behind a multiple of all
        that. What is skipped before each is then known where these are powers of two, or many."""
        c, p = self.code, self.p
        beside = p.source.across < p.source.along or p.target.across < p.target.along
        apart = step * (p.tile_rows if beside else 1)

        def cell(number: Val) -> Val:
            found = c.plus(c.times(number, p.tile_rows), row) if beside else c.plus(c.times(row, p.length), number)
            return c.plus(found, c.op("ShiftRightLogical", found, BANKS.bit_length() - 1))

        if apart % BANKS == 0 or (is_power_of_two(apart) and is_power_of_two(count)):
            near = cell(first)
            return [c.plus(near, padded(m * apart)) for m in range(count)]
        return [cell(c.plus(first, m * step)) for m in range(count)]

    def _taken(self, place: _Butterfly, radix: int, done: int) -> list[Number]:
        """The numbers of a butterfly, times their twiddle factors."""
        c, each = self.code, self.p.length // radix
        turn = c.times(c.divided(place.number, done)[1], self.p.length // (done * radix))
        found = []
        for m, cell in enumerate(self._cells(place.row, place.number, each, radix)):
            re, im = (self.b.shared_get(half, cell, self.p.type) for half in self.held)
            power = None if m == 0 else self._table(self.powers, c.times(turn, m))
            found.append((re, im) if power is None else self.math.times((re, im), power))
        return found

    def _put(self, place: _Butterfly, numbers: list[Number], done: int) -> None:
        cells = self._cells(place.row, self._first_result(place, numbers, done), done, len(numbers))
        for cell, number in zip(cells, numbers, strict=True):
            for half, value in zip(self.held, number, strict=True):
                self.b.shared_set(half, cell, value)

    def _first_result(self, place: _Butterfly, numbers: list[Number], done: int) -> Val:
        """Where the results of a butterfly go: there, and each `done` behind the one before."""
        c = self.code
        above, below = c.divided(place.number, done)
        return c.plus(c.times(above, done * len(numbers)), below)

    # arrays

    def _table(self, table: Val, index: Val) -> Number:
        return self._pair(self.code.at(table, index, 2 * self.size), invariant=True)

    def _pair(self, address: Val, invariant: bool = False) -> Number:
        real, imaginary = self.b.load_vector(address, self.p.type, 2, invariant)
        return real, imaginary

    def _base(self, array: Val, side: Side) -> Val:
        """Of the tile's first row, or of the transform of which rows are parts."""
        width = self.size if side.form == "real" else 2 * self.size
        c = self.code
        first = c.plus(c.op("IMul", self.array, side.pitch), side.base)
        if not self.p.parts:
            first = c.plus(first, c.op("IMul", self.first_row, side.across))
        return self.e.at(array, first, width)

    def _place(self, side: Side, row: Val, number: Val) -> tuple[Val, Val]:
        """Of a number of the row, counted from the base, and in its transform."""
        c = self.code
        inside = c.times(number, side.along)
        if self.p.parts:
            row = c.plus(self.e.resize(self.first_row, "i32"), row)
        place = c.plus(c.times(row, side.across), inside)
        return place, place if self.p.parts else number

    def _addresses(self, base: Val, side: Side, row: Val, first: Val, step: int, count: int) -> list[Val]:
        """Of `count` numbers that are `step` apart, as far as all of them are written or read."""
        width = self.size if side.form == "real" else 2 * self.size
        near = self.code.at(base, self._place(side, row, first)[0], width)
        return [self.e.offset(near, m * step * side.along * width) for m in range(count)]

    def _read(self, place: _Butterfly, radix: int) -> list[Number]:
        c, p, each = self.code, self.p, self.p.length // radix
        row = self.e.select(c.test("SLessThan", place.row, self.rows), place.row, c.i32(0))
        base, found = self._base(self.given, p.source), []
        for m, address in enumerate(self._addresses(base, p.source, row, place.number, each, radix)):
            found.append(self._read_one(base, row, c.plus(place.number, m * each), address))
        return found

    def _read_one(self, base: Val, row: Val, number: Val, address: Val) -> Number:
        """`address`: of the number, where there is one."""
        c, p, side = self.code, self.p, self.p.source
        place, position = self._place(side, row, number)
        zero, inside, mirrored = self.math.constant(0.0), None, None
        if side.form == "half":
            mirrored = c.test("SGreaterThan", position, side.whole // 2)
            moved = c.op("ISub", c.i32(side.whole), c.times(position, 2))
            moved = moved if p.parts else c.times(moved, side.along)
            place = self.e.select(mirrored, c.plus(place, moved), place)
        if side.valid < self._end():
            inside = c.test("SLessThan", position, side.valid)
            place = self.e.select(inside, place, c.i32(0))
        if mirrored is not None or inside is not None:
            address = c.at(base, place, self.size if side.form == "real" else 2 * self.size)
        found = (self.b.load(address, p.type), zero) if side.form == "real" else self._pair(address)
        if mirrored is not None:
            found = found[0], self.e.select(mirrored, self.math.conjugate(found)[1], found[1])
        if self.before is not None:
            index = position if inside is None else self.e.select(inside, position, c.i32(0))
            found = self.math.times(found, self._table(self.before, index))
        if inside is not None:
            found = self.e.select(inside, found[0], zero), self.e.select(inside, found[1], zero)
        return found

    def _end(self) -> int:
        """The number of places of a transform."""
        return self.p.length * (self.p.rows if self.p.parts else 1)

    def _write(self, place: _Butterfly, numbers: list[Number], done: int) -> None:
        exists = self.code.test("SLessThan", place.row, self.rows)
        self.e.when(exists, partial(self._write_row, place, numbers, done))

    def _write_row(self, place: _Butterfly, numbers: list[Number], done: int) -> None:
        side, first = self.p.target, self._first_result(place, numbers, done)
        addresses = self._addresses(self._base(self.result, side), side, place.row, first, done, len(numbers))
        for m, (address, value) in enumerate(zip(addresses, numbers, strict=True)):
            number = self.code.plus(first, m * done)
            _, position = self._place(side, place.row, number)
            store = partial(self._store, place.row, number, position, address, value)
            if side.valid < self._end():
                self.e.when(self.code.test("SLessThan", position, side.valid), store)
            else:
                store()

    def _store(self, row: Val, number: Val, position: Val, address: Val, value: Number) -> None:
        c, p, m = self.code, self.p, self.math
        if self.fine is not None and self.coarse is not None:
            turn = c.op("IMul", c.plus(self.e.resize(self.first_row, "i32"), row), number)
            above, below = c.divided(turn, COARSE)
            value = m.times(value, m.times(self._table(self.coarse, above), self._table(self.fine, below)))
        if self.after is not None:
            value = m.times(value, self._table(self.after, position))
        if p.factor != 1.0:
            value = m.scaled(value, m.constant(p.factor))
        if p.target.form == "real":
            self.b.store(address, value[0])
            return
        self.b.store_vector(address, value)
