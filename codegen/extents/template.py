"""A record with extents left open: dataclasses, tuples, dicts and texts in which some integers are polynomials.

`templated` takes what was made of Extents, and gives a function of the atoms' values that makes the record for these;
what doesn't depend on them is shared by all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

from loopgrad.codegen.extents.decisions import ExtentDecisions, Terms, combined, evaluated
from loopgrad.codegen.extents.extent import PIECE, Extent, Measure

Fill = Callable[[Sequence[Any]], Any]
"""Makes a part of the record of the atoms' values."""

PIECES: Final = re.compile(PIECE.replace("{:09d}", r"(\d{9})"))


class Templates:
    """Makes templates of what one ExtentDecisions was there for. `used`: the polynomials that they ask for."""

    def __init__(self, decisions: ExtentDecisions) -> None:
        self._pieces = list(decisions.pieces)
        self.used: dict[Terms, None] = {}

    def filling(self, part: Any) -> Fill | None:
        """What makes a part of a record; None where it is the same for all extents."""
        kind = type(part)
        if kind is Extent:
            return self.integer(part.terms)
        if kind is Measure:
            raise NotTemplated("a float that depends on extents")
        if kind is str:
            return self.text(part)
        if kind in (tuple, list, frozenset, set):
            return self._items(list(part), kind)
        if kind is dict:
            items = self._items([item for pair in part.items() for item in pair], list)
            return None if items is None else lambda values: _paired(items(values))
        if issubclass(kind, tuple):
            return self._items(list(part), lambda found: kind(*found))
        if is_dataclass(kind):
            names = [f.name for f in fields(kind)]
            return self._items([getattr(part, name) for name in names], lambda found: kind(*found))
        return None

    def _items(self, items: Sequence[Any], make: Callable[[list[Any]], Any]) -> Fill | None:
        fills = {i: fill for i, item in enumerate(items) if (fill := self.filling(item)) is not None}
        if not fills:
            return None

        def filled(values: Sequence[Any]) -> Any:
            found = [*items]
            for i, fill in fills.items():
                found[i] = fill(values)
            return make(found)

        return filled

    def integer(self, terms: Terms) -> Fill:
        """A polynomial."""
        self.used[terms] = None
        return lambda values: evaluated(terms, values)

    def terms(self, number: str) -> Terms | None:
        """The polynomial that an integer in a text stands for."""
        found = PIECES.fullmatch(number.removeprefix("-").removeprefix("0x"))
        if found is None:
            return None
        terms, _ = self._pieces[int(found[1])]
        return combined((), terms, -1) if number.startswith("-") else terms

    def text(self, text: str) -> Fill | None:
        """As above, of a text."""
        between = PIECES.split(text)
        if len(between) == 1:
            return None
        numbers = [self._pieces[int(number)] for number in between[1::2]]
        self.used.update(dict.fromkeys([terms for terms, _ in numbers]))
        texts = between[::2]

        def filled(values: Sequence[Any]) -> str:
            pieces = [format(evaluated(terms, values), form) for terms, form in numbers]
            return "".join([texts[0], *[piece for pair in zip(pieces, texts[1:], strict=True) for piece in pair]])

        return filled


class NotTemplated(Exception):
    """Something depends on extents that a template can't leave open."""


def _paired(found: list[Any]) -> dict[Any, Any]:
    return dict(zip(found[::2], found[1::2], strict=True))
