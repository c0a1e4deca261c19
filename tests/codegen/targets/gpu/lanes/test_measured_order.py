"""Loops on values whose lanes are counted and sorted first, where that pays."""

from dataclasses import replace
from functools import partial
from math import prod

import numpy as np
import pytest

from loopgrad.codegen.kernel.nodes import ErrorSite
from loopgrad.codegen.options import Options
from loopgrad.codegen.targets.gpu.emit import kernel as emission
from loopgrad.codegen.targets.gpu.lanes import plan as layouts
from loopgrad.codegen.targets.gpu.lanes.layout import plan
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry
from loopgrad.codegen.targets.gpu.lanes.trip_counts import trip_count
from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.codegen.targets.spirv.target import SpirvImage
from loopgrad.graph.errors import LoopLimitError
from loopgrad.graph.types import bool_, float32, int32, int64
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.gpu_harness import check, run_kernel

SIZE = 5000


@pytest.fixture(autouse=True)
def small_problems(monkeypatch):
    """Which otherwise aren't worth it."""
    monkeypatch.setattr(layouts, "FEW_TILES", 1)
    monkeypatch.setattr(layouts, "MEASURED_LANES", 1)


def test_a_target_says_how_many_lanes_an_invocation_has_of_a_tile():
    kernel, group = countdown(1 << 14), Geometry().group
    for most in (2, 4, 8):
        tiles = plan(kernel, Options(), Geometry(sorted_lanes=most)).tiles
        assert (tiles.measured, tiles.size) == (True, most * group)
    assert SpirvImage(Features()).geometry.sorted_lanes < Geometry().sorted_lanes


@pytest.fixture(params=["always", "never", "where it pays"])
def sorting(request, monkeypatch):
    """Whether workgroups sort what they have counted."""
    if request.param != "where it pays":
        pays = 0 if request.param == "always" else 10_000
        monkeypatch.setattr(emission, "trip_count", lambda kernel: replace(trip_count(kernel), pays=pays))
    return request.param


def counts(kind, size=SIZE):
    generator = np.random.default_rng(0)
    even, skewed = np.full(size, 7), np.minimum(generator.zipf(1.5, size), 60)
    found = {"even": even, "skewed": skewed, "none": 0 * even, "first": np.where(np.arange(size) < 256, 50, 1)}
    return found[kind].astype(np.int32)


def countdown(size=SIZE, stacks=True, total=True, domain=None):
    """Every lane runs until its own number is reached, saves what it had, and goes back through it."""
    build = Build(*(domain or (size,)))
    i = build.linear()
    n, x = build.load(build.param(int32, size), i), build.load(build.param(float32, size), i)
    saved = build.stack(float32) if stacks else None

    def body(k, v, odd):
        if saved is not None:
            build.op("push", (v,), (), stack=saved)
        more = build.one("add", (v, build.one("mul", (x, build.const(0.5, float32)))))
        return [build.one("add", (k, build.const(1, int32))), more, build.one("xor", (odd, build.const(True, bool_)))]

    begin = [build.const(0, int32), x, build.const(False, bool_)]
    k, v, odd = build.while_loop(begin, lambda k, *_: build.one("lt", (k, n), bool_), body)
    if saved is not None:
        trips = build.one("cast", (k,), int64)

        def back(_, s):
            return [build.one("add", (s, build.one("pop", (), float32, stack=saved)))]

        (v,) = build.loop(trips, [v], back)
    if total:
        build.reduce(v, build.param(float32, prod(build.domain[: len(build.domain) - 1]), "write"), rank=1)
    build.store(build.param(float32, size, "write"), i, v)
    build.store(build.param(bool_, size, "write"), i, odd)
    return build.kernel()


def arrays_of(kernel, n):
    x = np.random.default_rng(1).integers(0, 9, n.size).astype(np.float32)
    return [n, x, *[np.zeros(p.size, p.dtype.np) for p in kernel.params[2:]]]


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["even", "skewed", "none", "first"])
@pytest.mark.parametrize("stacks", [False, True])
def test_lanes_end_when_they_say(sorting, kind, stacks):
    kernel = countdown(stacks=stacks)
    assert plan(kernel, Options(), Geometry()).tiles.measured
    check(kernel, arrays_of(kernel, counts(kind)))


@pytest.mark.costly
@pytest.mark.parametrize("size", [256, 257, 1300, 70_000])
def test_more_and_fewer_tiles_than_workgroups(sorting, size):
    kernel = countdown(size, stacks=False, total=False)
    check(kernel, arrays_of(kernel, counts("skewed", size)))


def test_few_lanes_are_taken_as_they_come(monkeypatch):
    kernel = countdown()
    assert plan(kernel, Options(), Geometry()).tiles.size == 8 * Geometry().group
    monkeypatch.setattr(layouts, "MEASURED_LANES", 16)
    assert not plan(kernel, Options(), Geometry()).tiles.measured


def test_rows(sorting):
    kernel = countdown(3 * 4100, domain=(3, 4100))
    check(kernel, arrays_of(kernel, counts("skewed", 3 * 4100)))


def test_a_limit_on_steps_is_reported_once_by_the_loop_itself(sorting):
    def limited(most):
        build = Build(SIZE)
        (i,) = build.indices
        n = build.load(build.param(int32, SIZE), i)
        build.errors.append(ErrorSite("max_steps", "", None))
        (k,) = build.while_loop(
            [build.const(0, int32)],
            lambda k: build.one("lt", (k, n), bool_),
            lambda k: [build.one("add", (k, build.const(1, int32)))],
            max_steps=most,
            error=0,
        )
        build.store(build.param(int32, SIZE, "write"), i, k)
        return build.kernel()

    n = counts("skewed")
    check(limited(60), [n, np.zeros(SIZE, np.int32)])
    with pytest.raises(LoopLimitError):
        run_kernel(limited(59), [n, np.zeros(SIZE, np.int32)])


def test_only_what_counting_needs_is_counted():
    found = trip_count(countdown())
    assert len(found.loop.operands) == 2, "the loop's own number, and the count"
    assert not any(op.opcode == "push" for block in found.loop.blocks for op in block.ops)
    assert [v.dtype for v in found.outside] == [int32]
    assert 110 < found.pays < 190, "of the loop and the one back, a part is done twice"


def test_what_cannot_run_by_itself_is_not_counted():
    def kernel(change):
        build = Build(SIZE)
        (i,) = build.indices
        out = build.param(int32, SIZE, "write")
        start = build.const(0, int32)
        if change == "reads what is written":
            start = build.load(out, i)
        if change == "checks":
            build.errors.append(ErrorSite("index", "", None))
            build.op("check", (build.const(True, bool_), i), (), error=0)
        if change == "counted loop":
            (end,) = build.loop(build.const(3, int64), [start], lambda _, v: [v])
        else:
            below = partial(lambda end, k: build.one("lt", (k, end), bool_), build.const(9, int32))
            (end,) = build.while_loop([start], below, lambda k: [build.one("add", (k, build.const(1, int32)))])
        build.store(out, i, end)
        return build.kernel()

    assert trip_count(kernel("")) is not None
    for change in ("reads what is written", "checks", "counted loop"):
        assert trip_count(kernel(change)) is None, change
    assert plan(kernel(""), Options(sort_lanes=False), Geometry()).tiles is None
    assert plan(kernel(""), Options(), Geometry(resumable=1024)).tiles is None
