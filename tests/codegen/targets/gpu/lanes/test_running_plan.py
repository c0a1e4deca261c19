"""Running totals over workgroups: enough of these for every shape, none with more than a share of the work."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

from loopgrad.codegen.kernel.nodes import Block, BufferParam, ErrorSite, Kernel, KOp, KValue, RunningTotal
from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES
from loopgrad.codegen.targets.gpu.lanes import running_plan
from loopgrad.codegen.targets.gpu.lanes.chained_spans import FAN, level_sizes
from loopgrad.codegen.targets.gpu.lanes.running_plan import ENOUGH, FEW_TILES, MANY, RunningTiles, running_tiles
from loopgrad.graph.types import float32, int64

SHAPES = [
    (1, 1, 1), (1, 255, 1), (1, 1 << 28, 1), (1, 3841, 1), (1 << 14, 1 << 14, 1), (1 << 20, 256, 1), (256, 1 << 20, 1),
    (1, 1 << 20, 64), (64, 1 << 20, 3), (1, 1 << 14, 1 << 14), (1 << 24, 3, 1), (8, 1 << 20, 1), (1, 1 << 20, 131),
    (5, 70, 127), (3, 9, 1000003), (1, 1 << 26, 2), (1 << 20, 1, 1), (2, 1, 77),
]  # fmt: skip


def planned(shape: tuple[int, int, int], *workgroup: Any, errors: tuple[ErrorSite, ...] = ()) -> RunningTiles:
    """The plan of a total of that shape, for such workgroups."""
    lane, size = KValue(int64), prod(shape)
    load = KOp("load", (lane,), (float32,), {"param": 0})
    params = (BufferParam(float32, size, "read"), BufferParam(float32, size, "write"))
    body = Block((lane,), [load, KOp("scan", load.results, ())])
    running = RunningTotal("add", float32, 1, shape, False)
    kernel = Kernel("total", (size,), params, body, running=running, errors=errors)
    return running_tiles(kernel, running, *workgroup)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("group", "memory"), [(256, 48 << 10), (64, 16 << 10), (128, 32 << 10), (1024, 64 << 10)])
@pytest.mark.parametrize("sizes", [(4, 4), (4, 8), (8, 8), (8, 16)])
@pytest.mark.parametrize("vectors", [False, True])
def test_tiles(shape: tuple[int, int, int], group: int, memory: int, sizes: tuple[int, int], vectors: bool) -> None:
    plan = planned(shape, group, memory, sizes, False, VECTOR_BYTES // sizes[0] if vectors else 1)
    size, (outer, extent, inner) = prod(shape), shape
    assert plan.owners <= group
    assert plan.chunks * plan.each >= plan.positions
    assert plan.positions * plan.tiles >= extent > plan.positions * (plan.tiles - 1)
    assert plan.spans * plan.per_span >= plan.tiles > (plan.spans - 1) * plan.per_span
    assert plan.blocks * plan.columns >= inner > (plan.blocks - 1) * plan.columns
    assert plan.count * plan.per_span * plan.size >= size
    used = plan.room * sizes[0] + 2 * group * sizes[1]
    assert used <= memory
    if plan.near > 1:  # neighbours' vectors lie in different banks, and rows apart
        assert plan.inner == 1
        assert plan.each // plan.near % 2 == 1
        assert plan.chunks & (plan.chunks - 1) == 0
        assert plan.padding >= 0 == plan.slack
    assert plan.size % plan.side == 0 == plan.unrolled % plan.side
    if plan.tiles > FEW_TILES:  # no workgroup walks where others idle
        assert min(plan.count * plan.per_span, ENOUGH * 3 // 4) <= plan.count <= MANY + outer * plan.blocks
    if size >= 1 << 22:
        assert plan.count >= ENOUGH // 4


@pytest.mark.parametrize("shape", SHAPES)
def test_spans_wait_for_all_before_them_and_for_none_twice(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(running_plan, "FEWEST_CHAINED", 2)
    plan = planned(shape, 32, 16 << 10, (4, 8), True)
    if not plan.chained:
        assert plan.inner > 1 or plan.tiles <= 3 * FEW_TILES or plan.outer >= ENOUGH
        return
    assert plan.spans == plan.tiles
    sizes, fan = level_sizes(plan), FAN
    for span in {0, 1, fan, 2 * fan - 1, 2 * fan, fan**2 - 1, fan**2, fan**2 + fan, plan.spans // 2, plan.spans - 1}:
        if span >= plan.spans:
            continue
        block = span // fan
        left = max(block - 1, 0)
        before, length = span - left * fan, fan
        for size in sizes[1:]:
            assert left <= size  # all of these are left
            before += left % fan * length
            left, length = left // fan, length * fan
        assert before == span
        assert left == 0


def test_nobody_waits_for_lanes_that_may_fail() -> None:
    """Workgroups that begin after a failure may do nothing."""
    shape = (1, 1 << 28, 1)
    assert planned(shape, 256, 48 << 10, (4, 8), True).chained
    assert not planned(shape, 256, 48 << 10, (4, 8), True, errors=(ErrorSite("index", "", None),)).chained


@pytest.mark.parametrize(
    ("shape", "side"), [((1 << 16, 1000, 1), 4), ((1 << 16, 1001, 1), 1), ((1, (1 << 24) + 3, 1), 4)]
)
def test_elements_come_as_vectors_where_all_rows_begin_with_one(shape: tuple[int, int, int], side: int) -> None:
    plan = planned(shape, 256, 48 << 10, (4, 8), True, 4)
    assert plan.side == side
    assert plan.near == 4
    assert plan.tiles == 1 or plan.chained
