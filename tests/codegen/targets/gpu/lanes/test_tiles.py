"""Tiled kernels: reductions by workgroups, sorted lanes, lanes at once; against the kernel interpreter."""

import numpy as np
import pytest

from loopgrad.codegen.kernel.nodes import Block, KOp, KValue
from loopgrad.codegen.options import Options
from loopgrad.codegen.targets.gpu.lanes import plan as plans
from loopgrad.codegen.targets.gpu.lanes.layout import plan
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry, Tiles, folded_lanes
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
from tests.codegen.kernel.random_kernels import random_kernel
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.gpu_harness import check, device, executable_of, program_of, run_kernel

EVERY = (bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64)


@pytest.fixture
def small_tiles(monkeypatch):
    """Small arrays have tiles of several lanes per invocation too."""
    monkeypatch.setattr(plans, "FEW_TILES", 1)
    monkeypatch.setattr(plans, "SORTED", 8)
    monkeypatch.setattr(plans, "SHORT_ROW", 8)


def reduction(extents, ranks, dtype=float64, kinds=("add",)):
    """Sums (or other reductions) of an array and of its double."""
    size = int(np.prod(extents))
    build = Build(*extents)
    x = build.load(build.param(dtype, size), build.linear())
    for kind in kinds:
        for rank in ranks:
            kept = int(np.prod(extents[: len(extents) - rank]))
            build.reduce(x, build.param(dtype, kept, "write"), kind, rank)
    return build.kernel()


def arrays_of(kernel, first):
    return [first, *[np.zeros(p.size, p.dtype.np) for p in kernel.params[1:]]]


@pytest.mark.parametrize("extents", [(128,), (255,), (2049,), (20_000,), (3, 300), (70, 129), (2, 3, 400), (5, 9000)])
def test_sums(extents):
    kernel = reduction(extents, [1], kinds=("add", "max"))
    x = np.random.default_rng(0).uniform(0.5, 1.5, int(np.prod(extents)))
    check(kernel, arrays_of(kernel, x), rtol=1e-13)


@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_every_dtype(dtype):
    kinds = ("and", "or") if dtype is bool_ else ("add", "min", "max")
    kernel = reduction((3, 700), [1], dtype, kinds)
    x = np.random.default_rng(1).integers(0, 2 if dtype.bits < 32 else 50, 2100).astype(dtype.np)
    wanted, got = ([a.copy() for a in arrays_of(kernel, x)] for _ in range(2))
    run_kernel(kernel, got)
    rows = x.reshape(3, 700)
    reduced = {"add": rows.sum(axis=1, dtype=np.float64 if dtype.is_float else None).astype(dtype.np)}
    reduced |= {"min": rows.min(axis=1), "and": rows.min(axis=1), "max": rows.max(axis=1), "or": rows.max(axis=1)}
    assert len(wanted) == len(kinds) + 1
    for kind, g in zip(kinds, got[1:], strict=True):
        np.testing.assert_allclose(g.astype(np.float64), reduced[kind].astype(np.float64), rtol=0.03)
        if not dtype.is_float:
            np.testing.assert_array_equal(g, reduced[kind])


def test_nan_wins_and_infinities_stay():
    kernel = reduction((4, 200), [1], float32, ("min", "max", "add"))
    x = np.random.default_rng(2).normal(size=(4, 200)).astype(np.float32)
    x[0, 77], x[1, 199], x[2, 3] = np.nan, np.inf, -np.inf
    check(kernel, arrays_of(kernel, x.reshape(-1)), rtol=1e-5)


def test_reductions_of_different_ranks():
    kernel = reduction((4, 5, 200), [1, 2, 3])
    x = np.random.default_rng(3).normal(size=4000)
    check(kernel, arrays_of(kernel, x), rtol=1e-11)


@pytest.mark.parametrize(
    ("extents", "dtype"),
    [((300, 2), float32), ((1000, 7), bool_), ((700, 64), float16), ((2, 300, 33), int64), ((40_000, 3), float32),
     ((257, 512), float32)],
    ids=str,
)  # fmt: skip
def test_many_short_rows(extents, dtype):
    """Rows are folded side by side, in one launch."""
    kernel = reduction(extents, [1], dtype, ("and", "or") if dtype is bool_ else ("add", "max", "add"))
    x = np.random.default_rng(7).integers(0, 2, int(np.prod(extents))).astype(dtype.np)
    check(kernel, arrays_of(kernel, x))
    (record,) = device().emit(program_of(kernel), Options()).program.kernels
    assert record.tiles > 0
    assert not record.after


