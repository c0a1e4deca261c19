"""Convolutions by matrix units of warpgroups: the windows are left factors, from registers, and the kernel's rows right
ones, in memory of the workgroup (see `window_products`, which is for GPUs without those units).

Of numbers that are sums of two of 11 bits (`float_tiles`), the parts of windows are made when they are read. Those of
the kernel, which all workgroups read, are made once, by a launch before.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue
from loopgrad.codegen.targets.gpu.assembler import (
    PANEL_BYTES,
    PANEL_ROWS,
    WARP,
    WARPGROUP,
    PanelProduct,
    Panels,
    ProductChain,
    Val,
)
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.routines import window_products
from loopgrad.codegen.targets.gpu.routines.float_tiles import HALF, KEPT, FloatMatrices
from loopgrad.codegen.targets.gpu.routines.matrix_tiles import SIDE, HeldRows, RowVariables
from loopgrad.codegen.targets.gpu.routines.panel_tiles import PanelCode
from loopgrad.codegen.targets.gpu.routines.routine import Provider, Routine, Workgroups
from loopgrad.codegen.targets.gpu.routines.window_products import BLOCK, PITCH, WORD, WindowProducts, WindowTile
from loopgrad.codegen.targets.gpu.support.support_kernels import Body
from loopgrad.graph.types import DType, float32, int32, int64

ALL_ROWS: Final = WARPGROUP * SIDE
CHUNK: Final = 4  # elements that are copied at once
MOST: Final = 128  # results of a workgroup
WIDE: Final = 64  # of which three workgroups have registers for their sums
RESIDENT: Final = 2


class FloatPanels(PanelCode, FloatMatrices):
    """Of float32, whose right factors are panels. What isn't finite isn't rounded: a NaN of which a zero was made would
    be none beside an infinite number in its sum. (Warps that multiply by themselves round too often for that test:
    attention takes 1.2 times as long with it.)"""

    def _rounded(self, word: Val) -> Val:
        size = self.b.extended("FAbs", "f32", self.b.inst("Bitcast", "f32", word))
        near = self.e.select(self.test("FOrdLessThan", size, self.f32(inf)), self.op("IAdd", word, HALF), word)
        return self.op("BitwiseAnd", near, KEPT)


@dataclass(frozen=True, slots=True)
class PanelWindows(WindowProducts):
    """A workgroup has `tiles` times 64 places, of `across` results. The kernel is its parts, one behind the other."""

    across: int = 0

    @property
    def rows(self) -> int:
        return self.across

    @property
    def columns(self) -> int:
        return self.tiles * ALL_ROWS

    @property
    def parts(self) -> int:
        return 2 if self.full else 1

    @property
    def memory(self) -> int:
        panels = 2 * self.parts * self.across * PANEL_BYTES
        return panels + 2 * WORD * BLOCK * (self.columns + PITCH)

    def emit(self, e: Emitter, tile: Val) -> None:
        _PanelTile(e, self, tile).emit()


class _PanelTile(WindowTile):
    """The program of one tile."""

    code: FloatPanels
    p: PanelWindows

    def make_code(self) -> FloatPanels:
        return FloatPanels(self.e, self.p.full)

    def emit(self) -> None:
        c, p = self.code, self.p
        self.b.barrier()  # the blocks of the tile before are still read
        self.panels = self.b.shared("i32", 2 * self._size, PANEL_ROWS * PANEL_BYTES)
        self.array = self.b.shared("i32", 2 * BLOCK * (p.columns + PITCH))
        totals = c.variables(p.tiles, p.across)
        turn, place = c.divided(c.own, p.columns)
        start = self.window(c.op("IAdd", self.first_column, self.e.resize(place, "i64")))
        copy = partial(self._copy, start, turn, place)
        copy(c.i32(0))
        c.block_by_block(p.blocks, copy, lambda number, _: self._multiply(totals, number))
        self._store(totals)

    @property
    def _size(self) -> int:
        """Elements of the kernel in memory of the workgroup."""
        return self.p.parts * self.p.across * BLOCK

    def _windows(self, number: Val) -> HeldRows:
        pitch = self.p.columns + PITCH
        start = self.code.op("IMul", self.code.divided(number, 2)[1], BLOCK * pitch)
        return HeldRows(self.array, BLOCK, pitch, start)

    def _panels(self, number: Val) -> Val:
        return self.code.op("IMul", self.code.divided(number, 2)[1], self._size)

    def _copy(self, start: Val, turn: Val, place: Val, number: Val) -> None:
        """Begin to copy a block: of each invocation one place of some elements of windows, and its turns of the
        kernel's chunks."""
        c, p = self.code, self.p
        each = BLOCK * p.columns // c.group
        first = c.times(number, BLOCK)
        self.copy_windows(self._windows(number), first, (start, place), c.times(turn, each), each)
        c.each(p.parts * p.across * (BLOCK // CHUNK), partial(self._copy_chunk, self._panels(number), first))

    def _copy_chunk(self, panels: Val, first: Val, number: Val) -> None:
        c, p = self.code, self.p
        line, chunk = c.divided(number, BLOCK // CHUNK)
        part, own = c.divided(line, p.across)
        row, column = c.plus(self.first_row, own), c.plus(first, c.times(chunk, CHUNK))
        valid = c.test("SLessThan", row, p.results)
        if p.row % BLOCK:
            valid = self.b.inst("LogicalAnd", "bool", valid, c.test("SLessThan", column, p.row))
        place = c.plus(c.op("IMul", row, p.row), column)
        place = c.plus(place, c.op("IMul", part, p.groups * p.results * p.row))
        source = c.at(self.kernel, self.e.select(valid, place, c.i32(0)), WORD)
        permuted = c.op("BitwiseXor", chunk, c.op("BitwiseAnd", own, PANEL_ROWS - 1))
        target = c.plus(c.plus(panels, c.times(line, BLOCK)), c.times(permuted, CHUNK))
        c.units.copy(self.panels, target, "i32", source, valid)

    def _multiply(self, totals: RowVariables, number: Val) -> None:
        """An invocation's two rows of each tile are neighbours among places."""
        c, p, windows = self.code, self.p, self._windows(number)
        column = c.times(c.plus(c.times(c.warp, SIDE // 2), c.row), 2 * p.tiles)
        lefts = []
        for k in range(BLOCK // 8):
            lines = [c.plus(c.quarter, 8 * k + i) for i in (0, 4)]
            words = [c.several(windows, c.cell(windows, line, column), 2 * p.tiles) for line in lines]
            own = [[word for line in words for word in line[2 * t : 2 * t + 2]] for t in range(p.tiles)]
            lefts.append([c.left_factor(four) for four in own])
        chains, right = [], Panels(self.panels, self._panels(number), p.across)
        for tile in range(p.tiles):
            factors = [left[tile] for left in lefts]
            chains.append(ProductChain(None, [PanelProduct(x.first, 8 * k) for k, x in enumerate(factors)], right))
            rest = [PanelProduct(x.rest, 8 * k) for k, x in enumerate(factors) if x.rest is not None]
            if rest:
                beside = [PanelProduct(x.first, p.across * BLOCK + 8 * k) for k, x in enumerate(factors)]
                chains.append(ProductChain(None, [*rest, *beside], right))
        found = c.group_units.products(chains, "tf32")
        for tile in range(p.tiles):
            made = found[tile * p.parts : (tile + 1) * p.parts]
            sums = c.completed(made[0], made[1] if p.full else None)
            before = [x for eight in c.taken(totals, tile) for x in eight]
            values = [c.sum(x, y) for x, y in zip(before, sums, strict=True)]
            c.put(totals, tile, [values[n : n + 4] for n in range(0, len(values), 4)])

    def _store(self, totals: RowVariables) -> None:
        c, p = self.code, self.p
        column = c.times(c.plus(c.times(c.warp, SIDE // 2), c.row), 2 * p.tiles)
        at = c.op("IAdd", self.first_column, self.e.resize(column, "i64"))
        sums = [c.taken(totals, tile) for tile in range(p.tiles)]
        for n in range(p.across // 8):
            for i in (0, 1):
                row = c.plus(c.plus(self.first_row, c.column), 8 * n + i)
                values = [eight[n][i + 2 * half] for eight in sums for half in (0, 1)]
                there = c.test("SLessThan", row, p.results)
                self.e.when(there, partial(self.store_places, row, at, values))


def _as_bits(body: Body, value: KValue, dtype: DType) -> KValue:
    body.ops.append(KOp("bitcast", (value,), (dtype,), {"dtype": dtype}))
    return body.ops[-1].results[0]


def parts_kernel(size: int, full: bool) -> Kernel:
    """Of elements their first parts, and behind all of these the rests, as `FloatMatrices` makes them."""
    lane, body = KValue(int64), Body()
    value = body.one("load", float32, lane, param=0)
    bits = _as_bits(body, value, int32)
    finite = body.lt(body.one("abs", float32, value), body.const(inf, float32))
    near = body.select(finite, body.add(bits, body.const(HALF, int32)), bits)
    first = _as_bits(body, body.one("and", int32, near, body.const(KEPT, int32)), float32)
    body.store(1, lane, first)
    if full:
        body.store(1, body.add(lane, body.const(size)), body.sub(value, first))
    params = (BufferParam(float32, size, "read"), BufferParam(float32, (2 if full else 1) * size, "write"))
    return Kernel("kernel_parts", (size,), params, Block((lane,), body.ops))


def program_of(routine: Routine) -> PanelWindows:
    base = window_products.program_of(routine)
    blocks = -(-base.results // MOST)
    across = -(-base.results // (8 * blocks)) * 8
    return base.of_kind(PanelWindows, warps=WARPGROUP, tiles=1, across=across)


def _refuses(routine: Routine) -> str:
    if not routine.geometry.warpgroups:
        return "there are no matrix units of warpgroups"
    return window_products.refusal(routine, program_of)


def _make(routine: Routine) -> None:
    program = program_of(routine)
    x, kernel = routine.inputs
    size = kernel.type.size
    parts = routine.scratch(program.parts * size, float32)
    routine.by_lanes(parts_kernel(size, program.full), size, kernel, parts)
    arrays = (x, parts, window_products.offsets(program, routine), *routine.outputs)
    resident = RESIDENT if program.across > WIDE else RESIDENT + 1
    needs = Workgroups(program.warps * WARP, resident, program.memory, matrix_units=True)
    routine.by_groups("convolution", program, program.count, *arrays, needs=needs)


PROVIDER: Final = Provider("windows by matrix units of warpgroups", _refuses, _make)
