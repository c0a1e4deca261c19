"""Which way rows are sorted, and what is said where none is left."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.program import ArraySlot, Program, RoutineStep
from loopgrad.codegen.targets.gpu.routines import radix_sort, sort_rows
from loopgrad.graph.types import TensorType, float32, int8, int64, uint8
from tests.codegen.targets.gpu.gpu_harness import device, executable_of


def executable(shape, name="sort", axis=None):
    type = TensorType(shape, float32)
    result = type if name == "sort" else TensorType(shape, int64)
    step = RoutineStep(name, (0,), (1,), (("axis", len(shape) - 1 if axis is None else axis),))
    return executable_of(Program((ArraySlot(type, "input"), ArraySlot(result, "output")), (0,), (1,), (), (step,)))


def run(made, x):
    (result,) = made.run([device().put(x)])
    return device().get(result)


@pytest.mark.parametrize("shape", [(3, 40), (1, 1), (70, 2)], ids=str)
def test_short_rows_are_one_launch(shape):
    made = executable(shape)
    (row,) = made.plan().routines
    assert row.provider == sort_rows.PROVIDER.name
    assert len(made.program.steps[0].launches) == 1
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    np.testing.assert_array_equal(run(made, x), np.sort(x))


@pytest.mark.parametrize("name", ["sort", "argsort"])
def test_long_rows_say_why_not_as_short_ones(name):
    made = executable((2, 5000), name)
    (row,) = made.plan().routines
    assert row.provider == radix_sort.PROVIDER.name
    assert row.reason.startswith(f"{sort_rows.PROVIDER.name}: a row is more than a workgroup holds")


def test_nothing_is_launched_for_nothing():
    made = executable((4, 0))
    assert made.program.steps[0].launches == ()
    assert run(made, np.zeros((4, 0), np.float32)).shape == (4, 0)


def test_rows_beyond_32_bits_are_left_to_the_host(monkeypatch):
    monkeypatch.setattr(radix_sort, "LONGEST", 4999)
    made = executable((2, 5000))
    (row,) = made.plan().routines
    assert row.provider == "NumPy, on the host"
    assert "a row has more than 4,999 elements" in row.reason
    x = np.random.default_rng(0).standard_normal((2, 5000), np.float32)
    np.testing.assert_array_equal(run(made, x), np.sort(x))


def test_another_axis_is_left_to_the_host():
    """Schedules never ask for that."""
    made = executable((3, 5), axis=0)
    (row,) = made.plan().routines
    assert "the axis isn't the last" in row.reason
    x = np.random.default_rng(0).standard_normal((3, 5), np.float32)
    np.testing.assert_array_equal(run(made, x), np.sort(x, axis=0))


@pytest.mark.parametrize("dtype", [uint8, int8], ids=lambda d: d.name)
@pytest.mark.parametrize(("shape", "each"), [((2, 5000), 60), ((1, 70001), 1)], ids=str)
def test_positions_of_elements_of_one_digit(shape, each, dtype):
    """Equal ones stay in their order."""
    step = RoutineStep("argsort", (0,), (1,), (("axis", 1),))
    slots = (ArraySlot(TensorType(shape, dtype), "input"), ArraySlot(TensorType(shape, int64), "output"))
    made = executable_of(Program(slots, (0,), (1,), (), (step,)))
    (row,) = made.plan().routines
    assert row.provider == radix_sort.PROVIDER.name
    x = (np.random.default_rng(0).integers(0, 256, shape) // each * each).astype(dtype.np)
    np.testing.assert_array_equal(run(made, x), np.argsort(x, axis=1, kind="stable"))


@pytest.mark.parametrize(("length", "fewer"), [(40, 1), (5000, 4)])
def test_digits_that_all_share_arent_sorted(length, fewer):
    """Of numbers below 1,000: rows that a workgroup holds take one launch anyway, others one for each eight bits."""
    type, launches = TensorType((length,), int64), []
    x = np.random.default_rng(0).integers(0, 1000, length)
    for bits in ((), (("bits", 10),)):
        step = RoutineStep("argsort", (0,), (1,), (("axis", 0), *bits))
        made = executable_of(Program((ArraySlot(type, "input"), ArraySlot(type, "output")), (0,), (1,), (), (step,)))
        launches.append(len(made.program.steps[0].launches))
        np.testing.assert_array_equal(run(made, x), np.argsort(x, kind="stable"))
    assert launches[0] == fewer * launches[1]
