"""Which matrix products are cut into rectangles for workgroups, and how; by shape alone.

A workgroup makes a rectangle of the product. Slabs of both operands, `depth` terms long, come through memory of the
workgroup, one loading while the one before is used. Every invocation holds `high` x `wide` elements in registers, and
where a small rectangle needs fewer invocations than there are, the terms of each slab are shared out among `slices`,
whose sums are added in their order at the end. The larger the rectangles, the fewer times an operand is read, as long
as there are enough of them for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from loopgrad.codegen.product_shapes import thin_product
from loopgrad.codegen.program import MatmulStep
from loopgrad.codegen.targets.gpu.interface import tiny_products
from loopgrad.graph.types import DType, float32, float64

SIDES: Final = (256, 128, 64, 32, 16)
LONGEST: Final = 8  # times the shorter side
NEXT: Final = 4  # elements side by side, which one instruction reads from memory of the workgroup
MOST_SUMS: Final = 64  # that fit into the registers of an invocation
FEW_RECTANGLES: Final = 192  # three for two of the multiprocessors of a large device
SLAB: Final = 1024  # elements of an operand that a workgroup loads at once
SHORT: Final = 32  # terms of a slab of the smallest rectangles
SHORTEST: Final = 8  # terms of a slab: two waits a slab must be worth it
SMALLEST: Final = 8  # a product with a shorter side has no use for rectangles
MANY_SUMS: Final = 64  # elements for each invocation, from which on it has twice as many of a row
SMALLEST_WORK: Final = 1 << 15  # terms; below that the launch is all that counts
THIN_SIDE: Final = 128  # of rectangles of thin products, along their long side
THIN_DEPTH: Final = 16


@dataclass(frozen=True, slots=True)
class ProductRectangles:
    """`batch` products of `m` x `k` and `k` x `n` matrices, row-major; a flag says that the operand is stored
    transposed. Rectangles have `tall` rows and `broad` columns, workgroups `group` invocations."""

    batch: int
    m: int
    k: int
    n: int
    transpose_left: bool
    transpose_right: bool
    group: int
    tall: int
    broad: int

    @property
    def rows(self) -> int:
        return -(-self.m // self.tall)

    @property
    def columns(self) -> int:
        return -(-self.n // self.broad)

    @property
    def tiles(self) -> int:
        return self.batch * self.rows * self.columns


@dataclass(frozen=True, slots=True)
class Product(ProductRectangles):
    """By invocations that have `high` rows and `wide` columns each. `slabs` are in memory at a time."""

    high: int
    wide: int
    depth: int
    slabs: int

    @property
    def across(self) -> int:
        """Invocations along a row of the rectangle."""
        return self.broad // self.wide

    @property
    def threads(self) -> int:
        """Invocations of one slice."""
        return self.across * (self.tall // self.high)

    @property
    def slices(self) -> int:
        return self.group // self.threads

    @property
    def pitches(self) -> tuple[int, int]:
        """Of each operand, elements from one term of a slab to the next: neighbours that write along the terms meet in
        few banks, and each term begins where NEXT elements can be read at once."""
        return self.tall + NEXT, self.broad + NEXT

    @property
    def slab(self) -> int:
        """Elements of both operands' slabs."""
        return self.depth * sum(self.pitches)

    @property
    def elements(self) -> int:
        """In memory of the workgroup: the slabs, and later the sums of all slices."""
        slabs = self.slabs * self.slab
        return max(slabs, self.slices * self.tall * self.broad) if self.slices > 1 else slabs

    def fits(self, itemsize: int, memory: int) -> bool:
        return self.high * self.wide <= MOST_SUMS and self.elements * itemsize + NEXT * itemsize <= memory


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What goes on with the elements of a product. `stored`: something else reads them, too."""

    stored: bool


def in_rectangles(step: MatmulStep, dtype: DType, group: int, memory: int) -> Product | None:
    """The product in rectangles, or None where an invocation per element does as well. `group` and `memory`: of a
    workgroup of the target."""
    work = step.batch * step.m * step.n * step.k
    if dtype not in (float32, float64) or min(step.m, step.n, step.k) < SMALLEST or work < SMALLEST_WORK:
        return None
    if group < NEXT * NEXT or group & (group - 1) or tiny_products(step.batch, step.m, step.k, step.n):
        return None
    if dtype is float32 and thin_product(step.m, step.k, step.n):
        thin = _thin(step, group)
        if thin.fits(dtype.bits // 8, memory):
            return thin
    found = [_fitting(step, tall, broad, dtype.bits // 8, group, memory) for tall, broad in _shapes()]
    fitting = [product for product in found if product is not None]
    useful = [p for p in fitting if p.tall < 2 * step.m and p.broad < 2 * step.n] or fitting[-1:]
    return next((p for p in useful if p.tiles >= FEW_RECTANGLES), useful[-1] if useful else None)


def _thin(step: MatmulStep, group: int) -> Product:
    """Short rectangles of the whole short side, of which every invocation has elements of its own: there are too few
    terms to share them out. Where each has 32 and the short operand's terms are lines, one long slab is better than
    two: with what follows, 2^17 x 64 x 64 takes 62 us on an H200 so, 82 with two of half as many terms, and
    2^18 x 32 x 32 47, 60 with 16 elements each."""
    short = max(SIDES[-1], 1 << (min(step.m, step.n) - 1).bit_length())
    lines = not step.transpose_right if step.n <= step.m else step.transpose_left
    narrow = short == 2 * SIDES[-1]
    long = 2 * THIN_SIDE if lines and narrow else THIN_SIDE
    tall, broad = (long, short) if step.n <= step.m else (short, long)
    wide = NEXT
    while tall * broad < wide * group:
        wide //= 2
    high = tall * broad // (wide * group)
    one = lines and short >= 2 * SIDES[-1] and (step.k > 2 * THIN_DEPTH or not narrow)
    most = 2 * THIN_DEPTH if one else THIN_DEPTH
    depth = max(min(most, 1 << (step.k - 1).bit_length()), group // short, SHORTEST)
    shape = (step.batch, step.m, step.k, step.n, step.transpose_left, step.transpose_right, group)
    return Product(*shape, tall, broad, high, wide, depth, 2 if step.k > depth and not one else 1)


def _shapes() -> list[tuple[int, int]]:
    """Rows and columns of rectangles, the largest ones first, of those the ones that are most like squares, and of two
    the broad one, whose rows are read side by side."""
    found = [(tall, broad) for tall in SIDES for broad in SIDES if max(tall, broad) <= LONGEST * min(tall, broad)]
    return sorted(found, key=lambda shape: (-shape[0] * shape[1], abs(shape[0] - shape[1]), shape[0]))


def _fitting(step: MatmulStep, tall: int, broad: int, itemsize: int, group: int, memory: int) -> Product | None:
    """Rectangles of these sides, with two slabs rather than with longer ones; more slices need more. Of the smallest
    ones a short slab is in memory at a time: 64 x 1,536 x 512 takes 11 us on an H200 so, 15 with two long ones."""
    smallest = tall == broad == SIDES[-1]
    longest = SHORT if smallest else SLAB // max(tall, broad)
    shape = (step.batch, step.m, step.k, step.n, step.transpose_left, step.transpose_right, group)
    for high, wide in _held(tall * broad // group):
        if high > tall:
            continue
        slices = group // ((tall // high) * (broad // wide))
        shortest = max(slices, -(-group // min(tall, broad)), SHORTEST)
        for slabs in (1,) if smallest else (2, 1):
            depth = max(min(longest, 1 << (step.k - 1).bit_length()), shortest)
            while depth >= shortest:
                product = Product(*shape, tall, broad, high, wide, depth, slabs)
                if product.fits(itemsize, memory):
                    return product
                depth //= 2
    return None


def _held(each: int) -> list[tuple[int, int]]:
    """Rows and columns that an invocation has of a rectangle with so many elements for `each`, the best first. Those
    with 16 have 32, by half as many invocations in two slices: reading from memory of the workgroup takes as long as
    multiplying else. 1,024 x 1,024 x 1,024 takes 58 us on an H200 so, 71 with 16, 57 by cuBLAS."""
    if each >= MANY_SUMS:
        return [(max(2 * NEXT, each // (2 * NEXT)), 2 * NEXT)]
    found = [(max(wide, each // wide), wide) for wide in (NEXT, NEXT // 2, 1)]
    return [(2 * NEXT, NEXT), *found] if each == NEXT * NEXT else found
