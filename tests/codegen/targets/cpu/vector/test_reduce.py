"""Sums of floats on vectors of every length: a total and its rest per vector, chunk and row."""

import numpy as np
import pytest

from loopgrad.graph.types import float32, float64
from tests.codegen.targets.cpu.cpu_harness import CompiledKernel, host_machine, narrower
from tests.codegen.targets.cpu.kernel_build import Build

SHAPES = [(300_000,), (7, 5003), (3, 70_001), (900, 11), (2000, 130)]


def summed(shape, dtype, machine):
    """Equal terms, summed over the last axis."""
    rank, rows = len(shape), int(np.prod(shape[:-1]))
    build = Build(*shape)
    x = build.load(build.param(dtype, int(np.prod(shape))), build.linear())
    build.reduce(x, build.param(dtype, rows, "write"), "add", 1 if rank > 1 else rank)
    arrays = [np.full(shape, 0.1, dtype.np).reshape(-1), np.zeros(rows, dtype.np)]
    CompiledKernel(build.kernel(), machine=machine).run(arrays)
    return arrays[1]


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("shape", SHAPES)
def test_many_equal_terms(shape, bits):
    machine = host_machine() if bits == 512 else narrower(bits)
    for dtype, error in ((float32, 6e-8), (float64, 1.2e-16)):
        wanted = np.longdouble(dtype.np.type(0.1)) * shape[-1]
        np.testing.assert_allclose(summed(shape, dtype, machine).astype(np.longdouble), wanted, rtol=error)
