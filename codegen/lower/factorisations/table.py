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
