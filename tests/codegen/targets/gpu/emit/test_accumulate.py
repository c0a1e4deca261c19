"""Elements that several lanes write: exact sums, compare-and-swap, the last writer; against the interpreter."""

from math import fsum

import numpy as np
import pytest

from loopgrad.codegen.options import Options
from loopgrad.codegen.targets.gpu.emit import exact_sum as sums
from loopgrad.codegen.targets.gpu.emit.accumulate import Atomic, LastWriter
from loopgrad.codegen.targets.gpu.emit.exact_sum import ExactSum, exact_sum
from loopgrad.codegen.targets.gpu.lanes import layout
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
from tests.codegen.targets.gpu.gpu_harness import check, device, executable_of, program_of, run_kernel

SIZE = 700
FLOATS = (float16, bfloat16, float32, float64)


def scatter(dtype, size, elements, kind="add", trips=0):
    """Lane i combines x[i] with element place[i], `trips` times more in a loop."""
    build = Build(size)
    (i,) = build.indices
    x, place = build.load(build.param(dtype, size), i), build.load(build.param(int64, size), i)
    out = build.param(dtype, elements, "accumulate")
    inside = build.one("ge", (place, build.const(0, int64)), bool_)
    build.accumulate(out, place, x, kind, pred=inside)

    def again(_k, v):
        build.accumulate(out, place, x, kind, pred=inside)
        return [v]

    if trips:
        build.loop(build.const(trips, int64), [place], again)
    return build.kernel()


def places(elements, size=SIZE, seed=0):
    return np.random.default_rng(seed).integers(-1, elements, size)


def exact(x, place, elements, start=0.0, times=1):
    """Sums of Python's math.fsum."""
    return [start + fsum([float(v) for v in x[place == e]] * times) for e in range(elements)]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("elements", [1, 7, 400])
def test_sums_are_rounded_about_once(dtype, elements):
    rng = np.random.default_rng(elements)
    x, place = rng.normal(size=SIZE).astype(dtype.np), places(elements)
    x[::3] *= dtype.np.type(1000)
    got = [x, place, np.full(elements, 0.5, dtype.np)]
    run_kernel(scatter(dtype, SIZE, elements), got)
    wanted = np.array(exact(x, place, elements, 0.5))
    eps = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}[dtype.name]
    assert np.all(np.abs(got[2].astype(np.float64) - wanted) <= 3 * eps * np.maximum(np.abs(wanted), 0.5))


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_terms_of_every_size(dtype):
    """What cancels leaves the rest exactly, down to the smallest numbers."""
    limits = np.finfo(dtype.np)
    smallest = float(limits.smallest_subnormal)
    exponents = range(limits.minexp - limits.nmant, limits.maxexp - 1, 5)
    terms = [
        s * 2.0**k * (1 + float(limits.eps)) if k > limits.minexp else s * 2.0**k for k in exponents for s in (1, -1)
    ]
    x = np.array([*terms, 3 * smallest], dtype.np)
    order = np.random.default_rng(1).permutation(len(x))
    got = [x[order], np.zeros(len(x), np.int64), np.zeros(1, dtype.np)]
    run_kernel(scatter(dtype, len(x), 1), got)
    assert got[2][0] in (dtype.np.type(3 * smallest), 0)  # some devices have no subnormal numbers
    for k in exponents:
        y = np.array([2.0**k] * 3, dtype.np)
        got = [np.tile(y, 4), np.zeros(12, np.int64), np.zeros(1, dtype.np)]
        if k % 35 == 0 and limits.minexp <= k < limits.maxexp - 5:
            run_kernel(scatter(dtype, 12, 1), got)
            assert got[2][0] == 12 * dtype.np.type(2.0**k)


