"""A rectangle of a product by the matrices of subgroups: slabs in memory of the workgroup, sums where the target likes.

Who has which sum only the target knows. So they go through memory of the workgroup when they are done, a row of each
subgroup's matrices at a time, whose invocations then finish some that lie side by side. The order in which a matrix
adds up its terms is the device's; that of matrices is the order of k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from loopgrad.codegen.targets.gpu.assembler import SubgroupMatrices, Val, Variable
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.emit.recipes import ScalarOps
from loopgrad.codegen.targets.gpu.lanes.matrix_plan import CHUNK, ITEM, SLABS, SUMS, MatrixProduct, Slab
from loopgrad.codegen.targets.gpu.lanes.product_results import OUT, StoredProduct
from loopgrad.codegen.targets.gpu.routines.group_code import GroupCode


class SlabChunk(NamedTuple):
    """What this invocation loads of a slab at once: where it is in the first slab, how many bytes further in the next,
    where its matrix begins, the term of its first element, whether its line or column is inside (None: always), its
    place in the slab."""

    address: Val
    step: int
    base: Val
    k: Val
    inside: Val | None
    place: Val


class SlabOperand(NamedTuple):
    """The left or the right one. Its slab begins at chunk `start`; of its `extent` rows (of the right one: columns) the
    rectangle begins with number `first`."""

    left: bool
    base: Val
    slab: Slab
    start: int
    first: Val
    extent: int


class Slabs(NamedTuple):
    """The operands, of which this invocation has these chunks in each of `total` slabs, and variables for words of one
    slab that wait to be stored."""

    operands: Sequence[SlabOperand]
    chunks: Sequence[SlabChunk]
    total: int
    waiting: Sequence[Sequence[Variable]]


class MatrixRectangle(GroupCode):
    """Rectangle `number` of the product; the first params are left, right and out."""

    def __init__(self, e: Emitter, product: MatrixProduct, results: StoredProduct, number: Val) -> None:
        super().__init__(e)
        matrices = e.b.subgroup_matrices
        assert matrices is not None, "a target without them has no such products"
        self.matrices: SubgroupMatrices = matrices
        self.product, self.results = product, results
        self.batch, piece = self.divided(number, product.rows * product.columns)
        row, column = self.divided(piece, product.columns)
        self.row, self.column = self.times(row, product.tall), self.times(column, product.broad)
        self.subgroup, self.member = self.divided(self.own, product.group // product.subgroups)
        self.down, self.across = self.divided(self.subgroup, product.across)
        self.memory = self.matrices.memory(product.chunks)

    def emit(self) -> None:
        p = self.product
        sums = [[self.matrices.zeros(p.shape) for _ in range(p.wide)] for _ in range(p.high)]
        operands = self._operands()
        chunks = [chunk for operand in operands for chunk in self._chunks(operand)]
        count = -(-p.k // p.depth)
        waiting = [[self.b.local("i32") for _ in range(SUMS)] for _ in chunks] if p.far_ahead else []
        step = Slabs(operands, chunks, count, waiting)
        self._fill(step, self._loaded(step, self.b.const("i64", 0)), self._slot(0))
        if p.far_ahead:
            self._keep(step, self._loaded(step, self.b.const("i64", 1)))
        self.b.barrier()
        if p.far_ahead:
            counted(self.e, self.b.const("i64", count // SLABS), partial(self._two_turns, sums, step))
        else:
            counted(self.e, self.b.const("i64", count), partial(self._turn, sums, step))
        if p.far_ahead and count % SLABS:
            self._multiply(sums, operands, self._slot(0))
            self.b.barrier()
        self._finish(sums)

    def _turn(self, sums: list[list[Variable]], step: Slabs, number: Val) -> None:
        """Slab `number`; the next one is under way meanwhile."""
        after = self.plus(number, 1)
        slots = [
            self.op("IMul", self.op("BitwiseAnd", self.e.resize(n, "i32"), 1), self.product.slab)
            for n in (number, after)
        ]
        found = self._loaded(step, after)
        self._multiply(sums, step.operands, slots[0])
        self._fill(step, found, slots[1])
        self.b.barrier()

    def _two_turns(self, sums: list[list[Variable]], step: Slabs, turn: Val) -> None:
        """What is loaded while one slab is used waits in registers while the next one is, and is stored then."""
        number = self.times(turn, SLABS)
        found = self._loaded(step, self.plus(number, 2))
        self._multiply(sums, step.operands, self._slot(0))
        waiting = [[self.b.get(variable, "i32") for variable in words] for words in step.waiting]
        self._fill(step, waiting, self._slot(1))
        self.b.barrier()
        self._keep(step, self._loaded(step, self.plus(number, 3)))
        self._multiply(sums, step.operands, self._slot(1))
        self._fill(step, found, self._slot(0))
        self.b.barrier()

    def _slot(self, number: int) -> Val:
        """Where one of two slabs begins in memory of the workgroup."""
        return self.i32(number * self.product.slab)

    def _keep(self, step: Slabs, found: Sequence[Sequence[Val]]) -> None:
        for variables, words in zip(step.waiting, found, strict=True):
            for variable, word in zip(variables, words, strict=True):
                self.b.set(variable, word)

    # operands

    def _operands(self) -> list[SlabOperand]:
        p = self.product
        left, right = p.slabs
        return [
            SlabOperand(True, self._matrix(0, p.m * p.k), left, 0, self.row, p.m),
            SlabOperand(False, self._matrix(1, p.k * p.n), right, left.size, self.column, p.n),
        ]

    def _matrix(self, param: int, elements: int) -> Val:
        """Where this batch's matrix begins."""
        return self.e.at(self.e.table.params[param], self.batch, elements * self.e.kernel.params[param].dtype.itemsize)

    def _chunks(self, operand: SlabOperand) -> list[SlabChunk]:
        """This invocation's of a slab. Neighbours load what lies side by side in memory."""
        p, slab, found = self.product, operand.slab, []
        for first in range(0, slab.lines * slab.chunks, p.group):
            line, chunk = self.divided(self.plus(self.own, first), slab.chunks)
            along = self.times(chunk, CHUNK)
            k, side = (along, line) if slab.along_k else (line, along)
            wide_k, wide_side = self.wide(k), self.plus(operand.first, self.wide(side))
            inside = None
            if operand.extent % (slab.lines if slab.along_k else slab.length):
                inside = self.test("SLessThan", wide_side, operand.extent)
                wide_side = self.e.select(inside, wide_side, self.b.const("i64", 0))
            lines = (wide_side, p.k, wide_k) if slab.along_k else (wide_k, operand.extent, wide_side)
            address = self.e.at(operand.base, self.plus(self.times(lines[0], lines[1]), lines[2]), ITEM)
            step = p.depth * ITEM * (1 if slab.along_k else operand.extent)
            place = self.plus(self.plus(self.times(line, slab.pitch), chunk), operand.start)
            found.append(SlabChunk(address, step, operand.base, wide_k, inside, place))
        return found

    def _loaded(self, step: Slabs, number: Val) -> list[list[Val]]:
        """Of slab `number`, four words each; zeros where a matrix has ended. Beyond the last one it is that again."""
        last = self.b.const("i64", step.total - 1)
        number = self.e.select(self.test("SLessThan", number, last), number, last)
        return [self._words(chunk, number) for chunk in step.chunks]

    def _words(self, chunk: SlabChunk, number: Val) -> list[Val]:
        p, inside, address = self.product, chunk.inside, self.plus(chunk.address, self.times(number, chunk.step))
        if p.k % p.depth:
            ends = self.test("SLessThan", self.plus(chunk.k, self.times(number, p.depth)), p.k)
            address = self.e.select(ends, address, chunk.base)
            inside = ends if inside is None else self.e.both(inside, ends)
        words = self.b.load_vector(address, "i32", 4, invariant=True)
        return words if inside is None else [self.e.select(inside, word, self.i32(0)) for word in words]

    def _fill(self, step: Slabs, found: Sequence[Sequence[Val]], slot: Val) -> None:
        for chunk, words in zip(step.chunks, found, strict=True):
            self.matrices.put(self.memory, self.plus(chunk.place, slot), words)

    # sums

    def _multiply(self, sums: list[list[Variable]], operands: Sequence[SlabOperand], slot: Val) -> None:
        p = self.product
        for k in range(0, p.depth, p.shape.depth):
            left, right = [
                [self._factor(operand, i, k, slot) for i in range(count)]
                for operand, count in zip(operands, (p.high, p.wide), strict=True)
            ]
            for row, x in zip(sums, left, strict=True):
                for variable, y in zip(row, right, strict=True):
                    self.matrices.add(variable, x, y, p.shape)

    def _factor(self, operand: SlabOperand, number: int, k: int, slot: Val) -> Any:
        """That of this subgroup's matrices, from term `k` of a slab on."""
        p, slab, left = self.product, operand.slab, operand.left
        own, count, size = (self.down, p.high, p.shape.rows) if left else (self.across, p.wide, p.shape.columns)
        place = self.times(own, slab.further(count * size, 0))
        start = self.plus(self.plus(slot, place), operand.start + slab.further(number * size, k))
        return self.matrices.factor(self.memory, start, slab.pitch, p.shape, left, slab.along_k != left)

    # results

    def _finish(self, sums: list[list[Variable]]) -> None:
        """The memory is free at first, and after each turn."""
        p = self.product
        slab = p.finished
        start = self.times(self.subgroup, slab.size)
        each = slab.lines * slab.chunks // (p.group // p.subgroups)  # chunks of an invocation
        if self.results.direct(p.high * each * SUMS):
            for i, row in enumerate(sums):
                self._leave(row, start)
                self.b.barrier()
                for n in range(each):
                    self._store(start, self.i32(i), self.i32(n))
                self.b.barrier()
            return

        def turn(number: Val) -> None:
            for i, row in enumerate(sums):
                self.e.when(self.test("IEqual", number, i), partial(self._leave, row, start))
            self.b.barrier()
            counted(self.e, self.i32(each), lambda n: self._store(start, number, n))
            self.b.barrier()

        counted(self.e, self.i32(p.high), turn)

    def _leave(self, row: Sequence[Variable], start: Val) -> None:
        p = self.product
        for j, variable in enumerate(row):
            place = self.plus(start, j * p.shape.columns // SUMS)
            self.matrices.store(self.memory, place, p.finished.pitch, variable, p.shape)

    def _store(self, start: Val, row: Val, turn: Val) -> None:
        """Finish this invocation's chunk number `turn` of the subgroup's row of matrices of that number."""
        p, slab = self.product, self.product.finished
        number = self.plus(self.member, self.op("IMul", turn, p.group // p.subgroups))
        line, chunk = self.divided(number, slab.chunks)
        words = self.matrices.words(self.memory, self.plus(self.plus(start, self.times(line, slab.pitch)), chunk))
        values = [self.e.bitcast(word, "f32") for word in words]
        below = self.plus(self.op("IMul", self.plus(self.times(self.down, p.high), row), p.shape.rows), line)
        beside = self.plus(self.times(self.across, p.wide * p.shape.columns), self.times(chunk, SUMS))
        whole_row = self.plus(self.row, self.wide(below))
        column = self.plus(self.column, self.wide(beside))
        inside = [self.test("SLessThan", whole_row, p.m)] if p.m % p.tall else []
        if p.n % SUMS == 0:
            self._inside(inside, column, partial(self._stored, whole_row, column, values))
            return
        for i, value in enumerate(values):
            place = self.plus(column, i)
            self._inside(inside, place, partial(self._stored, whole_row, place, [value]))

    def _inside(self, inside: Sequence[Val], column: Val, store: Callable[[], None]) -> None:
        """store(), where the row and the column are."""
        p = self.product
        tests = [*inside, *([self.test("SLessThan", column, p.n)] if p.n % p.broad else [])]
        if tests:
            self.e.when(tests[0] if len(tests) == 1 else self.e.both(*tests), store)
        else:
            store()

    def _stored(self, row: Val, column: Val, values: Sequence[Val]) -> None:
        p, result = self.product, self.e.kernel.params[OUT].dtype
        index = self.plus(self.times(row, p.n), column)
        address = self.e.at(self._matrix(OUT, p.m * p.n), index, result.itemsize)
        element = index if p.batch == 1 else self.plus(index, self.times(self.batch, p.m * p.n))
        self.results.finish(self.e, element, address, *[ScalarOps(self.e).rounded(x, result) for x in values])


def emit_matrix_rectangle(e: Emitter, product: MatrixProduct, results: StoredProduct, number: Val) -> None:
    MatrixRectangle(e, product, results, number).emit()
