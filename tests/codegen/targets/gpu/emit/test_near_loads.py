"""Loads of a trip that lie side by side are one: which, and that they read what they say."""

import numpy as np
import pytest

from loopgrad.codegen.targets.gpu.emit.near_loads import near_loads
from loopgrad.graph.types import bfloat16, float16, float32, float64, int64
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.gpu_harness import check

LANES, TRIPS = 37, 3


def row_sums(dtype, each=4, pitch=TRIPS * 4, first=0, order=None, access="read"):
    """Lane i adds up x[pitch * i + each * k + first], and the `each` - 1 behind it, for all trips k."""
    build = Build(LANES)
    (i,) = build.indices
    rows = LANES * pitch + first + each * TRIPS
    x, out = build.param(dtype, rows, access), build.param(dtype, LANES, "write")
    start = build.one("mul", (i, build.const(pitch, int64)))
    steps = {n: build.const(n, int64) for n in {each, *range(first, first + each)}}

    def trip(k, total):
        at = build.one("add", (start, build.one("mul", (k, steps[each]))))
        places = {n: build.one("add", (at, steps[first + n])) for n in range(each)}
        values = {n: build.load(x, places[n]) for n in order or range(each)}
        for n in range(each):
            total = build.one("add", (total, values[n]))
        return [total]

    (total,) = build.loop(build.const(TRIPS, int64), [build.load(x, start)], trip)
    build.store(out, i, total)
    return build.kernel()


def widths(kernel):
    """Of the loads that are one."""
    groups = {id(group): len(group) for group in near_loads(kernel).values()}
    return sorted(groups.values())


CASES = {
    "float32": (row_sums(float32), [4]),
    "eight of them": (row_sums(float32, 8, 8 * TRIPS), [4, 4]),
    "float64": (row_sums(float64), [2, 2]),
    "float16": (row_sums(float16), [4]),
    "bfloat16": (row_sums(bfloat16, 8, 8 * TRIPS), [8]),
    "half of a vector": (row_sums(float32, 4, 2), [2, 2]),
    "odd rows": (row_sums(float32, 4, 13), []),
    "not from the first on": (row_sums(float32, first=2), [2, 2]),
    "between vectors": (row_sums(float32, 4, 12, first=1), [2]),
    "the last one first": (row_sums(float32, order=[3, 2, 1, 0]), []),
}


@pytest.mark.parametrize("case", CASES)
def test_loads_side_by_side_are_one(case):
    kernel, wanted = CASES[case]
    assert widths(kernel) == wanted
    dtype = kernel.params[0].dtype
    x = np.random.default_rng(0).integers(-4, 5, kernel.params[0].size).astype(dtype.np)
    check(kernel, [x, np.zeros(LANES, dtype.np)])


def test_what_others_may_write_is_read_one_by_one():
    assert widths(row_sums(float32, access="accumulate")) == []
