"""NumPy's sorts, where other ways to the same bits are faster: rows on several threads, and no comparisons.

The result is that of a stable sort, whatever is chosen here. Elements that are equal are the same but for zeros with a
sign and NaN with bits of their own, so of all others any sort will do; NumPy's fastest is of vector code, but for
integers of 16 bits, which it sorts by digits. Positions of 32-bit elements and of halves are sorted in integers of 64
bits, an element's order above, its position below.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

WORTH_THREADS: Final = 1 << 15  # elements of a thread
LOW: Final = np.uint64((1 << 32) - 1)


def sort(x: Array, threads: int) -> Array:
    """As NumPy's stable sort along the last axis, of some elements."""
    return by_rows(_sorted_rows, x, np.empty_like(x), threads)


def argsort(x: Array, threads: int) -> Array:
    """As NumPy's stable argsort along the last axis, of some elements; int64."""
    return by_rows(_order_of_rows, x, np.empty(x.shape, np.int64), threads)


def by_rows(function: Callable[[Array], Array], x: Array, result: Array, threads: int) -> Array:
    """The function of some rows for each thread."""
    rows, target = x.reshape(-1, x.shape[-1]), result.reshape(-1, x.shape[-1])
    parts = max(min(threads, len(rows), x.size // WORTH_THREADS), 1)
    bounds = [len(rows) * k // parts for k in range(parts + 1)]

    def part(k: int) -> None:
        target[bounds[k] : bounds[k + 1]] = function(rows[bounds[k] : bounds[k + 1]])

    if parts == 1:
        part(0)
        return result
    with ThreadPoolExecutor(parts) as pool:
        for done in [pool.submit(part, k) for k in range(parts)]:
            done.result()
    return result


def _sorted_rows(x: Array) -> Array:
    by_digits = x.dtype.kind != "f" and x.dtype.itemsize <= 2
    return np.sort(x, axis=-1, kind="stable" if by_digits or not _tells_all_apart(x) else None)


def _tells_all_apart(x: Array) -> bool:
    """Whether elements that are equal have the same bits."""
    if x.dtype.kind != "f":
        return True
    zeros = np.signbit(x[x == 0])
    if zeros.any() and not zeros.all():
        return False
    nans = x[np.isnan(x)].view(f"u{x.dtype.itemsize}")
    return not nans.size or bool((nans == nans[0]).all())


def _order_of_rows(x: Array) -> Array:
    if x.dtype.itemsize != 4 and x.dtype.name != "float16":
        return np.argsort(x, axis=-1, kind="stable")
    keys = _ordered(x).astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(x.shape[-1], dtype=np.uint64)
    keys.sort(axis=-1)
    keys &= LOW
    order: Array = keys.view(np.int64)
    return order


def _ordered(x: Array) -> Array:
    """Integers without sign in the order of the elements, as codegen.scalar.ordered_bits makes them."""
    bits: Array = x.view(f"u{x.dtype.itemsize}")
    if x.dtype.kind == "u":
        return bits
    top: Any = bits.dtype.type(1 << (8 * x.dtype.itemsize - 1))
    if x.dtype.kind == "i":
        turned: Array = bits ^ top
        return turned
    size = bits & (top - 1)
    key: Array = np.where(bits > top, top - size, size | top)
    key[np.isnan(x)] = -1 & (2 * int(top) - 1)
    return key
