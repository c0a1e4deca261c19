"""Powers of complex numbers.

pow(x, y)  exp(y log(x)), but as in NumPy: products where y is a whole number between -100 and 100 (1 divided by them
           where it is negative), 1 where y is 0, and of x = 0 otherwise 0 where y has a positive real part, else NaN.
           The derivative by y counts the logarithm of 0 as 0.
"""

from __future__ import annotations

from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.complex_numbers.arithmetic import multiply, product, quotient
from loopgrad.graph.complex_numbers.exponential import exponential_parts
from loopgrad.graph.complex_numbers.holomorphic import Function, with_slopes
from loopgrad.graph.complex_numbers.logarithmic import logarithm, logarithm_parts
from loopgrad.graph.complex_numbers.parts import Parts, complex_constant, joined, parts
from loopgrad.graph.complex_numbers.reals import constant
from loopgrad.graph.complex_numbers.roots import square_root
from loopgrad.graph.nodes import Value

BITS: Final = 7  # of whole exponents below 100


def power(x: Value, y: Value) -> Value:
    exponent = complex_constant(y)
    if exponent == 0.5:
        return square_root(x)
    if exponent is not None and exponent.imag == 0 and exponent.real in range(-99, 100):
        return whole_power(x, int(exponent.real))
    return _power(x, y)


def whole_power(x: Value, exponent: int) -> Value:
    """As many factors as the exponent says, squared as often as possible."""
    one = ops.ones_like(x)
    if exponent == 0:
        return one
    base, rest = x, abs(exponent)
    result: Value | None = None
    while rest:
        if rest % 2:
            result = base if result is None else multiply(result, base)
        rest //= 2
        base = multiply(base, base) if rest else base
    assert result is not None
    return result if exponent > 0 else joined(quotient(parts(one), parts(result)))


def _power_function(x: Value, y: Value) -> Value:
    base, exponent = parts(x), parts(y)
    n, rest = exponent
    real = ops.eq(rest, 0)
    whole = ops.and_(real, ops.and_(ops.eq(ops.floor(n), n), ops.lt(ops.abs(n), 100)))
    result = _either(whole, _factors(base, ops.select(whole, n, 0)), _by_logarithm(base, exponent))
    of_zero = ops.and_(ops.eq(base[0], 0), ops.eq(base[1], 0))
    nothing, undefined = ops.zeros_like(n), constant(float("nan"), n)
    limit = ops.select(ops.gt(n, 0), nothing, undefined)
    result = _either(of_zero, (limit, limit), result)
    return joined(_either(ops.and_(real, ops.eq(n, 0)), (ops.ones_like(n), nothing), result))


def _either(chosen: Value, a: Parts, b: Parts) -> Parts:
    return ops.select(chosen, a[0], b[0]), ops.select(chosen, a[1], b[1])


def _by_logarithm(x: Parts, y: Parts) -> Parts:
    return exponential_parts(product(y, logarithm_parts(x)))


def _factors(x: Parts, n: Value) -> Parts:
    """x to whole exponents that are data."""
    one = (ops.ones_like(n), ops.zeros_like(n))
    result, rest = one, ops.abs(n)
    for bit in range(BITS):
        half = ops.floor(ops.mul(rest, 0.5))
        odd = ops.ne(ops.mul(half, 2), rest)
        result = _either(odd, product(result, x), result)
        rest = half
        x = product(x, x) if bit + 1 < BITS else x
    return _either(ops.lt(n, 0), quotient(one, result), result)


def _by_base(x: Value, y: Value) -> Value:
    return multiply(y, _power_function(x, ops.sub(y, ops.ones_like(y))))


def _by_exponent(x: Value, y: Value) -> Value:
    zero = ops.eq(x, 0)
    return multiply(_power_function(x, y), ops.select(zero, 0, logarithm(ops.select(zero, 1, x))))


_power: Final[Function] = with_slopes("power", _power_function, [_by_base, _by_exponent])
