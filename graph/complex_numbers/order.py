"""The order in which NumPy sorts complex numbers: by the real part, then by the imaginary one; those with a NaN last,
first where the imaginary part is, then where the real one, then where both are."""

from __future__ import annotations

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
