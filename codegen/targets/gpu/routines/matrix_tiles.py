"""Matrices and matrix units: rows in registers, and rows in memory of the workgroup.

A warp has 16 rows of a matrix, or some times 16, as the left factors of its products (`MatrixUnits`), and sums of such
products. The right factors are rows that the workgroup copies to its memory, one block after the other, where a row
begins 16 bytes after the end of the one before: eight of them lie in different banks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, ClassVar, Final, NamedTuple

from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES, WARP, MatrixUnits, Val, Variable
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.routines.group_code import GroupCode

SIDE: Final = 16  # rows of the left factor of a product

Sums = list[list[Val]]  # of each 8 columns the four of an invocation
LeftRows = Callable[[int], Any]  # 16 rows as left factors: of a product, by its number, four words (or where they are)


class MatrixRows(NamedTuple):
    """Rows in memory, one after the other from `base` (i64) on."""

    base: Val
    total: int
    width: int


class HeldRows(NamedTuple):
    """Rows of a block in memory of the workgroup, with zeros up to a multiple of `depth` elements; the first begins at
    `start`, one `pitch` elements after the other."""

    array: Variable
    width: int
    pitch: int
    start: Val


class BlockPart(NamedTuple):
    """So many `lines` of a block of `block` rows, from number `first` (i32) of the matrix and `line` of the block on.
    Where a block begins, at a multiple of its rows, the matrix hasn't ended; a part of it may lie beyond the end."""

    first: Val
    line: Val
    lines: int
    block: int


