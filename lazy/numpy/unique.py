"""What is there, each once: by one sort, of which neighbours are compared.

How many there are depends on data, so these functions evaluate their argument, as `nonzero` does, and raise
TracedValueError while tracing, unless `size` says how many to give, as in JAX: the first ones, then `fill_value`, or
the smallest again. Derivatives go to the first of equal elements.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.creation import arange, ones, zeros
from loopgrad.lazy.numpy.elementwise import logical_and, logical_not, not_equal, subtract
from loopgrad.lazy.numpy.found_positions import flatnonzero
from loopgrad.lazy.numpy.joining import append
from loopgrad.lazy.numpy.movement import concat, moveaxis, reshape
from loopgrad.lazy.numpy.reduction import any, diff, sum
from loopgrad.lazy.numpy.running_totals import cumsum
from loopgrad.lazy.numpy.sorting import argsort, lexsort, sort
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.numpy.taking import take
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast
from loopgrad.lazy.tensor.evaluation import evaluate
from loopgrad.lazy.tensor.operands import normal_axis
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "unique unique_all unique_counts unique_inverse unique_values"


class UniqueAll(NamedTuple):
    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    values: Tensor
    inverse_indices: Tensor


class _Unique:
    """The slices of an array along an axis (None: its elements) in order, and where each different one begins. Where
    nobody asks for `positions`, slices of one element are sorted themselves, which takes less than their positions."""

    def __init__(
        self, x: ArrayLike, axis: int | None, equal_nan: bool, size: int | None = None, fill_value: Any = None,
        positions: bool = True,
    ) -> None:  # fmt: skip
        self.x, self.axis, self.size, self.fill_value = as_tensor(x), axis, size, fill_value
        shape = self.x._value.shape
        if axis is None:
            self.slices = reshape(self.x, (prod(shape),))
        else:
            self.axis = normal_axis("unique", axis, len(shape))
            self.slices = moveaxis(self.x, self.axis, 0)
        self.count, width = self.slices._value.shape[0], prod(self.slices._value.shape[1:])
        if not width:
            fix = "choose another axis"
            raise ShapeError(explained("unique", "slices with elements", self.x._value.type, fix))
        rows = reshape(self.slices, (self.count, width))
        self.sorted: Tensor | None = None
        if width == 1 and not positions:
            self.sorted, self.begins = _elements_in_order(rows, equal_nan)
        else:
            self.order, self.begins = _rows_in_order(rows, equal_nan)
        if size is None:
            evaluate(self.order if self.sorted is None else self.sorted, self.begins)  # together, so that one sort does
        elif size and not self.count:
            fix = "leave size out, or pass 0"
            raise ShapeError(explained("unique", "at least one element where there is a size", "none", fix))
        self.first = flatnonzero(self.begins, size=size)

    @property
    def indices(self) -> Tensor:
        """Where each is for the first time."""
        return take(self.order, self.first)

    @property
    def values(self) -> Tensor:
        if self.sorted is None:
            found = take(self.slices, self.indices, axis=0)
        else:
            found = take(self.sorted, self.first)
            found = reshape(found, (*found._value.shape, *self.slices._value.shape[1:]))
        if self.size is not None and self.fill_value is not None:
            there = arange(self.size) < sum(self.begins)
            kept = reshape(there, (self.size, *(1,) * (len(found._value.shape) - 1)))
            found = where(kept, found, cast(as_tensor(self.fill_value), found._value.dtype))
        return found if self.axis is None else moveaxis(found, 0, self.axis)

    @property
    def inverse(self) -> Tensor:
        """Which of the values each slice is."""
        which = subtract(cumsum(self.begins), 1)
        found = zeros((self.count,), dtype=which.dtype).at[self.order].set(which)
        return reshape(found, self.x._value.shape) if self.axis is None else found

    @property
    def counts(self) -> Tensor:
        if self.size is None:
            return diff(append(self.first, self.count))
        return diff(flatnonzero(self.begins, size=self.size + 1, fill_value=self.count))


@repeated
def _rows_in_order(rows: Tensor, equal_nan: bool) -> tuple[Tensor, Tensor]:
    """The order of rows, and whether each in that order differs from the one before it."""
    columns = [rows[:, k] for k in range(rows._value.shape[1])]
    order = argsort(columns[0]) if len(columns) == 1 else lexsort(columns[::-1])
    return order, _begins(take(rows, order, axis=0), equal_nan)


@repeated
def _elements_in_order(rows: Tensor, equal_nan: bool) -> tuple[Tensor, Tensor]:
    """Rows of one element in order, and whether each differs from the one before it."""
    ordered = sort(rows[:, 0])
    return ordered, _begins(ordered[:, None], equal_nan)


def _begins(ordered: Tensor, equal_nan: bool) -> Tensor:
    count, width = ordered._value.shape
    later, earlier = ordered[1:], ordered[: max(count - 1, 0)]
    differs = not_equal(later, earlier)
    if equal_nan and width == 1:
        differs = logical_and(differs, logical_not(_both_nan(later, earlier)))
    return concat([ones((1,), dtype=bool), any(differs, axis=1)]) if count else ones((0,), dtype=bool)


def _both_nan(x: Tensor, y: Tensor) -> Tensor:
    return logical_and(not_equal(x, x), not_equal(y, y))


def unique(
    x: ArrayLike,
    /,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The different elements in order, as a vector of x's dtype; with `axis` the different slices along it.

    With `return_index`, `return_inverse` or `return_counts` a tuple: then also where each is for the first time, which
    of them each element is (shaped like x, with `axis` a vector), how often each is there: int64. All NaN are one
    unless `equal_nan` is False or there is an axis. Evaluates `x`, as `nonzero` does, unless `size` says how many to
    give: what is missing is `fill_value`, or the smallest again, and there 0 times. `sorted=False`, which allows NumPy
    another order, changes nothing. Slices are sorted by as many sorts as they have elements; raises ShapeError for
    slices without any.

    >>> lg.unique(lg.asarray([3.0, 1.0, 3.0]))
    Tensor([1., 3.], dtype=float64)
    >>> lg.unique(lg.asarray([3, 1, 3]), return_counts=True)
    (Tensor([1, 3], dtype=int64), Tensor([1, 2], dtype=int64))
    """
    found = _Unique(x, axis, equal_nan, size, fill_value, return_index or return_inverse)
    results = [found.values]
    if return_index:
        results.append(found.indices)
    if return_inverse:
        results.append(found.inverse)
    if return_counts:
        results.append(found.counts)
    return tuple(results) if len(results) > 1 else results[0]


