"""Which products of 16-bit floats are made by the matrices of subgroups, and in which rectangles; by shape alone.

A workgroup makes a rectangle of the product, each of its subgroups a part of that: some matrices beside and below each
other, as large as the device multiplies. Slabs of both operands, `depth` terms long, lie in memory of the workgroup as
they do in that of the device, in chunks of 16 bytes; a row begins a chunk after the end of the one before, so that
eight of them lie in different banks. One or two slabs are loading while the one before is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from loopgrad.codegen.program import MatmulStep
from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES
from loopgrad.codegen.targets.gpu.interface import MatrixShape, SubgroupShapes
from loopgrad.codegen.targets.gpu.lanes.product_plan import ProductRectangles
from loopgrad.graph.types import DType

TYPES: Final = {"float16": "f16", "bfloat16": "b16"}
ITEM: Final = 2  # bytes of a factor
CHUNK: Final = VECTOR_BYTES // ITEM  # factors side by side
SUMS: Final = VECTOR_BYTES // 4  # and sums
SLABS: Final = 2
SIDES: Final = ((128, 128), (64, 128), (128, 64), (64, 64), (32, 64), (64, 32))  # of rectangles, the largest first
DEPTHS: Final = (128, 64, 32)
MOST_MEMORY: Final = 112 << 10  # bytes that launches ask for
MOST_CHUNKS: Final = 12  # that an invocation loads at once, in registers meanwhile
MOST_SUMS: Final = 128  # of an invocation
MANY_SUMS: Final = 64  # more than so many
LONG_SLABS: Final = 64 << 10  # bytes of a workgroup, where slabs are long enough
ENOUGH: Final = 128  # rectangles, for a large device
SMALLEST: Final = 16  # a product with a shorter side is too narrow for matrices
SMALLEST_WORK: Final = 1 << 18  # terms; below that the launch is all that counts


@dataclass(frozen=True, slots=True)
class Slab:
    """Part of an operand in memory of the workgroup: `lines` of it that lie in the device's memory `length` elements
    long. `along_k`: whether these are terms; lines are, elsewhere."""

    lines: int
    length: int
    along_k: bool

    @property
    def chunks(self) -> int:
        """Of a line."""
        return self.length // CHUNK

    @property
    def pitch(self) -> int:
        """Chunks from one line to the next."""
        return self.chunks + 1

    @property
    def size(self) -> int:
        return self.lines * self.pitch

    def further(self, side: int, k: int) -> int:
        """Chunks from the first element to one so many rows or columns and terms further."""
        return side * self.pitch + k // CHUNK if self.along_k else k * self.pitch + side // CHUNK


@dataclass(frozen=True, slots=True)
class MatrixProduct(ProductRectangles):
    """By `subgroups` of which `down` lie below each other. `shape`: of the matrices that multiply."""

    subgroups: int
    down: int
    depth: int
    shape: MatrixShape

    @property
    def far_ahead(self) -> bool:
        """Whether two slabs are under way, or one: who has many sums has few neighbours to wait beside. (A product of
        4,096 x 4,096 matrices takes 462 us on an H200 so, 507 with one; of 1,024 x 1,024, by more of those that have
        fewer, 20 and 16.)"""
        return self.tall * self.broad > MANY_SUMS * self.group

    @property
    def across(self) -> int:
        return self.subgroups // self.down

    @property
    def high(self) -> int:
        """Matrices of a subgroup below each other."""
        return self.tall // (self.down * self.shape.rows)

    @property
    def wide(self) -> int:
        """And beside each other."""
        return self.broad // (self.across * self.shape.columns)

    @property
    def slabs(self) -> tuple[Slab, Slab]:
        return self._slab(self.tall, not self.transpose_left), self._slab(self.broad, self.transpose_right)

    def _slab(self, side: int, along_k: bool) -> Slab:
        return Slab(side, self.depth, True) if along_k else Slab(self.depth, side, False)

    @property
    def slab(self) -> int:
        """Chunks of both."""
        return sum(slab.size for slab in self.slabs)

    @property
    def finished(self) -> Slab:
        """The sums of a row of a subgroup's matrices, as they wait to be stored: f32, so two of these elements each."""
        return Slab(self.shape.rows, 2 * self.wide * self.shape.columns, False)

    @property
    def chunks(self) -> int:
        """In memory of the workgroup."""
        return max(SLABS * self.slab, self.subgroups * self.finished.size)

    def suits(self, memory: int) -> bool:
        if not self.high or not self.wide or self.tall * self.broad > MOST_SUMS * self.group:
            return False
        shared_out = all(slab.lines * slab.chunks % self.group == 0 for slab in self.slabs)
        few = sum(slab.lines * slab.chunks for slab in self.slabs) <= MOST_CHUNKS * self.group
        finished = self.finished.lines * self.finished.chunks * self.subgroups % self.group == 0
        fits = few and self.depth % self.shape.depth == 0 and self.chunks * VECTOR_BYTES <= memory
        return shared_out and finished and fits


def in_matrices(
    step: MatmulStep, factors: DType, group: int, memory: int, matrices: SubgroupShapes
) -> MatrixProduct | None:
    """The product by the matrices of subgroups; None where a device has none for these factors, rectangles without them
    do as well, or rows aren't whole chunks."""
    shape = next((s for s in matrices.shapes if s.type == TYPES.get(factors.name)), None)
    rows = (step.m if step.transpose_left else step.k, step.k if step.transpose_right else step.n)
    if shape is None or any(row % CHUNK for row in rows):
        return None
    if min(step.m, step.k, step.n) < SMALLEST or step.batch * step.m * step.k * step.n < SMALLEST_WORK:
        return None
    # the largest by half as many subgroups, which read each factor for more products; two of them side by side
    large = None if memory > LONG_SLABS else _fitting(step, *SIDES[0], group // 2, memory, matrices.subgroup, shape)
    if large is not None and large.tiles >= 2 * ENOUGH:
        return large
    found = [
        product
        for tall, broad in SIDES
        if (product := _fitting(step, tall, broad, group, memory, matrices.subgroup, shape)) and not product.far_ahead
    ]
    useful = [p for p in found if p.tall < 2 * step.m and p.broad < 2 * step.n] or found[-1:]
    return next((p for p in useful if p.tiles >= ENOUGH), useful[-1] if useful else None)


def _fitting(
    step: MatmulStep, tall: int, broad: int, group: int, memory: int, subgroup: int, shape: MatrixShape
) -> MatrixProduct | None:
    """With longer slabs rather than with shorter ones; the parts of subgroups are as much like squares as can be."""
    subgroups = group // subgroup
    given = (step.batch, step.m, step.k, step.n, step.transpose_left, step.transpose_right, group, tall, broad)
    downs = [1 << i for i in range(subgroups.bit_length()) if tall % (shape.rows << i) == 0]
    fitting = [down for down in downs if broad % (subgroups // down * shape.columns) == 0]
    if not fitting:
        return None
    down = min(fitting, key=lambda d: tall // d + broad // (subgroups // d))
    depths = [depth for depth in DEPTHS if depth < 2 * step.k] or DEPTHS[-1:]
    products = [MatrixProduct(*given, subgroups, down, depth, shape) for depth in depths]
    return next((p for p in products if p.suits(memory)), None)
