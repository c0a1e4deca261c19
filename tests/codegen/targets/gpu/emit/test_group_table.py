"""Sums of integers in tables of workgroups, against NumPy."""

import numpy as np
import pytest

from loopgrad.codegen.options import Options
from loopgrad.codegen.targets.gpu.emit.accumulate import Atomic
from loopgrad.codegen.targets.gpu.emit.group_table import GroupTable
from loopgrad.codegen.targets.gpu.lanes import table_tiles
from loopgrad.codegen.targets.gpu.lanes.layout import plan
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry
from loopgrad.graph.types import bool_, float32, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.emit.test_accumulate import places, scatter
from tests.codegen.targets.gpu.gpu_harness import run_kernel

LANES = 1900  # tiles of 1024, the second of which isn't whole


@pytest.fixture
def few_tiles(monkeypatch):
    monkeypatch.setattr(table_tiles, "FEW_TILES", 1)


def ways(kernel):
    return [type(a) for a in plan(kernel, Options(), Geometry()).accumulators]


@pytest.mark.parametrize("dtype", [int8, int16, int32, uint8, uint16, uint32], ids=str)
@pytest.mark.parametrize("elements", [1, 3, 250])
def test_sums_of_any_terms(few_tiles, dtype, elements):
    """They wrap around as NumPy's."""
    limits = np.iinfo(dtype.np)
    rng = np.random.default_rng(elements)
    x = rng.integers(limits.min, limits.max, LANES, dtype=dtype.np, endpoint=True)
    place = places(elements, LANES)
    kernel = scatter(dtype, LANES, elements)
    assert ways(kernel) == [GroupTable]
    got = [x, place, np.full(elements, 3, dtype.np)]
    wanted = got[2].copy()
    np.add.at(wanted, place[place >= 0], x[place >= 0])
    run_kernel(kernel, got)
    np.testing.assert_array_equal(got[2], wanted)


@pytest.mark.parametrize("dtype", [int64, uint64], ids=str)
@pytest.mark.parametrize("bits", [0, 21, 22])
def test_wide_sums_of_small_terms(few_tiles, dtype, bits):
    """Of terms of so many bits, which a mask makes known."""
    build = Build(LANES)
    (i,) = build.indices
    x, place = build.load(build.param(dtype, LANES), i), build.load(build.param(int64, LANES), i)
    out = build.param(dtype, 7, "accumulate")
    build.accumulate(out, place, build.one("and", (x, build.const((1 << bits) - (bits > 0), dtype))))
    kernel = build.kernel()
    assert ways(kernel) == [Atomic if bits > 21 else GroupTable]
    rng = np.random.default_rng(bits)
    x, place = rng.integers(0, 1 << 62, LANES).astype(dtype.np), rng.integers(0, 7, LANES)
    got, wanted = [x, place, np.full(7, 1 << 60, dtype.np)], np.full(7, 1 << 60, dtype.np)
    np.add.at(wanted, place, x & dtype.np.type((1 << bits) - (bits > 0)))
    run_kernel(kernel, got)
    np.testing.assert_array_equal(got[2], wanted)


def test_negative_terms_and_two_tables_beside_a_store(few_tiles):
    build = Build(LANES)
    (i,) = build.indices
    place = build.load(build.param(int32, LANES), i)
    wide = build.one("cast", (place,), int64)
    first, second = build.param(int64, 40, "accumulate"), build.param(int32, 40, "accumulate")
    third = build.param(float32, 40, "accumulate")
    build.accumulate(first, wide, build.const(-2, int64))
    build.store(build.param(int32, LANES, "write"), i, build.one("add", (place, place)))
    odd = build.one("ne", (build.one("and", (i, build.const(1, int64))), build.const(0, int64)), bool_)
    build.accumulate(second, wide, place, pred=odd)
    build.accumulate(third, wide, build.const(0.5, float32))
    kernel = build.kernel()
    assert ways(kernel)[:2] == [GroupTable, GroupTable]
    place = np.random.default_rng(0).integers(0, 40, LANES).astype(np.int32)
    got = [place, np.zeros(40, np.int64), np.zeros(40, np.int32), np.zeros(40, np.float32), np.zeros(LANES, np.int32)]
    run_kernel(kernel, got)
    counts = np.bincount(place, minlength=40)
    np.testing.assert_array_equal(got[1], -2 * counts)
    np.testing.assert_array_equal(got[2], np.bincount(place[1::2], place[1::2], minlength=40))
    np.testing.assert_array_equal(got[3], counts / 2)
    np.testing.assert_array_equal(got[4], 2 * place)


def test_what_has_other_ways():
    many = 1 << 22
    assert ways(scatter(int32, many, 64)) == [GroupTable]
    assert plan(scatter(int32, many, 64), Options(), Geometry()).accumulators[0].copies == 32
    assert plan(scatter(int32, many, 2000), Options(), Geometry()).accumulators[0].copies == 1
    assert ways(scatter(int32, many, 4000)) == [GroupTable]
    assert ways(scatter(int32, 1 << 20, 1000)) == [GroupTable]
    assert ways(scatter(int32, 1 << 20, 4000)) == [Atomic]  # few terms for each element of a copy
    assert ways(scatter(int32, 1 << 26, 4000)) == [GroupTable]
    assert ways(scatter(int32, 1 << 26, 1 << 14)) == [Atomic]  # no room
    assert ways(scatter(int32, 1 << 14, 64)) == [Atomic]
    assert ways(scatter(int64, many, 64)) == [Atomic]  # terms of any size
    assert ways(scatter(int32, many, 64, "max")) == [Atomic]
    assert ways(scatter(int32, many, 64, trips=2)) == [Atomic]
