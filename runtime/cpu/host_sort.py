"""Sorts on the host: long rows by digits (native_sorts.py), short ones by NumPy, in ways that are faster than its own.

The result is that of a stable sort, whatever is chosen here. Elements that are equal are the same but for zeros with a
sign and NaN with bits of their own, so of all others any sort will do; NumPy's fastest is of vector code, but for
bytes, which it sorts by digits. Positions of few elements are sorted in integers of twice their bits or more, an
element's order above, its position below.

Where only some elements of sorted rows are read, or only the largest are wanted, long rows aren't sorted: a sample says
between which elements those are; and what isn't smaller than the k-th largest of some parts' largest elements has the
k largest among it, and few others. A few largest are found by native code in one look (largest_module.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from loopgrad.codegen.targets.cpu.sorts.sorts_interface import MOST
from loopgrad.runtime.cpu.native_pool import NativePool

Array = np.ndarray[Any, Any]
Rows = Callable[[Array, Array], None]
"""Writes to the second what it makes of the rows of the first."""

BY_DIGITS: Final = {
    1: 512,
    2: 1024,
    4: 1024,
    8: 2048,
}  # elements of a row, by the bytes of one, that NumPy sorts slower
POSITIONS_BY_DIGITS: Final = {1: 128, 2: 128, 4: 512, 8: 128}
BYTES_BY_DIGITS: Final = 32  # of a row that NumPy's stable sort, which goes by digits, sorts faster than others
WORTH_A_PART: Final = 1 << 16  # elements of a long row that a thread sorts by digits
WORTH_THREADS: Final = 1 << 15  # elements of a thread that sorts
TO_LOOK_THROUGH: Final = 1 << 19  # of one that looks for the largest by NumPy,
TO_LOOK_AT: Final = 1 << 16  # and by native code
TOGETHER: Final = 1 << 17  # elements of the rows that a cache holds while they are looked through
TO_SAMPLE: Final = 1 << 12  # elements of a row of which a sample is sorted first
SAMPLE: Final = 1 << 14  # elements of it at most; fewer of shorter rows,
SPARSE: Final = 16  # which lie so far apart
AROUND: Final = 2.0  # times the root of their number: four deviations of a median's place
MOST_PLACES: Final = 4  # that cost less than a sort
PARTS: Final = 4  # for each of the largest that are wanted,
FEW_LARGEST: Final = 8  # if they are more than these, which are found in one look at the row


def sort(x: Array, result: Array, pool: NativePool) -> None:
    """As NumPy's stable sort along the last axis, of some elements."""
    if x.shape[-1] < BY_DIGITS[x.dtype.itemsize]:
        by_rows(_sorted_rows, x, result, pool)
    else:
        sorts = pool.sorts()
        _by_digits(sorts.sort, sorts.sort_long, x, result, pool)


def argsort(x: Array, result: Array, pool: NativePool) -> None:
    """As NumPy's stable argsort along the last axis, of some elements; int64."""
    if not POSITIONS_BY_DIGITS[x.dtype.itemsize] <= x.shape[-1] <= MOST:
        by_rows(_order_of_rows, x, result, pool)
    else:
        sorts = pool.sorts()
        _by_digits(sorts.argsort, sorts.argsort_long, x, result, pool)


def _by_digits(
    each: Callable[[Array, Array], None], long: Callable[..., None], x: Array, result: Array, pool: NativePool
) -> None:
    """Rows by threads, or, where these are long and few, one after the other, each in parts by threads."""
    parts = _parts(x, pool)
    if parts > 1:
        for row, target in zip(*_as_rows(x, result), strict=True):
            long(row, target, parts, pool.each)
    else:
        by_rows(each, x, result, pool)


def select(x: Array, places: Sequence[int], result: Array, pool: NativePool) -> None:
    """Elements of which those at `places` of the last axis are as in `sort`."""
    looked_through = x.shape[-1] >= TO_SAMPLE and x.dtype.itemsize > 1 and x.dtype != np.float16
    if len(places) > MOST_PLACES or not looked_through:
        sort(x, result, pool)
    else:
        by_rows(partial(_sampled_rows, places=places), x, result, pool, TO_LOOK_THROUGH)


def top_positions(x: Array, result: Array, pool: NativePool) -> None:
    """Where the largest of the last axis are, from the largest on, of equal ones the first; int64."""
    if result.size and result.shape[-1] <= FEW_LARGEST:
        by_rows(pool.largest, x, result, pool, TO_LOOK_AT)
    elif result.size:
        by_rows(partial(_largest_of_rows, pool=pool), x, result, pool, TO_LOOK_THROUGH, TOGETHER)


