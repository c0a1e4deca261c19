"""Convolutions of 16-bit floats by matrix units: a product of windows and the kernel's rows, added up in float32.

Copies that run beside the products take no two bytes, so windows come by way of registers: those of the next block are
read before the products of one and written to memory of the workgroup behind them. A launch before brings the kernel in
the order in which its blocks are copied, with zeros behind the last element of a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KValue
from loopgrad.codegen.targets.gpu.assembler import WARP, WARPGROUP, Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.routines import window_products
from loopgrad.codegen.targets.gpu.routines.attention import TYPES
from loopgrad.codegen.targets.gpu.routines.matrix_tiles import SIDE, Depth, HeldRows, LeftRows, MatrixRows, RowVariables
from loopgrad.codegen.targets.gpu.routines.narrow_tiles import NarrowMatrices
from loopgrad.codegen.targets.gpu.routines.panel_tiles import PANEL, PanelMatrices
from loopgrad.codegen.targets.gpu.routines.routine import Provider, Routine, Workgroups
from loopgrad.codegen.targets.gpu.routines.window_products import WindowProducts, WindowTile
from loopgrad.codegen.targets.gpu.support.support_kernels import Body
from loopgrad.graph.types import DType, int64

SIZE: Final = 2  # bytes of an element
BLOCK: Final = PANEL  # elements of windows
PITCH: Final = 8  # elements between rows of places: eight rows lie in different banks
MOST: Final = 128  # results of a workgroup
WIDE: Final = 64  # of which four workgroups have registers for their sums, and warps that multiply by themselves
RESIDENT: Final = 3


@dataclass(frozen=True, slots=True)
class NarrowWindows(WindowProducts):
    """A workgroup has 16 places for each of its warps, of `across` results. `panels`: warpgroups multiply."""

    across: int = 0
    type: str = ""
    panels: bool = False

    @property
    def block(self) -> int:
        return BLOCK

    @property
    def size(self) -> int:
        return SIZE

    @property
    def kernel_elements(self) -> int:
        return self.blocks * self.results * BLOCK

    @property
    def rows(self) -> int:
        return self.across

    @property
    def columns(self) -> int:
        return self.warps * SIDE

    @property
    def element_depth(self) -> Depth:
        return PanelMatrices.depth if self.panels else NarrowMatrices.depth

    @property
    def memory(self) -> int:
        return 2 * (self.element_depth.held_bytes(self.across, BLOCK) + SIZE * BLOCK * (self.columns + PITCH))

    def emit(self, e: Emitter, tile: Val) -> None:
        _NarrowTile(e, self, tile).emit()


class _NarrowTile(WindowTile):
    """The program of one tile."""

    code: NarrowMatrices
    p: NarrowWindows

    def make_code(self) -> NarrowMatrices:
        return (PanelMatrices if self.p.panels else NarrowMatrices)(self.e, self.p.type)

    def emit(self) -> None:
        c, p = self.code, self.p
        self.b.barrier()  # the blocks of the tile before are still read
        kernel = c.held_twice(p.across, BLOCK)
        self.array = c.units.memory("i16", 2 * BLOCK * (p.columns + PITCH))
        totals = c.variables(1, p.across)
        turn, pair = c.divided(c.own, p.columns // 2)
        self.pair, self.begin = c.times(pair, 2), c.times(turn, self._each)
        first = c.op("IAdd", self.first_column, self.e.resize(self.pair, "i64"))
        self.starts = [self.window(c.op("IAdd", first, n)) for n in (0, 1)]
        self._copy(kernel(c.i32(0)), c.i32(0))
        self._write(c.i32(0), self._read(c.i32(0)))

        def work(number: Val, more: Val) -> None:
            values = self._read(c.below(more, p.blocks))
            self._multiply(totals, number, kernel(number))
            self._write(more, values)

        self.code.block_by_block(self.p.blocks, lambda more: self._copy(kernel(more), more), work)
        self._store(totals)

    @property
    def _each(self) -> int:
        """Elements of windows of an invocation."""
        return BLOCK * self.p.columns // 2 // self.code.group

    def _copy(self, kernel: HeldRows, number: Val) -> None:
        """Begin to copy a block of the kernel."""
        c, p = self.code, self.p
        base = self.e.at(self.kernel, c.op("IMul", c.wide(number), p.results * BLOCK), SIZE)
        c.copy_block(kernel, MatrixRows(base, p.results, BLOCK), self.first_row, p.across)

    def _read(self, number: Val) -> list[list[Val]]:
        """Of a block this invocation's elements of windows at two places."""
        c, found = self.code, list[list[Val]]()
        first = c.plus(c.times(number, BLOCK), self.begin)
        for k in range(0, self._each, 4):
            at = c.plus(first, k)
            for i, offset in enumerate(self.offsets_at(at)):
                there, nothing = self.present(c.plus(at, i)), self.b.const("i16", 0)
                pair = [self.b.load(c.at(start, offset, SIZE), "i16", True) for start in self.starts]
                found.append([self.e.select(there, x, nothing) for x in pair])
        return found

    def _write(self, number: Val, values: Sequence[Sequence[Val]]) -> None:
        c, start = self.code, self._start(number)
        for k, pair in enumerate(values):
            low, high = [self.b.inst("UConvert", "i32", x) for x in pair]
            word = c.op("BitwiseOr", low, c.times(high, 1 << 16))
            place = c.plus(c.plus(start, self.pair), c.op("IMul", c.plus(self.begin, k), self._pitch))
            c.units.put(self.array, c.divided(place, 2)[0], word)

    @property
    def _pitch(self) -> int:
        return self.p.columns + PITCH

    def _start(self, number: Val) -> Val:
        return self.code.op("IMul", self.code.divided(number, 2)[1], BLOCK * self._pitch)

    def _multiply(self, totals: RowVariables, number: Val, kernel: HeldRows) -> None:
        c, p = self.code, self.p
        (sums,) = c.times_held([self._places(number)], kernel, p.across)
        before = c.taken(totals, 0)
        c.put(totals, 0, [[c.sum(x, y) for x, y in zip(*pair, strict=True)] for pair in zip(before, sums, strict=True)])

    def _places(self, number: Val) -> LeftRows:
        """The windows at this warp's places as left factors."""
        c, p = self.code, self.p
        start = c.plus(self._start(number), c.times(c.warp, SIDE))
        words = c.units.blocks(self.array, start, self._pitch, p.type, False, True)
        return lambda k: words(k * SIDE * self._pitch)

    def _store(self, totals: RowVariables) -> None:
        c, p = self.code, self.p
        column = c.plus(c.times(c.warp, SIDE), c.row)
        places = [c.op("IAdd", self.first_column, self.e.resize(c.plus(column, 8 * half), "i64")) for half in (0, 1)]
        for n, eight in enumerate(c.taken(totals, 0)):
            for i in (0, 1):
                row = c.plus(c.plus(self.first_row, c.column), 8 * n + i)
                word = c.units.pair(eight[i], eight[i + 2], p.type)
                values = [word, c.op("ShiftRightLogical", word, 16)]
                there = c.test("SLessThan", row, p.results)
                self.e.when(there, partial(self._store_pair, row, places, values))

    def _store_pair(self, row: Val, places: Sequence[Val], values: Sequence[Val]) -> None:
        for at, value in zip(places, values, strict=True):
            self.store_places(row, at, [self.b.inst("UConvert", "i16", value)])