def test_short_rows_after_loops(small_tiles):
    build = Build(400, 9)
    n = build.load(build.param(int64, 3600), build.linear())
    (total,) = build.loop(n, [n], lambda k, v: [build.one("add", (v, k))])
    build.reduce(total, build.param(int64, 400, "write"), "add", 1)
    build.reduce(n, build.param(int64, 400, "write"), "min", 1)
    rows = np.random.default_rng(8).integers(0, 9, 3600)
    check(build.kernel(), [rows, np.zeros(400, np.int64), np.zeros(400, np.int64)])


def test_one_launch_for_a_short_sum_and_two_for_a_long_one():
    for length, launches in ((2000, 0), (300_000, 1)):
        artifact = device().emit(program_of(reduction((length,), [1])), Options())
        (kernel,) = artifact.program.kernels
        group = artifact.program.modules[kernel.module].group
        assert kernel.tiles == -(-length // (group * folded_lanes(1, length, group)))
        if group >= 256:
            assert len(kernel.after) == launches


def test_long_lanes_do_not_follow_each_other_to_save_a_launch():
    build = Build(1000)
    x = build.load(build.param(float32, 1000), *build.indices)
    for _ in range(80):
        x = build.one("sin", (x,))
    build.reduce(x, build.param(float32, 1, "write"), "add", 1)
    (record,) = device().emit(program_of(build.kernel()), Options()).program.kernels
    assert record.tiles > 1
    assert record.after


def test_a_sum_has_the_same_bits_every_time():
    kernel = reduction((30_000,), [1], float32)
    x = np.random.default_rng(4).normal(size=30_000).astype(np.float32)
    results = set()
    for _ in range(3):
        got = arrays_of(kernel, x)
        run_kernel(kernel, got)
        results.add(got[1].tobytes())
    assert len(results) == 1


@pytest.mark.costly
@pytest.mark.parametrize("extents", [(700,), (9000,), (40, 300), (300, 40)])
@pytest.mark.parametrize("looped", [False, True])
def test_many_sums(extents, looped):
    """Reductions of one kind are folded by the same launches; more of them than fit are folded in turn."""
    size, rows = int(np.prod(extents)), int(np.prod(extents[:-1]))
    build = Build(*extents)
    x = build.load(build.param(float64, size), build.linear())
    n = build.load(build.param(int64, size), build.linear())
    if looped:
        (x,) = build.loop(n, [x], lambda _k, v: [build.one("add", (v, x))])
    for k in range(30):
        scaled = build.one("mul", (x, build.const(float(k + 1), float64)))
        build.reduce(scaled, build.param(float64, rows, "write"), ("add", "add", "max")[k % 3], 1)
    build.reduce(n, build.param(int64, rows, "write"), "add", 1)
    rng = np.random.default_rng(6)
    results = [np.zeros(rows) for _ in range(30)]
    kernel = build.kernel()
    check(kernel, [rng.uniform(0.5, 1, size), rng.integers(0, 5, size), *results, np.zeros(rows, np.int64)], rtol=1e-12)
    if rows <= 40:
        (record,) = device().emit(program_of(kernel), Options()).program.kernels
        assert len(record.after) <= 6


@pytest.mark.parametrize("dtype", [float16, float32, float64])
def test_many_sums_wait_in_memory_of_the_workgroup(small_tiles, dtype):
    """From one lane of an invocation to the next; too many of them for that memory mean one lane."""

    def kernel(sums, size=3000):
        build = Build(size)
        (lane,) = build.indices
        x, n = build.load(build.param(dtype, size), lane), build.load(build.param(int64, size), lane)
        (x,) = build.loop(n, [x], lambda _k, v: [build.one("add", (v, v))])
        for k in range(sums):
            value = build.one("add", (x, build.const(float(k), dtype)))
            build.reduce(value, build.param(dtype, 1, "write"), ("max", "min")[k % 2], 1)
        return build.kernel()

    group = Geometry().group
    few, most = (plan(kernel(sums), Options(), Geometry()).tiles for sums in (9, 200))
    assert (few.spilled, most.spilled) == (True, False)
    assert few.size > most.size == group
    small = plan(kernel(9), Options(), Geometry(sums_group=64))
    assert (small.group, small.tiles.size // 64) == (64, few.size // group)
    assert plan(kernel(8), Options(), Geometry(sums_group=64)).group == group
    rng = np.random.default_rng(8)
    data = [rng.integers(-50, 50, 3000).astype(dtype.np), rng.integers(0, 4, 3000)]
    check(kernel(9), [*data, *[np.zeros(1, dtype.np) for _ in range(9)]])


def test_sums_of_so_many_types_that_smaller_workgroups_fold_them():
    """A type has arrays of its own in memory of the workgroup."""
    build = Build(3, 700)
    x = build.load(build.param(int32, 2100), build.linear())
    dtypes = (int32, int64, float32, float64)
    for dtype in dtypes:
        build.reduce(build.one("cast", (x,), dtype), build.param(dtype, 3, "write"), "max", 1)
        build.reduce(build.one("cast", (x,), dtype), build.param(dtype, 3, "write"), "add", 1)
    kernel, geometry = build.kernel(), Geometry(memory=8 << 10)
    found = plan(kernel, Options(), geometry)
    assert found.tiles.per_pass == 1
    assert 1 < found.group < geometry.group
    assert plan(kernel, Options(), Geometry(memory=1 << 20)).group == geometry.group
    numbers = np.random.default_rng(9).integers(0, 3, 2100, dtype=np.int32)
    check(kernel, [numbers, *[np.zeros(3, dtype.np) for dtype in dtypes for _ in range(2)]], rtol=0.01)


# many lanes at once


@pytest.mark.parametrize("size", [31, 64, 1000, 4096, 5003])
def test_streaming(size, small_tiles):
    build = Build(size)
    (i,) = build.indices
    x, y = build.load(build.param(float32, size), i), build.load(build.param(int8, size), i)
    wide = build.one("cast", (y,), float32)
    build.store(build.param(float32, size, "write"), i, build.one("sin", (build.one("mul", (x, wide)),)))
    build.store(build.param(bool_, size, "write"), i, build.one("lt", (x, wide), bool_))
    build.accumulate(build.param(int32, size, "accumulate"), i, build.one("cast", (y,), int32), exclusive=True)
    build.accumulate(build.param(int32, 3, "accumulate"), build.one("mod", (i, build.const(3, int64))),
                     build.one("cast", (y,), int32))  # fmt: skip
    rng = np.random.default_rng(size)
    arrays = [rng.normal(size=size).astype(np.float32) * 100, rng.integers(-9, 9, size, dtype=np.int8)]
    check(build.kernel(), [*arrays, np.zeros(size, np.float32), np.zeros(size, bool), np.ones(size, np.int32),
                           np.zeros(3, np.int32)], rtol=1e-5, atol=1e-6)  # fmt: skip


def test_streaming_over_several_dims(small_tiles):
    build = Build(7, 11, 13)
    x = build.load(build.param(int64, 1001), build.linear())
    build.store(build.param(int64, 1001, "write"), build.linear(), build.one("add", (x, build.indices[1])))
    check(build.kernel(), [np.arange(1001), np.zeros(1001, np.int64)])


@pytest.mark.parametrize(("extents", "rows"), [((5, 9001), 5), ((3, 2, 6000), 6), ((9001, 5), 1)])
def test_lanes_of_a_long_row_read_together_what_is_its_own(extents, rows, small_tiles):
    size, build = int(np.prod(extents)), Build(*extents)
    *_, row, _ = build.indices
    x = build.load(build.param(float32, size), build.linear())
    factor = build.load(build.param(float32, extents[-2]), row)
    build.store(build.param(float32, size, "write"), build.linear(), build.one("mul", (x, factor)))
    kernel = build.kernel()
    tiles = plans.streamed_tiles(kernel, Geometry(group=32))
    assert (tiles.rows, tiles.rows * tiles.length) == (rows, size)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=n).astype(np.float32) for n in (size, extents[-2])]
    check(kernel, [*arrays, np.zeros(size, np.float32)], rtol=1e-6)


