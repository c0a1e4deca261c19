"""Integer divisions, whose dividends are known to lie somewhere or not."""

import numpy as np
import pytest

from loopgrad.graph.ranges import limits
from loopgrad.graph.types import int8, int32, int64, uint8, uint64
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.gpu_harness import check


@pytest.mark.parametrize("by", [1, 2, 3, 7, 64, 1000])
@pytest.mark.parametrize("opcode", ["div", "floordiv", "rem", "mod"])
def test_indices_are_divided(opcode, by):
    """Where they are positive, and where they may be negative, in two branches as concatenations have them."""
    size = 200
    build = Build(size)
    (i,) = build.indices
    below = build.one("sub", (i, build.const(100, int64)))
    divisor = build.const(by, int64)
    build.store(build.param(int64, size, "write"), i, build.one(opcode, (i, divisor)))
    build.store(build.param(int64, size, "write"), i, build.one(opcode, (below, divisor)))
    check(build.kernel(), [np.zeros(size, np.int64), np.zeros(size, np.int64)])


@pytest.mark.parametrize("dtype", [int8, int32, int64, uint8, uint64], ids=str)
@pytest.mark.parametrize("opcode", ["div", "floordiv", "rem", "mod"])
def test_numbers_of_every_size_are_divided(opcode, dtype):
    low, high = limits(dtype)
    picked = [k for k in (low, low + 1, -5, -1, 0, 1, 2, 3, 6, 7, 100, high - 1, high) if low <= k <= high]
    x, y = (a.reshape(-1) for a in np.meshgrid(*[np.array(picked, dtype.np)] * 2))
    size = x.size
    build = Build(size)
    (i,) = build.indices
    a, b = (build.load(build.param(dtype, size), i) for _ in range(2))
    build.store(build.param(dtype, size, "write"), i, build.one(opcode, (a, b)))
    for by in (3, 4, 100, high):
        build.store(build.param(dtype, size, "write"), i, build.one(opcode, (a, build.const(by, dtype))))
    check(build.kernel(), [x, y, *(np.zeros(size, dtype.np) for _ in range(5))])
