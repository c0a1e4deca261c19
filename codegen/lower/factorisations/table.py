"""Which factorisations a lane can do by itself, whatever the size of its matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from loopgrad.codegen.lower.context import Frame, Lowering
from loopgrad.codegen.lower.factorisations import reflections, rotations, triangular
from loopgrad.graph.nodes import Node


class LaneRoutine(NamedTuple):
    """`scratch`: about how many matrices it has beside its results; `sweeps`: how often it goes over one, usually."""

    emit: Callable[[Lowering, Frame, Node], None]
    scratch: int = 0
    sweeps: int = 1


ROUTINES: Final[dict[str, LaneRoutine]] = {
    "cholesky": LaneRoutine(triangular.cholesky),
    "lu": LaneRoutine(triangular.lu),
    "triangular_solve": LaneRoutine(triangular.triangular_solve),
    "solve_factored": LaneRoutine(triangular.solve_factored, scratch=1),
    "qr": LaneRoutine(reflections.qr, scratch=1),
    "eigh": LaneRoutine(rotations.eigh, scratch=2, sweeps=8),
    "svd": LaneRoutine(rotations.svd, scratch=4, sweeps=8),
}