def unique_values(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Tensor:
    """The different elements in order, as a vector; each NaN is one (array API standard). Evaluates, or takes a `size`,
    as `unique`; so do the other functions here.

    >>> lg.unique_values(lg.asarray([3, 1, 3]))
    Tensor([1, 3], dtype=int64)
    """
    return _Unique(x, None, False, size, fill_value, positions=False).values


def unique_counts(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> UniqueCounts:
    """`unique_values`, and how often each element is there (int64).

    >>> lg.unique_counts(lg.asarray([3, 1, 3])).counts
    Tensor([1, 2], dtype=int64)
    """
    found = _Unique(x, None, False, size, fill_value, positions=False)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> UniqueInverse:
    """`unique_values`, and which of them each element is (int64, shaped like x).

    >>> lg.unique_inverse(lg.asarray([3, 1, 3])).inverse_indices
    Tensor([1, 0, 1], dtype=int64)
    """
    found = _Unique(x, None, False, size, fill_value)
    return UniqueInverse(found.values, found.inverse)


def unique_all(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> UniqueAll:
    """`unique_values`, where each is for the first time, which of them each element is, and how often each is there.

    >>> lg.unique_all(lg.asarray([3, 1, 3])).indices
    Tensor([1, 0], dtype=int64)
    """
    found = _Unique(x, None, False, size, fill_value)
    return UniqueAll(found.values, found.indices, found.inverse, found.counts)
