"""Domains, index forms and reductions: whatever the layout picks, the interpreter's result."""

from dataclasses import replace

import numpy as np
import pytest

from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.vector.lanes import plan_lanes
from loopgrad.graph.types import bool_, float32, float64, int32, int64, uint8
from tests.codegen.targets.cpu.cpu_harness import CompiledKernel, Options, check, narrower
from tests.codegen.targets.cpu.kernel_build import Build

DOMAINS = [
    (),
    (1,),
    (5,),
    (64,),
    (1000,),
    (70001,),
    (3, 5),
    (1000, 3),
    (7, 4099),
    (2, 3, 1000),
    (5, 4, 4),
    (0,),
    (4, 0),
    (1, 1, 1),
]


def random(shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype)


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_broadcasting_transposing_gathering(domain):
    """out[l] = x[l] + column[last] + table[any] + transposed x, and a bool and an int64 output."""
    build = Build(*domain)
    size = int(np.prod(domain))
    line = build.linear()
    last = build.indices[-1] if domain else build.const(0, int64)
    first = build.indices[0] if domain else build.const(0, int64)
    width = domain[-1] if domain else 1
    height = domain[0] if domain else 1
    x, column, table = build.param(float32, size), build.param(float32, width), build.param(float32, 17)
    where = build.param(int32, size)
    total = build.one("add", (build.load(x, line), build.load(column, last)))
    picked = build.one("cast", (build.load(where, line),), int64)
    total = build.one("add", (total, build.load(table, picked)))
    if len(domain) == 2:
        flipped = build.one("add", (build.one("mul", (last, build.const(height, int64))), first))
        total = build.one("add", (total, build.load(x, flipped)))
    reverse = build.one("sub", (build.const(size - 1, int64), line))
    total = build.one("add", (total, build.load(x, reverse)))
    out, flags, numbers = (build.param(d, size, "write") for d in (float32, bool_, int64))
    build.store(out, line, total)
    build.store(flags, line, build.one("lt", (total, build.const(0.0, float32)), bool_))
    build.store(numbers, reverse, build.one("mul", (line, build.const(3, int64))))
    arrays = [
        random(size), random(width, 1), random(17, 2), np.random.default_rng(3).integers(0, 17, size, dtype=np.int32),
        np.zeros(size, np.float32), np.zeros(size, bool), np.zeros(size, np.int64),
    ]  # fmt: skip
    check(build.kernel(), arrays)


@pytest.mark.parametrize("opcode", ["mul", "sub"])
def test_an_index_in_which_the_lanes_cancel(opcode):
    """Whatever the width of vectors: there are more lanes than in one."""
    build = Build(100, 3)
    i, j = build.indices
    other = build.const(0, int64) if opcode == "mul" else i
    index = build.one("add", (build.one(opcode, (i, other), int64), j), int64)
    x, out = build.param(float64, 3), build.param(float64, 100, "write")
    build.reduce(build.load(x, index), out, "add", 1)
    check(build.kernel(), [np.array([1.0, 2.0, 4.0]), np.zeros(100)])


