"""Which launches of a program without loops and branches wait for those before them: those that touch what one of them
writes, or write what one of them touches.

    m = mean of x, n = mean of y, x / m, y / n        one wait, behind the means, in place of three

On an H200 a small launch takes 2.0 us behind a barrier of Vulkan's, and 0.4 beside what comes before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.runtime.gpu.placement import SLOTS, Placement

MOST_BESIDE: Final = 64  # launches that are looked at for each one
ARENA: Final = -1  # as a memory; others go by their symbol

Place = tuple[int, int, int]  # a memory, and from where to where there
Places = defaultdict[int, list[Place]]  # by their memory


class Hazards:
    """Inputs, constants and slots with memory of their own each lie in another memory, in every run; the rest in the
    arena, where those that are alive at different times may have the same bytes."""

    def __init__(self, program: ProgramRecord, placement: Placement) -> None:
        sizes = {SLOTS + i: slot.type.nbytes for i, slot in enumerate(program.slots)}
        for kernel, symbols in zip(program.kernels, placement.kernels, strict=True):
            sizes.update((symbols.scratch + i, size) for i, size in enumerate(kernel.scratch))
        self._places = {symbol: (ARENA, offset, offset + sizes[symbol]) for symbol, offset in placement.offsets}
        self.forget()

    def forget(self) -> None:
        """What comes next waits for all before it."""
        self._touched: Places = defaultdict(list)
        self._written: Places = defaultdict(list)
        self._beside = 0  # launches since the last one that waited

    def waits(self, arrays: Sequence[int], written: Container[int]) -> bool:
        """Whether the launch that comes next waits for those before it. It works on the arrays of these symbols, and
        writes those at some positions."""
        touched = [self._places.get(symbol, (symbol, 0, 1)) for symbol in arrays]
        made = [place for i, place in enumerate(touched) if i in written]
        found = self._beside == MOST_BESIDE or _meet(touched, self._written) or _meet(made, self._touched)
        if found:
            self.forget()
        for places, kept in ((touched, self._touched), (made, self._written)):
            for place in places:
                kept[place[0]].append(place)
        self._beside += 1
        return found


def _meet(some: Iterable[Place], others: Mapping[int, Sequence[Place]]) -> bool:
    return any(x[1] < y[2] and y[1] < x[2] for x in some for y in others.get(x[0], ()))