class Depth(NamedTuple):
    """Elements of a type of `bytes` that a product of matrix units adds up, in two chunks of 16 bytes."""

    bytes: int

    @property
    def chunk(self) -> int:
        return VECTOR_BYTES // self.bytes

    @property
    def elements(self) -> int:
        return 2 * self.chunk

    def padded(self, width: int) -> int:
        return -(-width // self.elements) * self.elements

    def held_elements(self, block: int, width: int) -> int:
        """For a block of rows in memory of the workgroup."""
        return block * (self.padded(width) + self.chunk)

    def held_bytes(self, block: int, width: int) -> int:
        return self.bytes * self.held_elements(block, width)


@dataclass(slots=True)
class RowVariables:
    """Sums in variables, so that loops can change them: of each 16 rows, of each 8 columns, four."""

    values: list[list[list[Variable]]]


class MatrixCode(GroupCode):
    """Instructions of one invocation, number `lane` of warp number `warp`. It has, of 16 rows, number `row` and the one
    8 after it, and of sums the columns from `column` on, in pairs; of left factors those from `lead` on, one word of
    each chunk. Elements are of a type of `depth.bytes`, which memory of the workgroup calls `element`, and products
    `type`."""

    depth: ClassVar[Depth]
    element: ClassVar[str]
    type: str
    lead: Val

    def __init__(self, e: Emitter) -> None:
        super().__init__(e)
        units = e.b.matrix_units
        assert units is not None, "a target without matrix units has no such programs"
        self.units: MatrixUnits = units
        self.warp, self.lane = self.divided(self.own, WARP)
        self.row, self.quarter = self.divided(self.lane, 4)
        self.column = self.times(self.quarter, 2)
        self.zero = self.b.const("f32", 0.0)

    @abstractmethod
    def left_factor(self, words: Sequence[Val]) -> Any:
        """What a product takes for a left factor, of four words."""

    @abstractmethod
    def right_factor(self, words: Sequence[Val]) -> Any:
        """Of two words."""

    @abstractmethod
    def begun(self) -> Any:
        """Sums of no products, 16 x 8."""

    @abstractmethod
    def product(self, left: Any, right: Any, sums: Any) -> Any:
        """sums + left @ right."""

    def right_pair(self, words: Sequence[Val]) -> Any:
        """Two right factors that are side by side, of four words."""
        return [self.right_factor(words[:2]), self.right_factor(words[2:])]

    def pair_product(self, left: Any, pair: Any, sums: Sequence[Any]) -> Sequence[Any]:
        """Of both."""
        return [self.product(left, right, own) for right, own in zip(pair, sums, strict=True)]

    @abstractmethod
    def summed(self, sums: Any) -> list[Val]:
        """An invocation's four."""

    @abstractmethod
    def add_product(self, totals: RowVariables, left: Sequence[Sums], held: HeldRows) -> None:
        """totals + left @ held, of each of the tiles."""

    @abstractmethod
    def store_row(self, rows: MatrixRows, row: Val, pairs: Sequence[Sequence[Val]], factor: Val) -> None:
        """Totals of one row, of each 8 columns two, times the factor."""

    @abstractmethod
    def store_floats(self, rows: MatrixRows, row: Val, pairs: Sequence[Sequence[Val]], factor: Val) -> None:
        """As `store_row`, where rows are of float32."""

    # variables

    def variables(self, tiles: int, columns: int) -> RowVariables:
        """With zeros."""
        found = [[[self.b.local("f32") for _ in range(4)] for _ in range(columns // 8)] for _ in range(tiles)]
        for variable in [v for tile in found for eight in tile for v in eight]:
            self.b.set(variable, self.zero)
        return RowVariables(found)

    def taken(self, held: RowVariables, tile: int) -> Sums:
        return [[self.b.get(v, "f32") for v in eight] for eight in held.values[tile]]

    def put(self, held: RowVariables, tile: int, sums: Sums) -> None:
        for eight, values in zip(held.values[tile], sums, strict=True):
            for variable, value in zip(eight, values, strict=True):
                self.b.set(variable, value)

    # float arithmetic

    def f32(self, value: float) -> Val:
        return self.b.const("f32", value)

    def sum(self, x: Val, y: Val) -> Val:
        return self.b.exact("FAdd", "f32", x, y)

    def less(self, x: Val, y: Val) -> Val:
        return self.b.exact("FSub", "f32", x, y)

    def scaled(self, x: Val, y: Val) -> Val:
        return self.b.exact("FMul", "f32", x, y)

    def fma(self, x: Val, y: Val, z: Val) -> Val:
        return self.b.extended("Fma", "f32", x, y, z)

    def over_columns(self, x: Val, how: str) -> Val:
        """Folded over the four invocations that have columns of the same rows."""
        for distance in (1, 2):
            other = self.b.across(x, distance)
            x = self.units.larger(x, other) if how == "max" else self.sum(x, other)
        return x

    def below(self, x: Val, most: int) -> Val:
        """x (i32), or the last number below `most`."""
        return self.e.select(self.test("SLessThan", x, most), x, self.i32(most - 1))

    # rows in registers

    def own_rows(self, rows: MatrixRows, first: Val) -> LeftRows:
        """16 rows from `first` (i32) on, in registers. Rows beyond the end are the last."""
        places = []
        for further in (0, 8):
            row = self.below(self.plus(self.plus(first, self.row), further), rows.total)
            places.append(self.plus(self.op("IMul", row, rows.width), self.lead))
        nothing = [self.i32(0)] * 2
        found = []
        for k in range(0, self.depth.padded(rows.width), self.depth.elements):
            chunks = (k, k + self.depth.chunk)
            words = [self._words(rows, places, at) if at < rows.width else nothing for at in chunks]
            found.append([*words[0], *words[1]])
        return found.__getitem__

    def _words(self, rows: MatrixRows, places: Sequence[Val], further: int) -> list[Val]:
        addresses = [self.at(rows.base, self.plus(place, further), self.depth.bytes) for place in places]
        return [self.b.load(address, "i32", True) for address in addresses]

    def store_rows(
        self, rows: MatrixRows, first: Val, sums: Sums, factors: Sequence[Val], floats: bool = False
    ) -> None:
        """Totals of 16 rows from `first` on, of which each is multiplied by its factor (of a row and of that 8 on); as
        float32 where rows are `floats`."""
        store = self.store_floats if floats else self.store_row
        for half, factor in enumerate(factors):
            row = self.plus(self.plus(first, self.row), 8 * half)
            inside = self.test("SLessThan", row, rows.total)
            self.e.when(inside, partial(store, rows, row, [s[2 * half : 2 * half + 2] for s in sums], factor))

    # rows in memory of the workgroup

    def copies(self, there: Val, begin: Callable[[], None]) -> None:
        """begin() copies, where they are `there`."""
        self.units.copies(there, begin, self.e.when)

    def copied(self) -> None:
        """What was begun is there, for this invocation; for others after a barrier."""
        self.units.copied()

    def block_by_block(self, blocks: int, copy: Callable[[Val], None], work: Callable[[Val, Val], None]) -> None:
        """Work on every block, of which the first is being copied; the one behind it, whose number `work` gets second,
        is copied meanwhile."""

        def step(number: Val) -> None:
            self.copied()
            self.b.barrier()
            more = self.plus(number, 1)
            self.copies(self.test("SLessThan", more, blocks), lambda: copy(more))
            work(number, more)

        counted(self.e, self.i32(blocks), step)

    def held(self, block: int, width: int) -> HeldRows:
        return self.held_twice(block, width, 1)(self.i32(0))

    def held_twice(self, block: int, width: int, blocks: int = 2) -> Callable[[Val], HeldRows]:
        """Memory for two blocks; gives one of them by a number (i32)."""
        size, padded = self.depth.held_elements(block, width), self.depth.padded(width)
        array = self.units.memory(self.element, blocks * size)
        pitch = padded + self.depth.chunk

        def of(number: Val) -> HeldRows:
            start = self.op("IMul", self.divided(number, 2)[1], size) if blocks > 1 else self.i32(0)
            return HeldRows(array, padded, pitch, start)

        return of

    def copy_block(self, held: HeldRows, rows: MatrixRows, first: Val, block: int) -> None:
        """Begin to copy so many rows from `first` (i32), a multiple of that, on; zeros beyond the end."""
        self.copy_lines(held, rows, BlockPart(first, self.i32(0), block, block), (self.own, self.group))

    def copy_lines(self, held: HeldRows, rows: MatrixRows, part: BlockPart, member: tuple[Val, int]) -> None:
        """As `copy_block`, of part of a block; the copies are shared out among so many invocations, of which this one
        is a `member`. Each copies the same chunk of rows that are as far apart, so that one address is enough; those
        that are too few for another row copy none."""
        chunks, (own, members) = held.width // self.depth.chunk, member
        if members < chunks:
            self.turns_of(own, members, part.lines * chunks, partial(self._copy_chunk, held, rows, part, chunks))
            return
        copy = partial(self._copy_column, held, rows, part, self.divided(own, chunks), members // chunks)
        if members % chunks:
            self.e.when(self.test("ULessThan", own, members // chunks * chunks), copy)
        else:
            copy()

    def _copy_column(
        self, held: HeldRows, rows: MatrixRows, part: BlockPart, place: tuple[Val, Val], apart: int
    ) -> None:
        """One chunk of rows that are so far `apart`, from a `place` on: a row and the chunk."""
        further, chunk = place
        row, line = (self.plus(x, further) for x in (part.first, part.line))
        column = self.times(chunk, self.depth.chunk)
        source = self._address_in(rows, row, column)
        for start in range(0, part.lines, apart):
            behind = self.e.offset(source, start * rows.width * self.depth.bytes)
            valid = self._valid(held, rows, self.plus(row, start), column, part.block)
            copy = partial(self._copy, held, self.cell(held, self.plus(line, start), column), rows, behind, valid)
            if start + apart <= part.lines:
                copy()
            else:
                self.e.when(self.test("ULessThan", further, part.lines - start), copy)

    def _copy_chunk(self, held: HeldRows, rows: MatrixRows, part: BlockPart, chunks: int, number: Val) -> None:
        further, chunk = self.divided(number, chunks)
        row, line = (self.plus(x, further) for x in (part.first, part.line))
        column = self.times(chunk, self.depth.chunk)
        valid = self._valid(held, rows, row, column, part.block)
        self._copy(held, self.cell(held, line, column), rows, self._address_in(rows, row, column), valid)

    def _address_in(self, rows: MatrixRows, row: Val, column: Val) -> Val:
        return self.at(rows.base, self.plus(self.op("IMul", row, rows.width), column), self.depth.bytes)

    def _valid(self, held: HeldRows, rows: MatrixRows, row: Val, column: Val, block: int) -> Val | None:
        """Whether there is such an element of a block of so many rows; None: there always is."""
        tests = [self.test("SLessThan", column, rows.width)] if rows.width < held.width else []
        if rows.total % block:
            tests.append(self.test("SLessThan", row, rows.total))
        return reduce(lambda x, y: self.b.inst("LogicalAnd", "bool", x, y), tests) if tests else None

    def _copy(self, held: HeldRows, cell: Val, rows: MatrixRows, source: Val, valid: Val | None) -> None:
        if valid is not None:
            source = self.e.select(valid, source, rows.base)
        self.units.copy(held.array, cell, self.element, source, self.b.const("bool", True) if valid is None else valid)

    def cell(self, held: HeldRows, line: Val, column: Val) -> Val:
        return self.plus(self.plus(self.op("IMul", line, held.pitch), column), held.start)

    def tile_rows(self, held: HeldRows, tiles: int) -> list[LeftRows]:
        """This warp's rows of a block, 16 for each of the tiles."""
        first = self.times(self.warp, SIDE * tiles)
        return [self.left_rows(held, self.plus(first, SIDE * tile)) for tile in range(tiles)]

    def left_rows(self, held: HeldRows, first: Val) -> LeftRows:
        """16 rows of a block from `first` (i32) on, read when they are used."""
        words = self.units.blocks(held.array, self.cell(held, first, self.i32(0)), held.pitch, self.type, False, False)
        return lambda k: words(k * self.depth.elements)

    def right_blocks(self, held: HeldRows, turned: bool = False) -> Callable[[int], list[Val]]:
        """Pairs of right factors from a block."""
        return self.units.blocks(held.array, held.start, held.pitch, self.type, True, turned)

    def times_held(self, left: Sequence[LeftRows], held: HeldRows, block: int) -> list[Sums]:
        """left @ held.T of each of the tiles: `block` columns."""
        found = [[self.begun() for _ in range(block // 8)] for _ in left]
        words = self.right_blocks(held)
        for k in range(held.width // self.depth.elements):
            factors = [self.left_factor(rows(k)) for rows in left]
            for n in range(block // SIDE):
                right = self.right_pair(words(n * SIDE * held.pitch + k * self.depth.elements))
                for factor, sums in zip(factors, found, strict=True):
                    sums[2 * n : 2 * n + 2] = self.pair_product(factor, right, sums[2 * n : 2 * n + 2])
        return [[self.summed(eight) for eight in sums] for sums in found]
