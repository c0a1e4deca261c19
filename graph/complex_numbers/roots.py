"""Absolute values, directions and square roots of complex numbers.

sqrt   cut along the negative real axis, where the sign of an imaginary part of 0 counts (W. Kahan, Branch cuts for
       complex elementary functions, 1987), special values as in C's Annex G
sign   z / |z|, and 0 of 0, as in NumPy 2
"""

from __future__ import annotations

from loopgrad.graph import ops
from loopgrad.graph.complex_numbers.parts import Parts, joined, parts
from loopgrad.graph.complex_numbers.reals import (
    INFINITY,
    constant,
    hypotenuse,
    is_finite,
    largest,
    ordered_sizes,
    sign,
    smallest_normal,
    with_sign,
)
from loopgrad.graph.nodes import Value


def absolute(z: Value) -> Value:
    return hypotenuse(*parts(z))


def angle(z: Value) -> Value:
    re, im = parts(z)
    return ops.atan2(im, re)


def direction(z: Value) -> Value:
    """z / |z|; of infinite numbers as NumPy's: the finite part becomes 0, of two infinite ones NaN."""
    x, y = parts(z)
    large, _ = ordered_sizes(x, y)
    zero = ops.and_(ops.eq(x, 0), ops.eq(y, 0))
    scale = ops.select(zero, 1, large)
    a, b = ops.div(x, scale), ops.div(y, scale)
    size = ops.sqrt(ops.add(ops.mul(a, a), ops.mul(b, b)))
    size = ops.select(zero, 1, size)
    infinite = ops.is_inf(large)
    re = ops.select(infinite, ops.sign(ops.select(ops.is_inf(x), x, 0)), ops.div(a, size))
    im = ops.select(infinite, ops.sign(ops.select(ops.is_inf(y), y, 0)), ops.div(b, size))
    both = ops.and_(ops.is_inf(x), ops.is_inf(y))
    undefined = constant(float("nan"), x)
    return ops.join(
        ops.select(both, undefined, ops.select(zero, 0, re)), ops.select(both, undefined, ops.select(zero, 0, im))
    )


def square_root(z: Value) -> Value:
    return joined(square_root_parts(parts(z)))


def square_root_parts(z: Parts) -> Parts:
    x, y = z
    re, im = _finite_root(x, y)
    infinite, level = constant(INFINITY, x), ops.is_inf(x)
    below = ops.and_(level, ops.signbit(x))
    size = ops.select(is_finite(y), ops.zeros_like(y), constant(float("nan"), y))  # of the other part
    re = ops.select(level, ops.select(below, size, infinite), re)
    im = ops.select(level, with_sign(ops.select(below, infinite, size), y), im)
    upright = ops.is_inf(y)
    return ops.select(upright, infinite, re), ops.select(upright, y, im)


def _finite_root(x: Value, y: Value) -> Parts:
    """The larger part is t = sqrt((|x| + |z|) / 2), the other one y / 2t; scaled by powers of 4."""
    size = ops.max(ops.abs(x), ops.abs(y))
    digits = 54.0 if x.dtype.bits == 64 else 24.0
    large, tiny = ops.gt(size, largest(x) / 4), ops.lt(size, smallest_normal(x) * 2**digits)
    scale = ops.select(large, 0.0625, ops.select(tiny, constant(4**digits / 2**digits, x), 1))
    back = ops.select(large, 4.0, ops.select(tiny, constant(2 ** (-digits / 2), x), 1))
    a, b = ops.mul(x, scale), ops.mul(y, scale)
    t = ops.sqrt(ops.mul(ops.add(ops.mul(a, sign(a)), hypotenuse(a, b)), 0.5))
    zero = ops.eq(size, 0)
    rest = ops.select(zero, b, ops.div(b, ops.mul(ops.select(zero, 1, t), 2)))
    t, rest = ops.mul(t, back), ops.mul(rest, back)
    below = ops.signbit(x)  # of -0.0 too, as in the slope of |x|
    re = ops.select(below, ops.mul(rest, sign(y)), t)
    return re, ops.select(below, ops.mul(t, sign(y)), rest)
