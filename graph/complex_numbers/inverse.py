"""Inverse trigonometric and hyperbolic functions of complex numbers, with C's branch cuts and special values.

asin, acos    by the square roots of 1 - z and 1 + z, products of whose parts don't cancel (W. Kahan, Branch cuts for
              complex elementary functions, 1987); beyond 1 / epsilon by log(2 |z|) and the angle
acosh, asinh  by the same of z and of i z
atanh, atan   log1p(4x / ((1 - x)**2 + y**2)) / 4 and half the angle of (1 - x)(1 + x) - y**2 + 2iy, far from 0 by 1 / z
"""

from __future__ import annotations

from math import log, pi
from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.complex_numbers.arithmetic import multiply, reciprocal
from loopgrad.graph.complex_numbers.holomorphic import Function, with_slopes
from loopgrad.graph.complex_numbers.logarithmic import log_size
from loopgrad.graph.complex_numbers.parts import Parts, joined, parts
from loopgrad.graph.complex_numbers.reals import (
    constant,
    epsilon,
    hypotenuse,
    neither,
    sign,
    with_sign,
)
from loopgrad.graph.complex_numbers.roots import square_root, square_root_parts
from loopgrad.graph.nodes import Value


def _far(x: Value, y: Value) -> Value:
    """Whether z*z is no different from z*z - 1, or a part isn't finite."""
    size = ops.max(ops.abs(x), ops.abs(y))  # NaN where either is
    return ops.invert(ops.lt(size, 1 / epsilon(x)))


def _roots(x: Value, y: Value) -> tuple[Value, Parts, Parts]:
    """Where z is far, and else the square roots of 1 - z and of 1 + z."""
    far = _far(x, y)
    a, b = ops.select(far, 0, x), ops.select(far, 0, y)
    below = square_root_parts((ops.sub(1, a), ops.neg(b)))
    return far, below, square_root_parts((ops.add(a, 1), b))


def _log_of_double(x: Value, y: Value) -> Value:
    return ops.add(log_size(x, y), log(2))


def _asin(z: Parts) -> Parts:
    x, y = z
    far, (a, b), (c, d) = _roots(x, y)
    flat = ops.select(far, 0, x)
    re = ops.atan2(flat, ops.sub(ops.mul(a, c), ops.mul(b, d)))
    im = ops.asinh(ops.sub(ops.mul(a, d), ops.mul(b, c)))
    im = ops.select(ops.and_(ops.eq(im, 0), ops.eq(y, 0)), y, im)
    size = ops.abs(y)
    re = ops.select(far, ops.atan2(x, ops.select(ops.is_nan(x), x, size)), re)
    im = ops.select(far, with_sign(_log_of_double(x, y), y), im)
    return ops.select(ops.and_(ops.eq(x, 0), far), x, re), im


def _acos(z: Parts) -> Parts:
    x, y = z
    far, (a, b), (c, d) = _roots(x, y)
    re = ops.mul(ops.atan2(a, c), 2)
    im = ops.asinh(ops.sub(ops.mul(b, c), ops.mul(a, d)))
    im = ops.select(ops.and_(ops.eq(im, 0), ops.eq(y, 0)), ops.neg(y), im)
    re = ops.select(far, ops.atan2(ops.abs(y), x), re)
    im = ops.select(far, with_sign(_log_of_double(x, y), ops.neg(y)), im)
    upright = ops.and_(ops.eq(x, 0), ops.is_nan(y))
    return ops.select(upright, constant(pi / 2, x), re), im


def _asin_function(z: Value) -> Value:
    return joined(_asin(parts(z)))


def _acos_function(z: Value) -> Value:
    return joined(_acos(parts(z)))


def _asinh_function(z: Value) -> Value:
    x, y = parts(z)
    a, b = _asin((ops.neg(y), x))
    return ops.join(b, ops.neg(a))


def _acosh_function(z: Value) -> Value:
    x, y = parts(z)
    a, b = _acos((x, y))
    undefined = ops.is_nan(a)
    return ops.join(ops.abs(b), ops.select(undefined, a, with_sign(ops.abs(a), y)))


# ---- their derivatives


def _one_minus_square(z: Value) -> Value:
    """(1 - z)(1 + z), whose square root is cut where that of asin is."""
    one = ops.ones_like(z)
    return multiply(square_root(ops.sub(one, z)), square_root(ops.add(one, z)))


def _asin_slope(z: Value) -> Value:
    return reciprocal(_one_minus_square(z))


def _acos_slope(z: Value) -> Value:
    return ops.neg(_asin_slope(z))


def _asinh_slope(z: Value) -> Value:
    re, im = parts(z)
    return reciprocal(_one_minus_square(ops.join(ops.neg(im), re)))


def _acosh_slope(z: Value) -> Value:
    one = ops.ones_like(z)
    return reciprocal(multiply(square_root(ops.sub(z, one)), square_root(ops.add(z, one))))


asin: Final[Function] = with_slopes("asin", _asin_function, [_asin_slope])
acos: Final[Function] = with_slopes("acos", _acos_function, [_acos_slope])
asinh: Final[Function] = with_slopes("asinh", _asinh_function, [_asinh_slope])
acosh: Final[Function] = with_slopes("acosh", _acosh_function, [_acosh_slope])


def _atanh(z: Parts) -> Parts:
    x, y = z
    side = sign(x)
    far = _far(x, y)
    a, b = ops.select(far, 0, ops.mul(x, side)), ops.select(far, 0, y)
    less = ops.sub(1, a)
    distance = ops.add(ops.mul(less, less), ops.mul(b, b))
    # beside the pole the square of y may vanish
    close = ops.and_(ops.eq(less, 0), ops.lt(ops.abs(b), epsilon(x)))
    share = ops.div(ops.mul(a, 4), ops.select(close, 1, distance))
    re = ops.mul(ops.log1p(share), 0.25)
    pole = ops.mul(ops.sub(log(2), ops.log(ops.abs(ops.select(close, b, 1)))), 0.5)
    re = ops.select(close, pole, re)
    im = ops.mul(ops.atan2(ops.mul(b, 2), ops.sub(ops.mul(less, ops.add(a, 1)), ops.mul(b, b))), 0.5)
    size = hypotenuse(x, y)
    remote = ops.select(ops.is_inf(size), 0, ops.div(ops.div(ops.mul(x, side), size), size))
    re = ops.mul(ops.select(far, remote, re), side)
    im = ops.select(far, with_sign(constant(pi / 2, y), y), im)
    im = ops.select(ops.is_nan(y), y, im)
    re = ops.select(ops.and_(ops.eq(x, 0), ops.is_nan(y)), x, re)
    lost = ops.and_(ops.is_nan(x), neither(ops.is_inf(y), ops.is_nan(y)))
    return re, ops.select(lost, x, im)


def atanh(z: Value) -> Value:
    return joined(_atanh(parts(z)))


def atan(z: Value) -> Value:
    x, y = parts(z)
    a, b = _atanh((ops.neg(y), x))
    return ops.join(b, ops.neg(a))
