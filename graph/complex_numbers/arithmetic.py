"""Products, quotients and absolute values of complex numbers.

multiply    the plain formula, as NumPy's: products with infinities may be NaN
divide      Smith's algorithm (R. L. Smith, Algorithm 116, CACM 5, 1962), as NumPy's: by the ratio of the smaller part
            of the divisor to the larger one, so that nothing overflows on the way; by 0 the parts are divided by 0
"""

from __future__ import annotations

from loopgrad.graph import ops
from loopgrad.graph.complex_numbers.parts import Parts, joined, parts
from loopgrad.graph.nodes import Value


def multiply(x: Value, y: Value) -> Value:
    return joined(product(parts(x), parts(y)))


def product(x: Parts, y: Parts) -> Parts:
    (a, b), (c, d) = x, y
    return ops.sub(ops.mul(a, c), ops.mul(b, d)), ops.add(ops.mul(a, d), ops.mul(b, c))


def divide(x: Value, y: Value) -> Value:
    return joined(quotient(parts(x), parts(y)))


def quotient(x: Parts, y: Parts) -> Parts:
    (a, b), (c, d) = x, y
    real_larger = ops.ge(ops.abs(c), ops.abs(d))
    large, small = ops.select(real_larger, c, d), ops.select(real_larger, d, c)
    # (a + bi) / (c + di) where d is larger is (b - ai) / (d - ci)
    p, q = ops.select(real_larger, a, b), ops.select(real_larger, b, a)
    zero = ops.eq(large, 0)
    ratio = ops.div(small, ops.select(zero, 1, large))
    scale = ops.div(1, ops.add(large, ops.mul(small, ratio)))
    re = ops.mul(ops.add(p, ops.mul(q, ratio)), scale)
    crossed = ops.mul(p, ratio)
    im = ops.mul(ops.select(real_larger, ops.sub(q, crossed), ops.sub(crossed, q)), scale)
    return ops.select(zero, ops.div(a, ops.abs(c)), re), ops.select(zero, ops.div(b, ops.abs(c)), im)


def reciprocal(z: Value) -> Value:
    """1 / z by Smith's algorithm, as NumPy's function: of 0 it is NaN, where a quotient is infinite."""
    x, y = parts(z)
    real_larger = ops.le(ops.abs(y), ops.abs(x))
    large, small = ops.select(real_larger, x, y), ops.select(real_larger, y, x)
    ratio = ops.div(small, large)
    scale = ops.add(large, ops.mul(small, ratio))
    unit, share = ops.div(1, scale), ops.div(ratio, scale)
    re, im = ops.select(real_larger, unit, share), ops.select(real_larger, share, unit)
    return ops.join(re, ops.neg(im))


def rounded(z: Value) -> Value:
    """Both parts, half to even."""
    re, im = parts(z)
    return ops.join(ops.round(re), ops.round(im))


def conjugate(z: Value) -> Value:
    re, im = parts(z)
    return ops.join(re, ops.neg(im))
