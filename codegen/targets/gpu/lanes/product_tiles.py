"""A rectangle of a matrix product by one workgroup: slabs of the operands in its memory, sums in registers.

The elements of the next slab are loaded before the sums of this one, and stored behind them. The order in which an
element's terms are added is fixed by the shape: those of a slice in the order of k, then the slices in their order.

Where an epilogue is too long to be written for every element of an invocation, sums go through memory of the workgroup,
one row of each invocation at a time, and one piece of code in a loop finishes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES, Val, Variable
from loopgrad.codegen.targets.gpu.emit.context import Emitter, memory_type
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.emit.memory_form import from_memory
from loopgrad.codegen.targets.gpu.emit.recipes import ScalarOps
from loopgrad.codegen.targets.gpu.lanes.product_plan import NEXT, Product
from loopgrad.codegen.targets.gpu.lanes.product_results import OUT, StoredProduct
from loopgrad.codegen.targets.gpu.lanes.tiles import divided
from loopgrad.graph.types import sum_dtype

Element = tuple[Val, Val, Val]  # its row and column in the rectangle, and the sum
WORD: Final = 4  # bytes of the narrowest vector
RUN: Final = 64  # bytes side by side in memory, of one line
BANKS: Final = 32  # of memory of a workgroup


class Operand(NamedTuple):
    """Element (line, k) is at base + (line * line_step + k * k_step) elements; `lines` of them. `side` lines of a slab
    begin at `start` in memory of the workgroup, where the next term is `pitch` further."""

    base: Val
    lines: int
    line_step: int
    k_step: int
    side: int
    start: int
    pitch: int


class Source(NamedTuple):
    """What this invocation loads of a slab at once, `side` elements: where they are in the first slab,
    how many bytes further each term is, where their matrix begins, the term of the first, whether they are inside
    (None: always), the place of the first in the slab and how far `apart` they are there."""

    side: int
    address: Val
    step: int
    base: Val
    k: Val
    inside: Val | None
    place: Val
    apart: int


def emit_rectangle(e: Emitter, product: Product, results: StoredProduct, number: Val) -> None:
    """Rectangle `number` of the product; the first params are left, right and out."""
    Rectangle(e, product, results, number).emit()


class Rectangle:
    """`row`, `column` (i64): of its first element. `x`, `y`: this invocation's place in its slice."""

    def __init__(self, e: Emitter, product: Product, results: StoredProduct, number: Val) -> None:
        self.e, self.b, self.product, self.results = e, e.b, product, results
        self.given, self.result = e.kernel.params[0].dtype, e.kernel.params[OUT].dtype
        self.type = memory_type(sum_dtype(self.given))
        self.batch, piece = divided(e, number, product.rows * product.columns)
        row, column = divided(e, piece, product.columns)
        self.row, self.column = self._times(row, product.tall), self._times(column, product.broad)
        self.own = e.b.local_id()
        self.slice, thread = self._split(self.own, product.threads)
        self.y, self.x = self._split(thread, product.across)
        self.memory = e.b.shared(self.type, product.elements)

    def emit(self) -> None:
        p, b = self.product, self.b
        sums = [[self._zero() for _ in range(p.wide)] for _ in range(p.high)]
        sources = [self._sources(operand, first) for operand, first in self._operands()]
        count = -(-p.k // p.depth)
        self._fill(sources, self._elements(sources, b.const("i64", 0)), b.const("i32", 0))
        b.barrier()

        if count > 1:
            counted(self.e, b.const("i64", count), partial(self._turn, sums, sources, count))
        else:
            self._slab(sums, b.const("i32", 0))
            b.barrier()
        if p.slices > 1:
            self._join(sums)
        elif self.results.direct(p.high * p.wide):
            self._store(sums)
        else:
            self._store_by_rows(sums)

    def _turn(self, sums: list[list[Variable]], sources: list[list[Source]], count: int, number: Val) -> None:
        """Slab `number` of `count`; the next one is under way meanwhile, or the last one again."""
        b = self.b
        after = b.inst("IAdd", "i64", number, b.const("i64", 1))
        more = b.inst("SLessThan", "bool", after, b.const("i64", count))
        found = self._elements(sources, self.e.select(more, after, number))
        self._slab(sums, self._slot(number))
        if self.product.slabs == 1:
            b.barrier()
        self._fill(sources, found, self._slot(after))
        b.barrier()

    def _zero(self) -> Variable:
        variable = self.b.local(self.type)
        self.b.set(variable, self.b.const(self.type, 0))
        return variable

    # arithmetic of indices

    def _split(self, x: Val, by: int) -> tuple[Val, Val]:
        """Quotient and remainder of an i32 by a power of two."""
        b = self.b
        return b.inst("UDiv", "i32", x, b.const("i32", by)), b.inst("BitwiseAnd", "i32", x, b.const("i32", by - 1))

    def _times(self, x: Val, factor: int) -> Val:
        return x if factor == 1 else self.b.inst("IMul", x.type, x, self.b.const(x.type, factor))

    def _sum(self, x: Val, *others: Val | int) -> Val:
        for other in others:
            if other != 0:
                y = self.b.const(x.type, other) if isinstance(other, int) else other
                x = self.b.inst("IAdd", x.type, x, y)
        return x

    def _plus(self, first: Val, offset: Val) -> Val:
        return self.b.inst("IAdd", "i64", first, self.e.resize(offset, "i64", signed=False))

    def _below(self, value: Val, extent: int, step: int) -> Val | None:
        """Whether value < extent; None where steps that divide the extent say so already."""
        return self.b.inst("SLessThan", "bool", value, self.b.const("i64", extent)) if extent % step else None

    def _both(self, x: Val | None, y: Val | None) -> Val | None:
        if x is None or y is None:
            return y if x is None else x
        return self.e.both(x, y)

    # operands

    def _operands(self) -> list[tuple[Operand, Val]]:
        p = self.product
        left_steps = (1, p.m) if p.transpose_left else (p.k, 1)
        right_steps = (p.k, 1) if p.transpose_right else (1, p.n)
        high, wide = p.pitches
        left = Operand(self._matrix(0, p.m * p.k), p.m, *left_steps, p.tall, 0, high)
        right = Operand(self._matrix(1, p.k * p.n), p.n, *right_steps, p.broad, p.depth * high, wide)
        return [(left, self.row), (right, self.column)]

    def _matrix(self, param: int, elements: int) -> Val:
        """Where this batch's matrix begins."""
        return self.e.at(self.e.table.params[param], self.batch, elements * self.e.kernel.params[param].dtype.itemsize)

    def _sources(self, operand: Operand, first: Val) -> list[Source]:
        """This invocation's elements of a slab. Neighbours load what lies side by side in memory."""
        p, e = self.product, self.e
        along, side = (p.depth if operand.k_step == 1 else operand.side), self._loaded_at_once(operand)
        found, lines = [], dict[Val, tuple[Val, Val | None]]()
        share = self._shared_out_by_lines if operand.k_step == 1 else self._shared_out
        for high, low in share(operand.side * p.depth // side, along // side):
            k, line = (self._times(low, side), high) if operand.k_step == 1 else (high, self._times(low, side))
            if line not in lines:
                lines[line] = self._whole_line(operand, first, line)
            whole_line, inside = lines[line]
            whole_k = e.resize(k, "i64", signed=False)
            address, step = self._first_address(operand, whole_line, whole_k), operand.k_step * self.given.itemsize
            place = self._sum(self._times(k, operand.pitch), line, operand.start)
            apart = operand.pitch if operand.k_step == 1 else 1
            found.append(Source(side, address, step, operand.base, whole_k, inside, place, apart))
        return found

    def _whole_line(self, operand: Operand, first: Val, line: Val) -> tuple[Val, Val | None]:
        """The number of a line, 0 where there is none, and whether there is."""
        whole = self._plus(first, line)
        inside = self._below(whole, operand.lines, operand.side)
        return (whole if inside is None else self.e.select(inside, whole, self.b.const("i64", 0))), inside

    def _loaded_at_once(self, operand: Operand) -> int:
        """Elements side by side in memory, all of them inside or none, of which an invocation has a whole number."""
        p, itemsize = self.product, self.given.itemsize
        row, extent = (operand.line_step, p.k) if operand.k_step == 1 else (operand.k_step, operand.lines)
        side = min(VECTOR_BYTES // itemsize, NEXT, operand.side * p.depth // p.group) if row else 1
        while side > 1 and (row % side or extent % side):
            side //= 2
        return side if side * itemsize >= WORD else 1

    def _shared_out(self, count: int, along: int) -> Iterator[tuple[Val, Val]]:
        """Quotients and remainders by `along` of those of so many numbers that are this invocation's turn; of `along`
        and the number of invocations one is a multiple of the other."""
        group = self.product.group
        high, low = self._split(self.own, along)
        for first in range(0, count, group):
            yield self._sum(high, first // along), self._sum(low, first % along)

    def _shared_out_by_lines(self, count: int, along: int) -> Iterator[tuple[Val, Val]]:
        """The same, of lines with so many pieces along the terms. Invocations side by side load a run of each of some
        lines: they write to more banks of the workgroup's memory then, where lines are neighbours, than those of whole
        lines, and all but to all with shorter runs. A GRU of 512 takes 0.97 times as long on an H100 as with either."""
        group, near = self.product.group, min(along, RUN // (self.product.depth // along * self.given.itemsize))
        tall = BANKS // max(near, 1)
        if near < 1 or group < BANKS or count < along * tall:
            yield from self._shared_out(count, along)
            return
        block, own = self._split(self.own, BANKS)
        line, low = self._split(own, near)
        high, piece = self._split(block, along // near)
        for first in range(0, count // BANKS, group // BANKS):
            above, beside = divmod(first, along // near)
            whole = self._sum(self._times(self._sum(high, above), tall), line)
            yield whole, self._sum(self._times(self._sum(piece, beside), near), low)

    def _first_address(self, operand: Operand, line: Val, k: Val) -> Val:
        """Of the element of the first slab."""
        index = self._sum(self._times(line, operand.line_step), self._times(k, operand.k_step))
        return self.e.at(operand.base, index, self.given.itemsize)

    def _elements(self, sources: list[list[Source]], number: Val) -> list[list[Val]]:
        """This invocation's elements of slab `number` of both operands; zeros where a matrix has ended."""
        start = self._times(number, self.product.depth)
        return [self._part(part, start) for part in sources]

    def _part(self, part: list[Source], start: Val) -> list[Val]:
        """Of one operand, in the slab that begins with term `start`."""
        found = []
        for source in part:
            ends, address = self._ends(source, start), self._sum(source.address, self._times(start, source.step))
            if ends is not None:
                address = self.e.select(ends, address, source.base)
            found += self._loaded(source, address, ends)
        return found

    def _ends(self, source: Source, start: Val) -> Val | None:
        """Whether there are such terms; None: always."""
        p = self.product
        return self._below(self._sum(source.k, start), p.k, p.depth)

    def _loaded(self, source: Source, address: Val, ends: Val | None) -> list[Val]:
        e, b, type = self.e, self.b, memory_type(self.given)
        if source.side > 1:
            found = b.load_vector(address, type, source.side, invariant=True)
        else:
            found = [b.load(address, type, invariant=True)]
        inside, zero = self._both(source.inside, ends), b.const(self.type, 0)
        return [x if inside is None else e.select(inside, x, zero) for x in map(self._widened, found)]

    def _widened(self, x: Val) -> Val:
        """An element as it is added up."""
        return ScalarOps(self.e).widened(from_memory(self.e, x, self.given), self.given)

    def _slot(self, number: Val) -> Val:
        """Where slab `number` begins in memory of the workgroup."""
        p, b = self.product, self.b
        if p.slabs == 1:
            return b.const("i32", 0)
        odd = b.inst("BitwiseAnd", "i32", self.e.resize(number, "i32"), b.const("i32", 1))
        return self._times(odd, p.slab)

    def _fill(self, sources: list[list[Source]], found: list[list[Val]], slot: Val) -> None:
        for part, values in zip(sources, found, strict=True):
            places = [self._sum(slot, s.place, n * s.apart) for s in part for n in range(s.side)]
            for place, value in zip(places, values, strict=True):
                self.b.shared_set(self.memory, place, value)

    # sums

    def _line(self, start: Val, own: Val, count: int, step: int) -> list[Val]:
        """`count` elements of a slab's term."""
        places = self._places(own, count, step, start)
        return [self.b.shared_get(self.memory, place, self.type) for place in places]

    def _slab(self, sums: list[list[Variable]], slot: Val) -> None:
        """The terms of this invocation's slice."""
        p = self.product
        terms, (high, wide) = p.depth // p.slices, p.pitches
        left = self._sum(slot, self._times(self.slice, terms * high))
        right = self._sum(slot, self._times(self.slice, terms * wide), p.depth * high)
        for k in range(terms):
            rows = self._line(self._sum(left, k * high), self.y, p.high, p.tall // p.high)
            self._add(sums, rows, self._line(self._sum(right, k * wide), self.x, p.wide, p.across))

    def _add(self, sums: list[list[Variable]], xs: list[Val], ys: list[Val]) -> None:
        b = self.b
        for row, x in zip(sums, xs, strict=True):
            for variable, y in zip(row, ys, strict=True):
                before = b.get(variable, self.type)
                if b.fused:
                    b.set(variable, b.extended("Fma", self.type, x, y, before))
                else:
                    b.set(variable, b.exact("FAdd", self.type, before, b.exact("FMul", self.type, x, y)))

    def _places(self, own: Val, count: int, step: int, start: Val | None = None) -> list[Val]:
        """`count` lines of the rectangle, from `start` on: NEXT side by side, then those so many `step`s away."""
        run = min(NEXT, count)
        first = self._times(own, run) if start is None else self._sum(start, self._times(own, run))
        return [self._sum(first, run * step * (i // run) + i % run) for i in range(count)]

    # results

    def _mine(self) -> tuple[list[Val], list[Val]]:
        """The rows and columns of the rectangle that this invocation adds up."""
        p = self.product
        return self._places(self.y, p.high, p.tall // p.high), self._places(self.x, p.wide, p.across)

    def _store(self, sums: list[list[Variable]]) -> None:
        rows, columns = self._mine()
        side = self._side()
        for row, line in zip(rows, sums, strict=True):
            for first in range(0, len(columns), side):
                values = [self.b.get(variable, self.type) for variable in line[first : first + side]]
                self._store_some(row, columns[first], *values)

    def _side(self) -> int:
        """Elements side by side that are stored at once."""
        side, itemsize = min(NEXT, self.product.wide), self.result.itemsize
        while side > 1 and (self.row_length % side or side * itemsize > VECTOR_BYTES):
            side //= 2
        return side if side * itemsize >= WORD else 1

    def _join(self, sums: list[list[Variable]]) -> None:
        """The sums of all slices through memory of the workgroup, where the slabs were."""
        p, b = self.product, self.b
        area = p.tall * p.broad
        start = self._times(self.slice, area)
        rows, columns = self._mine()
        for row, line in zip(rows, sums, strict=True):
            first = self._sum(start, self._times(row, p.broad))
            for column, variable in zip(columns, line, strict=True):
                b.shared_set(self.memory, self._sum(first, column), b.get(variable, self.type))
        b.barrier()
        self._each(area, lambda place: (*self._split(place, p.broad), self._joined(place, area)))
        b.barrier()

    def _joined(self, place: Val, area: int) -> Val:
        b = self.b
        total = b.shared_get(self.memory, place, self.type)
        for part in range(1, self.product.slices):
            more = b.shared_get(self.memory, self._sum(place, part * area), self.type)
            total = b.exact("FAdd", self.type, total, more)
        return total

    def _each(self, count: int, element: Callable[[Val], Element]) -> None:
        """Store the element of each of so many places, of which this invocation takes every `group`th, beside its
        neighbours: four together write no longer lines, and 1,024 x 1,024 x 1,024 with tanh takes 1.08 times as long
        so."""
        p, b = self.product, self.b
        turns = count // p.group
        if self.results.direct(turns):
            self._store_apart([element(self._sum(self.own, turn * p.group)) for turn in range(turns)])
            return

        def turn(number: Val) -> None:
            self._store_apart([element(self._sum(self._times(number, p.group), self.own))])

        counted(self.e, b.const("i32", turns), turn)

    def _store_by_rows(self, sums: list[list[Variable]]) -> None:
        """One row of every invocation at a time, through memory of the workgroup, where the slabs were."""
        p, b = self.product, self.b
        _, columns = self._mine()
        run, down = min(NEXT, p.high), p.tall // p.high
        start = self._times(self.y, p.broad)

        def turn(number: Val) -> None:
            for i, line in enumerate(sums):
                here = b.inst("IEqual", "bool", number, b.const("i32", i))
                self.e.when(here, partial(self._leave, start, columns, line))
            b.barrier()
            high, low = self._split(number, run)
            self._each(p.broad * down, partial(self._left, self._sum(self._times(high, run * down), low)))
            b.barrier()

        counted(self.e, b.const("i32", p.high), turn)

    def _leave(self, start: Val, columns: list[Val], line: list[Variable]) -> None:
        for column, variable in zip(columns, line, strict=True):
            self.b.shared_set(self.memory, self._sum(start, column), self.b.get(variable, self.type))

    def _left(self, row: Val, place: Val) -> Element:
        """`row`: of the first invocations' elements; those of the next ones are NEXT further."""
        p = self.product
        y, column = self._split(place, p.broad)
        value = self.b.shared_get(self.memory, place, self.type)
        return self._sum(row, self._times(y, min(NEXT, p.high))), column, value

    def _store_apart(self, elements: list[Element]) -> None:
        """All of them together, where the rectangles have no end inside."""
        p, e = self.product, self.e
        if p.m % p.tall or p.n % p.broad:
            for element in elements:
                self._store_some(*element)
            return
        at = [(self._plus(self.row, row), self._plus(self.column, column)) for row, column, _ in elements]
        places = [self._result(*place) for place in at]
        self.results.finish_apart(e, places, [ScalarOps(e).rounded(x, self.result) for *_, x in elements])

    def _store_some(self, row: Val, column: Val, *values: Val) -> None:
        """Elements side by side, from that row and column of the rectangle on, where they are inside."""
        p, e = self.product, self.e
        line, place = self._plus(self.row, row), self._plus(self.column, column)
        inside = self._both(self._below(line, p.m, p.tall), self._below(place, p.n, p.broad))

        def store() -> None:
            element, address = self._result(line, place)
            self.results.finish(e, element, address, *[ScalarOps(e).rounded(x, self.result) for x in values])

        if inside is None:
            store()
        else:
            e.when(inside, store)

    @property
    def row_length(self) -> int:
        """Elements of the result that lie one beside the other."""
        return self.product.n

    def _result(self, line: Val, place: Val) -> tuple[Val, Val]:
        """The number of an element of the result, and its address."""
        p = self.product
        index = self._sum(self._times(line, p.n), place)
        address = self.e.at(self._matrix(OUT, p.m * p.n), index, self.result.itemsize)
        return (index if p.batch == 1 else self._sum(index, self._times(self.batch, p.m * p.n))), address
