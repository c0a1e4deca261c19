"""Expected results of large cases: pieces of the lanes on all cores (NumPy releases the interpreter lock)."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

PIECE = 1 << 17


def pieces(size: int, piece: int = PIECE) -> list[slice]:
    """Slices that cover `size` lanes."""
    return [slice(start, min(start + piece, size)) for start in range(0, size, piece)] or [slice(0, 0)]


def in_pieces(function: Callable[[slice], Any], size: int, piece: int = PIECE) -> list[Any]:
    """`function` of every piece, in order."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(function, pieces(size, piece)))


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """Largest difference relative to the largest expected magnitude; a NaN that isn't expected is infinite."""
    if got.shape != want.shape:
        return float("inf")
    flat, expected = got.reshape(-1), want.reshape(-1)

    def piece(at: slice) -> tuple[float, float]:
        wide = expected[at].astype(np.float64)
        difference = np.abs(flat[at].astype(np.float64) - wide)
        return float(np.max(difference, initial=0.0)), float(np.max(np.abs(wide), initial=0.0))

    found = np.asarray(in_pieces(piece, flat.size, 1 << 20))
    error = float(found[:, 0].max()) / max(float(found[:, 1].max()), 1e-30)
    return error if error == error else float("inf")
