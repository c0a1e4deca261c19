"""Numerical methods: relaxation, conjugate gradients, integrators, eigenvalues, small systems."""

from __future__ import annotations

from typing import Any

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import Program, named, normal, sizes
from benchmarks.workloads.arrays.script import script


def plane(n: int) -> Arrays:
    return named(x=normal((n, n))[0])


def relaxed(xp: Any, source: Any) -> Any:
    """Twenty of Jacobi's steps for Poisson's equation, zeros around."""

    def step(_: Any, u: Any) -> Any:
        p = xp.pad(u, 1)
        return (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - source) / 4

    return xp.fori_loop(0, 20, step, xp.zeros_like(source))


PROGRAMS: dict[str, Program] = {
    "jacobi": script("20 steps of Jacobi's for Poisson's equation", sizes(512, 16, 2048), plane, relaxed),
}
