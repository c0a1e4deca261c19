"""The programs, field by field."""

from __future__ import annotations

from typing import Final

from benchmarks.workload import Workload
from benchmarks.workloads.programs import (
    fields,
    geometry,
    images,
    learning,
    numerics,
    particles,
    rendering,
    signals,
    statistics,
    tables,
)

PROGRAMS: Final = {
    **particles.PROGRAMS, **fields.PROGRAMS, **rendering.PROGRAMS, **geometry.PROGRAMS, **images.PROGRAMS,
    **numerics.PROGRAMS, **learning.PROGRAMS, **statistics.PROGRAMS, **signals.PROGRAMS, **tables.PROGRAMS,
}  # fmt: skip
WORKLOADS: Final[dict[str, Workload]] = {name: PROGRAMS[name].workload("programs", name) for name in PROGRAMS}
