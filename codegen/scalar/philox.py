"""Philox-4x32-10 and Philox-4x64-10 (graph.primitives.random says what it is), with one widening multiplication for
each product of 32 bits and four for each of 64."""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.scalar.ops import Ops, V
from loopgrad.graph.primitives.intervals import Interval
from loopgrad.graph.primitives.random import CONSTANTS, ROUNDS


def philox(m: Ops[V], operands: Sequence[V], wanted: Interval) -> V:
    """Word number `operands[6]`, of which is known that it is `wanted`."""
    *inputs, word = operands
    words = m.once(("philox", *inputs), lambda: _block(m, inputs))
    if wanted[0] == wanted[1]:
        return words[wanted[0] & 3]
    last = m.iand(word, m.const(word, 3))
    result = words[0]
    for i, other in enumerate(words[1:], 1):
        result = m.select(m.test("IEqual", last, m.const(word, i)), other, result)
    return result


def _block(m: Ops[V], inputs: Sequence[V]) -> tuple[V, ...]:
    c0, c1, c2, c3, k0, k1 = inputs
    (first, second), (one, two) = CONSTANTS[m.bits(c0)]
    for i in range(ROUNDS):
        if i:
            k0, k1 = m.iadd(k0, _number(m, k0, one)), m.iadd(k1, _number(m, k1, two))
        (high, low), (upper, lower) = _product(m, c0, first), _product(m, c2, second)
        c0, c1, c2, c3 = m.ixor(m.ixor(upper, c1), k0), lower, m.ixor(m.ixor(high, c3), k1), low
    return c0, c1, c2, c3


def _number(m: Ops[V], like: V, value: int) -> V:
    """A constant without sign."""
    bits = m.bits(like)
    return m.const(like, value - (1 << bits) if value >> (bits - 1) else value)


def _product(m: Ops[V], x: V, factor: int) -> tuple[V, V]:
    """The upper and the lower half of x times a constant."""
    if m.bits(x) == 32:
        wide = m.imul(m.resize(x, "i64", signed=False), m.number("i64", factor))
        return m.resize(m.shr(wide, 32), "i32"), m.resize(wide, "i32")
    mask = m.const(x, 0xFFFFFFFF)
    a, b = m.const(x, factor >> 32), m.const(x, factor & 0xFFFFFFFF)
    c, d = m.shr(x, 32), m.iand(x, mask)
    middle = m.iadd(m.imul(b, c), m.shr(m.imul(b, d), 32))
    second = m.iadd(m.imul(a, d), m.iand(middle, mask))
    high = m.iadd(m.iadd(m.imul(a, c), m.shr(middle, 32)), m.shr(second, 32))
    return high, m.imul(x, _number(m, x, factor))
