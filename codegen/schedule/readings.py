"""How often the elements of a value are evaluated, and where: readers at one place share what they read, as what is
computed of them does, but the same functions of it at other places are other evaluations.

    u = f(x)    a = roll(u * v, 1)    b = roll(u * w, 2)        u is evaluated twice for each element
                a = roll(u * v, 1)    b = roll(u * w, 1)        u is evaluated once
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

from loopgrad.graph.nodes import Node

OWN: Final = 0  # an element is read by the lane of its own index
MANY: Final = -1  # further places of a value that has been read at so many
MOST_PLACES: Final = 64

Shift = tuple[int, int]  # of a dim: index -> factor * index + distance
Shifts = dict[int, Shift]
SAME: Final[Shift] = (1, 0)


class Readings:
    """Of one value: evaluations by place."""

    __slots__ = ("by_place",)

    def __init__(self) -> None:
        self.by_place: dict[int, float] = {}

    def read(self, place: int, count: float) -> None:
        known = self.by_place.get(place)
        if known is None and len(self.by_place) >= MOST_PLACES:
            self.by_place[MANY] = self.by_place.get(MANY, 0.0) + count
        elif known is None or known < count:
            self.by_place[place] = count

    def total(self) -> float:
        return sum(self.by_place.values())

    def evaluated(self, size: float, stored: bool, places: ReadPlaces) -> Mapping[int, float]:
        """Evaluations by place once it is known whether its elements, so many, are stored; each once at least."""
        if stored:
            return {OWN: size}
        found: dict[int, float] = {}
        for place, count in self.by_place.items():
            row = places.rows.get(place, OWN)
            found[row] = found.get(row, 0.0) + count
        return found if self.total() >= size else {next(iter(found), OWN): size}


class ReadPlaces:
    """Numbers of places, which say what element of a value a lane reads: its own, or one that slices and their like
    lead to. What is computed of an operand there is evaluated there as well; gathers, sums and others have a place to
    themselves."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, Shifts]] = {OWN: (OWN, {})}  # from which place, and how far
        self._numbers: dict[Hashable, int] = {}
        self._others = MANY
        self.rows = {OWN: OWN}  # places of elements -> places of the rows that have them, which a lane may make whole

    def moved(self, node: Node, operand: int, place: int) -> int:
        """Where a node that is read at a place reads its operand."""
        own = _own_shifts(node, operand)
        if own is None:
            self._others -= 1
            return self._others
        start, before = self._known.get(place, (place, {}))
        extents = node.operands[operand].shape
        through = [_through(before.get(d, SAME), own.get(d, SAME)) for d in range(len(extents))]
        return self._shifted(start, {d: s for d, s in enumerate(through) if s != SAME and extents[d] != 1})

    def reshaped(self, node: Node, place: int) -> int:
        """The same for a reshape, which only keeps the dims of a place where it adds and removes those of one element;
        elsewhere further places count from there."""
        start, before = self._known.get(place, (place, {}))
        if not before:
            return place
        made, source = node.results[0].shape, node.operands[0].shape
        dims, kept = ([d for d, n in enumerate(shape) if n != 1] for shape in (made, source))
        if [made[d] for d in dims] == [source[d] for d in kept]:
            return self._shifted(start, {to: before[d] for d, to in zip(dims, kept, strict=True) if d in before})
        number = self._numbers.setdefault((place, made, source), len(self._known))
        self._known.setdefault(number, (number, {}))
        self.rows.setdefault(number, number)
        return number

    def _shifted(self, start: int, shifts: Shifts) -> int:
        if not shifts:
            return start
        number = self._numbers.setdefault((start, *shifts.items()), len(self._known))
        if number not in self._known:
            self._known[number] = start, shifts
            free = {d: shift for d, shift in shifts.items() if shift[0]}
            self.rows[number] = number if len(free) == len(shifts) else self._shifted(start, free)
        return number


def _through(outer: Shift, inner: Shift) -> Shift:
    return outer[0] * inner[0], outer[1] * inner[0] + inner[1]


def _own_shifts(node: Node, operand: int) -> Shifts | None:
    """By dims: the place of what is read of an operand, from the place of the result; None where that isn't all."""
    match node.op:
        case "slice":
            steps = zip(node.results[0].shape, node.attrs["step"], node.attrs["start"], strict=True)
            # an only element is at its start, wherever the reader is
            return {d: (step if extent != 1 else 0, start) for d, (extent, step, start) in enumerate(steps)}
        case "flip":
            return {d: (-1, node.operands[0].shape[d] - 1) for d in node.attrs["axes"]}
        case "concat":
            axis = node.attrs["axis"]
            before = [v.shape[axis] for i, v in enumerate(node.operands) if i < operand]
            return {axis: (1, -sum(before))}
        case "pad" if operand == 0:
            return {d: (1, -low) for d, low in enumerate(node.attrs["low"])}
    return None
