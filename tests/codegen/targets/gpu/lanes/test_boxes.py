"""Boxes of lanes that read across the order in which they write; against the kernel interpreter."""

import itertools

import numpy as np
import pytest

from loopgrad.codegen.kernel.footprint import scattered_reads
from loopgrad.codegen.options import Options
from loopgrad.codegen.targets.gpu.lanes import boxes as module
from loopgrad.codegen.targets.gpu.lanes.boxes import boxed
from loopgrad.codegen.targets.gpu.lanes.layout import plan
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry
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
from tests.codegen.targets.gpu.gpu_harness import check, executable_of, program_of, run_kernel

EVERY = (bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64)
MEMORY = 48 << 10


def index_in_order(build, perm):
    """Of an array that is stored with its axes in the order `perm` of the domain's."""
    total = build.const(0, int64)
    for d in perm:
        total = build.one("add", (build.one("mul", (total, build.const(build.domain[d], int64))), build.indices[d]))
    return total


def transposes(domain, perms, dtype=float32):
    """The sum (of bools: the or) of arrays whose axes lie in these orders; of one array, a copy."""
    build, size = Build(*domain), int(np.prod(domain))
    total = None
    for perm in perms:
        x = build.load(build.param(dtype, size), index_in_order(build, perm))
        total = x if total is None else build.one("or" if dtype is bool_ else "add", (total, x))
    build.store(build.param(dtype, size, "write"), build.linear(), total)
    return build.kernel()


def arrays_of(kernel, seed=0):
    r = np.random.default_rng(seed)
    return [r.integers(0, 2 if p.dtype is bool_ else 60, p.size).astype(p.dtype.np) for p in kernel.params]


def extents_of(kernel):
    found = boxed(kernel, MEMORY)
    return None if found is None else found.extents


@pytest.mark.parametrize(
    "domain", [(128, 128), (170, 201), (4100, 3), (3, 4100), (2, 5000), (97, 65), (1, 150, 1, 130)]
)
def test_transposes(domain):
    perm = tuple(reversed(range(len(domain))))
    check(transposes(domain, [perm]), arrays_of(transposes(domain, [perm])))


@pytest.mark.parametrize("perm", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("domain", [(17, 18, 19), (64, 5, 33), (3, 40, 41)])
def test_every_order_of_three_axes(domain, perm):
    kernel = transposes(domain, [perm])
    check(kernel, arrays_of(kernel))


@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_every_dtype(dtype):
    kernel = transposes((131, 77), [(1, 0)], dtype)
    assert boxed(kernel, MEMORY) is not None
    check(kernel, arrays_of(kernel))


@pytest.mark.parametrize(
    ("domain", "perm", "dtype"),
    [
        ((140, 204), (1, 0), uint8),
        ((140, 204), (1, 0), bfloat16),
        ((36, 20, 44), (2, 1, 0), int8),
        ((20, 6, 66), (1, 2, 0), float16),
        ((128, 256), (1, 0), bool_),
    ],
)
@pytest.mark.parametrize("start", [0, 1])
def test_narrow_elements_move_by_words(domain, perm, dtype, start):
    """Over edges of boxes, too; one by one where words begin elsewhere."""
    build, size = Build(*domain), int(np.prod(domain))
    index = build.one("add", (index_in_order(build, perm), build.const(start, int64)))
    build.store(build.param(dtype, size, "write"), build.linear(), build.load(build.param(dtype, size + start), index))
    kernel = build.kernel()
    assert boxed(kernel, MEMORY).side == 4 // dtype.itemsize
    check(kernel, arrays_of(kernel))


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64], ids=str)
def test_what_is_moved_keeps_all_its_bits(dtype):
    """Signs of zeros and what NaN carry."""
    kernel, bits = transposes((64, 128), [(1, 0)], dtype), np.dtype(f"u{dtype.itemsize}")
    source = np.random.default_rng(1).integers(0, np.iinfo(bits).max, 64 * 128, dtype=bits, endpoint=True)
    arrays = [source.view(dtype.np), np.zeros(64 * 128, dtype.np)]
    run_kernel(kernel, arrays)
    np.testing.assert_array_equal(arrays[1].view(bits).reshape(64, 128), source.reshape(128, 64).T)


@pytest.mark.parametrize(
    "perms",
    [[(0, 1, 2), (2, 1, 0)], [(2, 1, 0), (1, 2, 0)], [(2, 1, 0)] * 3, [(0, 2, 1), (1, 0, 2), (2, 0, 1), (0, 1, 2)]],
)
def test_several_arrays_in_their_orders(perms):
    kernel = transposes((20, 21, 22), perms)
    check(kernel, arrays_of(kernel))


def test_a_lane_that_does_much():
    """More than an invocation runs at once."""
    build = Build(150, 70)
    x = build.load(build.param(float32, 150 * 70), index_in_order(build, (1, 0)))
    for _ in range(100):
        x = build.one("add", (build.one("mul", (x, build.const(0.5, float32))), build.const(1.0, float32)))
    build.store(build.param(float32, 150 * 70, "write"), build.linear(), x)
    check(build.kernel(), arrays_of(build.kernel()))


