"""Reductions of the windows that slide over an array: pooling, running extrema, moving sums.

A box is reduced along one axis after the other. Along an axis few elements of a window are combined in pairs; a long
window whose places overlap is put together of shorter ones, whose lengths are powers of two:

    k = 6:    two = x[i] + x[i + 1],    four = two[i] + two[i + 2],    six = four[i] + two[i + 4]

which takes log(k) steps over the array and no window of its own. Earlier elements stand on the left, so that of equal
ones `max` takes the first, to which the derivative goes, as in JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Final, Literal, SupportsIndex

from loopgrad.graph import ops
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.lazy.numpy import elementwise, reduction
from loopgrad.lazy.numpy.elementwise import add, greater_equal, less_equal, logical_or, multiply, not_equal
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.numpy.window_extrema import extrema, suits
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast_operand, wrap
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "reduce_window"
Padding = Literal["valid", "same", "VALID", "SAME", "SAME_LOWER"] | Sequence[tuple[int, int]]
Combine = Callable[[Any, Any], Any]
_FEW: Final = 8  # elements of a window that are combined one by one


def _larger(x: Tensor, y: Tensor) -> Tensor:
    """x where both are equal; NaN where either is."""
    return where(logical_or(greater_equal(x, y), not_equal(x, x)), x, y)


def _smaller(x: Tensor, y: Tensor) -> Tensor:
    return where(logical_or(less_equal(x, y), not_equal(x, x)), x, y)


def _combination(computation: Combine) -> Combine:
    """The function of two tensors; JAX's `lax.max` is called as a reduction is here."""
    named: list[tuple[Any, Combine]] = [
        (elementwise.maximum, _larger), (reduction.max, _larger), (elementwise.minimum, _smaller),
        (reduction.min, _smaller), (reduction.sum, add), (reduction.prod, multiply),
    ]  # fmt: skip
    return next((combine for function, combine in named if function is computation), computation)