def by_rows(
    function: Rows,
    x: Array,
    result: Array,
    pool: NativePool,
    worth: int = WORTH_THREADS,
    together: int | None = None,
) -> None:
    """The function of some rows for each thread that has elements `worth` its start; at a time of those with as many
    elements as go `together`."""
    rows, target = _as_rows(x, result)
    parts = max(min(pool.threads, len(rows), x.size // worth), 1)
    bounds = [len(rows) * k // parts for k in range(parts + 1)]

    step = len(rows) if together is None else max(together // x.shape[-1], 1)

    def part(k: int) -> None:
        for first in range(bounds[k], bounds[k + 1], step):
            last = min(first + step, bounds[k + 1])
            function(rows[first:last], target[first:last])

    if parts == 1:
        part(0)
    else:
        pool.each(parts, part)


def _as_rows(x: Array, result: Array) -> tuple[Array, Array]:
    return x.reshape(-1, x.shape[-1]), result.reshape(-1, result.shape[-1])


def _parts(x: Array, pool: NativePool) -> int:
    """How many threads share a row: there are fewer rows than threads."""
    rows = x.size // x.shape[-1]
    return max(min(pool.threads, x.shape[-1] // WORTH_A_PART), 1) if rows < pool.threads else 1


def _sorted_rows(x: Array, result: Array) -> None:
    by_digits = x.dtype.itemsize == 1 and x.shape[-1] >= BYTES_BY_DIGITS
    result[...] = x
    result.sort(axis=-1, kind="stable" if by_digits or not _tells_all_apart(x) else None)


def _sampled_rows(x: Array, result: Array, places: Sequence[int]) -> None:
    """What lies between two elements of a sorted sample, around the places, is little, and sorted; where they aren't
    found so, the row is. Floyd and Rivest, Expected time bounds for selection, 1975."""
    step = max(x.shape[-1] // SAMPLE, SPARSE) | 1  # odd: few rows have a period that it is a multiple of
    for row, target in zip(x, result, strict=True):
        sample = np.sort(row[::step])
        around = int(AROUND * len(sample) ** 0.5)
        for near in _neighbours(places, around * step):
            first, last = near[0] // step - around, near[-1] // step + around
            low = sample[first] if first > 0 else row.min()
            found = _between(row, low, sample[last] if last < len(sample) else row.max(), near)
            if any(v is None for v in found):
                _sorted_rows(row[None], target[None])
                break
            target[near] = found


def _neighbours(places: Sequence[int], apart: int) -> list[list[int]]:
    """The places in groups, of which one is less than that far behind the first."""
    found: list[list[int]] = []
    for place in places:
        if found and place - found[-1][0] < apart:
            found[-1].append(place)
        else:
            found.append([place])
    return found


def _between(row: Array, low: Any, high: Any, places: Sequence[int]) -> list[Any]:
    """The elements at places of the sorted row; None for one that isn't from `low` to `high`, or that others with other
    bits equal. However many equal these two, they aren't sorted. Comparisons leave out NaN."""
    up_to_low, below_high = row <= low, row < high
    first, last = (int(np.count_nonzero(among)) for among in (up_to_low, below_high))
    between = np.sort(row[below_high & ~up_to_low]) if places[-1] >= first and places[0] < last else row[:0]
    found: list[Any] = []
    for place in places:
        if place < first:
            found.append(low if place >= np.count_nonzero(row < low) else None)
        elif place >= last:
            found.append(high if place < np.count_nonzero(row <= high) else None)
        else:
            found.append(between[place - first])
    return [v if v is None or v != 0 or _tells_all_apart(row) else None for v in found]


def _largest_of_rows(x: Array, result: Array, pool: NativePool) -> None:
    """Rows are cut into parts of elements that lie `parts` apart. As many parts as there are elements wanted have one
    that isn't less than `least`, so no smaller element is among the largest. NaN is larger than every number."""
    (rows, length), k = x.shape, result.shape[-1]
    x = x.view(np.uint8) if x.dtype.kind == "b" else x
    parts = PARTS * k
    if 2 * parts > length:
        result[...] = _from_the_largest(x, pool)[:, :k]
        return
    each = length // parts
    of_parts = x[:, : each * parts].reshape(rows, each, parts).max(axis=1)
    least = np.partition(of_parts, parts - k, axis=1)[:, parts - k, None]
    among = ~(x < least)
    counts = np.count_nonzero(among, axis=1)
    if counts.sum() > 2 * parts * rows:  # many that are equal
        result[...] = _from_the_largest(x, pool)[:, :k]
        return
    found = np.flatnonzero(among)
    order = np.lexsort((~_ordered(x.reshape(-1)[found]), found // length))
    first = np.cumsum(counts) - counts
    result[...] = found[order[first[:, None] + np.arange(k)]] % length


def _from_the_largest(x: Array, pool: NativePool) -> Array:
    order = np.empty(x.shape, np.int64)
    argsort(~_ordered(x), order, pool)
    return order


def _tells_all_apart(x: Array) -> bool:
    """Whether elements that are equal have the same bits."""
    if x.dtype.kind != "f":
        return True
    zeros = np.signbit(x[x == 0])
    if zeros.any() and not zeros.all():
        return False
    nans = x[np.isnan(x)].view(f"u{x.dtype.itemsize}")
    return not nans.size or bool((nans == nans[0]).all())


def _order_of_rows(x: Array, result: Array) -> None:
    size, count = x.dtype.itemsize, x.shape[-1]
    if size == 8:
        result[...] = np.argsort(x, axis=-1, kind="stable")
        return
    narrow = size <= 2 and count <= 1 << 16
    keys = np.empty(x.shape, np.uint32) if narrow else result.view(np.uint64)
    half = keys.dtype.type(4 * keys.dtype.itemsize)
    keys[...] = _ordered(x.view(np.uint8) if x.dtype.kind == "b" else x)
    keys <<= half
    keys |= np.arange(count, dtype=keys.dtype)
    keys.sort(axis=-1)
    np.bitwise_and(keys, keys.dtype.type((1 << int(half)) - 1), out=result, casting="unsafe")


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
