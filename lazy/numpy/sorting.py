"""Sorting, and searching what is sorted.

NaN is larger than every number, as in NumPy; -0.0 equals 0.0. Complex numbers are ordered by their real parts, then by
the imaginary ones. Derivatives move as the elements do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph import ops
from loopgrad.graph.complex_numbers.table import computed
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.types import TensorType, int64
from loopgrad.lazy.numpy.elementwise import (
    add,
    equal,
    less,
    less_equal,
    logical_and,
    logical_or,
    minimum,
    not_equal,
    subtract,
)
from loopgrad.lazy.numpy.movement import flip, ravel
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.numpy.taking import take, take_along_axis
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, broadcast_value, constant, copied, wrap
from loopgrad.lazy.tensor.operands import meet_arrays, normal_axis, whole_number
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

_KINDS: Final = ("quicksort", "mergesort", "heapsort", "stable")  # NumPy's ways to sort
PUBLIC: Final = "argsort lexsort searchsorted sort top_k"


@repeated
def sort(
    x: ArrayLike, /, axis: int | None = -1, kind: str | None = None, order: None = None, *, descending: bool = False,
    stable: bool | None = True,
) -> Tensor:  # fmt: skip
    """Elements in order along an axis (None: of all, as a vector), NaN last (`descending`: first).

    Shape and dtype stay; always stable, but that `descending` turns equal elements around. `kind`, NumPy's name of a
    way to sort, changes nothing; `order` is for fields, which tensors haven't. Raises ValueError for another kind.

    >>> lg.sort(lg.asarray([3.0, 1.0, 2.0]), descending=True)
    Tensor([3., 2., 1.], dtype=float64)
    """
    _check_kind("sort", kind, order)
    t = as_tensor(x)
    if axis is None:
        t, axis = ravel(t), 0
    d = normal_axis("sort", axis, len(t._value.shape))
    result = wrap(computed("sort", t._value, axis=d))
    return wrap(ops.flip(result._value, (d,))) if descending else result


def _check_kind(op: str, kind: str | None, order: Any) -> None:
    if kind not in (None, *_KINDS):
        raise ValueError(explained(op, f"a kind among {', '.join(_KINDS)}", repr(kind), "leave it out"))
    if order is not None:
        raise ValueError(explained(op, "no order of fields", repr(order), "sort by one array: lg.argsort, lg.take"))


@repeated
def argsort(
    x: ArrayLike, /, axis: int | None = -1, kind: str | None = None, order: None = None, *, descending: bool = False,
    stable: bool | None = True,
) -> Tensor:  # fmt: skip
    """The positions (int64) that sort along an axis (None: of x raveled); equal elements keep their order.

    `kind` and `order` are those of `sort`, with its errors.

    >>> lg.argsort(lg.asarray([3.0, 1.0, 2.0]))
    Tensor([1, 2, 0], dtype=int64)
    """
    _check_kind("argsort", kind, order)
    t = as_tensor(x)
    if axis is None:
        t, axis = ravel(t), 0
    d = normal_axis("argsort", axis, len(t._value.shape))
    if not descending:
        return wrap(computed("argsort", t._value, axis=d))
    # sorting the reversed array and reversing the result keeps equal elements in their order
    backwards = wrap(computed("argsort", flip(t, axis=d)._value, axis=d))
    return copied(flip(subtract(t._value.shape[d] - 1, backwards), axis=d))


@repeated
def lexsort(keys: Sequence[ArrayLike], axis: int = -1) -> Tensor:
    """The positions (int64) that sort by the last key, equal elements of it by the one before, and so on.

    Keys are arrays of one shape; without axes the only position is 0. Raises ShapeError where they are of several
    shapes, or where there is no key.

    >>> lg.lexsort((lg.asarray([2, 1, 0]), lg.asarray([5, 5, 4])))
    Tensor([2, 1, 0], dtype=int64)
    """
    tensors = [as_tensor(key) for key in keys]
    if len({t._value.shape for t in tensors}) != 1:
        shapes = ", ".join([str(t._value.shape) for t in tensors]) or "none"
        raise ShapeError(explained("lexsort", "keys of one shape", shapes, "broadcast them first"))
    if not tensors[0]._value.shape:
        return wrap(constant(0, TensorType((), int64)))
    axis = normal_axis("lexsort", axis, len(tensors[0]._value.shape))
    order = argsort(tensors[0], axis=axis)
    for key in tensors[1:]:
        order = take_along_axis(order, argsort(take_along_axis(key, order, axis=axis), axis=axis), axis=axis)
    return order


@repeated
def top_k(x: ArrayLike, /, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
    """The k largest elements along an axis, the largest first, and their positions (int64).

    Of equal elements the first come first; NaN is larger than every number. The axis is k long in both results, values
    have x's dtype. As JAX's `lax.top_k`. Raises ValueError for a k that is negative or more than there are.

    >>> lg.top_k(lg.asarray([1.0, 7.0, 3.0, 7.0]), 3)
    (Tensor([7., 7., 3.], dtype=float64), Tensor([1, 3, 2], dtype=int64))
    """
    t = as_tensor(x)
    d = normal_axis("top_k", axis, len(t._value.shape))
    count, k = t._value.shape[d], whole_number("top_k", "a number of elements", k)
    if not 0 <= k <= count:
        raise ValueError(explained("top_k", f"0 to {count} elements", str(k), "choose a smaller k, or another axis"))
    order = wrap(ops.top_positions(t._value, k, d))
    return take_along_axis(t, order, axis=d), order


@repeated
def searchsorted(
    a: ArrayLike, v: ArrayLike, side: str = "left", sorter: ArrayLike | None = None, *, method: str = "scan"
) -> Tensor:
    """Where to insert `v` into the sorted vector `a` so that it stays sorted: int64, of v's shape.

    `side` "left" is before equal elements, "right" behind them; `sorter` has the positions that sort `a` where it isn't
    sorted. By halves: about log2(size of `a`) looks for each of `v`, whatever `method`, JAX's, says. Raises ShapeError
    where `a` isn't a vector, or `sorter` not as long as it, ValueError for another side.

    >>> lg.searchsorted(lg.asarray([1.0, 2.0, 4.0]), lg.asarray([2.0, 3.0]))
    Tensor([1, 2], dtype=int64)
    """
    if side not in ("left", "right"):
        raise ValueError(explained("searchsorted", "side 'left' or 'right'", repr(side), "pass one of them"))
    table, keys = meet_arrays(a, v)
    if len(table._value.shape) != 1:
        raise ShapeError(explained("searchsorted", "one dimension", table._value.type, "ravel it"))
    if sorter is not None:
        order = as_tensor(sorter)._value
        if order.shape != table._value.shape or not order.dtype.is_integer:
            expected = f"a sorter of integers, of shape {table._value.shape}"
            raise ShapeError(explained("searchsorted", expected, order.type, "pass lg.argsort(a)"))
        table = take(table, sorter, axis=0)
    count, shape = table._value.shape[0], keys._value.shape
    found = wrap(constant(0, TensorType(shape, int64)))
    for bit in reversed(range(count.bit_length())):
        further = add(found, 1 << bit)
        place = broadcast_value(subtract(minimum(further, count), 1)._value, shape)
        goes_on = _comes_before(wrap(ops.gather(table._value, place)), keys, side)
        found = where(logical_and(less_equal(further, count), goes_on), further, found)
    return found


def _comes_before(element: Tensor, key: Tensor, side: str) -> Tensor:
    """Whether a key is put behind the element."""
    before = less(element, key) if side == "left" else less_equal(element, key)
    if key._value.dtype.kind != "f":
        return before
    last = not_equal(key, key)  # NaN is sorted behind everything
    return logical_or(before, last if side == "right" else logical_and(last, equal(element, element)))