@repeated
def reduce_window(
    x: ArrayLike, init_value: ArrayLike, computation: Combine, window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None, padding: Padding = "valid",
    base_dilation: Sequence[int] | None = None, window_dilation: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """For each place of a window, its elements combined by a function of two tensors (`lg.add`, `lg.maximum`, one of
    your own), and with `init_value`: as `jax.lax.reduce_window`.

    The function must be associative and work element by element, and `init_value` change nothing in it: 0 for `add`,
    -inf for `maximum`. `window_dimensions`, the distances `window_strides` of places, `window_dilation` of a window's
    elements and `base_dilation` of x's have one integer for each axis of x, or are left out (1). Around x and between
    spread elements lies `init_value`: `padding` is "valid" (nothing), "same" (as many as give ceil(extent / stride)
    places where x isn't spread, the odd one behind), "SAME_LOWER" (before) or a pair (before, behind) for each axis.
    The dtype is x's.

    Of equal elements the derivative of `maximum` and `minimum` goes to the first. Raises ShapeError for windows that
    don't fit the axes, ValueError for distances below 1 and another padding, DTypeError where the function changes
    dtypes.

    >>> x = lg.asarray([[1.0, 5.0, 2.0, 0.0], [4.0, 3.0, 2.0, 7.0]])
    >>> lg.reduce_window(x, -lg.inf, lg.maximum, (2, 2), (2, 2))
    Tensor([[5., 7.]], dtype=float64)
    >>> lg.reduce_window(x, 0.0, lg.add, (1, 3), padding="same")
    Tensor([[ 6.,  8.,  7.,  2.],
            [ 7.,  9., 12.,  9.]], dtype=float64)
    """
    t = as_tensor(x)
    rank = len(t._value.shape)
    sizes = _numbers("window_dimensions", window_dimensions, rank)
    steps, spread, apart = (
        _numbers(name, given, rank)
        for name, given in (
            ("window_strides", window_strides), ("base_dilation", base_dilation), ("window_dilation", window_dilation),
        )
    )  # fmt: skip
    initial = cast_operand(as_tensor(init_value), t._value.dtype)
    if initial.shape:
        raise ShapeError(explained("reduce_window", "a number as init_value", initial.type, "pass one without axes"))
    value = _spread(t._value, spread, initial)
    reach = [(k - 1) * d + 1 for k, d in zip(sizes, apart, strict=True)]
    low, high = _borders(padding, t._value.shape, reach, steps)
    value = ops.pad(value, low, high, initial)
    combine = _combination(computation)
    keeps = ops.ge if combine is _larger else ops.le if combine is _smaller else None
    windows = tuple([(k, s, _places(n, r, s)) for k, s, n, r in zip(sizes, steps, value.shape, reach, strict=True)])
    if keeps is not None and suits(value, sizes, apart, windows):
        found = extrema(value, windows, keeps, _part)
        return wrap(_as_before(combine(wrap(ops.broadcast_to(initial, found.shape)), wrap(found)), found))

    def together(a: Value, b: Value) -> Value:
        return _as_before(combine(wrap(a), wrap(b)), a)

    for axis in reversed(range(rank)):  # rows first, so that the first in the order of memory is the first
        value = _along(value, axis, sizes[axis], apart[axis], steps[axis], together)
    return wrap(together(ops.broadcast_to(initial, value.shape), value))


def _numbers(name: str, given: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    found = (1,) * rank if given is None else tuple(given)
    if len(found) != rank or not all(isinstance(n, SupportsIndex) and index(n) >= 1 for n in found):
        expected = f"{name} of {rank} integers of at least 1, one for each axis"
        raise ValueError(explained("reduce_window", expected, repr(given), "pass 1 for axes that stay as they are"))
    return found


def _as_before(result: Any, given: Value) -> Value:
    """What the function made of two tensors of one type, which must be of that type."""
    value: Value = as_tensor(result)._value
    if value.shape != given.shape:
        fix = "combine element by element"
        raise ShapeError(explained("reduce_window", f"a computation that keeps {given.shape}", value.shape, fix))
    if value.dtype is not given.dtype:
        fix = f"convert x to {value.dtype} first"
        raise DTypeError(explained("reduce_window", f"a computation that keeps {given.dtype}", value.dtype, fix))
    return value


def _spread(value: Value, spread: Sequence[int], initial: Value) -> Value:
    """With spread - 1 times `initial` between neighbours."""
    for axis, step in enumerate(spread):
        shape = value.shape
        if step > 1 and shape[axis]:
            apart = ops.reshape(value, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
            none, behind = [0] * (len(shape) + 1), [0] * (len(shape) + 1)
            behind[axis + 1] = step - 1
            apart = ops.pad(apart, none, behind, initial)
            whole = ops.reshape(apart, (*shape[:axis], shape[axis] * step, *shape[axis + 1 :]))
            value = _part(whole, axis, 0, (shape[axis] - 1) * step + 1, 1)
    return value


def _borders(
    padding: Padding, extents: Sequence[int], reach: Sequence[int], steps: Sequence[int]
) -> tuple[list[int], list[int]]:
    """How many elements lie before and behind along each axis."""
    kind = padding.lower() if isinstance(padding, str) else ""
    if kind == "valid":
        return [0] * len(extents), [0] * len(extents)
    if kind in ("same", "same_lower"):
        missing = [max((-(-n // s) - 1) * s + r - n, 0) for n, r, s in zip(extents, reach, steps, strict=True)]
        less, more = [n // 2 for n in missing], [n - n // 2 for n in missing]
        return (less, more) if kind == "same" else (more, less)
    pairs = [] if isinstance(padding, str) else [tuple(p) for p in padding]
    if len(pairs) != len(extents) or any(len(p) != 2 or min(p) < 0 for p in pairs):
        expected = f"a padding of {len(extents)} pairs of at least 0, 'same' or 'valid'"
        raise ValueError(explained("reduce_window", expected, repr(padding), "pass one of these"))
    return [a for a, _ in pairs], [b for _, b in pairs]


def _part(value: Value, axis: int, start: int, count: int, step: int) -> Value:
    """`count` elements along an axis, from `start` on."""
    low, high, steps = [0] * len(value.shape), list(value.shape), [1] * len(value.shape)
    low[axis], steps[axis] = start, step
    high[axis] = start + (count - 1) * step + 1 if count else start
    return ops.slice(value, low, high, steps)


def _places(extent: int, reach: int, step: int) -> int:
    """Windows along an axis that reach over so many elements."""
    return (extent - reach) // step + 1 if extent >= reach else 0


def _along(value: Value, axis: int, size: int, apart: int, step: int, together: Callable[..., Value]) -> Value:
    """Windows of `size` elements along an axis, each `apart` from the next, one every `step` elements."""
    places = _places(value.shape[axis], (size - 1) * apart + 1, step)
    if not places:
        return _part(value, axis, 0, 0, step)
    if size <= max(_FEW, step):
        parts = [_part(value, axis, k * apart, places, step) for k in range(size)]
        while len(parts) > 1:  # pairs of neighbours: what is on the left stays there
            pairs = [together(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = [*pairs, *([parts[-1]] if len(parts) % 2 else [])]
        return parts[0]
    count = (places - 1) * step + 1  # places of a window with stride 1 that are needed
    doubled, length, found, done = value, 1, None, 0
    while True:
        if size & length:
            piece = _part(doubled, axis, done * apart, count, 1)
            found, done = piece if found is None else together(found, piece), done + length
        if done == size:
            assert found is not None
            return _part(found, axis, 0, places, step)
        left = doubled.shape[axis] - length * apart
        doubled = together(_part(doubled, axis, 0, left, 1), _part(doubled, axis, length * apart, left, 1))
        length *= 2
