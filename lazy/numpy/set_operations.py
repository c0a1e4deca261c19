"""Vectors as sets: what two have in common, and what only one has.

How many there are depends on data, so these functions evaluate their arguments, as `unique` does, and raise
TracedValueError while tracing, unless `size` says how many to give. Results are in order; NaN equals nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.creation import arange, zeros
from loopgrad.lazy.numpy.elementwise import logical_and, logical_not, minimum, not_equal
from loopgrad.lazy.numpy.elementwise_compositions import isin
from loopgrad.lazy.numpy.found_positions import flatnonzero
from loopgrad.lazy.numpy.movement import concat, ravel
from loopgrad.lazy.numpy.reduction import diff
from loopgrad.lazy.numpy.reduction import sum as total
from loopgrad.lazy.numpy.sorting import argsort, searchsorted, sort
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.numpy.taking import take
from loopgrad.lazy.numpy.unique import unique
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast
from loopgrad.lazy.tensor.evaluation import to_numpy
from loopgrad.lazy.tensor.operands import meet_arrays, normal_axes
from loopgrad.lazy.tensor.promotion import allow_cast
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "ediff1d intersect1d setdiff1d setxor1d trim_zeros union1d"


def union1d(x: ArrayLike, y: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Tensor:
    """What is in x or in y, each once, in order: a vector of the dtype to which both are promoted. `size` and
    `fill_value` are those of `unique`.

    >>> lg.union1d([3, 1], [1, 2])
    Tensor([1, 2, 3], dtype=int64)
    """
    found = unique(concat([ravel(t) for t in meet_arrays(x, y)]), size=size, fill_value=fill_value)
    assert not isinstance(found, tuple)
    return found


def _begins(ordered: Tensor) -> Tensor:
    """Where an element of a vector in order is for the first time; all NaN are one."""
    if not ordered._value.shape[0]:
        return zeros((0,), dtype=bool)
    later, earlier = ordered[1:], ordered[:-1]
    both_nan = logical_and(not_equal(later, later), not_equal(earlier, earlier))
    return concat([as_tensor([True]), logical_and(not_equal(later, earlier), logical_not(both_nan))])


class _ChosenElements:
    """The elements of a vector where a mask holds: all of them, which evaluates it, or `size`: then `fill_value` in
    place of what is missing (None: the first of them, or 0 where there is none)."""

    def __init__(self, mask: Tensor, size: int | None) -> None:
        self.mask, self.size = mask, size
        self.places = flatnonzero(mask, size=size)

    def of(self, x: Tensor, fill_value: ArrayLike | None) -> Tensor:
        if self.size is None:
            return take(x, self.places)
        if not x._value.shape[0]:
            x, there = zeros((1,), dtype=x._value.dtype), zeros((self.size,), dtype=bool)
        else:
            there = arange(self.size) < total(self.mask)
        found = take(x, self.places)
        usual = where(there[:1], found[:1], 0) if fill_value is None else as_tensor(fill_value)
        return where(there, found, cast(usual, x._value.dtype))


def intersect1d(
    x: ArrayLike, y: ArrayLike, /, assume_unique: bool = False, return_indices: bool = False, *,
    size: int | None = None, fill_value: ArrayLike | None = None,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """What is in x and in y, each once, in order: a vector of the dtype to which both are promoted.

    With `return_indices` a tuple: then also where each is for the first time in x, and in y, raveled (int64).
    `assume_unique`: neither holds an element twice. With JAX's `size` there are so many, of which those that are
    missing are `fill_value` (None: the smallest), and their places the lengths of x and of y.

    >>> lg.intersect1d([3, 1, 2], [2, 3, 5])
    Tensor([2, 3], dtype=int64)
    >>> lg.intersect1d([3, 1, 2], [2, 3, 5], size=3, fill_value=-1)
    Tensor([ 2,  3, -1], dtype=int64)
    """
    a, b = map(ravel, meet_arrays(x, y))
    order = argsort(a)
    ordered = take(a, order)
    chosen = _ChosenElements(logical_and(_begins(ordered), isin(ordered, b)), size)
    common = chosen.of(ordered, fill_value)
    if not return_indices:
        return common
    there = argsort(b)
    count = b._value.shape[0]
    places = searchsorted(take(b, there), take(ordered, chosen.places)) if count else chosen.places
    behind = take(there, minimum(places, count - 1)) if count else places
    if size is None:
        return common, take(order, chosen.places), behind
    known = arange(size) < total(chosen.mask)
    return common, chosen.of(order, a._value.shape[0]), where(known, behind, count)


def setdiff1d(
    x: ArrayLike, y: ArrayLike, /, assume_unique: bool = False, *, size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """What is in x and not in y, each once, in order: a vector of x's dtype.

    `assume_unique`: neither holds an element twice; then in x's order. With JAX's `size` there are so many, of which
    those that are missing are `fill_value` (None: 0).

    >>> lg.setdiff1d([3, 1, 2], [2])
    Tensor([1, 3], dtype=int64)
    """
    a = ravel(x) if assume_unique else sort(ravel(x))
    left = isin(a, y, invert=True)
    mask = left if assume_unique else logical_and(_begins(a), left)
    return _ChosenElements(mask, size).of(a, 0 if fill_value is None else fill_value)


def setxor1d(
    x: ArrayLike, y: ArrayLike, /, assume_unique: bool = False, *, size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """What is in x or in y but not in both, each once, in order: a vector of the dtype to which both are promoted.

    `assume_unique`: neither holds an element twice. `size` and `fill_value` are those of `intersect1d`.

    >>> lg.setxor1d([3, 1, 2], [2, 5])
    Tensor([1, 3, 5], dtype=int64)
    """
    a, b = [sort(ravel(t)) for t in meet_arrays(x, y)]
    alone = [logical_and(_begins(s), isin(s, t, invert=True)) for s, t in ((a, b), (b, a))]
    together = concat([a, b])
    order = argsort(together)
    return _ChosenElements(take(concat(alone), order), size).of(take(together, order), fill_value)


@repeated
def ediff1d(x: ArrayLike, /, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None) -> Tensor:
    """Differences of neighbours of x raveled, with `to_begin` before and `to_end` behind them: a vector of x's dtype.

    Raises DTypeError for ends of another kind, which that dtype can't hold.

    >>> lg.ediff1d([1, 4, 9], to_end=0)
    Tensor([3, 5, 0], dtype=int64)
    """
    steps = diff(ravel(x))
    dtype = steps._value.dtype
    parts = [ravel(part) for part in (to_begin, steps, to_end) if part is not None]
    for part in parts:
        allow_cast("ediff1d", part._value.dtype, dtype, "same_kind")
    return steps if len(parts) == 1 else concat([cast(part, dtype) for part in parts])


def trim_zeros(x: ArrayLike, /, trim: str = "fb", axis: Any = None) -> Tensor:
    """x without the zeros at its front ("f" in `trim`) and back ("b"), along `axis` (None: all): a copy.

    Evaluates x, whose zeros decide the shape. Raises ValueError for another `trim`.

    >>> lg.trim_zeros([0, 0, 1, 0, 2, 0])
    Tensor([1, 0, 2], dtype=int64)
    """
    sides = trim.lower() if isinstance(trim, str) else None
    if sides not in ("f", "b", "fb", "bf"):
        raise ValueError(explained("trim_zeros", "trim 'f', 'b' or 'fb'", repr(trim), "pass one of them"))
    t = as_tensor(x)
    shape = t._value.shape
    if not shape:
        raise ShapeError(explained("trim_zeros", "at least one axis", t._value.type, "reshape it"))
    places = to_numpy(t, "index").nonzero()
    chosen = normal_axes("trim_zeros", axis, len(shape))
    index = []
    for d, (extent, found) in enumerate(zip(shape, places, strict=True)):
        start, stop = (int(found.min()), int(found.max()) + 1) if found.size else (extent, extent)
        if d not in chosen:
            start, stop = 0, extent
        index.append(slice(start if "f" in sides else 0, stop if "b" in sides else extent))
        if not found.size and d in chosen and "f" not in sides:
            index[-1] = slice(0, 0)
    return t[tuple(index)].copy()
