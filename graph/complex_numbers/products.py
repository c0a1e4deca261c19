"""Products along axes: of products, in an order that the shape fixes. Convolutions, of parts."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from loopgrad.graph import ops
from loopgrad.graph.associative import RunningCombination, Values
from loopgrad.graph.build import emit
from loopgrad.graph.complex_numbers.arithmetic import multiply, product
from loopgrad.graph.complex_numbers.parts import parts
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType


def running_product(z: Value, axis: int, reverse: bool = False) -> Value:
    """Each element times those before it along an axis, or after it where `reverse`."""

    def combine(left: Values, right: Values) -> Values:
        (a, b), (c, d) = left, right
        return product((a, b), (c, d))

    re, im = RunningCombination(combine, (axis, axis)).run(parts(z), reverse)
    return ops.join(re, im)


def product_over(z: Value, axes: Sequence[int]) -> Value:
    """The product of the elements along axes, which disappear: the first half times the second one, and so on."""
    kept = [d for d in range(len(z.shape)) if d not in axes]
    shape, count = [z.shape[d] for d in kept], prod([z.shape[d] for d in axes])
    rest = ops.reshape(ops.transpose(z, (*kept, *axes)), (*shape, count))
    if count == 0:
        return ops.full(1, TensorType(tuple(shape), z.dtype))
    while count > 1:
        half = count // 2
        made = multiply(_piece(rest, 0, half), _piece(rest, half, 2 * half))
        odd = [_piece(rest, count - 1, count)] if count % 2 else []
        rest, count = ops.concat([made, *odd], len(shape)), half + len(odd)
    return ops.reshape(rest, shape)


def convolution(x: Value, kernel: Value, **attrs: Any) -> Value:
    (a, b), (c, d) = parts(x), parts(kernel)

    def of(rows: Value, window: Value) -> Value:
        return emit("conv", (rows, window), attrs)[0]

    return ops.join(ops.sub(of(a, c), of(b, d)), ops.add(of(a, d), of(b, c)))


def _piece(v: Value, first: int, end: int) -> Value:
    """From `first` to `end` along the last axis."""
    *shape, _ = v.shape
    return ops.slice(v, [*[0] * len(shape), first], [*shape, end])
