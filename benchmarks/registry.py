"""The workloads by name, and which systems can run on which kind of device."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final

from benchmarks.place import kind
from benchmarks.workload import Builder, Workload, of_module

WORKLOADS: Final = (
    "ragged", "ragged_skewed", "unforeseen", "newton", "stream", "sphere_trace", "ode", "wave", "small", "trace",
    "wide", "big_axis", "kalman", "midpoint",
)  # fmt: skip

# Packages of many small workloads, whose `table.py` lists them; a member's name is "arrays.sort".
FAMILIES: Final = ("arrays", "programs", "calls")

# On other devices than a CPU a workload's contenders for GPUs count, of these systems.
SYSTEMS: Final = {
    "cuda": ("loopgrad", "limit", "drjit", "jax", "torch", "quadrants"),
    "hip": ("loopgrad", "jax", "torch", "quadrants"),
    "vulkan": ("loopgrad", "quadrants"),
    "interpreter": ("loopgrad",),
}


def expanded(names: str) -> list[str]:
    """Workloads joined by commas, families replaced by their members."""
    found: list[str] = []
    for name in names.replace("-", "_").split(","):
        found += _members(name) if name in FAMILIES else [name]
    return found


def _members(family: str) -> list[str]:
    return [f"{family}.{name}" for name in importlib.import_module(f"benchmarks.workloads.{family}.table").WORKLOADS]


def load(name: str) -> Workload:
    """A workload by its name; ValueError names those there are."""
    family, _, member = name.replace("-", "_").partition(".")
    if family in FAMILIES and member:
        members: Mapping[str, Workload] = importlib.import_module(f"benchmarks.workloads.{family}.table").WORKLOADS
        if member in members:
            return members[member]
        raise ValueError(f"expected a member of {family} among {', '.join(members)}, got {member!r}")
    if family not in WORKLOADS:
        raise ValueError(f"expected a workload among {', '.join(WORKLOADS + FAMILIES)}, got {name!r}")
    return of_module(family, importlib.import_module(f"benchmarks.workloads.{family}"))


def contenders_of(workload: Workload, device: str) -> Mapping[str, Builder]:
    """The workload's contenders for a device."""
    if kind(device) == "cpu":
        return workload.contenders
    systems = SYSTEMS[kind(device)]
    return {name: build for name, build in workload.gpu_contenders.items() if name.split(":")[0] in systems}