@pytest.mark.in_turns
@pytest.mark.parametrize("domain", [d for d in DOMAINS if d], ids=str)
@pytest.mark.parametrize("kind", ["add", "mul", "min", "max"])
def test_reductions_of_every_rank(domain, kind):
    for rank in range(1, len(domain) + 1):
        kept = domain[: len(domain) - rank]
        size, segments = int(np.prod(domain)), int(np.prod(kept))
        build = Build(*domain)
        x, out = build.param(float64, size), build.param(float64, segments, "write")
        build.reduce(build.load(x, build.linear()), out, kind, rank)
        data = 1 + random(size, rank, np.float64) / 100
        if not size and kind in ("min", "max"):
            continue
        if size > 3 and kind in ("min", "max"):
            data[size // 2] = np.nan
        expected = np.zeros(segments)
        check(build.kernel(), [data, expected], rtol=1e-12)


@pytest.mark.parametrize("domain", [(7, 4099), (2, 3, 1000), (1000, 3), (5, 6, 7)], ids=str)
def test_reductions_of_several_ranks_together(domain):
    size = int(np.prod(domain))
    build = Build(*domain)
    x = build.param(float32, size)
    value = build.load(x, build.linear())
    arrays = [random(size)]
    for rank in range(1, len(domain) + 1):
        segments = int(np.prod(domain[: len(domain) - rank]))
        build.reduce(value, build.param(float32, segments, "write"), "add", rank)
        arrays.append(np.zeros(segments, np.float32))
    check(build.kernel(), arrays, rtol=1e-4, atol=1e-4)


def test_boolean_and_integer_reductions():
    for size in (1, 77, 5000):
        build = Build(size)
        (i,) = build.indices
        flags, numbers = build.param(bool_, size), build.param(uint8, size)
        outs = [build.param(bool_, 1, "write"), build.param(bool_, 1, "write"), build.param(uint8, 1, "write")]
        flag = build.load(flags, i)
        build.reduce(flag, outs[0], "and")
        build.reduce(flag, outs[1], "or")
        build.reduce(build.load(numbers, i), outs[2], "max")
        rng = np.random.default_rng(size)
        arrays = [rng.random(size) < 0.5, rng.integers(0, 255, size, dtype=np.uint8)]
        check(build.kernel(), [*arrays, np.zeros(1, bool), np.zeros(1, bool), np.zeros(1, np.uint8)])


def test_result_does_not_depend_on_chunk_order():
    size = 300_000
    build = Build(size)
    (i,) = build.indices
    x, out = build.param(float32, size), build.param(float32, 1, "write")
    build.reduce(build.one("sin", (build.load(x, i),)), out)
    compiled = CompiledKernel(build.kernel())
    data, results = random(size), []
    for order in (None, list(reversed(range(compiled.interface.chunks)))):
        total = np.zeros(1, np.float32)
        compiled.run([data, total], order=order)
        results.append(total[0])
    assert compiled.interface.chunks > 4
    assert results[0] == results[1]


def test_widths_follow_the_machine_and_the_dtype():
    def width(dtype, machine):
        build = Build(1000)
        (i,) = build.indices
        out = build.param(dtype, 1000, "write")
        build.store(out, i, build.load(build.param(dtype, 1000), i))
        return plan_lanes(build.kernel(), machine, Options()).width

    host = host_machine()
    assert width(float32, host) == 2 * width(float64, host)
    assert width(float32, narrower(256)) == 8
    assert width(float64, narrower(128)) == 2


def test_an_index_clamp_that_cannot_bind_stays_a_plain_load():
    build = Build(1000)
    (i,) = build.indices
    low = build.one("max", (i, build.const(0, int64)))
    clamped = build.one("min", (low, build.const(999, int64)))
    out = build.param(float32, 1000, "write")
    build.store(out, i, build.load(build.param(float32, 1000), clamped))
    compiled = CompiledKernel(build.kernel())
    assert "gather" not in compiled.text


def test_a_clamp_that_always_binds_is_uniform():
    build = Build(50)
    (i,) = build.indices
    high = build.one("add", (build.load(build.param(int32, 50), i), build.const(0, int32)))
    wide = build.one("add", (build.one("max", (build.one("cast", (high,), int64), build.const(0, int64))), i))
    pinned = build.one("min", (build.one("add", (wide, build.const(7, int64))), build.const(2, int64)))
    out = build.param(float32, 50, "write")
    build.store(out, i, build.load(build.param(float32, 3), pinned))
    check(build.kernel(), [np.arange(50, dtype=np.int32), np.zeros(50, np.float32), random(3)])


@pytest.mark.parametrize(
    ("dtype", "opcode", "groups"), [(int64, "floordiv", 1), (int32, "mod", 4), (float64, "mod", 4)]
)
def test_vectors_whose_elements_are_divided_one_by_one_run_alone(dtype, opcode, groups):
    build = Build(5000)
    x, out = build.param(dtype, 5000), build.param(dtype, 5000, "write")
    (lane,) = build.indices
    build.store(out, lane, build.one(opcode, (build.load(x, lane), build.const(7, dtype))))
    kernel = build.kernel()
    assert plan_lanes(kernel, replace(host_machine(), registers=32), Options()).groups == groups
    numbers = np.random.default_rng(4).integers(-1000, 1000, 5000).astype(str(dtype))
    check(kernel, [numbers, np.zeros_like(numbers)])
