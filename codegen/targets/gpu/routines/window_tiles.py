"""Convolutions without matrix units, without storing windows: rectangles of a product of the kernel's rows and the
windows' columns, as other products have them (lanes.product_tiles), but elements of windows are found by where their
window begins and how far behind that they lie, which a table says.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from loopgrad.codegen.program import MatmulStep
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.lanes.product_plan import Product, in_rectangles
from loopgrad.codegen.targets.gpu.lanes.product_results import OUT, StoredProduct
from loopgrad.codegen.targets.gpu.lanes.product_tiles import Operand, Rectangle, Source
from loopgrad.codegen.targets.gpu.lanes.tiles import digits
from loopgrad.codegen.targets.gpu.routines import window_products
from loopgrad.codegen.targets.gpu.routines.routine import Provider, Routine
from loopgrad.codegen.targets.gpu.routines.window_products import WindowProducts
from loopgrad.graph.primitives.window_products import RANK
from loopgrad.graph.types import sum_dtype

OFFSETS: Final = 3  # their place among the arrays
OFFSET: Final = 4  # bytes


@dataclass(frozen=True, slots=True)
class WindowTiles:
    """Arrays: the kernel by rows, x with its borders, the results, and where each element of a window lies behind the
    window's first (i32). The product is of the kernel's rows and all places of the batch, for each group."""

    windows: WindowProducts
    product: Product

    def emit(self, e: Emitter, tile: Val) -> None:
        WindowRectangle(e, self, tile).emit()


class WindowRectangle(Rectangle):
    """One rectangle: some results at some places, which are its columns."""

    def __init__(self, e: Emitter, program: WindowTiles, number: Val) -> None:
        self.windows = program.windows
        self.offsets = e.table.params[OFFSETS]
        self.starts: dict[Val, Val] = {}  # of windows, by their columns
        super().__init__(e, program.product, StoredProduct(), number)

    def _operands(self) -> list[tuple[Operand, Val]]:
        p, (high, wide) = self.product, self.product.pitches
        kernel = Operand(self._matrix(0, self.windows.kernel_elements), p.m, self.windows.row, 1, p.tall, 0, high)
        x = Operand(self.e.table.params[1], p.n, 1, 0, p.broad, p.depth * high, wide)
        return [(kernel, self.row), (x, self.column)]

    def _first_address(self, operand: Operand, line: Val, k: Val) -> Val:
        """Of a window, that of its first element."""
        if operand.k_step:
            return super()._first_address(operand, line, k)
        if line not in self.starts:
            self.starts[line] = self._window(operand.base, line)
        return self.starts[line]

    def _window(self, x: Val, column: Val) -> Val:
        e, w = self.e, self.windows
        number, *place = digits(e, column, (w.batch, *w.places))
        start = self._times(self._sum(self._times(number, w.groups), self.batch), w.channels * prod(w.extents))
        for d, own in enumerate(place):
            start = self._sum(start, self._times(own, w.strides[d] * prod(w.extents[d + 1 :])))
        return e.at(x, start, self.given.itemsize)

    def _part(self, part: list[Source], start: Val) -> list[Val]:
        """The terms of the elements differ by numbers that are known, so that one address in the table is enough."""
        if part[0].step:
            return super()._part(part, start)
        e, b, p, found = self.e, self.b, self.product, list[Val]()
        table = e.at(self.offsets, self._sum(part[0].k, start), OFFSET)
        for n, source in enumerate(part):
            place = e.offset(table, n * p.group // p.broad * OFFSET)
            offset = b.load(place, "i32", invariant=True)
            found += self._loaded(source, self._behind(source.address, offset), self._ends(source, start))
        return found

    def _behind(self, address: Val, offset: Val) -> Val:
        """The address of an element so many behind one, in 32 bits where they suffice."""
        e, w, itemsize = self.e, self.windows, self.given.itemsize
        if w.channels * prod(w.extents) * itemsize >= 1 << 32:
            return e.at(address, e.resize(offset, "i64"), itemsize)
        return self._plus(address, self._times(offset, itemsize))

    @property
    def row_length(self) -> int:
        return prod(self.windows.places)

    def _result(self, line: Val, place: Val) -> tuple[Val, Val]:
        e, w = self.e, self.windows
        number, own = digits(e, place, (w.batch, self.row_length))
        result = self._sum(self._times(self._sum(self._times(number, w.groups), self.batch), w.results), line)
        index = self._sum(self._times(result, self.row_length), own)
        return index, e.at(e.table.params[OUT], index, self.result.itemsize)


def _program(routine: Routine) -> WindowTiles | None:
    """None where there are too few terms."""
    w = window_products.program_of(routine)
    dtype, memory = sum_dtype(routine.inputs[0].type.dtype), routine.geometry.memory
    step = MatmulStep(0, 1, 2, w.groups, w.results, w.depth, w.all_places)
    product = in_rectangles(step, dtype, routine.group, memory)
    return None if product is None else WindowTiles(w, product)


def _refuses(routine: Routine) -> str:
    if routine.attrs["channels_last"]:
        return "channels side by side"
    if len(routine.inputs[1].type.shape) > RANK:
        return "several convolutions"
    return "" if _program(routine) is not None else "few terms, or little memory of workgroups"


def _make(routine: Routine) -> None:
    program = _program(routine)
    assert program is not None
    x, kernel = routine.inputs
    slabs = -(-program.product.k // program.product.depth)
    offsets = window_products.offsets(program.windows, routine, slabs * program.product.depth)
    arrays = (kernel, x, *routine.outputs, offsets)
    routine.by_groups("convolution", program, program.product.tiles, *arrays)


PROVIDER: Final = Provider("windows by rectangles of a product", _refuses, _make)
