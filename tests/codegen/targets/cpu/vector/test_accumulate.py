"""accumulate: exclusive, shared through private copies, serial; every kind; duplicates within a vector."""

import numpy as np
import pytest

from loopgrad.codegen.kernel.nodes import KValue
from loopgrad.graph.types import bool_, float32, float64, int32, int64
from tests.codegen.targets.cpu.cpu_harness import CompiledKernel, Options, check
from tests.codegen.targets.cpu.kernel_build import Build


def scatter(size, target, kind, dtype=float32, exclusive=False):
    build = Build(size)
    (i,) = build.indices
    x, where = build.load(build.param(dtype, size), i), build.load(build.param(int32, size), i)
    out = build.param(dtype, target, "accumulate")
    index = build.one("cast", (where,), int64)
    inside = build.one("ge", (index, build.const(0, int64)), bool_)
    build.accumulate(out, index, x, kind, exclusive, inside)
    return build.kernel()


def inputs(size, target, dtype=np.float32):
    rng = np.random.default_rng(size)
    return [rng.integers(-3, 4, size).astype(dtype), rng.integers(-1, target, size).astype(np.int32)]


@pytest.mark.in_turns
@pytest.mark.parametrize("kind", ["add", "mul", "min", "max", "set"])
@pytest.mark.parametrize("size", [1, 50, 20000])
@pytest.mark.parametrize("target", [1, 5, 43, 40000])
def test_shared_elements(kind, size, target):
    start = np.ones(target, np.float32)
    kernel = scatter(size, target, kind)
    check(kernel, [*inputs(size, target), start])
    check(scatter(size, target, kind, int64), [*inputs(size, target, np.int64), start.astype(np.int64)])


@pytest.mark.parametrize("kind", ["min", "max"])
@pytest.mark.parametrize("dtype", [float32, float64])
@pytest.mark.parametrize("target", [3, 700])
def test_extremes_of_what_is_not_finite(kind, dtype, target):
    """The bits of the reference, so of zeros the sign, and NaN before all others, whichever comes first."""
    x, where = inputs(5003, target, dtype.name)
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf], dtype.name)
    rng = np.random.default_rng(1)
    x[rng.integers(0, 5003, 900)] = special[rng.integers(0, 5, 900)]
    start = rng.standard_normal(target).astype(dtype.name)
    start[::50] = np.nan
    with np.errstate(invalid="ignore"):
        check(scatter(5003, target, kind, dtype), [x, where, start])


@pytest.mark.parametrize("kind", ["min", "max"])
def test_extremes_are_chosen_without_branches(kind):
    text = CompiledKernel(scatter(20000, 43, kind)).text
    assert f"define internal void @lg.accumulate.{kind}.float32" in text
    assert "select i1 %keep.0, i32 %oldbits.0, i32 %xbits.0" in text


def test_copies_are_used_for_small_targets_and_order_for_large_ones():
    assert not CompiledKernel(scatter(20000, 5, "add")).interface.serial
    assert CompiledKernel(scatter(20000, 40000, "add")).interface.serial
    assert CompiledKernel(scatter(20000, 5, "set")).interface.serial


def test_adding_up_copies_is_less_than_what_lanes_do():
    chunks = [CompiledKernel(scatter(1 << 16, target, "add")).interface.chunks for target in (16, 1 << 11, 1 << 12)]
    assert chunks == [chunks[0], 8, 4]
    assert chunks[0] > 8


def test_float_sums_do_not_depend_on_chunk_order():
    size = 100_000
    compiled = CompiledKernel(scatter(size, 7, "add", float64))
    x, where = inputs(size, 7)
    x = np.random.default_rng(0).standard_normal(size)
    results = []
    for order in (None, list(reversed(range(compiled.interface.chunks)))):
        out = np.zeros(7)
        compiled.run([x, where, out], order=order)
        results.append(out)
    assert compiled.interface.chunks > 4
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize("size", [1, 30, 5000])
@pytest.mark.parametrize("sort", [True, False])
def test_exclusive_elements(size, sort):
    """Each lane's own element, side by side and permuted, inside a ragged loop."""
    build = Build(size)
    (i,) = build.indices
    n = build.load(build.param(int32, size), i)
    place = build.load(build.param(int64, size), i)
    own, permuted = build.param(float32, size, "accumulate"), build.param(float32, size, "accumulate")
    one = build.const(1.0, float32)

    def body(k, v):
        build.accumulate(own, i, v, exclusive=True)
        build.accumulate(permuted, place, v, exclusive=True)
        return [build.one("add", (v, one))]

    build.loop(n, [one], body)
    with build.block(KValue(int64)) as made:
        made.yields = (build.load(0, made.arguments[0]),)
    build.order_key = made
    rng = np.random.default_rng(size)
    arrays = [rng.integers(0, 6, size).astype(np.int32), rng.permutation(size)]
    check(build.kernel(), [*arrays, np.ones(size, np.float32), np.zeros(size, np.float32)], Options(sort_lanes=sort))


def test_accumulating_inside_masked_control():
    size = 900
    build = Build(size)
    (i,) = build.indices
    n = build.load(build.param(int32, size), i)
    out = build.param(int64, 10, "accumulate")
    ten = build.const(10, int32)

    def body(k, v):
        build.accumulate(out, build.one("cast", (build.one("mod", (v, ten)),), int64), build.one("cast", (k,), int64))
        return [build.one("add", (v, k))]

    build.loop(n, [n], body)
    counts = np.random.default_rng(0).integers(0, 12, size).astype(np.int32)
    check(build.kernel(), [counts, np.zeros(10, np.int64)])
