"""Vectors of what lanes touch in turns: which there are, and that lanes get and leave the same elements."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.targets.gpu.lanes import plan
from loopgrad.codegen.targets.gpu.lanes.interleaved import interleaved
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry, streamed_tiles
from loopgrad.codegen.targets.gpu.lanes.side_by_side import lanes_side_by_side
from loopgrad.graph.types import DType, float32, float64, int64
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.gpu_harness import check


def points(lanes: int, stride: int, dtype: DType = float32, read: range | None = None, size: int | None = None):
    """Each lane turns its row around."""
    build = Build(lanes)
    (lane,) = build.indices
    size = lanes * stride if size is None else size
    x, y = build.param(dtype, size), build.param(dtype, lanes * stride, "write")
    first = build.one("mul", (lane, build.const(stride, int64)))
    places = [build.one("add", (first, build.const(i, int64))) for i in range(stride)]
    found = [build.load(x, places[i]) for i in (range(stride) if read is None else read)]
    for i, place in enumerate(places):
        build.store(y, place, found[-1 - i % len(found)])
    return build.kernel()


@pytest.mark.parametrize(
    ("kernel", "side", "vectors"),
    [
        (points(64, 3), 4, [(4, (0, 4, 8))] * 2),
        (points(64, 3), 1, []),
        (points(64, 4), 1, [(4, (0,))] * 2),
        (points(64, 6), 1, [(2, (0, 2, 4))] * 2),
        (points(64, 3, float64), 2, [(2, (0, 2, 4))] * 2),
        (points(64, 3, read=range(2)), 4, [(4, (0, 4, 8))]),  # two of three fill no vector
        (points(63, 3, read=range(1)), 4, [(4, (0, 4, 8))]),
    ],
)
def test_vectors(kernel, side, vectors):
    assert [(group.width, group.vectors) for group in interleaved(kernel, side)] == vectors


def test_what_is_read_and_written_has_none():
    build = Build(64)
    (lane,) = build.indices
    x = build.param(float32, 256, "accumulate")
    first = build.one("mul", (lane, build.const(4, int64)))
    places = [build.one("add", (first, build.const(i, int64))) for i in range(4)]
    for place in places:
        build.store(x, place, build.one("neg", (build.load(x, place),)))
    assert interleaved(build.kernel(), 1) == []


@pytest.mark.parametrize(("stride", "side"), [(2, 2), (3, 4), (4, 1), (8, 4), (9, 4)])
def test_lanes_whose_rows_are_vectors_stay_apart(stride, side):
    assert lanes_side_by_side(points(64, stride), 4) == side


@pytest.mark.parametrize(("stride", "lanes_at_once"), [(9, 4), (4, 1)])
def test_heavy_lanes_that_write_ragged_rows_run_together(monkeypatch, stride, lanes_at_once):
    monkeypatch.setattr(plan, "weight", lambda _: plan.UNROLLED_WEIGHT)
    tiles = streamed_tiles(points(1 << 20, stride), Geometry())
    assert (1 if tiles is None else tiles.unrolled) == lanes_at_once


@pytest.mark.parametrize(("stride", "lanes"), [(2, 2050), (3, 2048), (3, 300), (4, 300), (5, 2048), (8, 2048)])
@pytest.mark.parametrize("dtype", [float32, float64])
def test_each_lane_has_its_own(monkeypatch, stride, lanes, dtype):
    monkeypatch.setattr(plan, "FEW_TILES", 1)  # so few lanes run several at once
    kernel = points(lanes, stride, dtype)
    rng = np.random.default_rng(0)
    check(kernel, [rng.normal(size=p.size).astype(dtype.np) for p in kernel.params])
