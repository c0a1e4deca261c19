"""Hyperbolic and trigonometric functions of complex numbers, with the special values of C's Annex G.

sinh(x + iy)   sinh(x) cos(y) + i cosh(x) sin(y), where exp(x) overflows exp(|x|) / 2 in two steps
tanh(x + iy)   (sinh(x) cosh(x) + i sin(y) cos(y)) / (sinh(x)**2 + cos(y)**2) (W. Kahan, Branch cuts for complex
               elementary functions, 1987)
sin, cos, tan  by the same of i z
"""

from __future__ import annotations

from loopgrad.graph import ops
from loopgrad.graph.complex_numbers.exponential import scaled_circle
from loopgrad.graph.complex_numbers.parts import Parts, joined, parts
from loopgrad.graph.complex_numbers.reals import (
    INFINITY,
    constant,
    is_finite,
    largest_exponent,
    neither,
    sign,
    with_sign,
)
from loopgrad.graph.nodes import Value


def sinh(z: Value) -> Value:
    return joined(_sinh(parts(z)))


def cosh(z: Value) -> Value:
    return joined(_cosh(parts(z)))


def tanh(z: Value) -> Value:
    return joined(_tanh(parts(z)))


def sin(z: Value) -> Value:
    x, y = parts(z)
    a, b = _sinh((ops.neg(y), x))
    im = ops.select(ops.and_(ops.is_inf(y), ops.invert(is_finite(x))), constant(INFINITY, y), ops.neg(a))
    return ops.join(b, im)


def cos(z: Value) -> Value:
    x, y = parts(z)
    return joined(_cosh((ops.neg(y), x)))


def tan(z: Value) -> Value:
    x, y = parts(z)
    a, b = _tanh((ops.neg(y), x))
    return ops.join(b, ops.neg(a))


def _finite(x: Value, y: Value) -> tuple[Parts, Parts, Value]:
    """Real and imaginary part of sinh and cosh, and where y is 0."""
    over = ops.gt(ops.abs(x), largest_exponent(x))
    inner = ops.select(over, 0, x)
    # exp(|x|) (cos(y) + i sin(y)) / 2
    far_re, far_im = scaled_circle(ops.select(over, ops.mul(x, sign(x)), 0), y, 0.5)
    cosine, sine = ops.cos(y), ops.sin(y)
    odd, even = ops.sinh(inner), ops.cosh(inner)
    side = sign(x)
    sinh_parts = (
        ops.select(over, ops.mul(far_re, side), ops.mul(odd, cosine)),
        ops.select(over, far_im, ops.mul(even, sine)),
    )
    cosh_parts = (
        ops.select(over, far_re, ops.mul(even, cosine)),
        ops.select(over, ops.mul(far_im, side), ops.mul(odd, sine)),
    )
    return sinh_parts, cosh_parts, ops.eq(y, 0)


def _sinh(z: Parts) -> Parts:
    x, y = z
    (re, im), _, level = _finite(x, y)
    turning = ops.invert(is_finite(y))
    re = ops.select(ops.and_(turning, ops.eq(x, 0)), x, re)
    re = ops.select(ops.and_(turning, ops.is_inf(x)), constant(INFINITY, x), re)
    return re, ops.select(ops.and_(level, ops.is_nan(x)), y, im)


def _cosh(z: Parts) -> Parts:
    x, y = z
    _, (re, im), level = _finite(x, y)
    turning = ops.invert(is_finite(y))
    re = ops.select(ops.and_(turning, ops.is_inf(x)), constant(INFINITY, x), re)
    im = ops.select(ops.and_(turning, ops.eq(x, 0)), 0, im)
    return re, ops.select(ops.and_(level, ops.is_nan(x)), y, im)


def _tanh(z: Parts) -> Parts:
    x, y = z
    size = ops.mul(x, sign(x))
    over = ops.gt(size, largest_exponent(x) / 4)
    cosine, sine = ops.cos(y), ops.sin(y)
    inner = ops.select(over, 0, x)
    odd, even = ops.sinh(inner), ops.cosh(inner)
    share = ops.add(ops.mul(odd, odd), ops.mul(cosine, cosine))
    far = ops.exp(ops.mul(ops.select(over, size, 0), -1))  # squared it vanishes later
    re = ops.select(over, sign(x), ops.div(ops.mul(odd, even), share))
    turned = ops.mul(sine, cosine)
    im = ops.select(over, ops.mul(ops.mul(ops.mul(turned, 4), far), far), ops.div(turned, share))
    turning, end = ops.invert(is_finite(y)), ops.is_inf(x)
    re = ops.select(ops.and_(turning, neither(end, ops.eq(x, 0))), constant(float("nan"), x), re)
    re = ops.select(ops.and_(turning, ops.eq(x, 0)), x, re)
    im = ops.select(ops.and_(turning, end), with_sign(ops.zeros_like(y), y), im)
    return re, ops.select(ops.and_(ops.eq(y, 0), ops.is_nan(x)), y, im)
