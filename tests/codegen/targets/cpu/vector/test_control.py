"""Loops, branches and checks over lanes."""

import numpy as np
import pytest

from loopgrad.codegen.kernel.nodes import Block, ErrorSite, KValue
from loopgrad.graph.types import bool_, float32, float64, int32, int64
from tests.codegen.targets.cpu.cpu_harness import CompiledKernel, Options, check, narrower
from tests.codegen.targets.cpu.kernel_build import Build

LANES = [1, 3, 64, 1000, 9001]


def counts(size, most, seed=0, dtype=np.int32):
    return np.random.default_rng(seed).integers(-1, most, size).astype(dtype)


def newton(size, dtype=float32, max_steps=None):
    """Cube root by Newton's method, until the residual is small."""
    build = Build(size)
    (i,) = build.indices
    a = build.load(build.param(dtype, size), i)
    out = build.param(dtype, size, "write")
    third, two = build.const(1 / 3, dtype), build.const(2.0, dtype)

    def cond(v):
        cube = build.one("mul", (v, build.one("mul", (v, v))))
        error = build.one("abs", (build.one("sub", (cube, a)),))
        return build.one("gt", (error, build.one("mul", (build.const(1e-5, dtype), a))), bool_)

    def body(v):
        ratio = build.one("div", (a, build.one("mul", (v, v))))
        return [build.one("mul", (build.one("add", (build.one("mul", (two, v)), ratio)), third))]

    attrs = {"max_steps": max_steps, "error": 0} if max_steps else {}
    if max_steps:
        build.errors.append(ErrorSite("max_steps", "limit", None))
    (root,) = build.while_loop([build.const(1.0, dtype)], cond, body, **attrs)
    build.store(out, i, root)
    return build.kernel()


@pytest.mark.parametrize("size", LANES)
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_value_dependent_while(size, dtype):
    a = np.random.default_rng(1).uniform(0.1, 100, size).astype(dtype.np)
    check(newton(size, dtype), [a, np.zeros_like(a)], rtol=1e-6)


def test_max_steps_names_a_lane_that_still_ran():
    a = np.full(1000, 1.0, np.float32)
    a[777] = 1e6
    compiled = CompiledKernel(newton(1000, max_steps=5))
    control = compiled.run([a, np.zeros_like(a)])
    assert control.error == (1, 777, 5)
    a[777] = 1.0
    assert compiled.run([a, np.zeros_like(a)]).error[0] == 0


def ragged(size, dtype, most, sort=True, key=True):
    """Nested per-lane counts, an int64 carry, a branch inside, k used as a value."""
    build = Build(size)
    (i,) = build.indices
    x, n = build.load(build.param(float32, size), i), build.load(build.param(dtype, size), i)
    out, sums = build.param(float32, size, "write"), build.param(int64, size, "write")

    def inner(k, v):
        return [build.one("add", (build.one("mul", (v, build.const(0.5, float32))), build.one("cast", (k,), float32)))]

    def body(k, v, total):
        parity = build.one("eq", (build.one("and", (k, build.const(1, dtype))), build.const(0, dtype)), bool_)

        def then():
            return build.loop(k, [v], inner)

        def other():
            return [build.one("neg", (v,))]

        (w,) = build.branch(parity, then, other, [float32])
        return [w, build.one("add", (total, build.one("cast", (k,), int64)))]

    v, total = build.loop(n, [x, i], body)
    build.store(out, i, v)
    build.store(sums, i, total)
    if key:
        j = KValue(int64)
        with build.block(j) as made:
            made.yields = (build.load(1, j),)
        build.order_key = Block((j,), made.ops, made.yields)
    return build.kernel()


@pytest.mark.parametrize("size", LANES)
@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("dtype", [int32, int64], ids=str)
def test_ragged_loops_in_any_order(size, sort, dtype):
    x = np.random.default_rng(0).uniform(-1, 1, size).astype(np.float32)
    arrays = [x, counts(size, 9, 1, dtype.np), np.zeros_like(x), np.zeros(size, np.int64)]
    check(ragged(size, dtype, 9), arrays, Options(sort_lanes=sort))


