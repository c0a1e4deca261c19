"""Sums in fixed point below each element's largest term, against sums of Python's fractions."""

from fractions import Fraction

import numpy as np
import pytest

from loopgrad.codegen.options import Options
from loopgrad.codegen.targets.gpu.emit import accumulate, window_sum
from loopgrad.codegen.targets.gpu.emit.exact_sum import ExactSum
from loopgrad.codegen.targets.gpu.emit.scaled_sum import SumTable, only_terms, scaled_sum
from loopgrad.codegen.targets.gpu.emit.window_sum import WindowSum
from loopgrad.codegen.targets.gpu.lanes.layout import plan
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry
from loopgrad.codegen.targets.gpu.support import finished_sums
from loopgrad.graph.types import bfloat16, bool_, float16, float32, float64, int64
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.emit.test_accumulate import FLOATS, SIZE, places, scatter
from tests.codegen.targets.gpu.gpu_harness import run_kernel

EPS = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}


@pytest.fixture(autouse=True)
def scaled(monkeypatch):
    """Small tables too, whose sums are rounded by lanes that have several."""
    monkeypatch.setattr(accumulate, "EXACT_BYTES", 0)
    monkeypatch.setattr(finished_sums, "FEWEST_LANES", 1)


def true_sums(x, place, elements, start=0.0):
    return [Fraction(start) + sum(Fraction(float(v)) for v in x[place == e]) for e in range(elements)]


def summed(dtype, x, place, elements, start=0.0):
    kernel = scatter(dtype, len(x), elements)
    assert isinstance(plan(kernel, Options(), Geometry()).accumulators[0], WindowSum)
    got = [x, place, np.full(elements, start, dtype.np)]
    run_kernel(kernel, got)
    return got[2]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("elements", [1, 7, 400, 5000, 9 * SIZE])
def test_sums_are_rounded_about_once(dtype, elements):
    rng = np.random.default_rng(elements)
    x, place = rng.normal(size=SIZE).astype(dtype.np), places(elements)
    x[::3] *= dtype.np.type(1000)
    x[::7] *= dtype.np.type(0.001)
    got = summed(dtype, x, place, elements)
    for g, w in zip(got.astype(np.float64), true_sums(x, place, elements), strict=True):
        below = Fraction(1e-7) if dtype is float16 else 0  # sums of float16 may be subnormal
        twice = 1.01 if dtype.bits == 16 else 1  # the sum is of float32
        assert abs(Fraction(float(g)) - w) <= Fraction(twice * EPS[dtype.name]) * abs(w) + below


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_small_terms_beside_large_ones(dtype):
    """Of every size below the largest, which cancels: 2 * bits further down nothing is left."""
    high = scaled_sum(scatter(dtype, 64, 1), 2).bits
    eps = EPS[dtype.name]
    for below in range(0, 2 * high, 3):
        small = 1.5 * 2.0**-below
        x = np.array([1.0, small, -1.0] + [0.0] * 61, dtype.np)
        got = float(summed(dtype, x, np.zeros(64, np.int64), 1)[0])
        assert abs(got - small) <= 2 * eps * small + 2.0 ** (2 - 2 * high)


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_exponents_of_every_size(dtype):
    limits = np.finfo(dtype.np)
    exponents = np.arange(limits.minexp, limits.maxexp - 5)
    x = np.repeat(np.ldexp(np.ones(len(exponents), dtype.np), exponents), 4)
    x[1::4] *= -1.75
    x[2::4] *= 9
    got = summed(dtype, x, np.repeat(np.arange(len(exponents)), 4), len(exponents))
    np.testing.assert_array_equal(got, np.ldexp(dtype.np.type(9.25), exponents))


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("elements", [40, 9 * SIZE])
def test_terms_that_mostly_lie_far_below_the_largest(dtype, elements):
    """Of which neighbours add a limb each."""
    rng = np.random.default_rng(11)
    x, place = np.ldexp(rng.uniform(-2, 2, SIZE), -rng.integers(0, 70, SIZE)).astype(dtype.np), places(elements)
    got = summed(dtype, x, place, elements)
    for g, w in zip(got, true_sums(x, place, elements), strict=True):
        assert abs(Fraction(float(g)) - w) <= Fraction(EPS[dtype.name]) * abs(w)


