"""Whether a program holds for other extents, and what its numbers are then.

Enters: what was recorded for one shape, and the polynomials that the program consists of. Leaves: `Conditions`, which
take the symbols' values and give those of the atoms, or None where a decision would come out otherwise.

Most decisions compare a multiple of one atom with a number; all of those on one atom are an interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from loopgrad.codegen.extents.decisions import (
    OPERATIONS,
    Atom,
    ExtentDecisions,
    Operand,
    Terms,
    combined,
    evaluated,
    of_integer,
)

SMALL: Final = frozenset(range(-1, 17))
OUR_OWN: Final = SMALL | {1 << n for n in range(64)}
"""Integers that programs have whatever their extents are: what was looked up in a table has to be none of them, and
what was written none of the small ones."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Where an atom has to be; None: anywhere."""

    atom: int
    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class Conditions:
    """`steps` compute atoms after the symbols, of atoms before them. Polynomials in `negative` are less than 0, or
    (False) aren't; those in `equal` are 0, or aren't; `apart` differ from each other, and from integers in `taken`;
    those in `named` from OUR_OWN as well."""

    symbols: int
    steps: tuple[Atom | None, ...]
    intervals: tuple[Interval, ...]
    negative: tuple[tuple[Terms, bool], ...]
    equal: tuple[tuple[Terms, bool], ...]
    apart: tuple[Terms, ...]
    named: tuple[Terms, ...]
    taken: frozenset[int]

    def atoms(self, symbols: Sequence[int]) -> list[Any] | None:
        """The values of all atoms; None where the program is another one for these extents."""
        values: list[Any] = [*symbols]
        try:
            for step in self.steps:
                values.append(None if step is None else _computed(step, values))
        except (ArithmeticError, ValueError):  # decided after a decision that comes out otherwise
            return None
        for atom, low, high in [(i.atom, i.low, i.high) for i in self.intervals]:
            value = values[atom]
            if (low is not None and value < low) or (high is not None and value > high):
                return None
        if any((evaluated(terms, values) < 0) is not outcome for terms, outcome in self.negative):
            return None
        if any((evaluated(terms, values) == 0) is not outcome for terms, outcome in self.equal):
            return None
        apart = {evaluated(terms, values) for terms in self.apart}
        if len(apart) < len(self.apart) or not self.taken.isdisjoint(apart):
            return None
        return None if any(evaluated(terms, values) in OUR_OWN for terms in self.named) else values


def _computed(atom: Atom, values: Sequence[Any]) -> Any:
    return OPERATIONS[atom.operation](_operand(atom.left, values), _operand(atom.right, values))


def _operand(operand: Operand, values: Sequence[Any]) -> Any:
    return evaluated(operand, values) if isinstance(operand, tuple) else operand


def conditions(decisions: ExtentDecisions, wanted: Iterable[Terms], numbers: Iterable[int]) -> Conditions:
    """What holds of the program. `wanted`: polynomials that will be asked for; `numbers`: integers that the program has
    beside its symbols, from which what is named has to differ."""
    intervals: dict[int, list[int | None]] = {}
    negative: list[tuple[Terms, bool]] = []
    equal: list[tuple[Terms, bool]] = []
    for (operation, terms), outcome in decisions.conditions.items():
        if operation == "eq":
            equal.append((terms, outcome))
        elif not _bound(terms, outcome, intervals):
            negative.append((terms, outcome))
    taken = SMALL.union(numbers)
    apart: dict[int, Terms] = {}
    named: list[Terms] = []
    for terms, value in {**decisions.named, **decisions.written}.items():
        if terms in decisions.named and (value in taken or value in OUR_OWN):
            equal.append((combined(terms, of_integer(value), -1), True))
        elif value not in taken:
            first = apart.setdefault(value, terms)
            if first is not terms:
                equal.append((combined(terms, first, -1), True))
            if terms in decisions.named:
                named.append(terms)
    needed = [t for t, _ in (*negative, *equal)] + [*apart.values(), *wanted]
    steps = _needed(decisions, needed, intervals)
    bounds = tuple([Interval(atom, *bound) for atom, bound in intervals.items()])
    return Conditions(
        decisions.symbols, steps, bounds, tuple(negative), tuple(equal), (*apart.values(),), tuple(named), taken
    )  # fmt: skip


def _bound(terms: Terms, outcome: bool, intervals: dict[int, list[int | None]]) -> bool:
    """Note `terms < 0` (or not) as a bound of its only atom, where it has one."""
    linear = [(atoms, count) for atoms, count in terms if atoms]
    if len(linear) != 1 or len(linear[0][0]) != 1:
        return False
    ((atom,), count), offset = linear[0], sum([c for atoms, c in terms if not atoms])
    bound = intervals.setdefault(atom, [None, None])
    limit = -1 - offset if outcome else -offset  # count * x <= limit, or count * x >= limit
    if outcome is (count > 0):
        high = limit // count
        bound[1] = high if bound[1] is None else min(bound[1], high)
    else:
        low = -(-limit // count)
        bound[0] = low if bound[0] is None else max(bound[0], low)
    return True


def _needed(decisions: ExtentDecisions, terms: Iterable[Terms], intervals: Iterable[int]) -> tuple[Atom | None, ...]:
    """The atoms that those polynomials consist of, and what these are computed of; None in the place of others."""
    atoms = [*decisions.atoms]
    used = {a for t in terms for product, _ in t for a in product} | set(intervals)
    for number in range(len(atoms) - 1, -1, -1):
        if decisions.symbols + number in used:
            for operand in (atoms[number].left, atoms[number].right):
                if isinstance(operand, tuple):
                    used.update([a for product, _ in operand for a in product])
    return tuple([atom if decisions.symbols + i in used else None for i, atom in enumerate(atoms)])
