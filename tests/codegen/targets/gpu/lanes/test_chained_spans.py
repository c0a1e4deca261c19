"""Running totals in one launch, whose workgroups hand on what their spans make, against the kernel interpreter."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue, RunningTotal
from loopgrad.codegen.targets.gpu.lanes import running_plan
from loopgrad.codegen.targets.gpu.lanes.chained_spans import FAN
from loopgrad.graph.types import float32, float64, int64
from tests.codegen.targets.gpu.gpu_harness import check

TILE = 32 * 33  # of the simulator's workgroups


@pytest.mark.parametrize("shape", [(1, TILE * 3 - 5, 1), (3, TILE * 9 + 1, 1), (1, TILE * (2 * FAN + 2) + 7, 1)])
@pytest.mark.parametrize("dtype", [float32, float64, int64], ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_spans_wait_for_those_before_them(monkeypatch, shape, dtype, reverse):
    monkeypatch.setattr(running_plan, "FEWEST_CHAINED", 2)
    size = prod(shape)
    params = (BufferParam(dtype, size, "read"), BufferParam(dtype, size, "write"))
    row, column, body = KValue(int64), KValue(int64), []
    extent = KOp("const", (), (int64,), {"value": shape[1]})
    start = KOp("mul", (row, *extent.results), (int64,))
    lane = KOp("add", (*start.results, column), (int64,))
    load = KOp("load", lane.results, (dtype,), {"param": 0})
    body += [extent, start, lane, load, KOp("scan", load.results, ())]
    running = RunningTotal("add", dtype, 1, shape, reverse)
    kernel = Kernel("total", shape[:2], params, Block((row, column), body), running=running)
    x = np.random.default_rng(size).integers(-9, 9, size).astype(dtype.np)  # sums of which are exact
    check(kernel, [x, np.zeros(size, dtype.np)])
