"""NumPy's sorts, where other ways to the same bits are faster: rows on several threads, and no comparisons.

The result is that of a stable sort, whatever is chosen here. Elements that are equal are the same but for zeros with a
sign and NaN with bits of their own, so of all others any sort will do; NumPy's fastest is of vector code, but for
integers of 16 bits, which it sorts by digits. Positions are sorted in integers of 64 bits, an element's order above,
its position below. Where elements of 64 bits differ in more bits than that leaves them, few are alike in the upper
ones, and those few are put in order by themselves.

Where only some elements of sorted rows are read, or only the largest are wanted, rows aren't sorted: NumPy partitions
them around those; and what isn't smaller than the k-th largest of some parts' largest elements has the k largest
among it, and few others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

WORTH_THREADS: Final = 1 << 15  # elements of a thread that sorts
TO_PARTITION: Final = 1 << 17  # of one that partitions rows
TO_LOOK_THROUGH: Final = 1 << 19  # of one that looks for the largest
TOGETHER: Final = 1 << 17  # elements of the rows that a cache holds while they are looked through
MOST_PLACES: Final = 4  # that cost less than a sort
PARTS: Final = 4  # for each of the largest that are wanted
LOW: Final = np.uint64((1 << 32) - 1)
MOST_ALIKE: Final = 1 / 16  # of the elements of a row, that are worth an order of their own
WORTH_PACKING: Final = 1 << 15  # elements of a row


def sort(x: Array, threads: int) -> Array:
    """As NumPy's stable sort along the last axis, of some elements."""
    return by_rows(_sorted_rows, x, np.empty_like(x), threads)


def argsort(x: Array, threads: int) -> Array:
    """As NumPy's stable argsort along the last axis, of some elements; int64."""
    return by_rows(_order_of_rows, x, np.empty(x.shape, np.int64), threads)


def select(x: Array, places: Sequence[int], threads: int) -> Array:
    """Elements in an order in which those at `places` of the last axis are as in `sort`."""
    return by_rows(partial(_partitioned_rows, places=places), x, np.empty_like(x), threads, TO_PARTITION)


def top_positions(x: Array, k: int, threads: int) -> Array:
    """Where the k largest of the last axis are, from the largest on, of equal ones the first; int64."""
    result = np.empty((*x.shape[:-1], k), np.int64)
    return by_rows(partial(_largest_of_rows, k=k), x, result, threads, TO_LOOK_THROUGH, TOGETHER) if k else result


def by_rows(
    function: Callable[[Array], Array],
    x: Array,
    result: Array,
    threads: int,
    worth: int = WORTH_THREADS,
    together: int | None = None,
) -> Array:
    """The function of some rows for each thread that has elements `worth` its start; at a time of those with as many
    elements as go `together`."""
    rows, target = x.reshape(-1, x.shape[-1]), result.reshape(-1, result.shape[-1])
    parts = max(min(threads, len(rows), x.size // worth), 1)
    bounds = [len(rows) * k // parts for k in range(parts + 1)]

    step = len(rows) if together is None else max(together // x.shape[-1], 1)

    def part(k: int) -> None:
        for first in range(bounds[k], bounds[k + 1], step):
            last = min(first + step, bounds[k + 1])
            target[first:last] = function(rows[first:last])

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


def _partitioned_rows(x: Array, places: Sequence[int]) -> Array:
    """What lies behind one place is partitioned around the next one: NumPy's vector code knows one place."""
    if len(places) > MOST_PLACES or not _tells_all_apart(x):
        return _sorted_rows(x)
    result, behind = x.copy(), 0
    for place in places:
        result[:, behind:].partition(place - behind, axis=-1)
        behind = place + 1
    return result


def _largest_of_rows(x: Array, k: int) -> Array:
    """Rows are cut into parts of elements that lie `parts` apart. As many parts as there are elements wanted have one
    that isn't less than `least`, so no smaller element is among the largest. NaN is larger than every number."""
    rows, length = x.shape
    x = x.view(np.uint8) if x.dtype.kind == "b" else x
    parts = PARTS * k
    if 2 * parts > length:
        return _order_of_rows(~_ordered(x))[:, :k]
    each = length // parts
    of_parts = x[:, : each * parts].reshape(rows, each, parts).max(axis=1)
    least = np.partition(of_parts, parts - k, axis=1)[:, parts - k, None]
    among = ~(x < least)
    counts = np.count_nonzero(among, axis=1)
    if counts.sum() > 2 * parts * rows:  # many that are equal
        return _order_of_rows(~_ordered(x))[:, :k]
    found = np.flatnonzero(among)
    order = np.lexsort((~_ordered(x.reshape(-1)[found]), found // length))
    first = np.cumsum(counts) - counts
    best: Array = found[order[first[:, None] + np.arange(k)]] % length
    return best


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
    if x.dtype.itemsize == 8 and x.shape[-1] >= WORTH_PACKING:
        return np.stack([_order_of_wide(row) for row in x])
    if x.dtype.itemsize != 4 and x.dtype.name != "float16":
        return np.argsort(x, axis=-1, kind="stable")
    keys = _ordered(x).astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(x.shape[-1], dtype=np.uint64)
    keys.sort(axis=-1)
    keys &= LOW
    order: Array = keys.view(np.int64)
    return order


def _order_of_wide(x: Array) -> Array:
    """Of a vector of 64-bit elements: sorted are the upper bits of what tells them apart, with positions below."""
    keys = _ordered(x)
    least = keys.min()
    spread = int(keys.max() - least).bit_length()
    low = np.uint64((1 << (len(x) - 1).bit_length()) - 1)
    packed = (keys - least) << np.uint64(min(64 - spread, 63))
    packed &= ~low
    packed |= np.arange(len(x), dtype=np.uint64)
    packed.sort()
    order: Array = (packed & low).view(np.int64)
    if spread + int(low).bit_length() <= 64:
        return order
    packed |= low
    alike = packed[1:] == packed[:-1]
    if not alike.any():
        return order
    if np.count_nonzero(alike) > MOST_ALIKE * len(x):
        return np.argsort(x, kind="stable")
    within = np.zeros(len(x), np.bool_)
    within[1:] |= alike
    within[:-1] |= alike
    places = np.flatnonzero(within)
    found = order[places]
    order[places] = found[np.lexsort((found, keys[found], packed[places]))]
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
    with np.errstate(invalid="ignore"):
        negative = (x + x.dtype.type(0)).view(f"i{x.dtype.itemsize}")  # zeros have no sign
    key: Array = negative >> (8 * x.dtype.itemsize - 1)  # no bit, or all
    key |= top.astype(key.dtype)
    key ^= negative
    key = key.view(bits.dtype)
    nan = np.isnan(x)
    if nan.any():
        key[nan] = -1 & (2 * int(top) - 1)
    return key