# sorted lanes


def key_of(param, dtype):
    """An order key: an element of the parameter."""
    lane = KValue(int64)
    load = KOp("load", (lane,), (dtype,), {"param": param})
    cast = KOp("cast", load.results, (int64,))
    return Block((lane,), [load, cast], cast.results)


def ragged(size, reduced=True):
    """Forward and reverse of a loop with a stack; the gradient, and the sum of the values."""
    build = Build(size)
    (i,) = build.indices
    x, n = build.load(build.param(float64, size), i), build.load(build.param(int32, size), i)
    stack = build.stack(float64)

    def forward(k, v):
        build.op("push", (v,), (), stack=stack)
        return [build.one("add", (build.one("mul", (v, build.const(0.5, float64))), x))]

    def reverse(k, g):
        return [build.one("mul", (g, build.one("pop", (), float64, stack=stack)))]

    (value,) = build.loop(n, [x], forward)
    (gradient,) = build.loop(n, [build.const(1.0, float64)], reverse, reverse=True)
    build.store(build.param(float64, size, "write"), i, gradient)
    if reduced:
        build.reduce(value, build.param(float64, 1, "write"))
        build.reduce(n, build.param(int32, 1, "write"), "max")
    build.order_key = key_of(1, int32)
    return build.kernel()


