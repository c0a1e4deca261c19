"""The order of complex numbers in NumPy: by the real part, then by the imaginary one. Those with a NaN are sorted last,
first where the imaginary part is, then where the real one, then where both are; they compare with nothing, and are the
largest and the smallest. Derivatives move as the elements do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from loopgrad.graph import ops
from loopgrad.graph.complex_numbers.parts import parts
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType, int8


def positions(z: Value, axis: int) -> Value:
    """Where the elements are that come first, second ... along an axis; equal ones keep their order."""
    re, im = parts(z)
    undefined = [ops.cast(ops.is_nan(v), int8) for v in (im, re)]
    rank = ops.add(undefined[0], ops.mul(undefined[1], 2))
    order = ops.argsort(im, axis)
    for key in (re, rank):
        order = _taken(order, ops.argsort(_taken(key, order, axis), axis), axis)
    return order


def in_order(z: Value, axis: int) -> Value:
    return _taken(z, positions(z, axis), axis)


def _taken(v: Value, place: Value, axis: int) -> Value:
    type = TensorType(place.shape, place.dtype)
    return ops.gather(v, *[place if d == axis else ops.iota(type, d) for d in range(len(place.shape))])


# ---- comparisons


def less(x: Value, y: Value) -> Value:
    """x comes before y; never where a part is NaN."""
    return _ordered(x, y, ops.lt)


def less_equal(x: Value, y: Value) -> Value:
    return _ordered(x, y, ops.le)


def greater(x: Value, y: Value) -> Value:
    return _ordered(y, x, ops.lt)


def greater_equal(x: Value, y: Value) -> Value:
    return _ordered(y, x, ops.le)


def _ordered(x: Value, y: Value, compare: Callable[[Value, Value], Value]) -> Value:
    (a, b), (c, d) = parts(x), parts(y)
    known = ops.invert(ops.or_(ops.is_nan(b), ops.is_nan(d)))
    return ops.or_(ops.and_(ops.lt(a, c), known), ops.and_(ops.eq(a, c), compare(b, d)))


# ---- extrema


def larger(x: Value, y: Value) -> Value:
    """What comes later of both; one with a NaN where there is one, of two x."""
    return ops.select(ops.or_(greater_equal(x, y), undefined(x)), x, y)


def smaller(x: Value, y: Value) -> Value:
    return ops.select(ops.or_(less_equal(x, y), undefined(x)), x, y)


def undefined(z: Value) -> Value:
    """Whether a part is NaN."""
    re, im = parts(z)
    return ops.or_(ops.is_nan(re), ops.is_nan(im))


def place_of_largest(z: Value, axis: int) -> Value:
    """Where the first of the largest elements is along an axis; the first with a NaN, if there is one."""
    return _place(z, axis, ops.reduce_max, -math.inf)


def place_of_smallest(z: Value, axis: int) -> Value:
    return _place(z, axis, ops.reduce_min, math.inf)


def _place(z: Value, axis: int, extremum: Callable[[Value, Sequence[int]], Value], limit: float) -> Value:
    unknown, left = undefined(z), ops.invert(undefined(z))
    for part in parts(z):
        found = extremum(ops.select(left, part, limit), (axis,))
        kept = [1 if d == axis else n for d, n in enumerate(part.shape)]
        left = ops.and_(left, ops.eq(part, ops.broadcast_to(ops.reshape(found, kept), part.shape)))
    score = ops.add(ops.cast(left, int8), ops.mul(ops.cast(unknown, int8), 2))
    return ops.argmax(score, axis)


def largest(z: Value, axes: Sequence[int]) -> Value:
    """The element at `place_of_largest`, over several axes the first in the order of memory."""
    return _element(z, axes, place_of_largest)


def smallest(z: Value, axes: Sequence[int]) -> Value:
    return _element(z, axes, place_of_smallest)


def _element(z: Value, axes: Sequence[int], place: Callable[[Value, int], Value]) -> Value:
    kept = [d for d in range(len(z.shape)) if d not in axes]
    shape = tuple([z.shape[d] for d in kept])
    rows = ops.reshape(ops.transpose(z, [*kept, *axes]), (*shape, math.prod(z.shape[d] for d in axes)))
    at = ops.reshape(place(rows, len(shape)), (*shape, 1))
    return ops.reshape(_taken(rows, at, len(shape)), shape)
