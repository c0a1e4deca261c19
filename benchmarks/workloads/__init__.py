"""The table of workloads, one file each."""

from __future__ import annotations

from typing import Final

from benchmarks.workload import Workload
from benchmarks.workloads import newton, ragged, stream

WORKLOADS: Final[dict[str, Workload]] = {w.name: w for w in (ragged.UNIFORM, ragged.SKEWED, newton.NEWTON, stream.STREAM)}
