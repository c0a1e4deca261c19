"""Elements put elsewhere: by shape, by position, and added up where they meet."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import Program, integers, named, normal, sizes

TABLE_ROWS = 2**18
BINS = 2**16
SQUARE = sizes(2048, 33, 8192)
INDEXED = sizes(2**21, 1000, 2**23)


def square(n: int) -> Arrays:
    return named(x=normal((n, n))[0])


def two_squares(n: int) -> Arrays:
    x, y = normal((n, n), (n, n))
    return named(x=x, y=y)


def three_vectors(n: int) -> Arrays:
    x, y, z = normal((n,), (n,), (n,))
    return named(x=x, y=y, z=z)


def rank_4(n: int) -> Arrays:
    return named(x=normal((n, 48, 64, 32))[0])


def lookups(n: int) -> Arrays:
    return named(table=normal((TABLE_ROWS, 8))[0], index=integers((n,), TABLE_ROWS))


def looked_up(xp: Any) -> Any:
    def loss(table: Any, index: Any) -> Any:
        rows = table[index]
        return xp.sum(rows * rows)

    return loss


def looked_up_by_hand(table: Any, index: Any) -> Any:
    rows, times = table[index], np.bincount(index, minlength=len(table))
    return np.sum(rows * rows), (2.0 * times[:, None] * table).astype(table.dtype)


def embeddings(n: int) -> Arrays:
    return named(table=normal((2**15, 256))[0], index=integers((n,), 2**15))


def permuted(n: int) -> Arrays:
    order = np.random.default_rng(1).permutation(n).astype(np.int32)
    return named(x=normal((n,))[0], index=order)


def scattered(x: Any, index: Any) -> Any:
    out = np.empty_like(x)
    out[index] = x
    return out


def weights(n: int) -> Arrays:
    return named(x=normal((n,))[0], index=integers((n,), BINS))


def added(x: Any, index: Any) -> Any:
    return np.bincount(index, weights=x, minlength=BINS)


def gathered(a: Arrays) -> int:
    return 2 * a["x"].nbytes + a["index"].nbytes


PROGRAMS = {
    "gather_rows": Program(
        "rows of 8 of a table of 262,144, value and derivative", sizes(2**19, 1000, 2**21), lookups, looked_up_by_hand,
        looked_up, wrt=(0,), compiled=True, moved=lambda a: 2 * a["index"].size * 36 + 2 * a["table"].nbytes,
    ),
    "transpose": Program(
        "x.T + 1", sizes(2048, 33, 4096), square, lambda x: np.ascontiguousarray(x.T) + 1.0,
        lambda xp: lambda x: x.T + 1.0, compiled=True,
    ),
    "scatter_add": Program(
        "sums of elements in 65,536 places", sizes(2**20, 1000, 2**22), weights, added,
        lambda xp: lambda x, index: xp.zeros(BINS, dtype=x.dtype).at[index].add(x),
        torch=lambda torch: lambda x, index: torch.zeros(BINS, device=x.device).index_add_(0, index, x),
        moved=lambda a: a["x"].nbytes + a["index"].nbytes,
    ),
    "concat": Program(
        "two squares side by side", SQUARE, two_squares, lambda x, y: np.concatenate([x, y], axis=1),
        lambda xp: lambda x, y: xp.concatenate([x, y], axis=1), moved=lambda a: 4 * a["x"].nbytes,
    ),
    "roll": Program(
        "rolled by 7 along rows", SQUARE, square, lambda x: np.roll(x, 7, axis=1),
        lambda xp: lambda x: xp.roll(x, 7, axis=1), torch=lambda torch: lambda x: torch.roll(x, 7, 1),
    ),
    "flip": Program(
        "rows backwards", SQUARE, square, lambda x: np.flip(x, axis=1).copy(), lambda xp: lambda x: xp.flip(x, axis=1),
        torch=lambda torch: lambda x: torch.flip(x, (1,)),
    ),
    "strided": Program(
        "every second row, every third column", SQUARE, square, lambda x: x[::2, 1::3].copy(),
        lambda xp: lambda x: x[::2, 1::3], torch=lambda torch: lambda x: x[::2, 1::3].contiguous(),
        moved=lambda a: a["x"].nbytes // 3,
    ),
    "pad_edge": Program(
        "two more of the outermost elements at every edge", SQUARE, square, lambda x: np.pad(x, 2, mode="edge"),
        lambda xp: lambda x: xp.pad(x, 2, mode="edge"),
        torch=lambda torch: lambda x: torch.nn.functional.pad(x[None, None], (2, 2, 2, 2), mode="replicate")[0, 0],
    ),
    "interleaved": Program(
        "three vectors as columns", sizes(2**20, 1000, 2**24), three_vectors,
        lambda x, y, z: np.stack([x, y, z], axis=1), lambda xp: lambda x, y, z: xp.stack([x, y, z], 1),
        moved=lambda a: 6 * a["x"].nbytes,
    ),
    "moveaxis": Program(
        "the second of four axes becomes the last", sizes(64, 2, 512), rank_4,
        lambda x: np.ascontiguousarray(np.moveaxis(x, 1, -1)), lambda xp: lambda x: xp.moveaxis(x, 1, -1),
        torch=lambda torch: lambda x: torch.moveaxis(x, 1, -1).contiguous(),
    ),
    "gather": Program(
        "elements by position", INDEXED, permuted, lambda x, index: x[index], lambda xp: lambda x, index: x[index],
        moved=gathered,
    ),
    "scatter": Program(
        "elements to positions of a new array", INDEXED, permuted, scattered,
        lambda xp: lambda x, index: xp.zeros_like(x).at[index].set(x),
        torch=lambda torch: lambda x, index: torch.empty_like(x).index_copy_(0, index, x), moved=gathered,
    ),
    "embedding": Program(
        "rows of 256 by position", sizes(2**15, 100, 2**19), embeddings, lambda table, index: table[index],
        lambda xp: lambda table, index: table[index], moved=lambda a: 2 * 1024 * a["index"].size,
    ),
}  # fmt: skip
