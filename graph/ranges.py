"""Between which numbers the elements of an integer value lie, from how it was made.

Integer arithmetic wraps, so two intervals are told apart. `bounds(v)` holds every element. `residues(v)` holds,
for every element, a number that is congruent to it modulo 2**bits: sums, differences and products are computed on
those without regard to the dtype's limits. Residues that leave the dtype may be any number of it once something
other than a ring operation looks at them: a comparison, a division, a shift to the right, a wider dtype.

    %k in [0, 99];  %1 = add(%k, %k) : int8          residues [0, 198],  bounds [-128, 127]
    %2 = and(%1, const 127)                          bounds [0, 127]

A scope notes what is known of its loop's index (`Scope.ranges`). Everything else that isn't understood, data
above all, is anything that its dtype holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from loopgrad.graph.ambient import AMBIENT
from loopgrad.graph.build import Scope
from loopgrad.graph.nodes import Value, passing_node
from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.graph.primitives.intervals import Interval
from loopgrad.graph.types import DType

DEEPEST: Final = 12
"""Operations that are followed back; an index is made of fewer."""


def limits(dtype: DType) -> Interval:
    """The smallest and the largest number of an integer dtype, or of bool."""
    if dtype.kind == "i":
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def bounds(value: Value) -> Interval:
    """The smallest and the largest number that an element of an integer or bool value may be."""
    return _RangeWalk().bounds(value, 0)


def bounds_where(value: Value, known: Mapping[Value, Interval]) -> Interval:
    """As `bounds`, for whoever knows these."""
    walk = _RangeWalk()
    walk.learn(known)
    return walk.bounds(value, 0)


def noted(value: Value) -> tuple[int, ...]:
    """The smallest and the largest number of a loop's index, nothing of other values."""
    value = outermost(value)
    return value.scope.ranges.get(value, ()) if isinstance(value.scope, Scope) else ()


def stands_for(argument: Value, value: Value) -> None:
    """Note that an input of the function being traced is this value of the function around it."""
    assert isinstance(argument.scope, Scope)
    argument.scope.lifted[argument] = value


def outermost(value: Value) -> Value:
    """The value of which this one is the stand-in in loop bodies and branches."""
    while isinstance(value.scope, Scope) and value in value.scope.lifted:
        value = value.scope.lifted[value]
    return value


def may_lie_in(value: Value, low: int, high: int) -> bool:
    """Whether an element of an integer value may be one of low, ..., high (all of them numbers of its dtype)."""
    first, last = _RangeWalk().residues(value, 0)
    modulus = 1 << value.dtype.bits
    turns = -(-(first - high) // modulus)  # the fewest that bring `high` to `first` or beyond
    return low + turns * modulus <= last


class _RangeWalk:
    """One question: residues that were found on the way, each once."""

    def __init__(self) -> None:
        AMBIENT.looks_at_ranges += 1
        self._known: dict[Value, Interval] = {}

    def learn(self, known: Mapping[Value, Interval]) -> None:
        self._known.update(known)

    def bounds(self, value: Value, depth: int) -> Interval:
        if value.dtype.kind not in "biu":
            return 0, -1  # no number: whoever asks looks at the dtype first
        widest = limits(value.dtype)
        low, high = self.residues(value, depth)
        return (low, high) if widest[0] <= low and high <= widest[1] else widest

    def residues(self, value: Value, depth: int) -> Interval:
        if value not in self._known:
            widest = limits(value.dtype)
            found = self._noted(value, depth) if depth < DEEPEST else None
            whole = found is None or found[1] - found[0] > widest[1] - widest[0]
            self._known[value] = widest if whole or found is None else found
        return self._known[value]

    def _noted(self, value: Value, depth: int) -> Interval | None:
        scope = value.scope
        if isinstance(scope, Scope):
            if value in scope.ranges:
                return scope.ranges[value]
            if value in scope.lifted:
                return self.residues(scope.lifted[value], depth)
        made_by = passing_node(value)
        if made_by is None or value.dtype.kind == "b":
            return None
        rule = PRIMITIVES[made_by.op].interval
        return None if rule is None else rule(made_by, _Deeper(self, depth + 1))


class _Deeper(NamedTuple):
    """The walk as rules ask it about operands."""

    walk: _RangeWalk
    depth: int

    def bounds(self, value: Value) -> Interval:
        return self.walk.bounds(value, self.depth)

    def residues(self, value: Value) -> Interval:
        return self.walk.residues(value, self.depth)
