"""The workloads by name, and which systems can run on which kind of device."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType

from benchmarks.contender import Arrays, Contender
from benchmarks.place import kind

WORKLOADS = (
    "ragged", "ragged_skewed", "unforeseen", "newton", "stream", "sphere_trace", "ode", "wave", "small", "trace",
    "wide", "big_axis",
)  # fmt: skip

# On other devices than a CPU a workload's GPU_CONTENDERS count, of these systems.
SYSTEMS = {
    "cuda": ("loopgrad", "limit", "drjit", "jax", "torch", "quadrants"),
    "hip": ("loopgrad", "jax", "torch", "quadrants"),
    "vulkan": ("loopgrad", "quadrants"),
    "interpreter": ("loopgrad",),
}


def load(name: str) -> ModuleType:
    """The module of a workload; ValueError names those there are."""
    name = name.replace("-", "_")
    if name not in WORKLOADS:
        raise ValueError(f"expected a workload among {', '.join(WORKLOADS)}, got {name!r}")
    return importlib.import_module(f"benchmarks.workloads.{name}")


def contenders_of(module: ModuleType, device: str) -> Mapping[str, Callable[[Arrays], Contender]]:
    """The workload's contenders for a device."""
    if kind(device) == "cpu":
        return module.CONTENDERS
    systems = SYSTEMS[kind(device)]
    return {name: build for name, build in module.GPU_CONTENDERS.items() if name.split(":")[0] in systems}