@pytest.mark.parametrize("largest", [-149, -127, -126, -125, -120, 0, 120])
def test_terms_close_to_each_other(largest):
    """So close that all are added below the largest of them: down to subnormal ones, zeros between."""
    rng = np.random.default_rng(abs(largest))
    x = np.ldexp(rng.uniform(-2, 2, 600).astype(np.float32), largest - rng.integers(0, 30, 600))
    x[::5] = 0
    place = rng.integers(0, 9, 600)
    got = summed(float32, x, place, 10)
    for g, w in zip(got.astype(np.float64), true_sums(x, place, 10), strict=True):
        assert abs(Fraction(float(g)) - w) <= Fraction(1.01 * EPS["float32"]) * abs(w) + Fraction(1, 1 << 150)


def test_the_largest_numbers():
    big = np.float32(3.4e38)
    x = np.array([big, big, -big, big, big, -big, -big, 1.0, 2.0], np.float32)
    got = summed(float32, x, np.array([0, 0, 0, 1, 1, 2, 2, 2, 2]), 3)
    np.testing.assert_array_equal(got, np.array([big, np.inf, -np.inf], np.float32))


def test_infinities_and_nan():
    inf, nan = np.inf, np.nan
    x = np.array([1, inf, 2, -inf, inf, -inf, nan, 3, 1, 1e38, 3e38, 3e38, inf, 0], np.float32)
    place = np.array([0, 1, 1, 2, 3, 3, 4, 4, 4, 5, 5, 5, 7, 8])
    got = summed(float32, x, place, 9, 0.5)
    np.testing.assert_array_equal(got, np.array([1.5, inf, -inf, nan, nan, inf, 0.5, inf, 0.5], np.float32))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("elements", [5, 6000])
def test_sums_have_the_same_bits_in_any_order(dtype, elements):
    rng = np.random.default_rng(2)
    x = (rng.normal(size=3000) * 10.0 ** rng.integers(-4, 4, 3000)).astype(dtype.np)
    place = places(5, 3000) * (elements // 5)
    results = set()
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(3000)
        results.add(summed(dtype, x[order], place[order], elements).tobytes())
    assert len(results) == 1


def test_what_the_lanes_do_besides_is_done_once():
    """A reduction, a store, a second table and a branch beside the sums."""
    build = Build(SIZE)
    (i,) = build.indices
    x, place = build.load(build.param(float32, SIZE), i), build.load(build.param(int64, SIZE), i)
    first, second = (build.param(float32, n, "accumulate") for n in (90, 3000))
    doubled = build.one("add", (x, x))
    build.store(build.param(float32, SIZE, "write"), i, doubled)
    build.accumulate(first, place, doubled)
    odd = build.one("ne", (build.one("and", (i, build.const(1, int64))), build.const(0, int64)), bool_)
    build.accumulate(second, place, x, pred=odd)
    kernel = build.kernel()
    assert [type(a) for a in plan(kernel, Options(), Geometry()).accumulators] == [WindowSum, WindowSum]
    assert {op.opcode for op in only_terms(kernel, first).body.ops} == {"const", "load", "add", "accumulate"}
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-9, 9, SIZE).astype(np.float32), rng.integers(0, 90, SIZE), np.ones(90, np.float32),
              np.zeros(3000, np.float32), np.zeros(SIZE, np.float32)]  # fmt: skip
    wanted = [a.copy() for a in arrays]
    np.add.at(wanted[2], wanted[1], 2 * wanted[0])
    np.add.at(wanted[3], wanted[1][1::2], wanted[0][1::2])
    wanted[4][:] = 2 * wanted[0]
    run_kernel(kernel, arrays)
    for w, g in zip(wanted, arrays, strict=True):
        np.testing.assert_array_equal(g, w)


