"""Which integers of a skeleton are symbols, as several graphs that share it show.

An integer that all of them have alike is a constant. Of those that differ together one is a symbol; the others follow
from symbols: the same number, a multiple of it and something, a product of two. A graph for which that isn't so is none
of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopgrad.codegen.extents.decisions import ExtentDecisions, Terms, evaluated, polynomial
from loopgrad.codegen.extents.extent import Extent

Samples = Sequence[tuple[int, ...]]
"""The integers of each graph."""


@dataclass(frozen=True, slots=True)
class Variables:
    """`places` of the symbols; `forms`: each other integer that differs, as a polynomial of them; `constants`: what the
    others are."""

    places: tuple[int, ...]
    forms: tuple[tuple[int, Terms], ...]
    constants: tuple[tuple[int, int], ...]

    def values(self, integers: Sequence[int]) -> list[int] | None:
        """The symbols' values; None where a constant is another one, or an integer doesn't follow from them."""
        for place, value in self.constants:
            if integers[place] != value:
                return None
        symbols = [integers[place] for place in self.places]
        for place, terms in self.forms:
            if evaluated(terms, symbols) != integers[place]:
                return None
        return symbols

    def extents(self, decisions: ExtentDecisions, integers: Sequence[int]) -> list[int]:
        """The integers, recorded where they depend on symbols."""
        found: list[int] = [*integers]
        for number, place in enumerate(self.places):
            found[place] = Extent(decisions, (((number,), 1),), integers[place])  # type: ignore[call-overload]
        for place, terms in self.forms:
            found[place] = Extent(decisions, terms, integers[place])  # type: ignore[call-overload]
        return found


def variables(samples: Samples) -> Variables | None:
    """What differs between two samples or more; None where nothing does."""
    columns = list(zip(*samples, strict=True))
    places: list[int] = []
    forms: dict[tuple[int, ...], Terms] = {}
    others, constants = [], []
    for place, column in enumerate(columns):
        if len(set(column)) == 1:
            constants.append((place, column[0]))
        elif column in forms:
            others.append((place, forms[column]))
        else:
            form = _form(column, [columns[p] for p in places])
            if form is None:
                form = (((len(places),), 1),)
                places.append(place)
            else:
                others.append((place, form))
            forms[column] = form
    return Variables(tuple(places), tuple(others), tuple(constants)) if places else None


def _form(column: Sequence[int], symbols: Sequence[Sequence[int]]) -> Terms | None:
    """The integers as a polynomial of symbols: a multiple, a product of two, or a multiple and something."""
    found = [(number, line) for number, symbol in enumerate(symbols) if (line := _line(symbol, column)) is not None]
    for number, (slope, offset) in found:
        if offset == 0:
            return (((number,), slope),)
    for i, a in enumerate(symbols):
        for j, b in enumerate(symbols[i:], i):
            if all(x * y == z for x, y, z in zip(a, b, column, strict=True)):
                return (((i, j), 1),)
    return polynomial({(found[0][0],): found[0][1][0], (): found[0][1][1]}) if found else None


def _line(symbol: Sequence[int], column: Sequence[int]) -> tuple[int, int] | None:
    """slope and offset, integers, such that slope * symbol + offset is the column."""
    first, other = next((i, j) for i, j in ((0, k) for k in range(1, len(symbol))) if symbol[i] != symbol[j])
    slope, rest = divmod(column[other] - column[first], symbol[other] - symbol[first])
    offset = column[first] - slope * symbol[first]
    if rest or any(slope * x + offset != y for x, y in zip(symbol, column, strict=True)):
        return None
    return slope, offset
