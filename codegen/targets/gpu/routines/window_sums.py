"""Convolutions of 16-bit floats at few places, as derivatives by kernels are, by matrix units of warpgroups, without
storing windows: elements of windows are the terms of a product, images and places of the convolution that is derived.

    out[slice, o, place, n] = sum of kernel[o, k] * x[window element k at that place, n], k in the slice

A workgroup has some results at one place for some of the batch, and adds up the terms of one slice. Right factors are
rows of x as it lies, with the batch side by side: chunks of 16 bytes, copied to memory of the workgroup beside the
products. `channel_windows` is for many places.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import WARP, WARPGROUP, PanelProduct, Panels, ProductChain, Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.routines.attention import TYPES
from loopgrad.codegen.targets.gpu.routines.matrix_tiles import SIDE, HeldRows, MatrixRows, RowVariables
from loopgrad.codegen.targets.gpu.routines.panel_tiles import PANEL, PanelMatrices
from loopgrad.codegen.targets.gpu.routines.routine import Provider, Routine, Workgroups
from loopgrad.codegen.targets.gpu.routines.window_products import numbers
from loopgrad.graph.primitives.window_products import SUMS_RANK

SIZE: Final = 2  # bytes of an element
CHUNK: Final = 8  # elements that are copied at once
FLOAT: Final = 4  # bytes of a sum
WARPS: Final = 2 * WARPGROUP
ROWS: Final = WARPS * SIDE  # results of a workgroup
ACROSS: Final = 128  # of the batch
RESIDENT: Final = 2


@dataclass(frozen=True, slots=True)
class WindowSums:
    """Arrays: x, of each place its `batch`; the kernel; the sums. `terms`: elements of a window, `row` those of a row
    of the kernel, with zeros behind them."""

    results: int
    batch: int
    extents: tuple[int, ...]
    window: tuple[int, ...]
    places: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    terms: int
    row: int
    slices: int
    type: str

    @property
    def row_blocks(self) -> int:
        return -(-self.results // ROWS)

    @property
    def column_blocks(self) -> int:
        return -(-self.batch // ACROSS)

    @property
    def count(self) -> int:
        return self.slices * self.row_blocks * prod(self.places) * self.column_blocks

    @property
    def blocks(self) -> int:
        """Of a slice."""
        return self.row // self.slices // PANEL

    @property
    def memory(self) -> int:
        return 2 * PanelMatrices.depth.held_bytes(ROWS + ACROSS, PANEL)

    def emit(self, e: Emitter, tile: Val) -> None:
        _SumTile(e, self, tile).emit()


class _SumTile:
    """The program of one tile: of each warp 16 results, for all of the batch that the workgroup has."""

    def __init__(self, e: Emitter, program: WindowSums, tile: Val) -> None:
        self.e, self.b, self.p = e, e.b, program
        self.code = c = PanelMatrices(e, program.type)
        x, self.kernel, self.sums = list(e.table.params)[:3]
        rest, column_block = c.divided(tile, program.column_blocks)
        rest, self.place = c.divided(rest, prod(program.places))
        self.slice, row_block = c.divided(rest, program.row_blocks)
        self.first_row = e.resize(c.op("IMul", row_block, ROWS), "i32")
        self.first_column = c.op("IMul", column_block, ACROSS)
        self.x = e.at(x, c.op("IAdd", self._first(), self.first_column), SIZE)

    def _first(self) -> Val:
        """Where windows at the place begin, in elements."""
        c, p, place, start = self.code, self.p, self.place, self.b.const("i64", 0)
        for d in reversed(range(len(p.places))):
            place, own = c.divided(place, p.places[d])
            start = c.op("IAdd", start, c.op("IMul", own, p.strides[d] * prod(p.extents[d + 1 :]) * p.batch))
        return start

    def emit(self) -> None:
        c, p = self.code, self.p
        self.b.barrier()  # the blocks of the tile before are still read
        kernel, windows = c.held_twice(ROWS, PANEL), c.held_twice(PANEL, ACROSS)
        totals = c.variables(1, ACROSS)
        begin = c.op("IMul", self.slice, p.blocks)

        def copy(number: Val) -> None:
            first = c.op("IMul", c.op("IAdd", begin, c.wide(number)), PANEL)
            rows = MatrixRows(self.e.at(self.kernel, first, SIZE), p.results, p.row)
            c.copy_block(kernel(number), rows, self.first_row, ROWS)
            self._copy_windows(windows(number), first)

        copy(c.i32(0))
        c.block_by_block(p.blocks, copy, lambda number, _: self._multiply(totals, kernel(number), windows(number)))
        self._store(totals)

    def _copy_windows(self, held: HeldRows, first: Val) -> None:
        """Begin to copy the rows of a block's terms: of each invocation some chunks of one."""
        c, p = self.code, self.p
        members = c.group // PANEL
        line, chunk = c.divided(c.own, members)
        term = c.op("IAdd", first, c.wide(line))
        inside = c.test("SLessThan", term, p.terms) if p.terms < p.row else None
        source = self.e.at(self.x, self._row(term if inside is None else self.e.select(inside, term, first)), SIZE)
        for further in range(0, ACROSS // CHUNK, members):
            column = c.times(c.plus(chunk, further), CHUNK)
            valid, behind = inside, c.at(source, column, SIZE)
            if p.batch % ACROSS:
                there = c.test("SLessThan", c.op("IAdd", self.first_column, c.wide(column)), p.batch)
                behind = self.e.select(there, behind, source)
                valid = there if valid is None else self.e.both(valid, there)
            whole = self.b.const("bool", True) if valid is None else valid
            c.units.copy(held.array, c.cell(held, line, column), c.element, behind, whole)

    def _row(self, term: Val) -> Val:
        """Where the row of a term lies behind that of the window's first, in elements."""
        c, p = self.code, self.p
        rest, start = term, self.b.const("i64", 0)
        for d in reversed(range(len(p.window))):
            rest, own = c.divided(rest, p.window[d])
            start = c.op("IAdd", start, c.op("IMul", own, p.dilation[d] * prod(p.extents[d + 1 :]) * p.batch))
        return c.op("IAdd", start, c.op("IMul", rest, prod(p.extents) * p.batch))

    def _multiply(self, totals: RowVariables, kernel: HeldRows, windows: HeldRows) -> None:
        c = self.code
        (left,) = c.tile_rows(kernel, 1)
        before = [x for eight in c.taken(totals, 0) for x in eight]
        products = [PanelProduct(left(k), k * SIDE * PANEL) for k in range(PANEL // SIDE)]
        right = Panels(windows.array, windows.start, ACROSS, True, windows.pitch)
        (sums,) = c.products([ProductChain(before, products, right)])
        c.put(totals, 0, sums)

    def _store(self, totals: RowVariables) -> None:
        c, p = self.code, self.p
        for n, eight in enumerate(c.taken(totals, 0)):
            column = c.op("IAdd", self.first_column, c.wide(c.plus(c.column, 8 * n)))
            beside = c.test("SLessThan", column, p.batch) if p.batch % ACROSS else None
            for half in (0, 1):
                row = c.plus(c.plus(self.first_row, c.times(c.warp, SIDE)), c.plus(c.row, 8 * half))
                there = c.test("SLessThan", row, p.results)
                there = there if beside is None else self.e.both(there, beside)
                self.e.when(there, partial(self._store_pair, row, column, eight[2 * half : 2 * half + 2]))

    def _store_pair(self, row: Val, column: Val, pair: list[Val]) -> None:
        c, p = self.code, self.p
        line = c.op("IAdd", c.op("IMul", self.slice, p.results), c.wide(row))
        line = c.op("IAdd", c.op("IMul", line, prod(p.places)), self.place)
        self.b.store_vector(self.e.at(self.sums, c.op("IAdd", c.op("IMul", line, p.batch), column), FLOAT), pair)


def program_of(routine: Routine) -> WindowSums:
    x, kernel = [a.type for a in routine.inputs]
    channels, *extents, batch = x.shape
    window, slices = numbers(routine, "window"), routine.attrs["slices"]
    assert isinstance(slices, int)
    places, strides, dilation = (numbers(routine, name) for name in ("places", "strides", "dilation"))
    return WindowSums(
        kernel.shape[0], batch, tuple(extents), window, places, strides, dilation,
        channels * prod(window), kernel.shape[1], slices, TYPES[x.dtype],
    )  # fmt: skip


def _refuses(routine: Routine) -> str:
    if not routine.geometry.warpgroups:
        return "there are no matrix units of warpgroups"
    x, kernel = [a.type for a in routine.inputs]
    if len(kernel.shape) > SUMS_RANK:
        return "several convolutions"
    if x.dtype.itemsize != SIZE or x.shape[-1] % CHUNK or kernel.shape[1] % (PANEL * program_of(routine).slices):
        return "rows that aren't whole chunks of 16-bit floats"
    needed = program_of(routine).memory
    return "" if needed <= routine.asked_memory else f"blocks of windows take {needed} bytes of a workgroup"


def _make(routine: Routine) -> None:
    program = program_of(routine)
    needs = Workgroups(WARPS * WARP, RESIDENT, program.memory, matrix_units=True)
    routine.by_groups("window_sums", program, program.count, *routine.inputs, *routine.outputs, needs=needs)


PROVIDER: Final = Provider("windows at few places by matrix units of warpgroups", _refuses, _make)
