"""Which factorisations a lane can do by itself, whatever the size of its matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from loopgrad.codegen.lower.context import Frame, Lowering
from loopgrad.codegen.lower.factorisations import reflections, rotations, triangular
from loopgrad.graph.nodes import Node

ROUTINES: Final[dict[str, Callable[[Lowering, Frame, Node], None]]] = {
    **triangular.ROUTINES,
    **reflections.ROUTINES,
    **rotations.ROUTINES,
}
SCRATCH: Final = {"qr": 1, "eigh": 2, "svd": 4}
"""Arrays of a matrix' size that a routine has beside its results."""
SWEEPING: Final = {"eigh": 8, "svd": 8}
"""How often they go over a matrix."""