def test_infinities_and_nan():
    inf, nan = np.inf, np.nan
    x = np.array([1, inf, 2, -inf, inf, -inf, nan, 3, 1, 1e38, 3e38, 3e38], np.float32)
    place = np.array([0, 1, 1, 2, 3, 3, 4, 4, 4, 5, 5, 5])
    got = [x, place, np.zeros(6, np.float32)]
    run_kernel(scatter(float32, 12, 6), got)
    np.testing.assert_array_equal(got[2], np.array([1, inf, -inf, nan, nan, inf], np.float32))


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("copies", [1, 256])
def test_full_limbs_carry(dtype, copies, monkeypatch):
    monkeypatch.setattr(sums, "FULL", 53)
    monkeypatch.setattr(sums, "MOST_COPIES", copies)
    sign = np.where(np.arange(64) % 7 == 0, -1.0, 1.0)
    x = (sign * (2.0 - 2.0**-20)).astype(dtype.np)
    place = np.arange(64) % 2
    kernel = scatter(dtype, 64, 2, trips=40)
    assert exact_sum(kernel, 2).carries
    got = [x, place, np.zeros(2, dtype.np)]
    run_kernel(kernel, got)
    np.testing.assert_array_equal(got[2], np.array(exact(x, place, 2, times=41), dtype.np))


def test_sums_have_the_same_bits_in_any_order():
    rng = np.random.default_rng(2)
    x, place = (rng.normal(size=3000) * 10.0 ** rng.integers(-9, 9, 3000)).astype(np.float32), places(5, 3000)
    results = set()
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(3000)
        got = [x[order], place[order], np.zeros(5, np.float32)]
        run_kernel(scatter(float32, 3000, 5), got)
        results.add(got[2].tobytes())
    assert len(results) == 1


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sums_by_atomics(dtype):
    x, place = np.random.default_rng(3).integers(-3, 4, SIZE).astype(dtype.np), places(9)
    kernel = scatter(dtype, SIZE, 9)
    way = Atomic if dtype.bits >= 32 else ExactSum
    assert isinstance(plan(kernel, Options(deterministic=False), Geometry()).accumulators[0], way)
    if dtype.bits < 64:
        assert isinstance(plan(kernel, Options(deterministic=False), Geometry(wide=False)).accumulators[0], Atomic)
    got = [x, place, np.zeros(9, dtype.np)]
    run_kernel(kernel, got, Options(deterministic=False))
    np.testing.assert_array_equal(got[2], np.array(exact(x, place, 9), dtype.np))


