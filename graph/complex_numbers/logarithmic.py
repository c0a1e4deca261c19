"""Logarithms of complex numbers: log|z| + i angle(z), cut along the negative real axis, with the special values of C's
Annex G.

log|z| is log(m) + log1p((n/m)**2) / 2 of the larger part m and the smaller one n: nothing overflows. Near |z| = 1,
where the two would cancel, it is log1p(m**2 + n**2 - 1) / 2, whose argument is computed in twice the digits (T. J.
Dekker, A floating-point technique for extending the available precision, 1971).
"""

from __future__ import annotations

from math import log

from loopgrad.graph import ops
from loopgrad.graph.complex_numbers.parts import Parts, joined, parts
from loopgrad.graph.complex_numbers.reals import ordered_sizes
from loopgrad.graph.nodes import Value


def logarithm(z: Value) -> Value:
    return joined(logarithm_parts(parts(z)))


def logarithm_parts(z: Parts) -> Parts:
    x, y = z
    return log_size(x, y), ops.atan2(y, x)


def log_size(x: Value, y: Value) -> Value:
    """log(sqrt(x*x + y*y))."""
    large, small = ordered_sizes(x, y)
    alone = ops.or_(ops.and_(ops.eq(large, 0), ops.eq(small, 0)), ops.is_inf(large))  # the small one may be NaN
    ratio = ops.div(small, ops.select(alone, 1, large))
    apart = ops.mul(ops.log1p(ops.mul(ratio, ratio)), 0.5)
    far = ops.add(ops.log(large), ops.select(alone, 0, apart))
    inside = ops.and_(ops.ge(large, 0.5), ops.le(large, 2))
    m, n = ops.select(inside, large, 1), ops.select(inside, small, 0)
    excess = square_excess(m, n)
    near = ops.and_(inside, ops.ge(excess, -0.5))
    return ops.select(near, ops.mul(ops.log1p(ops.select(near, excess, 0)), 0.5), far)


def square_excess(m: Value, n: Value) -> Value:
    """m*m + n*n - 1 for m from 0.5 to 2 and n of at most that size, rounded about once."""
    p, p_rest = _square(m)
    q, q_rest = _square(n)
    less = ops.sub(p, 1)
    total = ops.add(less, q)
    # what the addition lost, and what the products did; they have no slope of their own
    kept = ops.sub(total, less)
    lost = ops.add(ops.sub(less, ops.sub(total, kept)), ops.sub(q, kept))
    return ops.add(total, ops.stop_gradient(ops.add(lost, ops.add(p_rest, q_rest))))


def _square(x: Value) -> tuple[Value, Value]:
    """x*x as a rounded number and the rest."""
    p = ops.mul(x, x)
    scaled = ops.mul(x, 134217729.0 if x.dtype.bits == 64 else 4097.0)  # 2**27 + 1, 2**12 + 1
    high = ops.sub(scaled, ops.sub(scaled, x))
    low = ops.sub(x, high)
    rest = ops.sub(ops.mul(high, high), p)
    return p, ops.add(ops.add(rest, ops.mul(ops.mul(high, low), 2)), ops.mul(low, low))


def logarithm_of_1_plus(z: Value) -> Value:
    """log(1 + z); near 0 the size is log1p(x (2 + x) + y*y) / 2."""
    x, y = parts(z)
    above = ops.add(x, 1)
    size, other = ops.abs(x), ops.abs(y)
    small = ops.and_(ops.lt(size, 0.5), ops.lt(other, 0.5))
    a, b = ops.select(small, x, 0), ops.select(small, y, 0)
    near = ops.mul(ops.log1p(ops.add(ops.mul(a, ops.add(a, 2)), ops.mul(b, b))), 0.5)
    return ops.join(ops.select(small, near, log_size(above, y)), ops.atan2(y, above))


def logarithm_base_2(z: Value) -> Value:
    return _of_base(z, 2.0)


def logarithm_base_10(z: Value) -> Value:
    return _of_base(z, 10.0)


def _of_base(z: Value, base: float) -> Value:
    re, im = logarithm_parts(parts(z))
    return ops.join(ops.mul(re, 1 / log(base)), ops.mul(im, 1 / log(base)))