def counts(size, how, seed=0):
    rng = np.random.default_rng(seed)
    if how == "skewed":
        return np.minimum(rng.zipf(1.5, size), 600).astype(np.int32)
    return rng.integers(-2, 20, size, dtype=np.int32) if how == "uniform" else np.full(size, 3, np.int32)


@pytest.mark.costly
@pytest.mark.parametrize("size", [8, 33, 1000, 5000])
@pytest.mark.parametrize("how", ["uniform", "skewed", "equal"])
def test_sorted_lanes(size, how, small_tiles):
    rng = np.random.default_rng(size)
    arrays = [rng.uniform(0.5, 1.0, size), counts(size, how, size), np.zeros(size), np.zeros(1), np.zeros(1, np.int32)]
    check(ragged(size), arrays, rtol=1e-12)
    check(ragged(size, reduced=False), arrays[:3], rtol=1e-12)


def test_sums_over_sorted_lanes_have_the_same_bits_every_time(small_tiles):
    size = 3000
    rng = np.random.default_rng(5)
    start = [rng.uniform(0.5, 1, size), counts(size, "uniform"), np.zeros(size), np.zeros(1), np.zeros(1, np.int32)]
    results = set()
    for _ in range(4):
        got = [a.copy() for a in start]
        run_kernel(ragged(size), got)
        results.add(got[2].tobytes() + got[3].tobytes())
    assert len(results) == 1


def test_lanes_are_not_sorted_where_that_is_not_wanted():
    geometry, kernel = Geometry(256), ragged(1 << 22)
    tiles = plan(kernel, Options(), geometry).tiles
    assert tiles == Tiles(2048, 1, 1 << 22, sorted=True, partials=True, per_pass=1)
    unsorted = plan(kernel, Options(sort_lanes=False), geometry).tiles
    assert unsorted == Tiles(2048, 1, 1 << 22, partials=True, per_pass=2)
    assert plan(ragged(1 << 22), Options(), Geometry(256, 1 << 10)).tiles is None


def test_sorted_rows(small_tiles):
    """A reduction over rows that are long enough, and one over rows that aren't."""
    for extents in ((3, 2500), (100, 25)):
        size = int(np.prod(extents))
        build = Build(*extents)
        n = build.load(build.param(int32, size), build.linear())
        one = build.const(1, int32)
        (count,) = build.loop(n, [one], lambda _k, v, one=one, build=build: [build.one("add", (v, one))])
        build.reduce(count, build.param(int32, extents[0], "write"), "add", 1)
        row, column = KValue(int64), KValue(int64)
        width = KOp("const", (), (int64,), {"value": extents[1]})
        start = KOp("mul", (row, width.results[0]), (int64,))
        at = KOp("add", (start.results[0], column), (int64,))
        load = KOp("load", at.results, (int32,), {"param": 0})
        key = KOp("cast", load.results, (int64,))
        build.order_key = Block((row, column), [width, start, at, load, key], key.results)
        check(build.kernel(), [counts(size, "uniform"), np.zeros(extents[0], np.int32)])


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(8))
def test_random_kernels_with_sorted_lanes(seed, small_tiles):
    kernel, arrays = random_kernel(seed)
    kernel.order_key = key_of(1, int32)
    check(kernel, arrays, rtol=1e-5, atol=1e-5)


def test_a_stack_that_grows_under_sorted_lanes(small_tiles):
    size = 700
    executable = executable_of(program_of(ragged(size)))
    gpu = device()
    x = np.full(size, 0.5)
    for most in (3, 3, 50, 2):
        n = np.full(size, most, np.int32)
        buffers = [gpu.put(a) for a in (x, n, np.zeros(size), np.zeros(1), np.zeros(1, np.int32))]
        results = [gpu.get(b) for b in executable.run(buffers)]
        assert results[2][0] == most
        np.testing.assert_allclose(results[1], results[1][0])
