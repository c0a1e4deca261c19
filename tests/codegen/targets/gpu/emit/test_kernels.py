"""Kernels on a GPU against the kernel interpreter: operations, control flow, memory."""

import numpy as np
import pytest

from loopgrad.codegen.kernel.nodes import ErrorSite
from loopgrad.codegen.options import Options
from loopgrad.graph.errors import IndexRangeError, LoopgradError, LoopLimitError
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
from loopgrad.runtime.failures import StackCapacityError
from tests.codegen.kernel.random_kernels import random_kernel
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.gpu_harness import check, device, executable_of, program_of, run_kernel

LANES = 83
INTEGERS = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, np.inf, -np.inf, np.nan, 1e30, -3e9, 5e9, 300.0, 7.25]


def values(dtype, seed):
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.random(LANES) < 0.5
    if dtype.is_float:
        x = rng.uniform(-8, 8, LANES)
        x[: len(EDGES)] = rng.permutation(EDGES)
        with np.errstate(over="ignore"):
            return x.astype(dtype.np)
    limits = np.iinfo(dtype.np)
    x = rng.integers(-9 if dtype.kind == "i" else 0, 10, LANES).astype(dtype.np)
    edges = [limits.min, limits.max, 0, -1 if dtype.kind == "i" else 1]
    x[:4] = np.array([edges[k] for k in rng.permutation(4)], dtype.np)
    return x


def elementwise(rows, inputs, arrays, tolerance=0.0):
    """One kernel for all of `rows`: (opcode, result dtype)."""
    build = Build(LANES)
    (i,) = build.indices
    operands = [build.load(build.param(d, LANES), i) for d in inputs]
    results = []
    for opcode, result in rows:
        out = build.param(result, LANES, "write")
        build.store(out, i, build.one(opcode, operands, result))
        results.append(np.zeros(LANES, result.np))
    check(build.kernel(), [*arrays, *results], rtol=tolerance)


