"""Rows of segments are added up, whatever the segments' lengths are."""

import numpy as np
import pytest

from loopgrad.codegen.program import ArraySlot, Program, RoutineStep
from loopgrad.codegen.targets.gpu.routines import segment_sums
from loopgrad.graph.primitives.segments import segment_sum
from loopgrad.graph.types import TensorType, bfloat16, float16, float32, float64, int32, sum_dtype
from tests.codegen.targets.gpu.gpu_harness import device, executable_of

RNG = np.random.default_rng(0)
COUNT = 40


def summed(values, segments, rows, shape, dtype=float32, start=()):
    """By the device, and by NumPy."""
    attrs = (("rank", 1), ("shape", shape))
    result, given = TensorType(shape, sum_dtype(dtype)), (values, segments, rows, *start)
    types = [TensorType(values.shape, dtype), *[TensorType(segments.shape, int32)] * 2, *[result] * len(start)]
    slots = (*[ArraySlot(t, "input") for t in types], ArraySlot(result, "output"))
    inputs = tuple(range(len(types)))
    step = RoutineStep("segment_sum", inputs, (len(types),), attrs)
    made = executable_of(Program(slots, inputs, (len(types),), (), (step,)))
    (row,) = made.plan().routines
    assert row.provider == segment_sums.PROVIDER.name
    (got,) = made.run([device().put(x) for x in given])
    return device().get(got), segment_sum(dict(attrs), *given)[0]


SEGMENTS = {
    "few": RNG.integers(0, 3, 300),
    "many": RNG.integers(0, COUNT, 300),
    "one": np.full(20000, 7),
    "beyond": RNG.integers(20, 2 * COUNT, 100),
    "long and short": np.concatenate([np.full(5000, 3), RNG.integers(0, COUNT, 50), np.full(70, 39)]),
    "a chunk each": np.repeat(np.arange(COUNT), 8),
    "single": np.array([5]),
}


@pytest.mark.parametrize("segments", SEGMENTS.values(), ids=SEGMENTS)
@pytest.mark.parametrize("width", [16, 18, 7])
def test_segments_of_any_length(segments, width):
    """Integers, which are added up exactly; rows come from anywhere."""
    segments = np.sort(segments).astype(np.int32)
    values = RNG.integers(-50, 50, (60, width)).astype(np.float32)
    rows = RNG.integers(0, len(values), len(segments)).astype(np.int32)
    got, want = summed(values, segments, rows, (COUNT, width))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("segments", ["many", "one", "long and short"])
def test_sums_on_top_of_a_table(segments):
    segments = np.sort(SEGMENTS[segments]).astype(np.int32)
    values = RNG.integers(-50, 50, (60, 6)).astype(np.float32)
    rows = RNG.integers(0, len(values), len(segments)).astype(np.int32)
    start = RNG.integers(-50, 50, (COUNT, 6)).astype(np.float32)
    got, want = summed(values, segments, rows, (COUNT, 6), start=[start])
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [float16, bfloat16, float64], ids=str)
def test_dtypes(dtype):
    segments = np.sort(RNG.integers(0, COUNT, 200)).astype(np.int32)
    values = RNG.integers(-8, 8, (200, 4, 5)).astype(dtype.np)
    got, want = summed(values, segments, np.arange(200, dtype=np.int32), (COUNT, 4, 5), dtype)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_what_additions_lose_is_carried_along():
    """Through all levels, but for what the last term does: plain sums lose all of the ones."""
    values = np.ones((4002, 16), np.float32)
    values[0], values[-1] = 2.0**30, -(2.0**30)
    order = np.arange(4002, dtype=np.int32)
    got, want = summed(values, np.zeros(4002, np.int32), order, (2, 16))
    assert want[0, 0] == 4000
    np.testing.assert_allclose(got, want, rtol=1e-3)


def test_infinities_stay_in_their_segment():
    values = np.zeros((100, 16), np.float32)
    values[10], values[60] = np.inf, np.nan
    segments = np.repeat(np.arange(10), 10).astype(np.int32)
    got, want = summed(values, segments, np.arange(100, dtype=np.int32), (10, 16))
    np.testing.assert_array_equal(got, want)
