"""The programs, field by field."""

from __future__ import annotations

from typing import Final

from benchmarks.workload import Workload
from benchmarks.workloads.programs import (
    images,
    learning,
    numerics,
    rendering,
    signals,
    simulation,
    statistics,
    tables,
)

PROGRAMS: Final = {
    **simulation.PROGRAMS, **rendering.PROGRAMS, **images.PROGRAMS, **numerics.PROGRAMS, **learning.PROGRAMS,
    **statistics.PROGRAMS, **signals.PROGRAMS, **tables.PROGRAMS,
}  # fmt: skip
WORKLOADS: Final[dict[str, Workload]] = {name: PROGRAMS[name].workload("programs", name) for name in PROGRAMS}
