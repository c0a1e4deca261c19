"""Lanes side by side, which read and write elements side by side as vectors; against the kernel interpreter."""

import numpy as np
import pytest

from loopgrad.codegen.targets.gpu.lanes import plan as plans
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry, folded_tiles, streamed_tiles
from loopgrad.codegen.targets.gpu.lanes.side_by_side import lanes_side_by_side
from loopgrad.graph.types import (
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.gpu_harness import check, run_kernel

EQUALLY_WIDE = (
    (bool_, int8, uint8), (int16, uint16, float16, bfloat16), (int32, uint32, float32), (int64, uint64, float64),
    (int8, float64), (bool_, float32), (float16, float32),
)  # fmt: skip


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Small arrays have tiles of several lanes per invocation too."""
    monkeypatch.setattr(plans, "FEW_TILES", 1)


def copied(size, *dtypes):
    """Each array to one of its own."""
    build = Build(size)
    (lane,) = build.indices
    for dtype in dtypes:
        build.store(build.param(dtype, size, "write"), lane, build.load(build.param(dtype, size), lane))
    return build.kernel()


def arrays_of(kernel):
    r = np.random.default_rng(0)
    return [r.integers(0, 2 if p.dtype is bool_ else 60, p.size).astype(p.dtype.np) for p in kernel.params]


@pytest.mark.parametrize("size", [4096, 8192 + 5])
def test_every_dtype(size):
    for dtypes in EQUALLY_WIDE:
        kernel = copied(size, *dtypes)
        check(kernel, arrays_of(kernel))


def test_what_is_moved_keeps_all_its_bits():
    for dtype in (float16, bfloat16, float32, float64):
        bits = np.dtype(f"u{dtype.itemsize}")
        source = np.random.default_rng(1).integers(0, np.iinfo(bits).max, 4096, dtype=bits, endpoint=True)
        if dtype in (float16, bfloat16):  # which registers needn't hold as signalling NaN
            with np.errstate(invalid="ignore"):
                source = np.where(np.isnan(source.view(dtype.np)), bits.type(0), source)
        arrays = [np.zeros(source.size, dtype.np), source.view(dtype.np)]
        run_kernel(copied(source.size, dtype), arrays)
        np.testing.assert_array_equal(arrays[0].view(bits), source)


def rows(count, length, shift=0, store_shift=0):
    """Of a table, a gathered row, a row that all share, and a number of each row."""
    build = Build(count, length)
    i, j = build.indices
    table, numbers, common, each = (build.param(t, n) for t, n in (
        (float32, count * length + shift), (int32, count), (float32, length), (float32, count),
    ))  # fmt: skip
    lane, size = build.linear(), build.const(length, int64)
    own = build.load(table, build.one("add", (lane, build.const(shift, int64))))
    gathered = build.one("mul", (build.one("cast", (build.load(numbers, i),), int64), size))
    other = build.load(table, build.one("add", (gathered, j)))
    products = [build.one("mul", (own, build.load(common, j))), build.one("mul", (other, build.load(each, i)))]
    total = build.one("add", products)
    place = build.one("add", (lane, build.const(store_shift, int64)))
    build.store(build.param(float32, count * length + store_shift, "write"), place, total)
    return build.kernel()


def test_rows_of_tables():
    for count, length, shift in ((40, 256, 0), (40, 100, 8), (60, 131, 0), (33, 260, 1), (5, 2, 0)):
        kernel = rows(count, length, shift)
        arrays = arrays_of(kernel)
        arrays[1] %= count
        check(kernel, arrays)


def test_accesses_that_are_vectors():
    assert lanes_side_by_side(rows(40, 256), 8) == 4
    assert lanes_side_by_side(rows(40, 102), 8) == 2
    assert lanes_side_by_side(rows(40, 131), 8) == 1
    assert lanes_side_by_side(rows(40, 256, shift=4), 8) == 4
    assert lanes_side_by_side(rows(40, 256, shift=1), 8) == 4  # one of four is scattered
    assert lanes_side_by_side(rows(40, 256, shift=1, store_shift=1), 8) == 4  # two, but a load lies near the others'
    build = Build(1000)
    (lane,) = build.indices
    far = build.load(build.param(float32, 3000), build.one("mul", (lane, build.const(3, int64))))
    build.store(build.param(float32, 1000, "write"), lane, far)
    assert lanes_side_by_side(build.kernel(), 8) == 1
    assert lanes_side_by_side(Build().kernel(), 1) == 1


def test_the_widest_elements_fill_a_vector():
    for dtypes, side in (((float32,), 4), ((float64,), 2), ((int8,), 8), ((int8, float32), 4), ((float16,), 8)):
        assert streamed_tiles(copied(1 << 20, *dtypes), Geometry()).side == side


def test_an_array_that_is_written_is_read_before():
    build, size = Build(6000), 6000
    (lane,) = build.indices
    p = build.param(float32, size, "write")
    build.store(p, lane, build.one("mul", (build.load(p, lane), build.const(2.0, float32))))
    check(build.kernel(), arrays_of(build.kernel()))


def test_rows_are_folded_from_vectors():
    """Whole tiles, the rest of a tile, rows that vectors don't divide."""
    for count, length in ((3, 2048), (3, 1000), (4, 777)):
        build = Build(count, length)
        x = build.load(build.param(int32, count * length), build.linear())
        build.reduce(x, build.param(int32, count, "write"), "max", rank=1)
        assert folded_tiles(build.kernel(), Geometry()).side == (1 if length % 4 else 4)
        check(build.kernel(), arrays_of(build.kernel()))


def test_lanes_that_meet_in_elements_stay_apart():
    """Neighbours add to neighbours at once: side by side, each would add to a line of its own."""
    build = Build(4096, 8)
    x = build.load(build.param(float32, 4096 * 8), build.linear())
    row = build.load(build.param(int64, 4096), build.indices[0])
    place = build.one("add", (build.one("mul", (row, build.const(8, int64))), build.indices[1]))
    build.accumulate(build.param(float32, 800, "accumulate"), place, x)
    assert lanes_side_by_side(build.kernel(), 4) == 1
