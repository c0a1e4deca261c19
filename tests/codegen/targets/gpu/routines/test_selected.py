"""Elements at a few places of rows' order, beside sorted rows."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from loopgrad.codegen.program import ArraySlot, Program, RoutineStep
from loopgrad.codegen.targets.gpu.routines import radix_sort, selected, sort_rows
from loopgrad.graph.types import DTYPES, TensorType, float32
from tests.codegen.targets.gpu.gpu_harness import device, executable_of

LONG = 4500


def executable(type, places):
    step = RoutineStep("sort", (0,), (1,), (("axis", len(type.shape) - 1), ("places", places)))
    return executable_of(Program((ArraySlot(type, "input"), ArraySlot(type, "output")), (0,), (1,), (), (step,)))


def found(x, dtype, places):
    made = executable(TensorType(x.shape, dtype), places)
    assert made.plan().routines[0].provider == selected.PROVIDER.name
    (result,) = made.run([device().put(x)])
    return device().get(result)[..., list(places)]


def rows(dtype, length=LONG):
    """One of different elements, of which some are no numbers or infinite, one of few, one of a single one."""
    rng = np.random.default_rng(3)
    if dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        x = rng.integers(low, high, (3, length), dtype, endpoint=True)
    else:
        x = (rng.standard_normal((3, length)) * 10.0 ** rng.integers(-3, 4, (3, length))).astype(dtype)
        x[0, :40:10], x[0, 7], x[0, 9] = np.nan, np.inf, -np.inf
    x[1], x[2] = x[1, :3][rng.integers(0, 3, length)], x[2, 0]
    return x


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, np.int16, ml_dtypes.bfloat16])
def test_elements_at_places_of_the_order(dtype, gpu):
    dtype = np.dtype(dtype)
    x, places = rows(dtype), (0, 1, LONG // 2 - 1, LONG // 2, LONG - 1)
    got = found(x, DTYPES[dtype.name], places)
    wide = np.float64 if dtype.kind not in "iu" else dtype  # NumPy sorts NaN of bfloat16 to the front
    np.testing.assert_array_equal(got.astype(wide), np.sort(x.astype(wide), axis=1)[:, list(places)])


def test_rows_of_several_chunks(gpu, monkeypatch):
    """Which add up what they count, and find nothing of the pass before."""
    x = rows(np.dtype(np.float32), 30_000)
    assert radix_sort.MOST_CHUNKS // len(x) > 2
    places = (14_999, 15_000)
    np.testing.assert_array_equal(found(x, float32, places), np.sort(x, axis=1)[:, list(places)])


def test_who_selects(gpu):
    def providers(length, places):
        (row,) = executable(TensorType((2, length), float32), places).plan().routines
        return row.provider

    assert providers(40, (20,)) == sort_rows.PROVIDER.name
    assert providers(LONG, (20,)) == selected.PROVIDER.name
    assert providers(LONG, ()) == radix_sort.PROVIDER.name
