"""Which matrix products are cut into squares for workgroups, and how; by shape alone.

A workgroup makes a square of the product. Slabs of both operands, `depth` terms long, come through memory of the
workgroup, one loading while the one before is used. Every invocation holds `high` x `wide` elements in registers, and
where a small square needs fewer invocations than there are, the terms of each slab are shared out among `slices`,
whose sums are added in their order at the end. The larger the squares, the fewer times an operand is read, as long as
there are enough squares for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from loopgrad.codegen.program import MatmulStep
from loopgrad.codegen.targets.gpu.interface import tiny_products
from loopgrad.graph.types import DType, float32, float64

SIDES: Final = (128, 64, 32, 16)
NEXT: Final = 4  # elements side by side, which one instruction reads from memory of the workgroup
MOST_SUMS: Final = 64  # that fit into the registers of an invocation
FEW_SQUARES: Final = 128
SLAB: Final = 1024  # elements of an operand that a workgroup loads at once
SHORTEST: Final = 8  # terms of a slab: two waits a slab must be worth it
SMALLEST: Final = 8  # a product with a shorter side has no use for squares
SMALLEST_WORK: Final = 1 << 15  # terms; below that the launch is all that counts


@dataclass(frozen=True, slots=True)
class Product:
    """`batch` products of `m` x `k` and `k` x `n` matrices, row-major; a flag says that the operand is stored
    transposed. The squares have `side` rows and columns, the workgroups `group` invocations, each with `high` rows and
    `wide` columns. `slabs` are in memory at a time."""

    batch: int
    m: int
    k: int
    n: int
    transpose_left: bool
    transpose_right: bool
    group: int
    side: int
    high: int
    wide: int
    depth: int
    slabs: int

    @property
    def across(self) -> int:
        """Invocations along a row of the square."""
        return self.side // self.wide

    @property
    def threads(self) -> int:
        """Invocations of one slice."""
        return self.across * (self.side // self.high)

    @property
    def slices(self) -> int:
        return self.group // self.threads

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
        """Elements from one term of a slab to the next: neighbours that write along the terms meet in few banks, and
        each term begins where NEXT elements can be read at once."""
        return self.side + NEXT

    @property
    def elements(self) -> int:
        """In memory of the workgroup: the slabs, and later the sums of all slices."""
        slabs = 2 * self.slabs * self.depth * self.pitch
        return max(slabs, self.slices * self.side**2) if self.slices > 1 else slabs

    def fits(self, itemsize: int, memory: int) -> bool:
        return self.high * self.wide <= MOST_SUMS and self.elements * itemsize + NEXT * itemsize <= memory


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What goes on with the elements of a product. `stored`: something else reads them, too."""

    stored: bool


def squared(step: MatmulStep, dtype: DType, group: int, memory: int) -> Product | None:
    """The product in squares, or None where an invocation per element does as well. `group` and `memory`: of a
    workgroup of the target."""
    work = step.batch * step.m * step.n * step.k
    if dtype not in (float32, float64) or min(step.m, step.n, step.k) < SMALLEST or work < SMALLEST_WORK:
        return None
    if group < NEXT * NEXT or group & (group - 1) or tiny_products(step.batch, step.m, step.k, step.n):
        return None
    found = [_fitting(step, side, dtype.bits // 8, group, memory) for side in SIDES]
    fitting = [product for product in found if product is not None]
    useful = [p for p in fitting if p.side < 2 * min(step.m, step.n)] or fitting[-1:]
    return next((p for p in useful if p.tiles >= FEW_SQUARES), useful[-1] if useful else None)


def _fitting(step: MatmulStep, side: int, itemsize: int, group: int, memory: int) -> Product | None:
    """Squares of that side with the longest slabs that there is room for; more slices need more."""
    for wide in (2 * NEXT,) if side == SIDES[0] else (NEXT, NEXT // 2, 1):
        high = max(wide, side * side // (wide * group))
        if high > side:
            continue
        slices = group // ((side // high) * (side // wide))
        shortest = max(slices, -(-group // side), SHORTEST)
        depth = max(min(SLAB // side, 1 << (step.k - 1).bit_length()), shortest)
        shape = (step.batch, step.m, step.k, step.n, step.transpose_left, step.transpose_right, group, side, high, wide)
        while depth >= shortest:
            for slabs in (2, 1):
                product = Product(*shape, depth, slabs)
                if product.fits(itemsize, memory):
                    return product
            depth //= 2
    return None
