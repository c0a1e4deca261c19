"""What warps exchange before they leave it to the workgroup: sums and their rests, and what isn't finite."""

from __future__ import annotations

from math import fsum

import numpy as np
import pytest

from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.schedule import schedule
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.types import TensorType, float32, float64, int32
from tests.codegen.targets.gpu.gpu_harness import device, executable_of


def reduced(function, x, dtype):
    made = executable_of(schedule(trace(function, [TensorType(x.shape, dtype)])[0], DEFAULT_OPTIONS))
    return [device().get(found) for found in made.run([device().put(x)])]


@pytest.mark.parametrize("shape", [(5, 3000), (1, 70_001)])
def test_sums_keep_what_additions_lose(shape) -> None:
    """In tiles that are whole rows, and where several are one."""
    x = np.random.default_rng(0).uniform(0.1, 1, shape).astype(np.float32)
    (got,) = reduced(lambda x: [ops.reduce_sum(x, (1,))], x, float32)
    wanted = np.array([fsum(map(float, row)) for row in x], np.float32)
    np.testing.assert_allclose(got, wanted, rtol=1.2e-7)


def test_sums_that_are_not_finite() -> None:
    x = np.ones((4, 2000), np.float32)
    x[0, 3] = x[1, 3] = np.inf
    x[1, 900] = -np.inf
    x[2, 1999] = np.nan
    x[3] = 3e38
    (got,) = reduced(lambda x: [ops.reduce_sum(x, (1,))], x, float32)
    np.testing.assert_array_equal(got, np.array([np.inf, np.nan, np.nan, np.inf], np.float32))


def test_several_reductions_of_other_kinds() -> None:
    x = np.random.default_rng(1).integers(-9, 9, (4, 2000), dtype=np.int32)
    functions = (ops.reduce_sum, ops.reduce_max, ops.reduce_min, ops.reduce_sum)
    got = reduced(lambda x: [f(ops.add(x, n), (1,)) for n, f in enumerate(functions)], x, int32)
    for found, want in zip(got, (x.sum(1), x.max(1) + 1, x.min(1) + 2, (x + 3).sum(1)), strict=True):
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(("dtype", "count"), [(float32, 3), (float32, 41), (float64, 9), (int32, 34)])
def test_invocations_share_out_what_they_exchange(dtype, count) -> None:
    """As many as a warp's invocations and more, odd numbers of them, sums and what depends on order."""
    x = np.random.default_rng(2).integers(-9, 9, 5000).astype(dtype.np)

    def powers(x):
        terms = [ops.mul(x, ops.full(n + 1, x.type)) for n in range(count)]
        return [*[ops.reduce_sum(t, (0,)) for t in terms], ops.reduce_max(x, (0,)), ops.reduce_min(x, (0,))]

    *sums, most, least = reduced(powers, x, dtype)
    np.testing.assert_array_equal(sums, [(n + 1) * x.sum() for n in range(count)])
    assert (most, least) == (x.max(), x.min())
