"""Which matrix products are cut into squares for workgroups, and how; by shape alone.

A workgroup, 16 invocations wide, makes a square of the product, each invocation some elements of it in
registers; slabs of both operands, `depth` terms long, come through memory of the workgroup. The larger the
squares, the fewer times an operand is read, as long as there are enough squares for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from loopgrad.codegen.program import MatmulStep
from loopgrad.graph.types import DType, float32, float64

WIDTH: Final = 16  # invocations of a workgroup along a row of its square
MOST_SUMS: Final = 64  # that fit into the registers of an invocation
FEW_SQUARES: Final = 128
SMALLEST: Final = 8  # a product with a shorter side has no use for squares
SMALLEST_WORK: Final = 1 << 15  # terms; below that the launch is all that counts


@dataclass(frozen=True, slots=True)
class Product:
    """`batch` products of `m` x `k` and `k` x `n` matrices, row-major; a flag says that the operand is stored
    transposed. The squares have `side` rows and columns, the workgroups `group` invocations."""

    batch: int
    m: int
    k: int
    n: int
    transpose_left: bool
    transpose_right: bool
    group: int
    side: int

    @property
    def height(self) -> int:
        """Invocations along a column of the square."""
        return self.group // WIDTH

    @property
    def depth(self) -> int:
        """Short where a slab is wide; the slab is a multiple of what the workgroup loads at once."""
        return 16 if self.side <= 2 * WIDTH else 8

    @property
    def rows(self) -> int:
        return -(-self.m // self.side)

    @property
    def columns(self) -> int:
        return -(-self.n // self.side)

    @property
    def tiles(self) -> int:
        return self.batch * self.rows * self.columns

    @property
    def pitch(self) -> int:
        """Elements from one term of a slab to the next: odd, so that neighbours lie in different banks."""
        return self.side + 1

    def fits(self, itemsize: int, memory: int) -> bool:
        sums = self.side * self.side // self.group
        return sums <= MOST_SUMS and 2 * self.depth * self.pitch * itemsize + itemsize <= memory


def squared(step: MatmulStep, dtype: DType, group: int, memory: int) -> Product | None:
    """The product in squares, or None where an invocation per element does as well. `group` and `memory`: of a
    workgroup of the target."""
    work = step.batch * step.m * step.n * step.k
    if dtype not in (float32, float64) or min(step.m, step.n, step.k) < SMALLEST or work < SMALLEST_WORK:
        return None
    if group % WIDTH or (WIDTH * WIDTH) % group:
        return None
    shape = (step.batch, step.m, step.k, step.n, step.transpose_left, step.transpose_right, group)
    sizes = [Product(*shape, WIDTH * each) for each in (8, 4, 2, 1)]
    fitting = [product for product in sizes if product.fits(dtype.bits // 8, memory)]
    return next((p for p in fitting if p.tiles >= FEW_SQUARES), fitting[-1] if fitting else None)
