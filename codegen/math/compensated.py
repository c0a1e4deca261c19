"""Sums whose error doesn't grow with the number of terms: a total, and a rest that collects what its additions lost.

- `added`: one term, by Dekker's fast sum of two: what is lost is exact where the term isn't larger than the total,
  else good to the term's own precision, as in Kahan's sum.
- `merged`: two such sums, by Knuth's sum of two, which is exact for any operands.

Of n terms, total + rest differs from the exact sum by at most (u + O(n u**2)) times the sum of their sizes, where u is
half the distance from 1.0 to the next number (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 4.3).
Where the total isn't finite the rest says nothing. A sum of negative zeros alone stays one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

V = TypeVar("V")


class Arithmetic(Protocol[V]):
    """Operations that are rounded one by one, neither contracted nor reassociated."""

    def add(self, x: V, y: V, /) -> V: ...
    def sub(self, x: V, y: V, /) -> V: ...


class Selection(Arithmetic[V], Protocol[V]):
    def lt(self, x: V, y: V, /) -> V: ...
    def either(self, m: V, n: V, /) -> V: ...
    def select(self, m: V, x: V, y: V, /) -> V: ...


def two_sum(m: Arithmetic[V], x: V, y: V) -> tuple[V, V]:
    """x + y rounded, and what the rounding lost, exactly."""
    total = m.add(x, y)
    moved = m.sub(total, x)
    return total, m.sub(m.sub(y, moved), m.sub(m.sub(total, moved), x))


def added(m: Arithmetic[V], total: V, rest: V, x: V) -> tuple[V, V]:
    """The sum with one more term."""
    now = m.add(total, x)
    return now, m.add(rest, m.sub(x, m.sub(now, total)))


def with_any(m: Arithmetic[V], total: V, rest: V, x: V) -> tuple[V, V]:
    """The sum with one more term, which may be larger than the total."""
    now, lost = two_sum(m, total, x)
    return now, m.add(rest, lost)


def merged(m: Arithmetic[V], total: V, rest: V, other: V, other_rest: V) -> tuple[V, V]:
    """Two sums as one."""
    now, lost = two_sum(m, total, other)
    return now, m.add(m.add(rest, other_rest), lost)


def rounded(m: Selection[V], total: V, rest: V) -> V:
    """The sum as one number: the total itself where its rest doesn't change it, which keeps the sign of a zero that not
    every driver does, or makes it NaN."""
    value = m.add(total, rest)
    return m.select(m.either(m.lt(value, total), m.lt(total, value)), value, total)


def balanced(combine: Callable[[V, V], V], values: Sequence[V]) -> V:
    """The values combined in a balanced tree, neighbours first."""
    level = list(values)
    while len(level) > 1:
        pairs = [combine(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]
