"""Philox-4x32-10 and Philox-4x64-10 (graph.primitives.random says what it is), with one widening multiplication for
each product of 32 bits and four for each of 64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loopgrad.codegen.scalar.ops import Ops, V
from loopgrad.graph.primitives.intervals import Interval
from loopgrad.graph.primitives.random import CONSTANTS, ROUNDS


def philox(m: Ops[V], operands: Sequence[V], wanted: Interval) -> V:
    """Word number `operands[6]`, of which is known that it is `wanted`."""
    *inputs, word = operands
    make = _block_in_64 if m.words_in_64 and m.bits(word) == 32 else _block
    words = m.once(("philox", *inputs), lambda: make(m, inputs))
    if wanted[0] == wanted[1]:
        return words[wanted[0] & 3]
    last = m.iand(word, m.const(word, 3))
    result = words[0]
    for i, other in enumerate(words[1:], 1):
        result = m.select(m.test("IEqual", last, m.const(word, i)), other, result)
    return result


def _block(m: Ops[V], inputs: Sequence[V]) -> tuple[V, ...]:
    c0, c1, c2, c3, *key = inputs
    bits = m.bits(c0)
    first, second = [m.const(c0, _signed(factor, bits)) for factor in CONSTANTS[bits].factors]
    for k0, k1 in _keys(m, key):
        (high, low), (upper, lower) = _product(m, c0, first), _product(m, c2, second)
        c0, c1, c2, c3 = m.ixor(m.ixor(upper, c1), k0), lower, m.ixor(m.ixor(high, c3), k1), low
    return c0, c1, c2, c3


def _block_in_64(m: Ops[V], inputs: Sequence[V]) -> tuple[V, ...]:
    """Words of 32 bits, each held in 64."""
    c0, c1, c2, c3 = [m.resize(c, "i64", signed=False) for c in inputs[:4]]
    first, second = [m.number("i64", factor) for factor in CONSTANTS[32].factors]
    mask = m.number("i64", 0xFFFFFFFF)
    for key in _keys(m, inputs[4:]):
        k0, k1 = [m.resize(k, "i64", signed=False) for k in key]
        one, two = m.imul(c0, first), m.imul(c2, second)
        c0, c1 = m.ixor(m.ixor(m.shr(two, 32), c1), k0), m.iand(two, mask)
        c2, c3 = m.ixor(m.ixor(m.shr(one, 32), c3), k1), m.iand(one, mask)
    return tuple([m.resize(c, "i32") for c in (c0, c1, c2, c3)])


def _keys(m: Ops[V], key: Sequence[V]) -> Iterator[list[V]]:
    """The key of each round."""
    bits = m.bits(key[0])
    words = list(key)
    for i in range(ROUNDS):
        if i:
            steps = [m.const(k, _signed(step, bits)) for k, step in zip(words, CONSTANTS[bits].steps, strict=True)]
            words = [m.iadd(k, step) for k, step in zip(words, steps, strict=True)]
        yield words


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _product(m: Ops[V], x: V, factor: V) -> tuple[V, V]:
    """The upper and the lower half of a product."""
    if m.bits(x) == 32:
        return m.wide_product(x, factor)
    mask = m.const(x, 0xFFFFFFFF)
    a, b, c, d = m.shr(factor, 32), m.iand(factor, mask), m.shr(x, 32), m.iand(x, mask)
    middle = m.iadd(m.imul(b, c), m.shr(m.imul(b, d), 32))
    second = m.iadd(m.imul(a, d), m.iand(middle, mask))
    high = m.iadd(m.iadd(m.imul(a, c), m.shr(middle, 32)), m.shr(second, 32))
    return high, m.imul(x, factor)
