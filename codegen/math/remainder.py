"""rem (C's fmod), mod and floordiv (Python's % and //) of floats, exact.

The truncated quotient of a rounded division is right or one too large; one fused multiply-add gives the exact
rest for either, and a rest below zero is corrected. Quotients beyond the mantissa leave the common path.
"""

from __future__ import annotations

from typing import Any, Final

from loopgrad.codegen.scalar.ops import Ops, V

EXACT_QUOTIENT = {32: 2.0**22, 64: 2.0**51}


def rem(m: Ops[V], x: V, y: V) -> V:
    a, b = m.abs(x), m.abs(y)
    zero = m.const(x, 0.0)
    ratio = m.div(a, b)
    magic = m.trunc(ratio)
    rest = m.fma(m.neg(magic), b, a)
    rest = m.select(m.lt(rest, zero), m.add(rest, b), rest)
    rest = m.copysign(m.select(m.lt(a, b), a, rest), x)
    beyond = m.invert(m.lt(ratio, m.const(x, EXACT_QUOTIENT[m.bits(x)])))
    return m.rarely(beyond, lambda: m.remainder(x, y), rest)


def crossing(m: Ops[V], rest: V, y: V) -> V:
    """Whether a rest isn't zero and lies on the other side of zero than y."""
    zero = m.const(y, 0.0)
    return m.either(m.both(m.lt(rest, zero), m.lt(zero, y)), m.both(m.lt(zero, rest), m.lt(y, zero)))


def mod(m: Ops[V], x: V, y: V) -> V:
    rest = rem(m, x, y)
    moved = m.select(crossing(m, rest, y), m.add(rest, y), rest)
    return m.select(m.eq(rest, m.const(x, 0.0)), m.copysign(rest, y), moved)


def floordiv(m: Ops[V], x: V, y: V) -> V:
    zero, one = m.const(x, 0.0), m.const(x, 1.0)
    rest = rem(m, x, y)
    quotient = m.div(m.sub(x, rest), y)
    quotient = m.select(crossing(m, rest, y), m.sub(quotient, one), quotient)
    whole = m.floor(quotient)
    whole = m.select(m.lt(m.const(x, 0.5), m.sub(quotient, whole)), m.add(whole, one), whole)
    plain = m.div(x, y)
    result = m.select(m.eq(quotient, zero), m.copysign(zero, plain), whole)
    return m.select(m.eq(y, zero), plain, result)


RECIPES: Final[dict[str, Any]] = {"rem": rem, "mod": mod, "floordiv": floordiv}
