"""Loops and branches of programs that run directly: each body is a program of its own, run trip after trip.

`graph.interpret_regions` says what region nodes mean; here it gets bodies' operations from programs that were planned
once (`runtime.cpu.direct`). How many trips a loop takes is often known while it runs only, so all trips draw on
one budget; where that is used up, the program has to be compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from loopgrad.graph.interpret_regions import Activation, run_region
from loopgrad.graph.nodes import Node
from loopgrad.graph.primitives.primitive import Array
from loopgrad.runtime.executable import Outgrown

MOST_WORK: Final = 20_000_000
"""Nanoseconds of all trips of one run, about: what compiling a loop takes at least."""

PASS: Final = 10_000  # of a trip, beside its operations


@dataclass(frozen=True, slots=True, eq=False)
class RegionOperation:
    """What computes the results of a node with regions from its operands, where its bodies run in a frame."""

    node: Node

    def __call__(self, operands: list[Any], frame: Activation) -> list[Any]:
        return run_region(self.node, operands, frame)


class Budget:
    """What a run may still spend on trips."""

    def __init__(self) -> None:
        self.spent = 0

    def spend(self, work: int) -> None:
        """Raises Outgrown where there isn't enough left."""
        self.spent += work + PASS
        if self.spent > MOST_WORK:
            raise Outgrown


def arrays_of(found: Sequence[Any], outputs: Sequence[tuple[int, object]]) -> list[Array]:
    """The values in the places of a program's outputs."""
    return [found[place] for place, _ in outputs]
