"""Large tables are summed part by part: which kernels, and that every term is added once."""

import numpy as np
import pytest

from loopgrad.codegen.kernel.interpret import interpret_kernel
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.options import Options
from loopgrad.codegen.targets.gpu.emit import accumulate
from loopgrad.codegen.targets.gpu.emit.window_sum import WindowSum
from loopgrad.codegen.targets.gpu.lanes import table_parts
from loopgrad.codegen.targets.gpu.lanes.table_parts import in_parts
from loopgrad.graph.types import float32, float64, int64
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.emit.test_accumulate import SIZE, places, scatter
from tests.codegen.targets.gpu.gpu_harness import run_kernel

ELEMENTS = 101


def gradient(store=False, twice=False):
    """Lane i adds x[place[i]] * w[i] to element place[i]: two that it reads in order, one at random. `twice`: to one
    more, too."""
    build = Build(SIZE)
    (i,) = build.indices
    place, w = build.load(build.param(int64, SIZE), i), build.load(build.param(float32, SIZE), i)
    x = build.load(build.param(float32, ELEMENTS), place)
    table = build.param(float32, ELEMENTS, "accumulate")
    build.accumulate(table, place, build.one("mul", (x, w)))
    if twice:
        build.accumulate(table, build.one("sub", (build.const(ELEMENTS - 1, int64), place)), x)
    if store:
        build.store(build.param(float32, SIZE, "write"), i, w)
    return build.kernel()


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(accumulate, "EXACT_BYTES", 0)
    monkeypatch.setattr(table_parts, "PART", 16 * 40)


@pytest.mark.parametrize("twice", [False, True])
def test_every_term_is_added_in_one_part(small, twice):
    kernel = in_parts(gradient(twice=twice), Options(), True)
    verify_kernel(kernel)
    assert kernel.domain == (3, SIZE)
    rng = np.random.default_rng(0)
    arrays = [places(ELEMENTS).clip(0), rng.integers(-9, 9, SIZE).astype(np.float32),
              rng.integers(-9, 9, ELEMENTS).astype(np.float32), np.zeros(ELEMENTS, np.float32)]  # fmt: skip
    wanted, got = [a.copy() for a in arrays], [a.copy() for a in arrays]
    interpret_kernel(gradient(twice=twice), wanted)
    run_kernel(gradient(twice=twice), got)
    np.testing.assert_array_equal(got[-1], wanted[-1])
    interpret_kernel(kernel, arrays)
    np.testing.assert_array_equal(arrays[-1], wanted[-1])


def rows():
    """Lane (i, j) adds to element j of row place[i]."""
    build = Build(SIZE, 4)
    i, j = build.indices
    place = build.load(build.param(int64, SIZE), i)
    index = build.one("add", (build.one("mul", (place, build.const(4, int64))), j))
    x = build.load(build.param(float32, SIZE), i)
    build.accumulate(build.param(float32, 4 * ELEMENTS, "accumulate"), index, x)
    return build.kernel()


def test_which_kernels_are_run_in_parts(small, monkeypatch):
    def parts(kernel, options=Options()):  # noqa: B008
        made = in_parts(kernel, options, True)
        return 1 if made is kernel else made.domain[0]

    assert parts(scatter(float32, SIZE, 41)) == 2
    assert parts(scatter(float32, SIZE, 41, "max")) == 1
    assert parts(scatter(float32, SIZE, 40)) == 1
    assert parts(gradient(store=True)) == 1
    assert parts(rows()) == 1
    assert parts(gradient(), Options(deterministic=False)) == 1
    monkeypatch.setattr(table_parts, "PART", 1)
    assert parts(gradient()) == table_parts.MOST_PARTS


@pytest.mark.parametrize(("lanes", "parts"), [(1 << 24, 8), (1 << 25, 7), (1 << 26, 3), (1 << 27, 1)])
def test_parts_leave_bits_for_all_terms(lanes, parts):
    made = in_parts(scatter(float64, lanes, 1 << 24), Options(), True)
    assert made.domain == ((parts, lanes) if parts > 1 else (lanes,))
    assert isinstance(accumulate.accumulator(made, 2, {"add"}, True, True), WindowSum)
