"""Interval rules: between which numbers the integers that a primitive gives lie.

A rule (node, known) -> (low, high), or None where they may lie anywhere, asks `known` for two intervals of an
operand (`graph.ranges` has an analysis that answers, and says why there are two): `bounds` holds every element;
`residues` holds for every element a number that is congruent to it modulo 2**bits. What is computed modulo 2**bits
(sums, products, movement) asks for residues and may leave the limits of the dtype; anything else asks for bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final, Protocol

import numpy as np

from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import integer

Interval = tuple[int, int]
Combine = Callable[..., Interval | None]

_WIDEST_POWER: Final = 128  # bits; what is larger has left every dtype


class Known(Protocol):
    """What an analysis has found of values."""

    def bounds(self, value: Value) -> Interval:
        """The smallest and the largest number that an element may be."""
        ...

    def residues(self, value: Value) -> Interval:
        """The same of numbers that are congruent to the elements modulo 2**bits."""
        ...


IntervalRule = Callable[[Node, Known], Interval | None]


# ---- how rules are made


def modular(combine: Combine) -> IntervalRule:
    """Of an operation that is computed modulo 2**bits: of the operands' residues."""
    return lambda node, known: combine(*map(known.residues, node.operands))


def bounded(combine: Combine) -> IntervalRule:
    """Of the operands' bounds."""
    return lambda node, known: combine(*map(known.bounds, node.operands))


def between(first: int, last: int | None = None) -> IntervalRule:
    """The results are elements of operands[first:last]."""
    return lambda node, known: hull(*map(known.residues, node.operands[first:last]))


def moved(node: Node, known: Known) -> Interval:
    """The results are elements of the first operand."""
    return known.residues(node.operands[0])


def bit_count(node: Node, known: Known) -> Interval:
    """At most all bits."""
    return 0, node.operands[0].dtype.bits


def position(node: Node, known: Known) -> Interval:
    """Positions along attrs axis of the operand."""
    return 0, max(node.operands[0].shape[node.attrs["axis"]] - 1, 0)


# ---- arithmetic of intervals


def hull(*intervals: Interval) -> Interval:
    return min(low for low, _ in intervals), max(high for _, high in intervals)


def _corners(operation: Callable[[int, int], int], x: Interval, y: Interval) -> Interval:
    """Of an operation that is monotonic in each operand."""
    numbers = [operation(a, b) for a in x for b in y]
    return min(numbers), max(numbers)


def add(x: Interval, y: Interval) -> Interval:
    return x[0] + y[0], x[1] + y[1]


def sub(x: Interval, y: Interval) -> Interval:
    return x[0] - y[1], x[1] - y[0]


def mul(x: Interval, y: Interval) -> Interval:
    return _corners(lambda a, b: a * b, x, y)


def neg(x: Interval) -> Interval:
    return -x[1], -x[0]


def invert(x: Interval) -> Interval:
    return ~x[1], ~x[0]


def smallest(x: Interval, y: Interval) -> Interval:
    return min(x[0], y[0]), min(x[1], y[1])


def largest(x: Interval, y: Interval) -> Interval:
    return max(x[0], y[0]), max(x[1], y[1])


def sign(x: Interval) -> Interval:
    return (x[0] > 0) - (x[0] < 0), (x[1] > 0) - (x[1] < 0)


def magnitude(x: Interval) -> Interval:
    return max(x[0], -x[1], 0), max(-x[0], x[1])


def _quotient(operation: Callable[[int, int], int]) -> Combine:
    def combine(x: Interval, y: Interval) -> Interval:
        if y[0] < 0:
            top = max(abs(x[0]), abs(x[1]))
            return -top, top
        if y[1] == 0:
            return 0, 0
        found = _corners(operation, x, (max(y[0], 1), y[1]))
        return found if y[0] > 0 else hull(found, (0, 0))  # x / 0 is 0

    return combine


