"""Physics: particles, cloth, waves, heat, fluids, spins."""

from __future__ import annotations

from typing import Any

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import named, normal, sizes, uniform
from benchmarks.workloads.arrays.script import at, script

GRID = 256


def charges(n: int) -> Arrays:
    return named(x=uniform((n, 2), high=GRID)[0], charge=normal((n,))[0])


def deposited(xp: Any, x: Any, charge: Any) -> Any:
    """Charges of particles on the four nodes around each, by the cloud-in-cell weights."""
    first = xp.floor(x).astype(xp.int32)
    f = x - xp.floor(x)
    grid = xp.zeros((GRID, GRID), dtype=x.dtype)
    for a, wx in ((0, 1 - f[:, 0]), (1, f[:, 0])):
        for b, wy in ((0, 1 - f[:, 1]), (1, f[:, 1])):
            grid = at(grid, ((first[:, 0] + a) % GRID, (first[:, 1] + b) % GRID)).add(charge * wx * wy)
    return grid


PROGRAMS = {
    "deposited": script("charges of particles on a grid", sizes(2**18, 100, 2**22), charges, deposited),
}  # fmt: skip
