"""Vectors as sets: what two have in common, and what only one has.

How many there are depends on data, so these functions evaluate their arguments, as `unique` does, and raise
TracedValueError while tracing. Results are in order; NaN equals nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.elementwise import add, equal, logical_and, logical_not, subtract
from loopgrad.lazy.numpy.elementwise_compositions import isin
from loopgrad.lazy.numpy.found_positions import flatnonzero
from loopgrad.lazy.numpy.movement import concat, ravel
from loopgrad.lazy.numpy.reduction import diff
from loopgrad.lazy.numpy.sorting import argsort, sort
from loopgrad.lazy.numpy.taking import take
from loopgrad.lazy.numpy.unique import unique
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast
from loopgrad.lazy.tensor.evaluation import to_numpy
from loopgrad.lazy.tensor.operands import meet_arrays, normal_axes

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


def _each_once(x: Tensor, are_unique: bool) -> Tensor:
    """The different elements in order, or all of them as they are."""
    found = ravel(x) if are_unique else unique(x)
    assert not isinstance(found, tuple)
    return found


def intersect1d(
    x: ArrayLike, y: ArrayLike, /, assume_unique: bool = False, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """What is in x and in y, each once, in order: a vector of the dtype to which both are promoted.

    With `return_indices` a tuple: then also where each is for the first time in x, and in y, raveled (int64).
    `assume_unique`: neither holds an element twice.

    >>> lg.intersect1d([3, 1, 2], [2, 3, 5])
    Tensor([2, 3], dtype=int64)
    """
    a, b = meet_arrays(x, y)
    if return_indices and not assume_unique:
        (a, first), (b, second) = unique(a, return_index=True), unique(b, return_index=True)
    else:
        a, b = _each_once(a, assume_unique), _each_once(b, assume_unique)
    count = a._value.shape[0]
    together = concat([a, b])
    order = argsort(together)
    ordered = take(together, order)
    places = flatnonzero(equal(ordered[1:], ordered[:-1]))
    common = take(ordered, places)
    if not return_indices:
        return common
    here, there = take(order, places), subtract(take(order, add(places, 1)), count)
    return (common, here, there) if assume_unique else (common, take(first, here), take(second, there))


def setdiff1d(x: ArrayLike, y: ArrayLike, /, assume_unique: bool = False) -> Tensor:
    """What is in x and not in y, each once, in order: a vector of x's dtype.

    `assume_unique`: neither holds an element twice; then in x's order.

    >>> lg.setdiff1d([3, 1, 2], [2])
    Tensor([1, 3], dtype=int64)
    """
    a = _each_once(as_tensor(x), assume_unique)
    return take(a, flatnonzero(isin(a, y, invert=True)))


def setxor1d(x: ArrayLike, y: ArrayLike, /, assume_unique: bool = False) -> Tensor:
    """What is in x or in y but not in both, each once, in order: a vector of the dtype to which both are promoted.

    `assume_unique`: neither holds an element twice.

    >>> lg.setxor1d([3, 1, 2], [2, 5])
    Tensor([1, 3, 5], dtype=int64)
    """
    ordered = sort(concat([_each_once(t, assume_unique) for t in meet_arrays(x, y)]))
    if not ordered._value.shape[0]:
        return ordered
    same = equal(ordered[1:], ordered[:-1])
    edge = as_tensor([False])
    alone = logical_and(logical_not(concat([edge, same])), logical_not(concat([same, edge])))
    return take(ordered, flatnonzero(alone))


def ediff1d(x: ArrayLike, /, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None) -> Tensor:
    """Differences of neighbours of x raveled, with `to_begin` before and `to_end` behind them: a vector of x's dtype.

    >>> lg.ediff1d([1, 4, 9], to_end=0)
    Tensor([3, 5, 0], dtype=int64)
    """
    steps = diff(ravel(x))
    dtype = steps._value.dtype
    around = [None if part is None else cast(ravel(part), dtype) for part in (to_begin, to_end)]
    parts = [part for part in (around[0], steps, around[1]) if part is not None]
    return parts[0] if len(parts) == 1 else concat(parts)


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
