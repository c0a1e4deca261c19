"""Largest and smallest elements of small windows, with the derivative that goes to the first of equals.

Which element of its window was taken is a small number, by the order of memory. The derivative by x is gathered: each
element looks at the few windows that it lies in, and takes their cotangents if it was theirs.

    first[p]      the number of the element of window p that was taken
    x_adj[i]  =   sum over windows p around i of ct[p] where first[p] is i's number in p

Without this, each of the window's numbers would spread an array of its own over x, mostly of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Final

from loopgrad.graph import ops, region_ops
from loopgrad.graph.build import trace
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType, bool_, int8, int32

MOST: Final = 64  # elements of a window
NAME: Final = "reduce_window"
Part = Callable[[Value, int, int, int, int], Value]  # of a value along an axis: start, count, step
Windows = tuple[tuple[int, int, int], ...]  # of each axis: elements of a window, distance of windows, their number


def suits(value: Value, sizes: Sequence[int], apart: Sequence[int], windows: Windows) -> bool:
    """Whether there are windows of few elements side by side, and elements at which none begins: where one begins at
    each, shifted arrays do well."""
    few = prod(sizes) <= MOST and all(d == 1 or k == 1 for d, k in zip(apart, sizes, strict=True))
    apart_windows = any(step > 1 and size > 1 for size, step, _ in windows)
    return few and apart_windows and value.dtype.is_float and prod(n for _, _, n in windows) > 0


def extrema(value: Value, windows: Windows, keeps: Callable[[Value, Value], Value], part: Part) -> Value:
    """Of each window the first element that `keeps` its place against each other one, or NaN. `part` cuts."""

    def found(v: Value) -> tuple[Value, Value]:
        return _first_of_windows(v, windows, keeps, part)

    def tangent(v: Value, t: Value) -> tuple[Value, Value]:
        best, first = found(v)
        return best, _taken(t, first, windows, part)

    primal, _ = trace(lambda v: found(v)[:1], [value.type])
    rule, _ = trace(tangent, [value.type, value.type])
    return region_ops.call((value,), (primal, rule), "jvp", arguments=1, name=NAME)[0]


def _first_of_windows(
    value: Value, windows: Windows, keeps: Callable[[Value, Value], Value], part: Part
) -> tuple[Value, Value]:
    """The extrema and their numbers."""
    row = [(v, ops.full(k, TensorType(v.shape, int8))) for k, v in enumerate(_parts(value, windows, part))]
    while len(row) > 1:  # pairs of neighbours: what is on the left stays there
        pairs = [_joined(one, other, keeps) for one, other in zip(row[::2], row[1::2], strict=False)]
        row = [*pairs, *([row[-1]] if len(row) % 2 else [])]
    return row[0]


def _parts(value: Value, windows: Windows, part: Part) -> Iterator[Value]:
    """Of all windows the first element, the second, and so on, in the order of memory."""
    for at in product(*[range(size) for size, _, _ in windows]):
        v = value
        for axis, ((_, step, places), start) in enumerate(zip(windows, at, strict=True)):
            v = part(v, axis, start, places, step)
        yield v


def _joined(
    one: tuple[Value, Value], other: tuple[Value, Value], keeps: Callable[[Value, Value], Value]
) -> tuple[Value, Value]:
    stays = ops.or_(keeps(one[0], other[0]), ops.ne(one[0], one[0]))
    return ops.select(stays, one[0], other[0]), ops.select(stays, one[1], other[1])


def _taken(t: Value, first: Value, windows: Windows, part: Part) -> Value:
    """Of t what stands where the extrema are: linear in t, in reverse by `_gathered`."""

    def numbered(t: Value, first: Value) -> list[Value]:
        total = ops.full(0, TensorType(first.shape, t.dtype))
        for k, v in enumerate(_parts(t, windows, part)):
            total = ops.add(total, ops.select(ops.eq(first, k), v, 0))
        return [total]

    primal, _ = trace(numbered, [t.type, first.type])
    forward, _ = trace(lambda t, first: [*numbered(t, first), first], [t.type, first.type])
    made = TensorType(first.shape, t.dtype)
    shape = t.shape
    backward, _ = trace(lambda first, ct: [_gathered(ct, first, windows, shape)], [first.type, made])
    regions = (primal, forward, backward)
    return region_ops.call((t, first), regions, "vjp", arguments=1, name=NAME, linear=True)[0]


def _gathered(ct: Value, first: Value, windows: Windows, shape: Sequence[int]) -> Value:
    total = ops.full(0, TensorType(tuple(shape), ct.dtype))
    for around in product(*[list(_windows_around(axis, w, shape)) for axis, w in enumerate(windows)]):
        at = [window for window, _, _ in around]
        inside, number, inner = None, None, 1
        for (size, _, _), (_, own, valid) in reversed(list(zip(windows, around, strict=True))):
            inside = valid if inside is None else ops.and_(inside, valid)
            here = ops.mul(own, inner)
            number = here if number is None else ops.add(number, here)
            inner *= size
        assert inside is not None
        assert number is not None
        taken = ops.and_(inside, ops.eq(ops.gather(first, *at), ops.cast(number, int8)))
        total = ops.add(total, ops.select(taken, ops.gather(ct, *at), 0))
    return total


def _windows_around(
    axis: int, window: tuple[int, int, int], shape: Sequence[int]
) -> Iterator[tuple[Value, Value, Value]]:
    """Along an axis: windows that an element may lie in, its number in each, and whether it does."""
    size, step, places = window
    if size == step == 1:
        type = TensorType(tuple(shape), int32)
        yield ops.iota(type, axis), ops.full(0, type), ops.full(True, TensorType(type.shape, bool_))
        return
    place = ops.iota(TensorType((shape[axis],), int32), 0)
    last = ops.floordiv(place, step)  # the last that begins at it or before
    for back in range(-(-size // step)):
        own = ops.sub(last, back)
        number = ops.sub(place, ops.mul(own, step))
        inside = ops.and_(ops.lt(number, size), ops.and_(ops.ge(own, 0), ops.lt(own, places)))
        first, second, third = (ops.broadcast(v, shape, [axis]) for v in (own, number, inside))
        yield first, second, third
