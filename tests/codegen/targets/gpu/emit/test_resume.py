"""Kernels that end in the middle of their loops and are launched again, every few trips."""

import numpy as np
import pytest

from loopgrad.codegen.kernel.nodes import ErrorSite
from loopgrad.codegen.targets.gpu.emit import resume
from loopgrad.graph.errors import LoopLimitError
from loopgrad.graph.types import bool_, float32, float64, int32, int64
from tests.codegen.kernel.random_kernels import random_kernel
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.gpu_harness import check, device, executable_of, program_of, run_kernel


@pytest.fixture(autouse=True, params=[1, 20])
def trips(request, monkeypatch, gpu):
    """Trips between two launches."""
    if not gpu.startswith("vulkan"):
        pytest.skip("this driver lets loops run to their end")
    monkeypatch.setattr(resume, "TRIPS", request.param)
    monkeypatch.setattr(type(device()), "emit", type(device()).emit_continued)


@pytest.mark.costly
@pytest.mark.parametrize("seed", [0, 4, 5, 6])
def test_random_kernels(seed):
    kernel, arrays = random_kernel(seed, budget=12)
    check(kernel, arrays, rtol=1e-5, atol=1e-5)


@pytest.mark.costly
@pytest.mark.parametrize("seed", [2, 12])
def test_arrays_of_lanes_are_what_they_were(seed):
    kernel, arrays = random_kernel(seed, budget=9)
    assert kernel.arrays
    check(kernel, arrays, rtol=1e-5, atol=1e-5)


def nested(size):
    """Two loops in a loop, one after the other, with stacks that the second empties; then a loop that empties
    what remains, and accumulations on the way."""
    build = Build(size)
    (i,) = build.indices
    x, n = build.load(build.param(float64, size), i), build.load(build.param(int32, size), i)
    hits, total = build.param(int64, size, "accumulate"), build.param(float64, 3, "accumulate")
    stack, flags = build.stack(float64), build.stack(bool_)
    true, one = build.const(True, bool_), build.const(1, int64)

    def outer(k, v):
        build.op("push", (v,), (), stack=stack)
        build.op("push", (build.one("gt", (v, x), bool_),), (), stack=flags)
        build.accumulate(hits, i, one, "add", exclusive=True, pred=true)

        def grow(_, w):
            build.op("push", (w,), (), stack=stack)
            return [build.one("add", (w, build.one("mul", (x, build.const(0.5, float64)))))]

        def shrink(_, w):
            return [build.one("add", (w, build.one("pop", (), float64, stack=stack)))]

        (up,) = build.loop(n, [v], grow)
        (down,) = build.loop(n, [up], shrink)
        return [build.one("mul", (down, build.const(0.25, float64)))]

    def back(_, g):
        flag = build.one("pop", (), bool_, stack=flags)
        value = build.one("pop", (), float64, stack=stack)
        return [build.one("add", (g, build.one("select", (flag, value, x), float64)))]

    (v,) = build.loop(n, [x], outer)
    (g,) = build.loop(n, [v], back)
    place = build.one("cast", (build.one("rem", (i, build.const(3, int64))),), int64)
    build.accumulate(total, place, g, "add")
    build.store(build.param(float64, size, "write"), i, g)
    return build.kernel()


def test_nested_loops_with_stacks_and_accumulations():
    size = 70
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=size), rng.integers(0, 9, size, dtype=np.int32), np.zeros(size, np.int64), np.zeros(3),
              np.zeros(size)]  # fmt: skip
    check(nested(size), arrays, rtol=1e-12)


def test_stacks_grow_while_lanes_are_left():
    size = 20
    kernel = nested(size)
    executable = executable_of(program_of(kernel))
    for most in (2, 12, 4):
        n = np.full(size, most, np.int32)
        wanted = [np.linspace(0, 1, size), n, np.zeros(size, np.int64), np.zeros(3), np.zeros(size)]
        results = executable.run([device().put(a) for a in wanted])
        got = [a.copy() for a in wanted]
        run_kernel(kernel, got)
        for result, array in zip(results, got[2:], strict=True):
            np.testing.assert_array_equal(device().get(result), array)


@pytest.mark.costly
@pytest.mark.parametrize("endless", [False, True])
def test_more_lanes_than_run_at_a_time(monkeypatch, endless):
    """Also on a driver that would let loops run to their end, and where the host sees what it fetches only."""
    if endless:
        monkeypatch.setattr(type(device().driver), "endless_loops", property(lambda _: True))
    size = 2500
    build = Build(size)
    (i,) = build.indices
    x, n = build.load(build.param(float32, size), i), build.load(build.param(int64, size), i)
    (s,) = build.loop(n, [x], lambda _, s: [build.one("add", (s, x))])
    build.reduce(s, build.param(float32, 1, "write"))
    build.store(build.param(float32, size, "write"), i, s)
    rng = np.random.default_rng(1)
    arrays = [rng.integers(0, 9, size).astype(np.float32), rng.integers(0, 40, size), np.zeros(1, np.float32),
              np.zeros(size, np.float32)]  # fmt: skip
    check(build.kernel(), arrays)


def test_a_limit_on_steps():
    build = Build(4)
    (i,) = build.indices
    build.errors.append(ErrorSite("max_steps", "", None))
    n = build.load(build.param(int64, 4), i)
    (count,) = build.while_loop(
        [build.const(0, int64)],
        lambda k: build.one("lt", (k, n), bool_),
        lambda k: [build.one("add", (k, build.const(1, int64)))],
        max_steps=100,
        error=0,
    )
    build.store(build.param(int64, 4, "write"), i, count)
    check(build.kernel(), [np.array([3, 100, 0, 70]), np.zeros(4, np.int64)])
    with pytest.raises(LoopLimitError):
        run_kernel(build.kernel(), [np.array([3, 101, 0, 70]), np.zeros(4, np.int64)])