floordiv: Final = _quotient(lambda a, b: a // b)
div: Final = _quotient(lambda a, b: a // b if a >= 0 else -(-a // b))


def mod(x: Interval, y: Interval) -> Interval:
    if x[0] >= 0 and x[1] < y[0]:
        return x
    return min(y[0] + 1, 0), max(y[1] - 1, 0)


def rem(x: Interval, y: Interval) -> Interval:
    top = max(abs(y[0]), abs(y[1]), 1) - 1
    return max(min(x[0], 0), -top), min(max(x[1], 0), top)


def power(x: Interval, y: Interval) -> Interval | None:
    """A negative exponent gives 0, 1 or -1."""
    top = max(y[1], 0)
    size = max(abs(x[0]), abs(x[1]), 1)
    if top * size.bit_length() > _WIDEST_POWER:
        return None
    low = 0 if x[0] >= 0 or (y[0] == y[1] and y[0] % 2 == 0) else -(size**top)
    return low, size**top


def bits_and(x: Interval, y: Interval) -> Interval | None:
    tops = [high for low, high in (x, y) if low >= 0]
    return (0, min(tops)) if tops else None


def bits_or(x: Interval, y: Interval) -> Interval | None:
    if min(x[0], y[0]) < 0:
        return None
    return max(x[0], y[0]), (1 << max(x[1], y[1]).bit_length()) - 1


def bits_xor(x: Interval, y: Interval) -> Interval | None:
    return None if min(x[0], y[0]) < 0 else (0, (1 << max(x[1], y[1]).bit_length()) - 1)


# ---- rules that look at more than intervals


def cast(node: Node, known: Known) -> Interval | None:
    """Integers wrap; floats saturate."""
    (x,) = node.operands
    if x.dtype.kind not in "biu":
        return None
    narrower = node.results[0].dtype.bits <= x.dtype.bits and x.dtype.kind != "b"
    return known.residues(x) if narrower else known.bounds(x)


def _amounts(node: Node, known: Known) -> tuple[Interval, int]:
    """Those outside 0..bits-1 shift everything out, as a shift by all bits does."""
    bits = node.results[0].dtype.bits
    low, high = known.bounds(node.operands[1])
    return ((max(low, 0), bits) if low < 0 or high >= bits else (low, high)), bits


def shl(node: Node, known: Known) -> Interval:
    (low, high), bits = _amounts(node, known)
    x = known.bounds(node.operands[0])
    found = _corners(lambda a, n: a << n, x, (min(low, bits - 1), min(high, bits - 1)))
    return hull(found, (0, 0)) if high == bits else found


def shr(node: Node, known: Known) -> Interval:
    amounts, _ = _amounts(node, known)
    return _corners(lambda a, n: a >> n, known.bounds(node.operands[0]), amounts)


def gather(node: Node, known: Known) -> Interval:
    table = known.residues(node.operands[0])
    return hull(table, (0, 0)) if 0 in node.operands[0].shape else table


def scatter(node: Node, known: Known) -> Interval | None:
    if node.attrs["kind"] not in ("set", "min", "max"):
        return None
    return hull(known.residues(node.operands[0]), known.residues(node.operands[-1]))


def total(node: Node, known: Known) -> Interval:
    shape = node.operands[0].shape
    low, high = known.residues(node.operands[0])
    count = prod([shape[a] for a in node.attrs["axes"]])
    return low * count, high * count


def running_total(node: Node, known: Known) -> Interval:
    low, high = known.residues(node.operands[0])
    count = node.operands[0].shape[node.attrs["axis"]]
    return min(low, low * count), max(high, high * count)


def const(node: Node, known: Known) -> Interval:
    value = integer(node.attrs["value"])
    return value, value


def literal(node: Node, known: Known) -> Interval | None:
    elements = np.frombuffer(node.attrs["data"], dtype=node.attrs["type"].dtype.np)
    return (int(elements.min()), int(elements.max())) if elements.size else None


def iota(node: Node, known: Known) -> Interval:
    return 0, max(node.attrs["type"].shape[node.attrs["axis"]] - 1, 0)
