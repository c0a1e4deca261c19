"""The methods of NumPy's ufuncs: `add.reduce(x)`, `subtract.outer(x, y)`, `maximum.at(x, i, v)` and so on.

    reduce      f(f(x[0], x[1]), x[2]) ... along an axis: a reduction where there is one, stretches side by side where
                the order doesn't matter, else a scan
    accumulate  what `reduce` has so far: a running total where there is one, else a scan
    reduceat    `reduce` of stretches of an axis, a lane each, which runs as many trips as its stretch is long
    outer       of all pairs
    at          writes to x: repeated positions are computed one after the other

Derivatives are those of the reductions, scans, loops and scatters. `lazy.tensor.outputs` hangs the methods on the
functions, and NumPy's ufuncs called with tensors come here as well (`numpy_protocols`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from loopgrad.graph.errors import DTypeError, IndexRangeError, ShapeError, explained
from loopgrad.graph.types import DType, bool_
from loopgrad.lazy.loops.fori_loop import fori_loop
from loopgrad.lazy.loops.scan import scan
from loopgrad.lazy.numpy import reduction, running_totals
from loopgrad.lazy.numpy.at_updates import At
from loopgrad.lazy.numpy.creation import arange
from loopgrad.lazy.numpy.elementwise import less
from loopgrad.lazy.numpy.indexing import get_item
from loopgrad.lazy.numpy.movement import broadcast_to, concat, moveaxis, ravel, reshape
from loopgrad.lazy.numpy.special_values import where as chosen
from loopgrad.lazy.numpy.taking import take_along_axis
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, as_tensor, cast, requested_dtype
from loopgrad.lazy.tensor.operands import as_bool, as_first, as_mask, normal_axes, normal_axis
from loopgrad.lazy.tensor.outputs import UfuncFunction, assign, delivered
from loopgrad.lazy.tensor.promotion import sum_dtype
from loopgrad.lazy.tensor.storage import is_number

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor


class _Own(NamedTuple):
    """What a function's reduction and running total are where there are any, its update of `x.at`, and whether it adds
    up small integers in 64 bits."""

    reduction: Callable[..., Tensor]
    running: Callable[..., Tensor] | None
    update: str = ""
    widens: bool = False


_OWN: Final = {
    "add": _Own(reduction.sum, running_totals.cumsum, "add", widens=True),
    "multiply": _Own(reduction.prod, running_totals.cumprod, "multiply", widens=True),
    "maximum": _Own(reduction.max, running_totals.cummax, "max"),
    "minimum": _Own(reduction.min, running_totals.cummin, "min"),
    "logical_and": _Own(reduction.all, None),
    "logical_or": _Own(reduction.any, None),
}
_ANY_ORDER: Final = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor", "logical_xor"})
ELEMENTS: Final = 32  # of an axis, whose code is straight
_PLAIN: Final = (int, slice, type(None), type(Ellipsis))


def method_of(name: str) -> Callable[..., Any]:
    """`reduce(function, ...)` and its like by name."""
    return _METHODS[name]


def _of_two(f: UfuncFunction, method: str) -> str:
    """What errors call it; ValueError for a function of one operand."""
    if f.nin != 2:
        fix = f"call lg.{f.__name__}(x)"
        raise ValueError(explained(f"{f.__name__}.{method}", "a function of two operands", "one of one", fix))
    return f"{f.__name__}.{method}"


def _operand(f: UfuncFunction, method: str, x: ArrayLike, dtype: Any) -> Tensor:
    """x in the dtype that the results have."""
    t, own = as_tensor(x), _OWN.get(f.__name__)
    wanted = requested_dtype(dtype)
    if wanted is None:
        wanted = sum_dtype(t._value.dtype) if own and own.widens else _result_dtype(f, method, t)
    return as_bool(t) if wanted is bool_ else cast(t, wanted)


def _result_dtype(f: UfuncFunction, method: str, t: Tensor) -> DType:
    dtype = f(t, t)._value.dtype
    if dtype is bool_ and t._value.dtype is not bool_ and f.identity is None:
        fix = "compare with lg.all, lg.diff or a loop"
        raise DTypeError(explained(f"{f.__name__}.{method}", "bools, which its results are", t._value.dtype, fix))
    return dtype


def reduce(
    f: UfuncFunction, x: ArrayLike, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False,
    initial: Any = None, where: Any = True,
) -> Tensor:  # fmt: skip
    """The elements along an axis (None: all, or several where their order doesn't matter) put together by the function.

    Raises ValueError for no elements, or a mask, where neither `initial` nor the function has a first one.
    """
    op, own = _of_two(f, "reduce"), _OWN.get(f.__name__)
    t = _operand(f, "reduce", x, dtype)
    axes = () if not t.shape and axis in (0, -1) else normal_axes(op, axis, t.ndim)
    if own is None and len(axes) > 1 and f.identity is None:
        fix = "reduce one axis after the other"
        raise ValueError(explained(op, "one axis, since the order matters", axis, fix))
    if (where is not True or 0 in [t.shape[a] for a in axes]) and initial is None and f.identity is None:
        fix = "pass initial=, the element to begin with"
        raise ValueError(explained(op, "initial= for a mask or no elements", "none", fix))
    if initial is not None:
        initial = reduction.first_element(op, initial, t.dtype) if f.__name__ in _ANY_ORDER else as_first(op, initial)
    if own is None:
        result = (_put_together if f.__name__ in _ANY_ORDER else _folded)(f, t, axes, initial, where)
        kept = [1 if d in axes else n for d, n in enumerate(t.shape)]
        return delivered(op, reshape(result, kept) if keepdims else result, out)
    options: dict[str, Any] = ({} if where is True else {"where": where}) | ({"dtype": t.dtype} if own.widens else {})
    if initial is not None and (own.widens or f.identity is None):
        return own.reduction(t, axis=axes, out=out, keepdims=keepdims, initial=initial, **options)
    result = own.reduction(t, axis=axes, keepdims=keepdims, **options)
    return delivered(op, result if initial is None else f(result, initial), out)


def _put_together(f: UfuncFunction, t: Tensor, axes: tuple[int, ...], initial: Any, where: Any) -> Tensor:
    """By a function that gives the same in any order and has an element that changes nothing."""
    if where is not True:
        t = chosen(as_mask(f.__name__, where), t, cast(as_tensor(f.identity), t.dtype))
    for d in sorted(axes, reverse=True):
        t = _without(f, t, d)
    return t if initial is None else f(initial, t)


def _without(f: UfuncFunction, t: Tensor, d: int) -> Tensor:
    """Without an axis. A long one is cut into about as many stretches as these have elements, whose first, second and
    further elements lanes put together side by side, reading neighbours."""
    n, before = t.shape[d], (slice(None),) * d
    if not n:
        return broadcast_to(cast(as_tensor(f.identity), t.dtype), (*t.shape[:d], *t.shape[d + 1 :]))
    if n <= ELEMENTS:
        return functools.reduce(f, [get_item(t, (*before, k)) for k in range(n)])
    length = 1 << n.bit_length() // 2
    whole, rest = (get_item(t, (*before, part)) for part in (slice(n - n % length), slice(n - n % length, None)))
    rows = reshape(whole, (*t.shape[:d], n // length, length, *t.shape[d + 1 :]))

    def put(k: Any, total: Tensor) -> Tensor:
        return f(total, get_item(rows, (*before, k)))

    result = _without(f, fori_loop(1, n // length, put, get_item(rows, (*before, 0))), d)
    return f(result, _without(f, rest, d)) if n % length else result


def _folded(f: UfuncFunction, t: Tensor, axes: tuple[int, ...], initial: Any, where: Any) -> Tensor:
    """From the first element on, or from `initial` or what changes nothing, where that is needed."""
    mask = None if where is True else _rows(broadcast_to(as_mask(f.__name__, where), t.shape), axes)
    rows = _rows(t, axes)
    if initial is None and f.identity is not None and (rows.dtype.kind == "f" or mask is not None or not rows.shape[0]):
        initial = cast(as_tensor(f.identity), rows.dtype)  # NumPy's first element: hypot of one is its absolute value
    if initial is None:
        first, rows = rows[0], rows[1:]
    else:
        dtype = f(initial, rows)._value.dtype
        rows, first = cast(rows, dtype), broadcast_to(cast(as_tensor(initial), dtype), rows.shape[1:])
    if mask is None:
        return scan(lambda total, row: (f(total, row), None), first, rows)[0]  # type: ignore[no-any-return]

    def step(total: Tensor, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        return chosen(pair[1], f(total, pair[0]), total), None

    return scan(step, first, (rows, mask))[0]  # type: ignore[no-any-return]


def _rows(t: Tensor, axes: tuple[int, ...]) -> Tensor:
    """With one axis in front in place of these; of none, one of extent 1."""
    moved = moveaxis(t, axes, tuple(range(len(axes))))
    return reshape(moved, (prod(moved.shape[: len(axes)]), *moved.shape[len(axes) :]))


def accumulate(f: UfuncFunction, x: ArrayLike, axis: int = 0, dtype: Any = None, out: Any = None) -> Tensor:
    """What `reduce` has at each element of an axis. Raises ShapeError for a number."""
    op, own = _of_two(f, "accumulate"), _OWN.get(f.__name__)
    t = _operand(f, "accumulate", x, dtype)
    d = _axis_of(op, t, axis)
    if own is not None and own.running is not None and t.dtype is not bool_:
        return own.running(t, axis=d, dtype=t.dtype, out=out) if own.widens else own.running(t, axis=d, out=out)
    rows = moveaxis(t, d, 0)
    if rows.shape[0]:
        running = scan(lambda total, row: (f(total, row),) * 2, rows[0], rows[1:])[1]
        rows = concat([rows[:1], running])
    return delivered(op, moveaxis(rows, 0, d), out)


def _axis_of(op: str, t: Tensor, axis: Any) -> int:
    if not t.shape:
        raise ShapeError(explained(op, "at least one axis", t._value.type, "reshape it to a vector"))
    return 0 if axis is None and t.ndim == 1 else normal_axis(op, axis, t.ndim)


def reduceat(
    f: UfuncFunction, x: ArrayLike, indices: ArrayLike, axis: int = 0, dtype: Any = None, out: Any = None
) -> Tensor:
    """`reduce` from each index to the next, the last to the end; the element itself where the next isn't larger.

    Raises IndexRangeError for a position that x hasn't, ShapeError for indices that aren't a vector.
    """
    op = _of_two(f, "reduceat")
    t = _operand(f, "reduceat", x, dtype)
    d, starts = _axis_of(op, t, axis), as_tensor(indices)
    if starts.ndim != 1 or starts.dtype.kind not in "iu":
        raise ShapeError(explained(op, "a vector of integers as indices", starts._value.type, "flatten them"))
    rows = moveaxis(t, d, 0)
    n = rows.shape[0]
    if starts._value.scope is None and bool(reduction.any((starts < 0) | (starts >= n))):
        fix = "indices are beginnings of stretches"
        raise IndexRangeError(explained(op, f"indices from 0 to {n - 1}", starts.tolist(), fix))
    if not starts.size:
        return delivered(op, moveaxis(rows[:0], 0, d), out)
    ends = concat([starts[1:], as_tensor([n])])
    shape = (starts.shape[0], *rows.shape[1:])
    lengths = chosen(less(starts, ends), ends - starts, 1)
    begin, length = [broadcast_to(reshape(v, (-1, *(1,) * (len(shape) - 1))), shape) for v in (starts, lengths)]

    def here(i: Any) -> Tensor:
        return take_along_axis(rows, begin + i, axis=0)

    result = fori_loop(1, length, lambda i, total: f(total, here(i)), here(0))
    return delivered(op, moveaxis(result, 0, d), out)


def outer(f: UfuncFunction, x: ArrayLike, y: ArrayLike, **options: Any) -> Tensor:
    """The function of all pairs: the shapes of x and y, one after the other; options are the function's."""
    _of_two(f, "outer")
    a, b = as_tensor(x), as_tensor(y)
    return f(reshape(a, (*a.shape, *(1,) * b.ndim)), b, **options)


def at(f: UfuncFunction, x: Tensor, indices: Any, *values: ArrayLike) -> None:
    """Writes f(x[i], v) to x[i], position by position: repeated ones are computed one after the other.

    Raises TypeError where x isn't a tensor with axes, ValueError for a missing or superfluous second operand.
    """
    op, own = f"{f.__name__}.at", _OWN.get(f.__name__)
    if not isinstance(x, TensorCore) or is_number(x):
        raise TypeError(explained(op, "a tensor to write to", type(x).__name__, "make one with lg.asarray"))
    if len(values) != f.nin - 1:
        raise ValueError(explained(op, f"{f.nin} operands beside the indices", 1 + len(values), "pass x, i, v"))
    items = indices if isinstance(indices, tuple) else (indices,)
    place = At(x)[indices]
    if own is not None and own.update and x.dtype is not bool_:
        result = getattr(place, own.update)(*values)
    elif all(isinstance(i, _PLAIN) for i in items):  # no position twice
        result = place.set(f(get_item(x, indices), *values))
    else:
        result = _one_after_the_other(f, x, indices, values)
    assign(op, x, result)


def _one_after_the_other(f: UfuncFunction, x: Tensor, indices: Any, values: tuple[Any, ...]) -> Tensor:
    positions = get_item(reshape(arange(x.size), x.shape), indices)
    given = [ravel(broadcast_to(as_tensor(v), positions.shape)) for v in values]

    def step(flat: Tensor, row: tuple[Tensor, ...]) -> tuple[Tensor, None]:
        here, *rest = row
        return At(flat)[here].set(f(flat[here], *rest)), None

    return reshape(scan(step, ravel(x), (ravel(positions), *given))[0], x.shape)


_METHODS: Final[dict[str, Callable[..., Any]]] = {
    "reduce": reduce, "accumulate": accumulate, "reduceat": reduceat, "outer": outer, "at": at,
}  # fmt: skip
