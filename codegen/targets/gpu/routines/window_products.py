"""Convolutions by matrix units, without storing windows: a product of the kernel's rows and the windows' columns, each
gathered into memory of the workgroup when it is its turn (Chetlur et al., "cuDNN: Efficient Primitives for Deep
Learning", 2014). A workgroup has some results at 32 places for each of its warps; elements of windows come in blocks,
and the next block is copied while one is worked on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from math import prod
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from loopgrad.codegen.options import FULL_PRECISION
from loopgrad.codegen.targets.gpu.assembler import WARP, Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.routines.float_tiles import FloatMatrices
from loopgrad.codegen.targets.gpu.routines.matrix_tiles import SIDE, HeldRows, MatrixCode, RowVariables
from loopgrad.codegen.targets.gpu.routines.routine import Array, Provider, Routine, Workgroups
from loopgrad.codegen.targets.gpu.routines.split_floats import float_matrices
from loopgrad.graph.primitives.window_products import RANK
from loopgrad.graph.types import bfloat16, float16, float32

FACTORS: Final = {bfloat16: "b16", float16: "f16", float32: "tf32"}
WARPS: Final = 4
BLOCK: Final = 32  # elements of windows
ACROSS: Final = 32  # places of a warp, which an invocation reads in fours
TALL: Final = 4  # times 16 results
FEW: Final = 264  # workgroups: two for each of the multiprocessors of a large GPU
RESIDENT: Final = 2
PITCH: Final = 8  # elements between rows of places: four rows of eight places lie in different banks
WORD: Final = 4
OFFSET: Final = 4  # bytes of an offset

Kind = TypeVar("Kind", bound="WindowProducts")


@dataclass(frozen=True, slots=True)
class WindowProducts:
    """Arrays: x with its borders, the kernel by rows of a multiple of four elements, where each element of a window
    lies behind the window's first (i32), and the results. `full`: with all digits of float32."""

    batch: int
    groups: int
    results: int
    extents: tuple[int, ...]
    places: tuple[int, ...]
    strides: tuple[int, ...]
    channels: int
    depth: int
    row: int
    full: bool
    warps: int
    tiles: int

    @property
    def rows(self) -> int:
        return self.tiles * SIDE

    @property
    def row_blocks(self) -> int:
        return -(-self.results // self.rows)

    @property
    def columns(self) -> int:
        return self.warps * ACROSS

    @property
    def all_places(self) -> int:
        return self.batch * prod(self.places)

    @property
    def count(self) -> int:
        return self.row_blocks * self.groups * -(-self.all_places // self.columns)

    @property
    def block(self) -> int:
        """Elements of windows that are worked on together."""
        return BLOCK

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return WORD

    @property
    def blocks(self) -> int:
        return -(-self.depth // self.block)

    @property
    def kernel_elements(self) -> int:
        """Of a group."""
        return self.results * self.row

    @property
    def pitches(self) -> tuple[int, int]:
        """Of rows of the kernel, and of the windows."""
        return BLOCK + FloatMatrices.depth.chunk, self.columns + PITCH

    @property
    def memory(self) -> int:
        kernel, windows = self.pitches
        return 2 * WORD * (self.rows * kernel + BLOCK * windows)

    def of_kind(self, kind: type[Kind], **changed: Any) -> Kind:
        """The same convolution, done another way."""
        return kind(**{**{f.name: getattr(self, f.name) for f in fields(WindowProducts)}, **changed})

    def emit(self, e: Emitter, tile: Val) -> None:
        _ResultTile(e, self, tile).emit()


class Blocks(NamedTuple):
    """Of the kernel and of windows, in memory of the workgroup."""

    kernel: HeldRows
    windows: HeldRows


class WindowTile(ABC):
    """One tile of a convolution, whoever multiplies: where its windows and results are."""

    def __init__(self, e: Emitter, program: WindowProducts, tile: Val) -> None:
        self.e, self.b, self.p = e, e.b, program
        self.code = c = self.make_code()
        self.x, kernel, self.offsets, self.result = list(e.table.params)[:4]
        rest, row_block = c.divided(tile, program.row_blocks)
        column_block, self.group = c.divided(rest, program.groups)
        self.first_row = e.resize(c.op("IMul", row_block, program.rows), "i32")
        self.first_column = c.op("IMul", column_block, program.columns)
        self.kernel = e.at(kernel, c.op("IMul", self.group, program.kernel_elements), program.size)

    @abstractmethod
    def make_code(self) -> MatrixCode:
        """What it is written with."""

    def _split(self, column: Val) -> tuple[Val, Val]:
        """Which of the batch, and which of its places."""
        return self.code.divided(column, prod(self.p.places))

    def window(self, column: Val) -> Val:
        """Where the window's first element is (i64); of the first one where there is no such place."""
        c, p = self.code, self.p
        inside = c.test("SLessThan", column, p.all_places)
        number, place = self._split(self.e.select(inside, column, self.b.const("i64", 0)))
        start = c.op("IMul", number, p.groups * p.channels * prod(p.extents))
        start = c.op("IAdd", start, c.op("IMul", self.group, p.channels * prod(p.extents)))
        for d in reversed(range(len(p.places))):
            place, own = c.divided(place, p.places[d])
            start = c.op("IAdd", start, c.op("IMul", own, p.strides[d] * prod(p.extents[d + 1 :])))
        return self.e.at(self.x, start, p.size)

    def offsets_at(self, number: Val) -> list[Val]:
        """Of four elements of windows from this one on."""
        return self.b.load_vector(self.code.at(self.offsets, number, OFFSET), "i32", 4, True)

    def copy_windows(self, windows: HeldRows, first: Val, of: tuple[Val, Val], begin: Val, count: int) -> None:
        """Begin to copy so many elements of the block from `begin` on, of one window: where it is, and its place in
        the tile."""
        c, p, (start, place) = self.code, self.p, of
        for k in range(0, count, 4):
            line = c.plus(begin, k)
            number = c.plus(first, line)
            for i, offset in enumerate(self.offsets_at(number)):
                there = self.present(c.plus(number, i))
                source = c.at(start, offset, p.size)
                c.units.copy(windows.array, c.cell(windows, c.plus(line, i), place), "i32", source, there, p.size)

    def present(self, number: Val) -> Val:
        """Whether windows have such an element, so that others are zeros. (Where there is no place another one's
        window is read.)"""
        known = self.p.depth % self.p.block == 0
        return self.b.const("bool", True) if known else self.code.test("SLessThan", number, self.p.depth)

    def store_places(self, row: Val, column: Val, values: Sequence[Val]) -> None:
        c, p = self.code, self.p
        whole = prod(p.places) % len(values) == 0
        for n, value in enumerate(values[:1] if whole else values):
            at = c.op("IAdd", column, n)
            inside = c.test("SLessThan", at, p.all_places)
            self.e.when(inside, partial(self._store_one, row, at, values if whole else [value]))

    def _store_one(self, row: Val, column: Val, values: Sequence[Val]) -> None:
        c, p = self.code, self.p
        number, place = self._split(column)
        line = c.op("IAdd", c.op("IMul", number, p.groups), self.group)
        line = c.op("IAdd", c.op("IMul", line, p.results), self.e.resize(row, "i64"))
        address = self.e.at(self.result, c.op("IAdd", c.op("IMul", line, prod(p.places)), place), p.size)
        if len(values) > 1:
            self.b.store_vector(address, values)
        else:
            self.b.store(address, values[0])


class _ResultTile(WindowTile):
    """The program of a tile whose rows are results."""

    code: FloatMatrices

    def make_code(self) -> FloatMatrices:
        return float_matrices(self.e, self.p.full)

    def emit(self) -> None:
        c, p = self.code, self.p
        self.b.barrier()  # the blocks of the tile before are still read
        sizes = [p.rows * p.pitches[0], BLOCK * p.pitches[1]]
        arrays = [c.units.memory("i32", 2 * size) for size in sizes]

        def held(number: Val) -> Blocks:
            turn = c.divided(number, 2)[1]
            kernel, windows = (
                HeldRows(array, BLOCK, pitch, c.op("IMul", turn, size))
                for array, pitch, size in zip(arrays, p.pitches, sizes, strict=True)
            )
            return Blocks(kernel, windows)

        totals = c.variables(p.tiles, ACROSS)
        start = self.window(c.op("IAdd", self.first_column, self.e.resize(c.own, "i64")))
        copy = partial(self._copy, held, start)
        copy(c.i32(0))
        c.block_by_block(p.blocks, copy, lambda number, _: self._multiply(totals, held(number)))
        self._store(totals)

    def _copy(self, held: Callable[[Val], Blocks], start: Val, number: Val) -> None:
        """Begin to copy a block: of each invocation one place of the windows, and its turns of the kernel's chunks."""
        c, p = self.code, self.p
        kernel, windows = held(number)
        first = c.times(number, BLOCK)
        self.copy_windows(windows, first, (start, c.own), c.i32(0), BLOCK)
        c.each(p.rows * BLOCK // 4, partial(self._copy_chunk, kernel, first))

    def _copy_chunk(self, kernel: HeldRows, first: Val, number: Val) -> None:
        c, p = self.code, self.p
        line, chunk = c.divided(number, BLOCK // 4)
        row, column = c.plus(self.first_row, line), c.plus(first, c.times(chunk, 4))
        valid = c.test("SLessThan", row, p.results)
        if p.row % BLOCK:
            valid = self.b.inst("LogicalAnd", "bool", valid, c.test("SLessThan", column, p.row))
        place = self.e.select(valid, c.plus(c.op("IMul", row, p.row), column), c.i32(0))
        target = c.cell(kernel, line, c.times(chunk, 4))
        c.units.copy(kernel.array, target, "i32", c.at(self.kernel, place, WORD), valid)

    def _multiply(self, totals: RowVariables, blocks: Blocks) -> None:
        c, p, (kernel, windows) = self.code, self.p, blocks
        left = [c.left_rows(kernel, c.i32(SIDE * tile)) for tile in range(p.tiles)]
        sums = [[c.begun() for _ in range(ACROSS // 8)] for _ in left]
        column = c.plus(c.times(c.warp, ACROSS), c.times(c.row, ACROSS // 8))
        for k in range(BLOCK // 8):
            lines = [c.plus(c.quarter, 8 * k + i) for i in (0, 4)]
            words = [c.several(windows, c.cell(windows, line, column), ACROSS // 8) for line in lines]
            rights = c.rights(words)
            for rows, own in zip(left, sums, strict=True):
                c.add_all(c.left_factor(rows(k)), rights, own)
        for tile, own in enumerate(sums):
            pairs = zip(c.taken(totals, tile), map(c.summed, own), strict=True)
            c.put(totals, tile, [[c.sum(x, y) for x, y in zip(*pair, strict=True)] for pair in pairs])

    def _store(self, totals: RowVariables) -> None:
        """Of each invocation's results those of four places that are neighbours."""
        c, p = self.code, self.p
        column = c.plus(c.times(c.warp, ACROSS), c.times(c.quarter, 8))
        for half in (0, 1):
            at = c.op("IAdd", self.first_column, self.e.resize(c.plus(column, 4 * half), "i64"))
            for tile in range(p.tiles):
                sums = c.taken(totals, tile)
                for lower in (0, 1):
                    row = c.plus(c.plus(self.first_row, c.row), SIDE * tile + 8 * lower)
                    values = [eight[2 * lower + half] for eight in sums]
                    there = c.test("SLessThan", row, p.results)
                    self.e.when(there, partial(self.store_places, row, at, values))


def program_of(routine: Routine) -> WindowProducts:
    x, kernel = [a.type.shape for a in routine.inputs]
    (out,) = [a.type.shape for a in routine.outputs]
    groups, results, row = kernel
    if routine.attrs["channels_last"]:
        x = (x[0], x[-1], *x[1:-1])
    channels, window = x[1] // groups, numbers(routine, "window")
    warps, tiles = max(min(WARPS, routine.geometry.group // WARP), 1), min(TALL, -(-results // SIDE))
    full, depth = routine.attrs["precision"] == FULL_PRECISION, channels * prod(window)
    sizes = (x[2:], out[2:], numbers(routine, "strides"))
    program = WindowProducts(x[0], groups, results, *sizes, channels, depth, row, full, warps, tiles)
    short = program.count < FEW and tiles > TALL // 2
    return replace(program, tiles=TALL // 2) if short else program


def numbers(routine: Routine, name: str) -> tuple[int, ...]:
    found = routine.attrs[name]
    assert isinstance(found, tuple)
    return found


def offsets(program: WindowProducts, routine: Routine, count: int = 0) -> Array:
    """Of each element of a window, in elements behind its first; so many, or as many as whole blocks have."""
    window, dilation = numbers(routine, "window"), numbers(routine, "dilation")
    steps = [prod(program.extents), *[n * prod(program.extents[d + 1 :]) for d, n in enumerate(dilation)]]
    index = np.indices((program.channels, *window)).reshape(len(steps), -1)
    found = np.zeros(count or program.blocks * program.block, np.int32)
    found[: program.depth] = np.tensordot(steps, index, 1)
    return routine.constant(found)


def _refuses(routine: Routine) -> str:
    return refusal(routine, program_of)


def refusal(routine: Routine, of: Callable[[Routine], WindowProducts], beside: bool = False) -> str:
    """`beside`: it takes channels that lie side by side."""
    dtype = routine.inputs[0].type.dtype
    if routine.attrs["channels_last"] and not beside:
        return "channels side by side"
    if FACTORS[dtype] not in routine.geometry.unit_types:
        return f"there are no matrix units for {dtype}"
    if len(routine.inputs[1].type.shape) > RANK:
        return "several convolutions"
    needed = of(routine).memory
    return "" if needed <= routine.asked_memory else f"blocks of windows take {needed} bytes of a workgroup"


def _make(routine: Routine) -> None:
    program = program_of(routine)
    arrays = (*routine.inputs, offsets(program, routine), *routine.outputs)
    needs = Workgroups(program.warps * WARP, RESIDENT, program.memory, matrix_units=True)
    routine.by_groups("convolution", program, program.count, *arrays, needs=needs)


PROVIDER: Final = Provider("windows by matrix units", _refuses, _make)
