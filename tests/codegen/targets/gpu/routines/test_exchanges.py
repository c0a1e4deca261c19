"""Rows that change places in turn, by both providers, beside the reference."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.program import ArraySlot, Program, RoutineStep
from loopgrad.codegen.targets.gpu.routines.exchanges import PROVIDERS as WAYS
from loopgrad.codegen.targets.gpu.routines.table import PROVIDERS
from loopgrad.graph.primitives import REFERENCE
from loopgrad.graph.types import TensorType, int64
from tests.codegen.targets.gpu.gpu_harness import device, executable_of


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize(
    ("batch", "rows", "swaps"), [((3,), 700, 600), ((), 5, 5), ((2, 2), 9, 4), ((0,), 4, 4), ((), 1, 1)]
)
def test_both_ways(monkeypatch, way, batch, rows, swaps):
    monkeypatch.setitem(PROVIDERS, "exchanged", (way,))
    rng = np.random.default_rng(0)
    others = rng.integers(np.arange(swaps), rows, (*batch, swaps))
    slots = (
        ArraySlot(TensorType(others.shape, int64), "input"),
        ArraySlot(TensorType((*batch, rows), int64), "output"),
    )
    step = RoutineStep("exchanged", (0,), (1,), (("rows", rows),))
    executable = executable_of(Program(slots, (0,), (1,), (), (step,)))
    (result,) = executable.run([device().put(others)])
    np.testing.assert_array_equal(device().get(result), REFERENCE["exchanged"]({"rows": rows}, others)[0])
