"""The workloads by name."""

from __future__ import annotations

import importlib
from types import ModuleType

WORKLOADS = ("ragged", "ragged_skewed", "newton", "stream", "sphere_trace", "ode", "wave", "small", "trace")


def load(name: str) -> ModuleType:
    """The module of a workload; ValueError names those there are."""
    if name not in WORKLOADS:
        raise ValueError(f"expected a workload among {', '.join(WORKLOADS)}, got {name!r}")
    return importlib.import_module(f"benchmarks.workloads.{name}")