def test_small_tables_and_lanes_with_loops_have_exact_sums(monkeypatch):
    def way(kernel):
        return type(plan(kernel, Options(), Geometry()).accumulators[0])

    assert way(scatter(float32, SIZE, 5, trips=2)) is ExactSum
    monkeypatch.undo()
    assert way(scatter(float32, SIZE, 1000)) is ExactSum
    assert way(scatter(float32, 1 << 18, 1 << 18)) is WindowSum
    assert way(scatter(float64, 1 << 16, 1 << 16)) is WindowSum
    assert way(scatter(float32, SIZE, 1 << 18)) is WindowSum


def test_the_layout_of_sums():
    assert scaled_sum(scatter(float32, SIZE, 9 * SIZE), 2).table == SumTable(2048, 2, 2, 1)
    assert scaled_sum(scatter(float64, SIZE, 7 * SIZE), 2).table == SumTable(7 * SIZE, 3, 2)
    assert scaled_sum(scatter(float32, 1 << 22, 1 << 22), 2).table == SumTable(1 << 22, 2, 1)
    assert scaled_sum(scatter(bfloat16, 1 << 24, 1 << 24), 2).bits == 38
    sparse = plan(scatter(float16, 1 << 20, 1 << 26), Options(), Geometry())
    assert sparse.accumulators[0].repair.table.bucket == sparse.tiles.unrolled == 1


@pytest.mark.parametrize("width", [1, 3, 4, 24])
@pytest.mark.parametrize("below", [0, 100])
def test_sums_of_sparse_tables_are_in_a_hash_table(width, below):
    """Of rows too, whose elements have slots side by side; from the largest term down where the terms are far apart."""
    rng, rows, terms = np.random.default_rng(width), 6000, 170
    build = Build(terms, width)
    lane, column = build.indices
    x = build.load(build.param(float32, terms * width), build.linear())
    row = build.one("mul", (build.load(build.param(int64, terms), lane), build.const(width, int64)))
    build.accumulate(build.param(float32, rows * width, "accumulate"), build.one("add", (row, column)), x)
    kernel = build.kernel()
    table = scaled_sum(kernel, 2).table
    assert table.bucket == {3: 1, 24: 8}.get(width, width)
    assert 2 * terms * width <= table.sums < 4 * terms * width
    for step in (1, 64):
        places, values = step * rng.integers(0, rows // step, terms), rng.normal(size=(terms, width)).astype(np.float32)
        values[::5] *= np.float32(2.0**-below)
        got = np.full(rows * width, -0.0, np.float32)
        run_kernel(kernel, [values.reshape(-1), places, got])
        for k in range(width):
            for g, w in zip(got.reshape(rows, width)[:, k], true_sums(values[:, k], places, rows), strict=True):
                assert abs(Fraction(float(g)) - w) <= Fraction(EPS["float32"]) * abs(w)


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("far", [-100, 100, np.inf, 0])
def test_a_term_outside_of_the_window(dtype, far, monkeypatch):
    """That the sample didn't show: all is done again, below the largest term of each element. 0: no lane shows one."""
    monkeypatch.setattr(window_sum, "SAMPLE", 40)
    rng = np.random.default_rng(5)
    x, place = np.ldexp(rng.uniform(1, 2, SIZE), -3).astype(dtype.np), rng.integers(0, 50, SIZE)
    seen = np.arange(40) * (int(SIZE * window_sum.GOLDEN) | 1) % SIZE
    unseen = np.setdiff1d(np.arange(SIZE), seen)[7]
    if far == 0:
        x[seen] = 0
    else:
        x[unseen] = np.ldexp(dtype.np.type(1.5), far) if np.isfinite(far) else far
    got = summed(dtype, x, place, 50)
    for element in range(50):
        terms = [Fraction(float(v)) for v in x[place == element] if np.isfinite(v)]
        if np.isinf(far) and place[unseen] == element:
            assert got[element] == np.inf
        else:
            assert abs(Fraction(float(got[element])) - sum(terms)) <= Fraction(EPS[dtype.name]) * sum(terms)