@pytest.mark.parametrize("seed", range(12))
def test_random_kernels(seed):
    kernel, arrays = random_kernel(seed)
    check(kernel, arrays, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_arithmetic(dtype):
    names = ("add", "sub", "mul", "div", "floordiv", "rem", "mod", "min", "max", "and", "or", "xor", "shl", "shr")
    elementwise([(n, dtype) for n in names], (dtype, dtype), [values(dtype, 1), values(dtype, 2)])
    names = ("neg", "abs", "sign", "invert", *["bit_count"] * (dtype.kind == "u"))
    elementwise([(n, dtype) for n in names], (dtype,), [values(dtype, 3)])
    exponents = (np.abs(values(dtype, 4)) % dtype.np.type(5)).astype(dtype.np)
    elementwise([("pow", dtype)], (dtype, dtype), [values(dtype, 5), exponents])


@pytest.mark.parametrize("dtype", [*INTEGERS, float16, float32, float64, bool_], ids=str)
def test_comparisons(dtype):
    names = ("eq", "ne", "lt", "le", "gt", "ge")
    elementwise([(n, bool_) for n in names], (dtype, dtype), [values(dtype, 6), values(dtype, 7)])


@pytest.mark.parametrize("dtype", [float32, float64, float16], ids=str)
def test_float_arithmetic(dtype):
    names = ("add", "sub", "mul", "div", "min", "max")
    tolerance = {16: 1e-3, 32: 3e-7, 64: 0}[dtype.bits]
    elementwise([(n, dtype) for n in names], (dtype, dtype), [values(dtype, 8), values(dtype, 9)], tolerance)
    names = ("neg", "abs", "sign", "floor", "ceil", "round", "trunc", "sqrt")
    elementwise([(n, dtype) for n in names], (dtype,), [values(dtype, 10)], tolerance)
    elementwise([("is_nan", bool_), ("is_inf", bool_), ("signbit", bool_)], (dtype,), [values(dtype, 11)])


def test_bfloat16_arithmetic():
    names = ("add", "sub", "mul", "div")
    arrays = [values(bfloat16, 12), values(bfloat16, 13)]
    build = Build(LANES)
    (i,) = build.indices
    x, y = (build.load(build.param(bfloat16, LANES), i) for _ in range(2))
    for name in names:
        build.store(build.param(bfloat16, LANES, "write"), i, build.one(name, (x, y)))
    got = [*arrays, *[np.zeros(LANES, bfloat16.np) for _ in names]]
    run_kernel(build.kernel(), got)
    wide = [a.astype(np.float32) for a in arrays]
    with np.errstate(all="ignore"):
        wanted = [wide[0] + wide[1], wide[0] - wide[1], wide[0] * wide[1], wide[0] / wide[1]]
    for g, w in zip(got[2:], wanted, strict=True):
        np.testing.assert_array_equal(g.astype(np.float32), w.astype(bfloat16.np).astype(np.float32))


@pytest.mark.parametrize("source", [*INTEGERS, float32, float64, bool_], ids=str)
def test_casts(source):
    targets = [*INTEGERS, float32, float64, bool_]
    elementwise([("cast", to) for to in targets], (source,), [values(source, 14)], 1e-7)


@pytest.mark.parametrize("extents", [(5,), (3, 4), (2, 3, 5), (70_000,)])
def test_domains(extents):
    build = Build(*extents)
    size = int(np.prod(extents))
    x = build.load(build.param(int64, size), build.linear())
    build.store(build.param(int64, size, "write"), build.linear(), build.one("add", (x, build.indices[-1])))
    check(build.kernel(), [np.arange(size), np.zeros(size, np.int64)])


def test_widened_integers_compare_with_constants():
    build = Build(9)
    (i,) = build.indices
    wide = build.one("cast", (build.load(build.param(int32, 9), i),), int64)
    for name in ("lt", "ge", "eq"):
        for limit in (-1, 0, 4):
            result = build.one(name, (wide, build.const(limit, int64)), bool_)
            build.store(build.param(bool_, 9, "write"), i, result)
    x = np.array([-5, -1, 0, 1, 3, 4, 5, 2**31 - 1, -(2**31)], np.int32)
    check(build.kernel(), [x, *[np.zeros(9, bool) for _ in range(9)]])


# stacks


def mirrored(size, dtype):
    """Each lane pushes n values and pops them in reverse, folding them."""
    build = Build(size)
    (i,) = build.indices
    x, n = build.load(build.param(dtype, size), i), build.load(build.param(int32, size), i)
    stack, flags = build.stack(dtype), build.stack(bool_)

    def forward(k, v):
        odd = build.one("ne", (build.one("and", (k, build.const(1, int32))), build.const(0, int32)), bool_)
        build.op("push", (v,), (), stack=stack)
        build.op("push", (odd,), (), stack=flags)
        return [build.one("select", (odd, x, v), dtype)]

    def reverse(k, total):
        v, odd = build.one("pop", (), dtype, stack=stack), build.one("pop", (), bool_, stack=flags)
        return [build.one("select", (odd, total, v), dtype)]

    build.loop(n, [x], forward)
    (g,) = build.loop(n, [x], reverse, reverse=True)
    build.store(build.param(dtype, size, "write"), i, g)
    return build.kernel()


@pytest.mark.parametrize("dtype", [bool_, int8, int16, int32, int64, float16, bfloat16, float32, float64], ids=str)
def test_stacks_of_every_dtype(dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, 100).astype(dtype.np)
    n = rng.integers(0, 30, 100).astype(np.int32)
    wanted, got = ([a.copy() for a in (x, n, np.zeros(100, dtype.np))] for _ in range(2))
    run_kernel(mirrored(100, dtype), got)
    wanted[2][...] = x
    np.testing.assert_array_equal(got[2].astype(np.float32), wanted[2].astype(np.float32))


def test_stacks_of_more_lanes_than_run_at_a_time():
    size = 2500  # lavapipe has 1024 in flight
    rng = np.random.default_rng(1)
    check(mirrored(size, float64), [rng.normal(size=size), rng.integers(0, 9, size, dtype=np.int32), np.zeros(size)])


def test_a_stack_grows_to_what_a_later_run_needs():
    executable = executable_of(program_of(mirrored(50, float32)))
    x, out = np.ones(50, np.float32), np.zeros(50, np.float32)
    for most, grows in ((3, True), (3, False), (400, True), (5, False)):
        before = executable.capacities.growths
        buffers = [device().put(a) for a in (x, np.full(50, most, np.int32), out)]
        (result,) = executable.run(buffers)
        np.testing.assert_array_equal(device().get(result), x)
        assert (executable.capacities.growths > before) == grows


def test_a_forced_capacity_that_is_exceeded_is_an_error():
    kernel = mirrored(4, float32)
    arrays = [np.ones(4, np.float32), np.array([2, 3, 9, 1], np.int32), np.zeros(4, np.float32)]
    with pytest.raises(StackCapacityError) as caught:
        run_kernel(kernel, arrays, Options(stack_capacity=3))
    assert (caught.value.needed, caught.value.allocated, caught.value.lane) == (9, 3, 2)
    run_kernel(kernel, arrays, Options(stack_capacity=9))


# accumulation and reduction


@pytest.mark.parametrize("kind", ["add", "min", "max", "mul"])
@pytest.mark.parametrize("dtype", [int32, int64, uint8, float32, float64], ids=str)
def test_shared_accumulation(dtype, kind):
    size = 500
    build = Build(size)
    (i,) = build.indices
    place, x = build.load(build.param(int64, size), i), build.load(build.param(dtype, size), i)
    odd = build.one("ne", (build.one("and", (i, build.const(3, int64))), build.const(0, int64)), bool_)
    build.accumulate(build.param(dtype, 7, "accumulate"), place, x, kind, pred=odd)
    rng = np.random.default_rng(2)
    x = rng.integers(1, 4, size).astype(dtype.np) if kind != "mul" else np.where(rng.random(size) < 0.02, 3, 1)
    arrays = [rng.integers(0, 7, size), x.astype(dtype.np), np.ones(7, dtype.np)]
    check(build.kernel(), arrays, rtol=1e-5 if dtype.is_float else 0)


def test_the_last_lane_wins_a_set():
    size = 300
    build = Build(size)
    (i,) = build.indices
    place = build.load(build.param(int64, size), i)
    build.accumulate(build.param(int64, 7, "accumulate"), place, i, "set")
    check(build.kernel(), [np.random.default_rng(3).integers(0, 7, size), np.zeros(7, np.int64)])


def test_float_sums_have_the_same_bits_every_time():
    size = 3000
    build = Build(size)
    (i,) = build.indices
    place, x = build.load(build.param(int64, size), i), build.load(build.param(float32, size), i)
    build.accumulate(build.param(float32, 5, "accumulate"), place, x)
    build.reduce(x, build.param(float32, 1, "write"))
    rng = np.random.default_rng(4)
    arrays = [rng.integers(0, 5, size), rng.normal(size=size).astype(np.float32), np.zeros(5, np.float32),
              np.zeros(1, np.float32)]  # fmt: skip
    results = []
    for _ in range(3):
        got = [a.copy() for a in arrays]
        run_kernel(build.kernel(), got)
        results.append(got[2].tobytes() + got[3].tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("kind", ["add", "mul", "min", "max"])
@pytest.mark.parametrize(("extents", "rank"), [((1,), 1), ((64,), 1), ((5000,), 1), ((7, 130), 1), ((3, 4, 5), 2)])
def test_reductions(kind, extents, rank):
    size = int(np.prod(extents))
    kept = int(np.prod(extents[: len(extents) - rank]))
    build = Build(*extents)
    x = build.load(build.param(float64, size), build.linear())
    build.reduce(x, build.param(float64, kept, "write"), kind, rank)
    x = np.random.default_rng(5).uniform(0.99, 1.01, size)
    check(build.kernel(), [x, np.zeros(kept)], rtol=1e-12)


@pytest.mark.parametrize("kind", ["and", "or"])
def test_boolean_reductions(kind):
    build = Build(6, 200)
    x = build.load(build.param(bool_, 1200), build.linear())
    build.reduce(x, build.param(bool_, 6, "write"), kind, 1)
    x = np.random.default_rng(6).random((6, 200)) < [[0.0], [1.0], [0.5], [0.005], [0.995], [0.01]]
    check(build.kernel(), [x.reshape(-1), np.zeros(6, bool)])


# errors


def test_a_failed_check_names_the_lane():
    build = Build(3, 4)
    build.errors.append(ErrorSite("index", "lane {lane}: index {detail}", None))
    x = build.load(build.param(int64, 12), build.linear())
    fine = build.one("lt", (x, build.const(5, int64)), bool_)
    build.op("check", (fine, x), (), error=0)
    arrays = [np.zeros(12, np.int64)]
    run_kernel(build.kernel(), arrays)
    arrays[0][7] = 99
    with pytest.raises(IndexRangeError, match=r"lane \(1, 3\): index 99"):
        run_kernel(build.kernel(), arrays)


def counting(limit, trips):
    build = Build(4)
    (i,) = build.indices
    build.errors.append(ErrorSite("max_steps", "", None))
    n = build.load(build.param(int64, 4), i)
    (count,) = build.while_loop(
        [build.const(0, int64)],
        lambda k: build.one("lt", (k, n), bool_),
        lambda k: [build.one("add", (k, build.const(1, int64)))],
        max_steps=limit,
        error=0,
    )
    build.store(build.param(int64, 4, "write"), i, count)
    return build.kernel(), [np.array(trips), np.zeros(4, np.int64)]


def test_a_limit_on_steps():
    kernel, arrays = counting(10, [3, 10, 0, 5])
    run_kernel(kernel, arrays)
    assert arrays[1].tolist() == [3, 10, 0, 5]
    with pytest.raises(LoopLimitError) as caught:
        run_kernel(*counting(10, [3, 11, 0, 5]))
    assert caught.value.max_steps == 10
    assert caught.value.__notes__ == ["first seen in lane 1"]


def test_nothing_is_popped_that_a_failed_check_kept_from_being_pushed():
    """The loop ends at once where the check fails; the one that pops knows its trips from elsewhere."""
    build = Build(4)
    (i,) = build.indices
    build.errors.append(ErrorSite("index", "{lane}: index {detail}", None))
    n = build.load(build.param(int64, 4), i)
    build.op("check", (build.one("lt", (n, build.const(1000, int64)), bool_), n), (), error=0)
    stack, one = build.stack(int64), build.const(1, int64)

    def step(k):
        build.op("push", (k,), (), stack=stack)
        return [build.one("add", (k, one))]

    build.while_loop([build.const(0, int64)], lambda k: build.one("lt", (k, n), bool_), step, max_steps=None)
    (total,) = build.loop(
        n, [build.const(0, int64)], lambda _k, t: [build.one("add", (t, build.one("pop", (), int64, stack=stack)))]
    )
    build.store(build.param(int64, 4, "write"), i, total)
    arrays = [np.array([3, 10, 0, 5]), np.zeros(4, np.int64)]
    run_kernel(build.kernel(), arrays)
    assert arrays[1].tolist() == [3, 45, 0, 10]
    arrays[0][1] = 1_000_000
    with pytest.raises(IndexRangeError, match="index 1000000"):
        run_kernel(build.kernel(), arrays)


def test_a_loop_that_the_driver_stops_never_gives_a_number():
    kernel, arrays = counting(None, [3, 200_000, 0, 5])
    if device().driver.endless_loops:
        run_kernel(kernel, arrays)
        assert arrays[1].tolist() == [3, 200_000, 0, 5]
    else:
        with pytest.raises(LoopgradError, match="stopped while its condition still held"):
            run_kernel(kernel, arrays)