def _kernel_by_blocks(program: NarrowWindows, dtype: DType) -> Kernel:
    """Lane (group, block, result, element)."""
    lane, body, p = KValue(int64), Body(), program
    size = p.groups * p.blocks * p.results * BLOCK
    element, rest = body.integer("rem", lane, BLOCK), body.integer("div", lane, BLOCK)
    result, rest = body.integer("rem", rest, p.results), body.integer("div", rest, p.results)
    block, group = body.integer("rem", rest, p.blocks), body.integer("div", rest, p.blocks)
    column = body.add(body.integer("mul", block, BLOCK), element)
    there = body.lt(column, body.const(p.depth))
    row = body.add(body.integer("mul", group, p.results), result)
    place = body.add(body.integer("mul", row, p.row), body.select(there, column, body.const(0)))
    value = body.one("load", dtype, place, param=0)
    body.store(1, lane, body.select(there, value, body.const(0.0, dtype)))
    params = (BufferParam(dtype, p.groups * p.results * p.row, "read"), BufferParam(dtype, size, "write"))
    return Kernel("kernel_by_blocks", (size,), params, Block((lane,), body.ops))


def program_of(routine: Routine) -> NarrowWindows:
    base = window_products.program_of(routine)
    panels = routine.geometry.warpgroups
    row_blocks = -(-base.results // (MOST if panels else WIDE))
    across = -(-base.results // (SIDE * row_blocks)) * SIDE
    warps, type = WARPGROUP if panels else base.warps, TYPES[routine.inputs[0].type.dtype]
    return base.of_kind(NarrowWindows, warps=warps, tiles=1, across=across, type=type, panels=panels)


def _refuses(routine: Routine) -> str:
    if routine.inputs[0].type.dtype.itemsize != SIZE:
        return "elements of another size than 16 bits"
    return window_products.refusal(routine, program_of)


def _make(routine: Routine) -> None:
    program = program_of(routine)
    x, kernel = routine.inputs
    lanes = _kernel_by_blocks(program, kernel.type.dtype)
    rows = routine.scratch(lanes.domain[0], kernel.type.dtype)
    routine.by_lanes(lanes, lanes.domain[0], kernel, rows)
    arrays = (x, rows, window_products.offsets(program, routine), *routine.outputs)
    resident = RESIDENT if program.across > WIDE else RESIDENT + 1
    needs = Workgroups(program.warps * WARP, resident, program.memory, matrix_units=True)
    routine.by_groups("convolution", program, program.count, *arrays, needs=needs)


PROVIDER: Final = Provider("windows of 16 bits by matrix units", _refuses, _make)
