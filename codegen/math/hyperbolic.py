"""sinh, cosh, tanh and their inverses, from exp, expm1, log and log1p; odd polynomials near zero."""

from __future__ import annotations

from math import log as real_log
from typing import Any, Final

from loopgrad.codegen.math.exponential import exp_scaled
from loopgrad.codegen.math.inverse_trigonometric import odd
from loopgrad.codegen.math.logarithmic import log, log1p
from loopgrad.codegen.scalar.ops import Ops, V

SINH = {
    32: (2.8174383316142778e-06, 0.00019836066490787365, 0.008333350596758623, 0.1666666648873751),
    64: (7.759312716045403e-13, 1.6057240325212464e-10, 2.5052123398745496e-08, 2.7557319155335837e-06,
         0.00019841269841437684, 0.008333333333333139, 0.16666666666666669),
}  # fmt: skip
TANH = {
    32: (0.002231064255215048, -0.00826709062826034, 0.021734439399228606, -0.05395247544804959, 0.13333247789643277,
         -0.3333333178240124),
    64: (-2.4600499961236205e-06, 1.2234733358847533e-05, -3.70799130223761e-05, 9.602368292353136e-05,
         -0.0002388760561292816, 0.000589976562593379, -0.0014558271479836122, 0.0035921273179543574,
         -0.008863235481577617, 0.02186948853406293, -0.053968253968200465, 0.13333333333333264, -0.3333333333333333),
}  # fmt: skip
LARGE = {32: 2.0**12, 64: 2.0**27}


def halves(m: Ops[V], x: V) -> tuple[V, V]:
    """(exp|x| / 2, exp(-|x|) / 2)."""
    grown = exp_scaled(m, m.abs(x), -1.0)
    return grown, m.div(m.const(x, 0.25), grown)


def sinh(m: Ops[V], x: V) -> V:
    grown, shrunk = halves(m, x)
    near = odd(m, x, m.mul(x, x), SINH[m.bits(x)])
    far = m.copysign(m.sub(grown, shrunk), x)
    return m.select(m.lt(m.abs(x), m.const(x, 1.0)), near, far)


def cosh(m: Ops[V], x: V) -> V:
    grown, shrunk = halves(m, x)
    return m.add(grown, shrunk)


def tanh(m: Ops[V], x: V) -> V:
    one = m.const(x, 1.0)
    size = m.abs(x)
    squared = exp_scaled(m, m.add(size, size), 0.0)
    far = m.sub(one, m.div(m.const(x, 2.0), m.add(squared, one)))
    near = odd(m, size, m.mul(size, size), TANH[m.bits(x)])
    return m.copysign(m.select(m.lt(size, m.const(x, 0.6)), near, far), x)


def asinh(m: Ops[V], x: V) -> V:
    """log1p(a + a**2 / (1 + sqrt(1 + a**2))), a = |x|; log(a) + ln 2 where a**2 swamps 1."""
    one, size = m.const(x, 1.0), m.abs(x)
    large = m.lt(m.const(x, LARGE[m.bits(x)]), size)
    a = m.select(large, one, size)
    square = m.mul(a, a)
    near = log1p(m, m.add(a, m.div(square, m.add(one, m.sqrt(m.add(one, square))))))
    return m.copysign(beyond(m, large, size, near), x)


def beyond(m: Ops[V], large: V, size: V, near: V) -> V:
    """log(2 size) where large."""
    return m.rarely(large, lambda: m.add(log(m, size), m.const(size, real_log(2))), near)


def acosh(m: Ops[V], x: V) -> V:
    one = m.const(x, 1.0)
    large = m.lt(m.const(x, LARGE[m.bits(x)]), x)
    t = m.sub(m.select(large, m.const(x, 2.0), x), one)
    near = log1p(m, m.add(t, m.sqrt(m.fma(t, t, m.add(t, t)))))
    return m.select(m.lt(x, one), m.const(x, float("nan")), beyond(m, large, x, near))


def atanh(m: Ops[V], x: V) -> V:
    one, size = m.const(x, 1.0), m.abs(x)
    ratio = m.div(m.add(size, size), m.sub(one, size))
    value = m.mul(log1p(m, ratio), m.const(x, 0.5))
    return m.copysign(m.select(m.lt(one, size), m.const(x, float("nan")), value), x)


RECIPES: Final[dict[str, Any]] = {
    "sinh": sinh,
    "cosh": cosh,
    "tanh": tanh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
}
