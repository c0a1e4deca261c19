"""Sums of exponentials, as what `logcumsumexp` adds up: an anchor, a total and its rest, which stand for
exp(anchor) * (total + rest). Logarithms of them never over- or underflow.

    of_term(x) = (x, 1, 0)                  nothing = (-inf, 0, 0)
    combined((2, 1, 0), (1, 1, 0))          (2, 1 + exp(-1), ...)
    combined((2, 1, 0), (9, 1, 0))          (9, 1 + exp(-7), ...)

The anchor is a term, so that one term alone is given back as it is, and it stays that of the left operand unless the
other's is larger by more than NEAR: what came before is scaled, which rounds it, only then. However long a sum is, that
leaves few roundings that still count, since each time what came before is scaled by less than exp(-NEAR). As in any sum
of floats a rest collects what additions lose (see compensated). NaN stays, in a term and in a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, Protocol

from loopgrad.codegen.math.compensated import Selection, V, balanced, two_sum
from loopgrad.codegen.math.exponential import exponential, power_of_two, split
from loopgrad.codegen.math.logarithmic import LN2, decomposed, log_near_one
from loopgrad.codegen.scalar.ops import Ops

EXPONENTIALS: Final = "logaddexp"
"""The kind of running totals that are logarithms of them."""

NEAR: Final = 2.0
LEAST: Final = {32: -87.0, 64: -708.0}  # whose exponential is a normal number
NOTHING: Final = (float("-inf"), 0.0, 0.0)
PARTS: Final = len(NOTHING)
Sum = tuple[V, V, V]


class Exponentials(Selection[V], Protocol[V]):
    """Arithmetic of one dtype, with functions."""

    def mul(self, x: V, y: V, /) -> V: ...
    def eq(self, x: V, y: V, /) -> V: ...
    def number(self, like: V, value: float, /) -> V: ...
    def exp(self, x: V, /) -> V: ...
    def log_of_sum(self, total: V, rest: V, /) -> V:
        """log(total + rest) for a total of at least 1."""


def nothing(m: Exponentials[V], like: V) -> Sum[V]:
    anchor, total, rest = [m.number(like, part) for part in NOTHING]
    return anchor, total, rest


def of_term(m: Exponentials[V], x: V) -> Sum[V]:
    """exp(x)."""
    return x, m.number(x, 1.0), m.number(x, 0.0)


def combined(m: Exponentials[V], left: Sum[V], right: Sum[V]) -> Sum[V]:
    """Two sums as one."""
    higher = m.lt(m.add(left[0], m.number(left[0], NEAR)), right[0])
    anchor, total, rest = [m.select(higher, y, x) for x, y in zip(left, right, strict=True)]
    other, less, its_rest = [m.select(higher, x, y) for x, y in zip(left, right, strict=True)]
    zero = m.number(anchor, 0.0)
    factor = m.exp(m.select(m.eq(other, anchor), zero, m.sub(other, anchor)))  # infinity - infinity is no number
    total, lost = two_sum(m, total, m.mul(less, factor))
    return anchor, total, m.add(m.add(rest, m.mul(its_rest, factor)), lost)


def with_term(m: Exponentials[V], found: Sum[V], x: V) -> Sum[V]:
    """`combined` with a term on the right, the same in fewer operations."""
    anchor, total, rest = found
    one, zero = m.number(x, 1.0), m.number(x, 0.0)
    higher = m.lt(m.add(anchor, m.number(x, NEAR)), x)
    apart = m.sub(m.select(higher, anchor, x), m.select(higher, x, anchor))
    factor = m.exp(m.select(m.eq(x, anchor), zero, apart))
    total, lost = two_sum(m, m.select(higher, one, total), m.select(higher, m.mul(total, factor), factor))
    return m.select(higher, x, anchor), total, m.add(m.select(higher, m.mul(rest, factor), rest), lost)


def of_terms(m: Exponentials[V], terms: Sequence[V]) -> Sum[V]:
    """A few terms, added up in a tree, with the largest as anchor; their exponentials don't wait for each other."""
    zero, anchor = m.number(terms[0], 0.0), terms[0]
    for x in terms[1:]:
        anchor = m.select(m.lt(anchor, x), x, anchor)
    factors = [m.exp(m.select(m.eq(x, anchor), zero, m.sub(x, anchor))) for x in terms]
    return anchor, balanced(m.add, factors), zero


def logarithm(m: Exponentials[V], found: Sum[V]) -> V:
    anchor, total, rest = found
    some = m.lt(m.number(total, 0.0), total)  # neither nothing nor NaN
    return m.add(anchor, m.select(some, m.log_of_sum(total, rest), total))


class ByOps(Generic[V]):
    """Implements Exponentials by operations of a target."""

    def __init__(self, ops: Ops[V]) -> None:
        self.ops = ops
        self.add, self.sub, self.mul = ops.add, ops.sub, ops.mul
        self.lt, self.eq, self.either, self.select = ops.lt, ops.eq, ops.either, ops.select
        self.number = ops.const

    def exp(self, x: V, /) -> V:
        """For x that isn't far above NEAR; beside a total of 1 nothing is as good as what is below LEAST."""
        m = self.ops
        shifted, r = split(m, x)
        nothing = m.lt(x, m.const(x, LEAST[m.bits(x)]))
        return m.select(nothing, m.const(x, 0.0), m.mul(exponential(m, r), power_of_two(m, shifted)))

    def log_of_sum(self, total: V, rest: V, /) -> V:
        """Without rare cases. What the sum's rounding loses is told from its logarithm only where that is near 0."""
        m = self.ops
        x = m.add(total, rest)
        lost = m.add(m.sub(total, x), rest)
        power, mantissa = decomposed(m, x)
        high, low = LN2[m.bits(x)]
        zero = m.const(x, 0.0)
        small = m.fma(power, m.const(x, low), m.select(m.eq(power, zero), lost, zero))
        return m.fma(power, m.const(x, high), log_near_one(m, m.sub(mantissa, m.const(x, 1.0)), small))