@pytest.mark.parametrize("bits", [256, 128])
def test_narrower_machines(bits):
    x = np.random.default_rng(0).uniform(-1, 1, 3001).astype(np.float32)
    arrays = [x, counts(3001, 9), np.zeros_like(x), np.zeros(3001, np.int64)]
    check(ragged(3001, int32, 9), arrays, machine=narrower(bits))
    a = np.abs(x) + np.float32(0.5)
    check(newton(3001), [a, np.zeros_like(a)], machine=narrower(bits), rtol=1e-6)


def test_long_trip_counts_are_ordered_too():
    size = 5000
    n = np.where(np.arange(size) % 97 == 0, 900, np.arange(size) % 7).astype(np.int32)
    x = np.random.default_rng(0).uniform(-1, 1, size).astype(np.float32)
    build = Build(size)
    (i,) = build.indices
    v, count = build.load(build.param(float32, size), i), build.load(build.param(int32, size), i)
    out = build.param(float32, size, "write")

    def body(_k, v):
        return [build.one("add", (build.one("mul", (v, v)), build.const(-0.5, float32)))]

    (r,) = build.loop(count, [v], body)
    build.store(out, i, r)
    with build.block(KValue(int64)) as made:
        made.yields = (build.load(1, made.arguments[0]),)
    build.order_key = made
    check(build.kernel(), [x, n, np.zeros_like(x)])


def test_uniform_loops_and_branches_stay_scalar():
    """A count loaded from one element; the carried index advances a plain vector load."""
    size, rows = 200, 11
    build = Build(size)
    (i,) = build.indices
    table, count = build.param(float32, size * rows), build.param(int32, 1)
    out = build.param(float32, size, "write")
    n = build.load(count, build.const(0, int64))
    start = build.const(0.0, float32)

    def body(k, total, at):
        flag = build.one("lt", (k, build.const(5, int32)), bool_)
        step = build.load(table, at)
        (term,) = build.branch(flag, lambda: [build.one("mul", (step, step))], lambda: [step], [float32])
        return [build.one("add", (total, term)), build.one("add", (at, build.const(size, int64)))]

    total, _ = build.loop(n, [start, i], body)
    build.store(out, i, total)
    kernel = build.kernel()
    compiled = CompiledKernel(kernel)
    assert "gather" not in compiled.text
    data = np.random.default_rng(0).uniform(-1, 1, size * rows).astype(np.float32)
    check(kernel, [data, np.array([rows], np.int32), np.zeros(size, np.float32)])


def test_a_branch_that_nobody_takes_touches_no_memory():
    """The loads and divisions of untaken branches and inactive lanes can't trap."""
    size = 130
    build = Build(size)
    (i,) = build.indices
    index, table = build.load(build.param(int64, size), i), build.param(int64, 4)
    out = build.param(int64, size, "write")
    valid = build.one("lt", (index, build.const(4, int64)), bool_)
    (r,) = build.branch(
        valid, lambda: [build.one("div", (build.load(table, index), index))], lambda: [build.const(-1, int64)], [int64]
    )
    build.store(out, i, r)
    index_values = np.where(np.arange(size) % 3 == 0, np.arange(size) % 4, 1 << 40)
    check(build.kernel(), [index_values, np.array([5, 6, 7, 8]), np.zeros(size, np.int64)])
    check(build.kernel(), [np.full(size, 1 << 40), np.array([5, 6, 7, 8]), np.zeros(size, np.int64)])


@pytest.mark.parametrize("size", [1, 10, 5000])
def test_a_failed_check_reports_lane_and_detail(size):
    build = Build(size)
    (i,) = build.indices
    index = build.load(build.param(int64, size), i)
    build.errors.append(ErrorSite("index", "index {detail} at {lane}", None))
    build.op("check", (build.one("lt", (index, build.const(100, int64)), bool_), index), (), error=0)
    compiled = CompiledKernel(build.kernel())
    data = np.arange(size) % 100
    assert compiled.run([data]).error[0] == 0
    data[size - 1] = 12345
    assert compiled.run([data]).error == (1, size - 1, 12345)
