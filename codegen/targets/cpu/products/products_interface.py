"""What the module of products exports, and how code that calls it says which product it wants.

`i32 @lg_product.f32(ptr run, ptr heap, ptr left, ptr right, ptr out, ptr shape)` and `@lg_product.f64`:
out[b] = left[b] @ right[b], all of out is written. `run` is the pool's `lg_pool_run`, or another with its signature,
`heap` is the caller's own; `shape` has the words of `SHAPE`. Returns 0, or 1 where no memory could be had: then nothing
was written.

The elements of a tile are added up in an order that only `DEPTH` decides: how an array is cut into tiles, and on how
many threads, doesn't change a bit.
"""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.program import MatmulStep

EXPORTS: Final = {"float32": "lg_product.f32", "float64": "lg_product.f64"}
SHAPE: Final = {
    name: word
    for word, name in enumerate((
        "batch", "m", "k", "n",
        "left_row", "left_column", "right_row", "right_column",  # strides, in elements
        "tile_m", "tile_n",
        "short",  # 1 where all of it takes less time than waking a thread that sleeps
        "group",  # tiles of a chunk: more than one where products are small
        "narrow",  # 1 where narrow.py does it: most of a tile would be empty; tile_m is then along the longer side
    ))
}  # fmt: skip

DEPTH: Final = 256  # terms that are added up before they are added to the element
MOST_ROWS: Final = 192  # of a tile: with DEPTH and MOST_COLUMNS, what the second-level cache holds
MOST_COLUMNS: Final = 512
LEAST_ROWS: Final = 48
LEAST_COLUMNS: Final = 64
WANTED_TILES: Final = 64
LEAST_WORK: Final = 1 << 19  # multiplications of a tile: some 10 microseconds
CHUNK_WORK: Final = 1 << 18
SHORT_WORK: Final = 1 << 21
NARROW: Final = 8
DEEP: Final = 8192  # DEPTH of narrow products
NARROW_WORK: Final = 1 << 17
NARROW_LANES: Final = (16, 512, 4096)  # the fewest of a part: where terms lie side by side, where not; the most


def shape_words(step: MatmulStep) -> tuple[int, ...]:
    """The words of `SHAPE` for a step."""
    m, k, n = step.m, step.k, step.n
    narrow, work = min(m, n) < NARROW, step.batch * m * k * n
    left = (1, m) if step.transpose_left else (k, 1)
    right = (1, k) if step.transpose_right else (n, 1)
    if narrow:
        beside = right[0] if m < n else left[1]
        fewest, most = NARROW_LANES[int(beside != 1)], NARROW_LANES[2]
        tile = (max(fewest, min(most, NARROW_WORK // max(k, 1))), 1)
    else:
        tile = _tile(step.batch, m, k, n)
    short = work < (NARROW_WORK if narrow else SHORT_WORK)
    group = max(CHUNK_WORK // max(min(tile[0], m) * min(tile[1], n) * k, 1), 1)
    return step.batch, m, k, n, *left, *right, *tile, int(short), group, int(narrow)


def _tile(batch: int, m: int, k: int, n: int) -> tuple[int, int]:
    """Rows and columns of a tile: smaller ones for more threads, but none in which packing takes most of the time."""
    rows, columns = MOST_ROWS, MOST_COLUMNS
    while batch * -(-m // rows) * -(-n // columns) < WANTED_TILES and min(rows, m) * min(columns, n) * k > LEAST_WORK:
        if columns > n or (rows > LEAST_ROWS and 2 * rows >= columns):
            if rows <= LEAST_ROWS:
                break
            rows //= 2
        elif columns > LEAST_COLUMNS:
            columns //= 2
        else:
            break
    return rows, columns
