"""Scans by functions of elements on a GPU, of several leaves, in rows and columns, with rows long enough to be cut."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.program import ArraySlot, Program, RoutineStep
from loopgrad.codegen.targets.gpu.lanes import running_plan
from loopgrad.codegen.targets.gpu.routines import associative_scan as routine
from loopgrad.graph.primitives.running import associative_scan
from loopgrad.graph.types import TensorType, bool_, float32, int64
from tests.codegen.targets.gpu.gpu_harness import device, executable_of

RNG = np.random.default_rng(0)
# of two integers as one, the left one's digits come first: associative, not commutative
DIGITS = (
    (
        ("mul", "int64", (0, 3), ()), ("add", "int64", (4, 2), ()), ("const", "int64", (), (("value", 1000003),)),
        ("mod", "int64", (5, 6), ()), ("mul", "int64", (1, 3), ()), ("mod", "int64", (8, 6), ()),
    ),
    (7, 9),
)  # fmt: skip


def scanned(arrays, dtypes, **attrs):
    """By the device, and by NumPy."""
    types = [TensorType(x.shape, dtype) for x, dtype in zip(arrays, dtypes, strict=True)]
    results = [types[k] for k in attrs["taken"]]
    slots = (*[ArraySlot(t, "input") for t in types], *[ArraySlot(t, "output") for t in results])
    inputs, outputs = tuple(range(len(types))), tuple(range(len(types), len(slots)))
    step = RoutineStep("associative_scan", inputs, outputs, tuple(sorted(attrs.items())))
    made = executable_of(Program(slots, inputs, outputs, (), (step,)))
    (row,) = made.plan().routines
    assert row.provider == routine.PROVIDER.name
    found = made.run([device().put(x) for x in arrays])
    return [device().get(x) for x in found], associative_scan(attrs, *arrays)


@pytest.mark.parametrize(
    ("shape", "along"),
    [((1,), -1), ((33,), -1), ((6001,), -1), ((70, 9), -1), ((3, 2500), -1), ((2000, 5), -2), ((3, 40, 70), -2)],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_order(shape, along, reverse):
    digits, base = RNG.integers(0, 7, shape), np.full(shape, 7)
    taken = (0, 1) if reverse else (0,)
    got, want = scanned([digits, base], [int64, int64], along=along, reverse=reverse, function=DIGITS, taken=taken)
    for x, y in zip(got, want, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("reverse", [False, True])
def test_order_of_tiles_in_a_span(monkeypatch, reverse):
    monkeypatch.setattr(running_plan, "MANY", 3)
    digits, base = RNG.integers(0, 7, 40_001), np.full(40_001, 7)
    (got,), (want,) = scanned([digits, base], [int64, int64], along=-1, reverse=reverse, function=DIGITS, taken=(0,))
    np.testing.assert_array_equal(got, want)


def test_leaves_of_different_dtypes():
    """Sums that begin anew where they are told."""
    rows = (
        ("or", "bool", (0, 2), ()), ("const", "float32", (), (("value", 0.0),)),
        ("select", "float32", (2, 5, 1), ()), ("add", "float32", (6, 3), ()),
    )  # fmt: skip
    begins, x = RNG.random(5000) < 0.01, RNG.integers(-9, 9, 5000).astype(np.float32)
    got, want = scanned([begins, x], [bool_, float32], along=-1, reverse=False, function=(rows, (4, 7)), taken=(0, 1))
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1], want[1])
