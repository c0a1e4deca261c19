"""What is measured: inputs, the oracle's outputs, and the contenders that compute the same in their own ways.

A file in `benchmarks/workloads/` states one in constants: `TITLE`, `SIZES` ("full", "quick", "gpu"), `inputs(size)`,
`oracle(inputs)`, `TOLERANCE` (relative, per output name), `CONTENDERS` and `GPU_CONTENDERS`: name -> function of the
inputs that builds a `Contender`; also `REPEATS` (calls in a turn) and `ENVIRONMENT` (of the contenders' processes)
where it needs them. A builder imports what it needs: ModuleNotFoundError means "not installed", `Unavailable` says why
it can't run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType

from benchmarks.contender import Arrays, Contender

Builder = Callable[[Arrays], Contender]


@dataclass(frozen=True)
class Workload:
    """`family`: workloads of one family share a process for each system, which takes one after the other; without a
    family each contender has a process of its own. `flops(size)` is what a call computes, where that bounds it."""

    name: str
    title: str
    sizes: Mapping[str, int]
    inputs: Callable[[int], Arrays]
    oracle: Callable[[Arrays], Arrays]
    tolerance: Mapping[str, float]
    contenders: Mapping[str, Builder]
    gpu_contenders: Mapping[str, Builder]
    repeats: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    family: str = ""
    flops: Callable[[int], int] | None = None

    def size(self, *, quick: bool = False, gpu: bool = False) -> int:
        if quick:
            return self.sizes["quick"]
        return self.sizes.get("gpu", self.sizes["full"]) if gpu else self.sizes["full"]


def of_module(name: str, module: ModuleType) -> Workload:
    """The workload that a file states."""
    return Workload(
        name, module.TITLE, module.SIZES, module.inputs, module.oracle, module.TOLERANCE, module.CONTENDERS,
        module.GPU_CONTENDERS, getattr(module, "REPEATS", 1), getattr(module, "ENVIRONMENT", {}),
    )  # fmt: skip
