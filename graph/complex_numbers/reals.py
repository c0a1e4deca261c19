"""What several functions need of real parts: signs, sizes without overflow, limits of the dtype."""

from __future__ import annotations

from math import log
from typing import Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType

INFINITY: Final = float("inf")
SHIFT: Final = 40.0
"""Exponents that overflow are taken in two steps, of which this is one: no sine or cosine is below exp(-40)."""


def sign(y: Value) -> Value:
    """1 or -1, also of zeros and NaN: a factor without slope, where `abs` would have a kink."""
    return ops.select(ops.signbit(y), constant(-1, y), constant(1, y))


def with_sign(size: Value, y: Value) -> Value:
    """`size`, which isn't negative, with the sign of y."""
    return ops.select(ops.signbit(y), ops.neg(size), size)


def is_finite(x: Value) -> Value:
    return ops.lt(ops.abs(x), INFINITY)


def neither(a: Value, b: Value) -> Value:
    return ops.invert(ops.or_(a, b))


def constant(number: float, like: Value) -> Value:
    return ops.full(number, TensorType(like.shape, like.dtype))


def largest(like: Value) -> float:
    """The largest finite number of the dtype."""
    return float(np.finfo(like.dtype.np).max)


def smallest_normal(like: Value) -> float:
    return float(np.finfo(like.dtype.np).tiny)


def epsilon(like: Value) -> float:
    return float(np.finfo(like.dtype.np).eps)


def largest_exponent(like: Value) -> float:
    """Up to which exp(x) is finite, with a margin."""
    return log(largest(like)) - 1.0


def ordered_sizes(x: Value, y: Value) -> tuple[Value, Value]:
    """The larger and the smaller absolute value. An infinity is the larger one beside NaN. Neither has a kink where it
    could be smooth: the larger one is 0 at the origin alone, the smaller one is taken with its sign."""
    size, other = ops.abs(x), ops.abs(y)
    first = ops.or_(ops.ge(size, other), ops.is_inf(x))
    return ops.select(first, size, other), ops.select(first, y, x)


def hypotenuse(x: Value, y: Value) -> Value:
    """sqrt(x*x + y*y) without overflow, infinite where either is; derivatives of every order, 0 at the origin."""
    large, small = ordered_sizes(x, y)
    plain = ops.or_(ops.and_(ops.eq(large, 0), ops.eq(small, 0)), ops.is_inf(large))  # the small one may be NaN
    ratio = ops.div(small, ops.select(plain, 1, large))
    return ops.select(plain, large, ops.mul(large, ops.sqrt(ops.add(ops.mul(ratio, ratio), 1))))
