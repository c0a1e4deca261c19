"""push and pop: mirrored loops, nesting, booleans, overflow."""

import numpy as np
import pytest

from loopgrad.codegen.targets.cpu.vector.stacks import MOST_IN_REGISTERS
from loopgrad.graph.types import bool_, float32, float64, int8, int32, int64
from tests.codegen.targets.cpu.cpu_harness import CompiledKernel, Options, check, narrower
from tests.codegen.targets.cpu.kernel_build import Build


def round_trip(size, dtype, depth_limit=9, nested=True):
    """Forward nested loops push (value, flag); the mirrored reverse loops pop and accumulate."""
    build = Build(size)
    (i,) = build.indices
    x, n = build.load(build.param(dtype, size), i), build.load(build.param(int32, size), i)
    out = build.param(dtype, size, "write")
    values, flags, trips = build.stack(dtype), build.stack(bool_), build.stack(int32)
    one, zero = build.const(1, dtype), build.const(0, dtype)

    def inner_forward(j, v):
        flag = build.one("lt", (v, build.const(3, dtype)), bool_)
        build.op("push", (v,), (), stack=values)
        build.op("push", (flag,), (), stack=flags)
        return [build.one("add", (v, one))]

    def forward(k, v):
        odd = build.one("ne", (build.one("and", (k, build.const(1, int32))), build.const(0, int32)), bool_)
        lanes = build.one("and", (build.one("cast", (i,), int32), build.const(3, int32)))
        count = build.one("select", (odd, lanes, k), int32)
        build.op("push", (count,), (), stack=trips)
        return build.loop(count, [v], inner_forward)

    def inner_reverse(j, g):
        flag = build.one("pop", (), bool_, stack=flags)
        v = build.one("pop", (), dtype, stack=values)
        return [build.one("sub", (build.one("add", (g, g)), build.one("select", (flag, v, zero), dtype)))]

    def reverse(k, g):
        count = build.one("pop", (), int32, stack=trips)
        return build.loop(count, [g], inner_reverse, reverse=True)

    (last,) = build.loop(n, [x], forward)
    (g,) = build.loop(n, [last], reverse, reverse=True)
    build.store(out, i, g)
    return build.kernel()


def inputs(size, dtype, most=6):
    rng = np.random.default_rng(size)
    x = rng.integers(-4, 5, size).astype(dtype.np)
    return [x, rng.integers(0, most, size).astype(np.int32), np.zeros(size, dtype.np)]


@pytest.mark.parametrize("size", [1, 7, 64, 2000])
@pytest.mark.parametrize("dtype", [float32, float64, int8, int64], ids=str)
def test_mirrored_loops(size, dtype):
    control = check(round_trip(size, dtype), inputs(size, dtype))
    assert control.needed == [0, 0, 0]


@pytest.mark.parametrize("bits", [256, 128])
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_mirrored_loops_on_narrower_machines(bits, dtype):
    check(round_trip(500, dtype), inputs(500, dtype), machine=narrower(bits))


def test_overflow_reports_what_is_needed_and_corrupts_nothing():
    size = 700
    kernel = round_trip(size, float32)
    compiled = CompiledKernel(kernel)
    arrays = inputs(size, float32)
    small = compiled.run([a.copy() for a in arrays], capacity=2)
    assert all(need > 2 for need in small.needed)
    assert 0 <= small.overflow_lane < size
    again = [a.copy() for a in arrays]
    assert compiled.run(again, capacity=max(small.needed)).needed == [0, 0, 0]
    check(kernel, arrays)
    none = compiled.run([a.copy() for a in arrays], capacity=0)
    assert none.needed == small.needed


def test_the_overflowing_lane_is_the_deep_one():
    size = 5000
    build = Build(size)
    (i,) = build.indices
    n = build.load(build.param(int32, size), i)
    slot = build.stack(float32)
    zero = build.const(0.0, float32)

    def body(k, v):
        build.op("push", (v,), (), stack=slot)
        return [v]

    build.loop(n, [zero], body)
    counts = np.ones(size, np.int32)
    counts[4321] = 50
    for sort in (True, False):
        control = CompiledKernel(build.kernel(), Options(sort_lanes=sort)).run([counts], capacity=10)
        assert control.needed == [50]
        assert control.overflow_lane == 4321


def test_stack_under_a_branch():
    size = 333
    build = Build(size)
    (i,) = build.indices
    x, n = build.load(build.param(float32, size), i), build.load(build.param(int32, size), i)
    out = build.param(float32, size, "write")
    slot = build.stack(float32)
    taken = build.one("lt", (x, build.const(0.0, float32)), bool_)

    def body(k, v):
        build.op("push", (v,), (), stack=slot)
        return [build.one("mul", (v, build.const(1.5, float32)))]

    def back(k, g):
        return [build.one("add", (g, build.one("pop", (), float32, stack=slot)))]

    (v,) = build.branch(taken, lambda: build.loop(n, [x], body), lambda: [x], [float32])
    (g,) = build.branch(taken, lambda: build.loop(n, [v], back, reverse=True), lambda: [v], [float32])
    build.store(out, i, g)
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, size).astype(np.float32), rng.integers(0, 5, size).astype(np.int32)]
    check(build.kernel(), [*arrays, np.zeros(size, np.float32)])


@pytest.mark.parametrize("many", [MOST_IN_REGISTERS, MOST_IN_REGISTERS + 1])
def test_counters_of_many_stacks_stay_in_memory(many):
    """As induction variables they would keep LLVM's strength reduction busy for minutes."""
    build = Build(70)
    (i,) = build.indices
    x, n = build.load(build.param(float64, 70), i), build.load(build.param(int32, 70), i)
    out = build.param(float64, 70, "write")
    stacks = [build.stack(float64) for _ in range(many)]

    def forward(k, v):
        for stack in stacks:
            build.op("push", (v,), (), stack=stack)
            v = build.one("mul", (v, build.const(0.5, float64)))
        return [v]

    def reverse(k, g):
        for stack in reversed(stacks):
            g = build.one("add", (g, build.one("pop", (), float64, stack=stack)))
        return [g]

    (last,) = build.loop(n, [x], forward)
    (g,) = build.loop(n, [last], reverse, reverse=True)
    build.store(out, i, g)
    kernel = build.kernel()
    check(kernel, inputs(70, float64))
    assert ("volatile" in CompiledKernel(kernel).text) == (many > MOST_IN_REGISTERS)
