"""What the module of products exports, and how code that calls it says which product it wants.

`i32 @lg_product.f32(ptr run, ptr heap, ptr left, ptr right, ptr out, ptr shape)` and `@lg_product.f64`:
out[b] = left[b] @ right[b], all of out is written. `@lg_product.few.f32` and its like do the same, in tiles for few
threads. `run` is the pool's `lg_pool_run`, or another with its signature,
`heap` is the caller's own; `shape` has the words of `SHAPE`. Returns 0, or 1 where no memory could be had: then nothing
was written.

The elements of a tile are added up in an order that only `DEPTH` decides: how an array is cut into tiles, and on how
many threads, doesn't change a bit.
"""

from __future__ import annotations

from itertools import product
from typing import Final, NamedTuple

from loopgrad.codegen.program import MatmulStep

EXPORTS: Final = {"float32": "lg_product.f32", "float64": "lg_product.f64"}
EXPORTS_FOR_FEW: Final = {"float32": "lg_product.few.f32", "float64": "lg_product.few.f64"}
FEW_THREADS: Final = 4
SHAPE: Final = {
    name: word
    for word, name in enumerate((
        "batch", "m", "k", "n",
        "left_row", "left_column", "right_row", "right_column",  # strides, in elements
        "tile_m", "tile_n",
        "short",  # 1 where all of it takes less time than waking a thread that sleeps
        "group",  # tiles of a chunk: more than one where products are small
        "few_m", "few_n", "few_group",  # the same for few threads
        "narrow",  # 1 where narrow.py does it: most of a tile would be empty; tile_m is then along the longer side
        "small",  # 1 where small.py does it, without packing: tile_m is rows of a part
    ))
}  # fmt: skip

DEPTH: Final = 256  # terms that are added up before they are added to the element
ROWS: Final = (192, 128, 96, 64, 48, 32)  # of a tile: with DEPTH and COLUMNS, what the second-level cache holds
COLUMNS: Final = (512, 384, 256, 192, 128, 96, 64, 32)
AT_ONCE: Final = 32  # multiplications of an AVX-512 core in a cycle
PACKED: Final = 0.8  # cycles of an element that is packed
STARTED: Final = 1000  # of a tile
CHUNK_WORK: Final = 1 << 18
SHORT_WORK: Final = 1 << 21
NARROW: Final = 8
DEEP: Final = 8192  # DEPTH of narrow products
NARROW_WORK: Final = 1 << 17
FEW_ROWS: Final = 16  # which are multiplied by rows that are read as they lie
SMALL: Final = 48  # rows, columns and terms of what is small, at most
FEW_COLUMNS: Final = 16  # of what is small whatever the other extents are
FEW_TERMS: Final = 32  # where they lie side by side
NARROW_LANES: Final = (16, 512, 4096)  # the fewest of a part: where terms lie side by side, where not; the most


def shape_words(step: MatmulStep) -> tuple[int, ...]:
    """The words of `SHAPE` for a step."""
    m, k, n = step.m, step.k, step.n
    small, work = _is_small(step), step.batch * m * k * n
    narrow = not small and _is_narrow(step)
    left = (1, m) if step.transpose_left else (k, 1)
    right = (1, k) if step.transpose_right else (n, 1)
    if narrow:
        beside = right[0] if m < n else left[1]
        fewest, most = NARROW_LANES[int(beside != 1)], NARROW_LANES[2]
        many = few = ProductTile(max(fewest, min(most, NARROW_WORK // max(k, 1))), 1)
    elif small:
        rows = max(CHUNK_WORK // max(k * n, 1), 1)
        many = few = ProductTile(_even(m, -(-rows // 8) * 8, 8), max(n, 1))
    else:
        many, few = (best_tile(step, threads) for threads in (4 * FEW_THREADS, FEW_THREADS))
    short = work < (NARROW_WORK if narrow else SHORT_WORK)
    groups = [max(CHUNK_WORK // max(min(tile.m, m) * min(tile.n, n) * k, 1), 1) for tile in (many, few)]
    return step.batch, m, k, n, *left, *right, *many, int(short), groups[0], *few, groups[1], int(narrow), int(small)


def _is_narrow(step: MatmulStep) -> bool:
    """Whether packing would take most of the time: few rows or columns."""
    return min(step.m, step.n) < NARROW or (step.m < FEW_ROWS and not step.transpose_right)


def _is_small(step: MatmulStep) -> bool:
    """Whether rows of `right` are a vector or few, and so few elements are sums that those stay in registers, or terms
    so few that sums of vectors of them would be mostly ends. By one vector there are no lanes for columns."""
    m, k, n = step.m, step.k, step.n
    if step.transpose_right:
        return False
    if min(m, n) >= NARROW:
        return n <= FEW_COLUMNS or max(m, k, n) <= SMALL
    if not step.transpose_left and m > n:
        return k <= FEW_TERMS and n > 1
    return min(m, n) > 1 and max(m, n) <= FEW_COLUMNS


def adds_alike(rows: int, columns: int) -> bool:
    """Whether the elements of products of at least so many rows are added up in one order, however many rows there
    are: all are narrow, and in one way, or none is."""
    return min(rows, columns) >= NARROW or columns < min(rows, NARROW)


class ProductTile(NamedTuple):
    """Its rows and columns."""

    m: int
    n: int


def best_tile(step: MatmulStep, threads: int) -> ProductTile:
    """The tile with which so many threads are done first: large ones, of which less is packed, but one for each thread,
    and none of which much would be empty."""
    sizes = {
        ProductTile(_even(step.m, rows, 8), _even(step.n, columns, 32)) for rows, columns in product(ROWS, COLUMNS)
    }
    return min(sorted(sizes, reverse=True), key=lambda tile: _cycles(step, tile, threads))


def _even(extent: int, most: int, unit: int) -> int:
    """The extent in parts as equal as units allow, none larger than `most`."""
    part = -(-extent // max(-(-extent // most), 1))
    return max(-(-part // unit) * unit, unit)


def _cycles(step: MatmulStep, tile: ProductTile, threads: int) -> float:
    tiles = step.batch * -(-step.m // tile.m) * -(-step.n // tile.n)
    one = step.k * (tile.m * tile.n / AT_ONCE + PACKED * (tile.m + tile.n)) + STARTED
    return -(-tiles // threads) * one