def test_both_ways_into_two_results():
    build, size = Build(90, 91), 90 * 91
    p = build.param(float32, size)
    linear = build.linear()
    x, y = build.load(p, linear), build.load(p, index_in_order(build, (1, 0)))
    build.store(build.param(float32, size, "write"), linear, build.one("sub", (x, y)))
    build.store(build.param(float64, size, "write"), linear, build.one("cast", (y,), float64))
    assert boxed(build.kernel(), MEMORY) is not None
    check(build.kernel(), arrays_of(build.kernel()))


def test_sums_into_shared_elements():
    """Lanes may meet elsewhere."""
    build = Build(90, 91)
    x = build.load(build.param(int32, 90 * 91), index_in_order(build, (1, 0)))
    build.accumulate(
        build.param(int32, 7, "accumulate"), build.one("mod", (build.indices[1], build.const(7, int64))), x
    )
    assert plan(build.kernel(), Options(), Geometry()).boxes is not None
    check(build.kernel(), arrays_of(build.kernel()))


@pytest.mark.parametrize(
    ("domain", "perm"),
    [
        ((4096, 64), (0, 1)),
        ((2000, 4, 5), (0, 2, 1)),
        ((5000, 3), (1, 0)),
        ((40, 50, 64), (1, 0, 2)),
        ((60, 60), (1, 0)),
    ],
)
def test_no_boxes_where_lanes_read_whole_sectors(domain, perm):
    """In order, in small matrices, from few places at a time, in long rows; and few lanes."""
    assert extents_of(transposes(domain, [perm])) is None


def test_boxes_are_wide_in_each_order():
    assert extents_of(transposes((4096, 4096), [(1, 0)])) == (32, 64)
    assert extents_of(transposes((4096, 4096), [(1, 0)], float64)) == (16, 64)
    assert extents_of(transposes((4096, 4096), [(1, 0)], int8)) == (128, 128)
    assert extents_of(transposes((3, 1 << 20), [(1, 0)])) == (3, 512)
    assert extents_of(transposes((64, 64, 64), [(2, 1, 0), (0, 2, 1)])) == (8, 8, 32)


def test_memory_of_a_workgroup_is_enough(monkeypatch):
    """Narrower boxes where there is less; none where there is none."""
    kernel = transposes((512, 512), [(1, 0)])
    for memory in (MEMORY, 4000, 1000):
        found = boxed(kernel, memory)
        assert found is None or 4 * found.room <= memory
    assert boxed(kernel, 16) is None
    small = transposes((512, 512), [(1, 0)], int8)  # whose elements take four bytes there
    monkeypatch.setattr(module, "BOX_BYTES", 1 << 16)
    assert 4 * boxed(small, MEMORY).room <= MEMORY
    monkeypatch.setattr(module, "BOX_BYTES", 1024)
    assert boxed(kernel, MEMORY).lanes == 32 * 32  # a line in each order
    check(kernel, arrays_of(kernel))


def test_neighbours_in_memory_lie_in_different_banks():
    for domain, perm in (((512, 512), (1, 0)), ((3, 5000), (1, 0)), ((40, 40, 40), (2, 1, 0))):
        found = boxed(transposes(domain, [perm]), MEMORY)
        assert all(pitch % 2 for pitch, extent in zip(found.pitches, found.extents, strict=True) if extent > 1)


def test_what_is_read_from_read_places_is_left_alone():
    """A gather's indices aren't known by looking at lanes."""
    build = Build(128, 128)
    at = build.load(build.param(int64, 128 * 128), index_in_order(build, (1, 0)))
    bounded = build.one("max", (build.one("min", (at, build.const(99, int64))), build.const(0, int64)))
    build.store(
        build.param(float32, 128 * 128, "write"), build.linear(), build.load(build.param(float32, 100), bounded)
    )
    kernel = build.kernel()
    assert [read.op.attrs["param"] for read in scattered_reads(kernel)] == [0]
    arrays = [np.random.default_rng(0).integers(0, 100, p.size).astype(p.dtype.np) for p in kernel.params]
    check(kernel, arrays)


def test_lanes_that_only_read_and_write_are_streams():
    """Of which a device gets a workgroup for each tile."""
    boxes = transposes((512, 512), [(1, 0)])
    plain = Build(1 << 20)
    plain.store(
        plain.param(float32, 1 << 20, "write"),
        plain.linear(),
        plain.load(plain.param(float32, 1 << 20), plain.linear()),
    )
    total = Build(1 << 20)
    total.reduce(total.load(total.param(float32, 1 << 20), total.linear()), total.param(float32, 1, "write"))
    kernels = [kernel.kernel() for kernel in (plain, total)]
    found = [executable_of(program_of(kernel)).program.kernels[0].streams for kernel in (boxes, *kernels)]
    assert found == [True, True, False]