@pytest.mark.parametrize("kind", ["min", "max"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_extremes(dtype, kind):
    x = np.random.default_rng(4).normal(size=SIZE).astype(dtype.np)
    x[5], x[9], x[10], x[600] = 0.0, -0.0, np.inf, -np.inf
    place = places(50)
    place[7] = 49
    x[7] = np.nan
    with np.errstate(invalid="ignore"):
        wanted = np.full(50, 0.25, dtype.np)
        getattr(np, f"{kind}imum").at(wanted, place[place >= 0], x[place >= 0])
    got = [x, place, np.full(50, 0.25, dtype.np)]
    run_kernel(scatter(dtype, SIZE, 50, kind), got)
    np.testing.assert_array_equal(got[2].astype(np.float64), wanted.astype(np.float64))


@pytest.mark.parametrize("kind", ["min", "max"])
def test_a_zero_keeps_its_sign_in_any_order(kind):
    for x in ([0.0, -0.0], [-0.0, 0.0]):
        got = [np.array(x, np.float32), np.zeros(2, np.int64), np.array([x[0]], np.float32)]
        run_kernel(scatter(float32, 2, 1, kind), got)
        assert np.signbit(got[2][0]) == (kind == "min")


@pytest.mark.parametrize("dtype", [float16, float32, float64], ids=str)
@pytest.mark.parametrize("kind", ["min", "max"])
def test_extremes_beside_nan_of_either_sign(dtype, kind):
    """In the table as among what is written; infinities are floats as others are."""
    nan, inf = np.copysign(np.nan, [-1, 1]), np.inf
    table = np.array([*nan, inf, -inf, 2, -2, 2, -2, -inf, inf])
    x = np.array([3, -3, 1, 1, *nan, *nan, -inf, inf], np.float64)
    got = [x.astype(dtype.np), np.arange(10), table.astype(dtype.np)]
    run_kernel(scatter(dtype, 10, 10, kind), got)
    np.testing.assert_array_equal(got[2], (np.maximum if kind == "max" else np.minimum)(table, x).astype(dtype.np))


@pytest.mark.parametrize("kind", ["add", "mul", "min", "max"])
@pytest.mark.parametrize("dtype", [int8, int16, int32, int64, uint8, uint16, uint32, uint64], ids=str)
def test_integers(dtype, kind):
    limits = np.iinfo(dtype.np)
    x = np.random.default_rng(5).integers(limits.min, limits.max, SIZE, dtype.np, endpoint=True)
    check(scatter(dtype, SIZE, 13, kind), [x, places(13), np.full(13, 3, dtype.np)])


@pytest.mark.parametrize("dtype", [bool_, int8, float16, float32, int64], ids=str)
def test_the_last_lane_wins(dtype):
    build = Build(SIZE)
    (i,) = build.indices
    x, place = build.load(build.param(dtype, SIZE), i), build.load(build.param(int64, SIZE), i)
    y = build.load(build.param(dtype, SIZE), i)
    out = build.param(dtype, 90, "accumulate")
    odd = build.one("ne", (build.one("and", (i, build.const(1, int64))), build.const(0, int64)), bool_)
    build.accumulate(out, place, x, "set")
    build.accumulate(out, place, y, "set", pred=odd)
    rng = np.random.default_rng(6)
    arrays = [rng.integers(0, 100, SIZE).astype(dtype.np), rng.integers(0, 80, SIZE),
              rng.integers(0, 100, SIZE).astype(dtype.np), np.ones(90, dtype.np)]  # fmt: skip
    wanted, got = ([a.copy() for a in arrays] for _ in range(2))
    for lane in range(SIZE):
        wanted[3][wanted[1][lane]] = wanted[2 if lane % 2 else 0][lane]
    kernel = build.kernel()
    assert plan(kernel, Options(), Geometry()).accumulators == (LastWriter(3, numbers=2),)
    run_kernel(kernel, got)
    np.testing.assert_array_equal(got[3], wanted[3])


def test_what_must_be_in_order_is_announced():
    looped = scatter(int32, SIZE, 5, "set", trips=2)
    assert plan(looped, Options(), Geometry()).copies == 1
    assert any("fixed order" in note for note in executable_of(program_of(looped)).notes())
    assert plan(scatter(float32, SIZE, 5, "mul"), Options(), Geometry()).copies > 1
    assert plan(scatter(float32, SIZE, 1 << 30, trips=2), Options(), Geometry()).accumulators == ()
    assert plan(scatter(float32, SIZE, 5), Options(), Geometry(wide=False)).copies > 1
    assert plan(scatter(float32, layout.FEW_LANES, 5), Options(), Geometry()).copies == 1


def test_sums_that_take_much_memory_are_announced():
    def notes(elements, **options):
        program = program_of(scatter(float32, SIZE, elements, trips=2))
        return " ".join(device().emit(program, Options(**options)).program.notes)

    assert not notes(1_000_000)
    assert "432,000,000 bytes of scratch memory" in notes(3_000_000)
    assert not notes(3_000_000, deterministic=False)


def test_sums_that_only_short_atomics_make(monkeypatch):
    """A device without atomics of 64 bits."""
    x, place = np.random.default_rng(7).normal(size=SIZE).astype(np.float32), places(6)
    monkeypatch.setattr(layout, "accumulator", lambda *_: None)
    got = [x, place, np.zeros(6, np.float32)]
    run_kernel(scatter(float32, SIZE, 6), got)
    np.testing.assert_allclose(got[2], exact(x, place, 6), rtol=1e-4, atol=1e-4)
    assert device().name
