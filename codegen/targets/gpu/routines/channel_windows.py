"""Convolutions of 16-bit floats with many channels by matrix units of warpgroups: where the channels of a place don't
lie side by side, a launch before puts them so, and windows are chunks of 16 bytes, which are copied to memory of the
workgroup beside the products (see `narrow_windows`, where windows come by way of registers). Elements of a window are
counted by place first and then by channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final

import numpy as np

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KValue
from loopgrad.codegen.targets.gpu.assembler import WARP, WARPGROUP, Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.routines import window_products
from loopgrad.codegen.targets.gpu.routines.attention import TYPES
from loopgrad.codegen.targets.gpu.routines.matrix_tiles import SIDE, HeldRows, MatrixRows, RowVariables
from loopgrad.codegen.targets.gpu.routines.panel_tiles import PANEL, PanelMatrices
from loopgrad.codegen.targets.gpu.routines.routine import Array, Provider, Routine, Workgroups
from loopgrad.codegen.targets.gpu.routines.window_products import OFFSET, WindowProducts, WindowTile
from loopgrad.codegen.targets.gpu.support.support_kernels import Body
from loopgrad.graph.primitives.window_products import MANY
from loopgrad.graph.types import DType, bool_, int64

SIZE: Final = 2  # bytes of an element
CHUNK: Final = 8  # elements that are copied at once
WARPS: Final = 2 * WARPGROUP
ROWS: Final = WARPS * SIDE  # results of a workgroup
ACROSS: Final = 128  # places of a workgroup
RESIDENT: Final = 2


@dataclass(frozen=True, slots=True)
class ChannelWindows(WindowProducts):
    """Arrays: x with its borders, of each place its channels and zeros up to a multiple of CHUNK; the kernel by blocks
    of PANEL elements, of each all results; where each chunk of a window lies behind the window's first element (i32);
    the results."""

    type: str = ""

    @property
    def rows(self) -> int:
        return ROWS

    @property
    def columns(self) -> int:
        return ACROSS

    @property
    def block(self) -> int:
        return PANEL

    @property
    def size(self) -> int:
        return SIZE

    @property
    def side(self) -> int:
        """Elements of a place."""
        return -(-self.channels // CHUNK) * CHUNK

    @property
    def window(self) -> int:
        """Places of a window."""
        return self.depth // self.channels

    @property
    def blocks(self) -> int:
        return -(-self.window * self.side // PANEL)

    @property
    def kernel_elements(self) -> int:
        return self.blocks * self.results * PANEL

    @property
    def memory(self) -> int:
        return 2 * PanelMatrices.depth.held_bytes(ROWS + ACROSS, PANEL)

    def emit(self, e: Emitter, tile: Val) -> None:
        _ChannelTile(e, self, tile).emit()


class _ChannelTile(WindowTile):
    """The program of one tile: of each warp 16 results, at all places."""

    code: PanelMatrices
    p: ChannelWindows

    def make_code(self) -> PanelMatrices:
        return PanelMatrices(self.e, self.p.type)

    def emit(self) -> None:
        c, p = self.code, self.p
        self.b.barrier()  # the blocks of the tile before are still read
        kernel, windows = (c.held_twice(lines, PANEL) for lines in (ROWS, ACROSS))
        totals = c.variables(1, ACROSS)
        self.line, self.chunk = c.divided(c.own, PANEL // CHUNK)
        self.lines = range(0, ACROSS, c.group // (PANEL // CHUNK))
        first = c.op("IAdd", self.first_column, self.e.resize(self.line, "i64"))
        self.starts = [self.window(c.op("IAdd", first, n)) for n in self.lines]

        def copy(number: Val) -> None:
            base = self.e.at(self.kernel, c.op("IMul", c.wide(number), p.results * PANEL), SIZE)
            c.copy_block(kernel(number), MatrixRows(base, p.results, PANEL), self.first_row, ROWS)
            self._copy_windows(windows(number), number)

        copy(c.i32(0))
        c.block_by_block(p.blocks, copy, lambda number, _: self._multiply(totals, kernel(number), windows(number)))
        self._store(totals)

    def window(self, column: Val) -> Val:
        c, p = self.code, self.p
        inside = c.test("SLessThan", column, p.all_places)
        number, place = self._split(self.e.select(inside, column, self.b.const("i64", 0)))
        start = c.op("IAdd", c.op("IMul", number, p.groups), self.group)
        start = c.op("IMul", start, prod(p.extents))
        for d in reversed(range(len(p.places))):
            place, own = c.divided(place, p.places[d])
            start = c.op("IAdd", start, c.op("IMul", own, p.strides[d] * prod(p.extents[d + 1 :])))
        return self.e.at(self.x, start, p.side * SIZE)

    def _copy_windows(self, held: HeldRows, number: Val) -> None:
        """Begin to copy this invocation's chunk of a block, at every so many places."""
        c, p = self.code, self.p
        chunk = c.plus(c.times(number, PANEL // CHUNK), self.chunk)
        offset = self.b.load(c.at(self.offsets, chunk, OFFSET), "i32", True)
        whole = p.window * p.side % PANEL == 0
        there = self.b.const("bool", True) if whole else c.test("SLessThan", chunk, p.window * p.side // CHUNK)
        for start, further in zip(self.starts, self.lines, strict=True):
            cell = c.cell(held, c.plus(self.line, further), c.times(self.chunk, CHUNK))
            c.units.copy(held.array, cell, c.element, c.at(start, offset, SIZE), there)

    def _multiply(self, totals: RowVariables, kernel: HeldRows, windows: HeldRows) -> None:
        c = self.code
        (left,) = c.tile_rows(kernel, 1)
        before = [x for eight in c.taken(totals, 0) for x in eight]
        (sums,) = c.products([c.scores(left, windows, ACROSS)._replace(sums=before)])
        c.put(totals, 0, sums)

    def _store(self, totals: RowVariables) -> None:
        c, p = self.code, self.p
        for n, eight in enumerate(c.taken(totals, 0)):
            column = c.plus(c.column, 8 * n)
            at = c.op("IAdd", self.first_column, self.e.resize(column, "i64"))
            for half in (0, 1):
                row = c.plus(c.plus(self.first_row, c.times(c.warp, SIDE)), c.plus(c.row, 8 * half))
                there = c.test("SLessThan", row, p.results)
                word = c.units.pair(eight[2 * half], eight[2 * half + 1], p.type)
                self.e.when(there, partial(self._store_pair, row, at, word))

    def _store_pair(self, row: Val, at: Val, word: Val) -> None:
        halves = [word, self.code.op("ShiftRightLogical", word, 16)]
        self.store_places(row, at, [self.b.inst("UConvert", "i16", half) for half in halves])


def _by_places(program: ChannelWindows, x: Array) -> Kernel:
    """Lane (matrix, place, channel): matrices are groups of the batch."""
    p, body = program, Body()
    matrices, places, dtype = p.batch * p.groups, prod(p.extents), x.type.dtype
    matrix, place, channel = arguments = tuple([KValue(int64) for _ in range(3)])
    row = body.add(body.integer("mul", matrix, p.channels), channel)
    there = None
    if p.side > p.channels:
        there = body.lt(channel, body.const(p.channels))
        row = body.select(there, row, body.const(0))
    value = body.one("load", dtype, body.add(body.integer("mul", row, places), place), param=0)
    if there is not None:
        value = body.select(there, value, body.const(0.0, dtype))
    line = body.add(body.integer("mul", matrix, places), place)
    body.store(1, body.add(body.integer("mul", line, p.side), channel), value)
    params = (BufferParam(dtype, x.type.size, "read"), BufferParam(dtype, matrices * places * p.side, "write"))
    return Kernel("by_places", (matrices, places, p.side), params, Block(arguments, body.ops))


def _put_by_places(routine: Routine, program: ChannelWindows, x: Array) -> Array:
    moved = _by_places(program, x)
    places = routine.scratch(moved.params[1].size, x.type.dtype)
    routine.by_boxes(moved, x, places)
    return places


def _kernel_by_blocks(program: ChannelWindows, dtype: DType) -> Kernel:
    """Lane (group, block, result, element)."""
    lane, body, p = KValue(int64), Body(), program
    size = p.groups * p.kernel_elements
    element, rest = body.integer("rem", lane, PANEL), body.integer("div", lane, PANEL)
    result, rest = body.integer("rem", rest, p.results), body.integer("div", rest, p.results)
    block, group = body.integer("rem", rest, p.blocks), body.integer("div", rest, p.blocks)
    element = body.add(body.integer("mul", block, PANEL), element)
    place, channel = body.integer("div", element, p.side), body.integer("rem", element, p.side)
    there = body.one("and", bool_, body.lt(place, body.const(p.window)), body.lt(channel, body.const(p.channels)))
    row = body.add(body.integer("mul", group, p.results), result)
    column = body.add(body.integer("mul", channel, p.window), place)
    source = body.add(body.integer("mul", row, p.row), body.select(there, column, body.const(0)))
    value = body.one("load", dtype, source, param=0)
    body.store(1, lane, body.select(there, value, body.const(0.0, dtype)))
    params = (BufferParam(dtype, p.groups * p.results * p.row, "read"), BufferParam(dtype, size, "write"))
    return Kernel("kernel_by_blocks", (size,), params, Block((lane,), body.ops))


def _offsets(program: ChannelWindows, routine: Routine) -> Array:
    """Of each chunk of a window."""
    p = program
    window, dilation = window_products.numbers(routine, "window"), window_products.numbers(routine, "dilation")
    steps = [n * prod(p.extents[d + 1 :]) for d, n in enumerate(dilation)]
    places = np.tensordot(steps, np.indices(window).reshape(len(steps), -1), 1) * p.side
    found = np.zeros(p.blocks * PANEL // CHUNK, np.int32)
    chunks = (places[:, None] + np.arange(0, p.side, CHUNK)).reshape(-1)
    found[: chunks.size] = chunks
    return routine.constant(found)


def program_of(routine: Routine) -> ChannelWindows:
    base = window_products.program_of(routine)
    type = TYPES[routine.inputs[0].type.dtype]
    return base.of_kind(ChannelWindows, warps=WARPS, tiles=1, type=type)


def _refuses(routine: Routine) -> str:
    if not routine.geometry.warpgroups:
        return "there are no matrix units of warpgroups"
    if routine.inputs[0].type.dtype.itemsize != SIZE:
        return "elements of another size than 16 bits"
    base = window_products.program_of(routine)
    if min(base.results, base.channels) < MANY:
        return "few channels or results"
    return window_products.refusal(routine, program_of, beside=True)


def _make(routine: Routine) -> None:
    program = program_of(routine)
    x, kernel = routine.inputs
    places = x if routine.attrs["channels_last"] else _put_by_places(routine, program, x)
    lanes = _kernel_by_blocks(program, kernel.type.dtype)
    rows = routine.scratch(lanes.domain[0], kernel.type.dtype)
    routine.by_lanes(lanes, lanes.domain[0], kernel, rows)
    arrays = (places, rows, _offsets(program, routine), *routine.outputs)
    needs = Workgroups(program.warps * WARP, RESIDENT, program.memory, matrix_units=True)
    routine.by_groups("convolution", program, program.count, *arrays, needs=needs)


PROVIDER: Final = Provider("windows of places with many channels by matrix units", _refuses, _make)
