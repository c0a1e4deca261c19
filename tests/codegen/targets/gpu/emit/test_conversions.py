"""Casts to halves, on each kind of GPU."""

import ml_dtypes
import numpy as np

from loopgrad.graph.types import bfloat16, float32, float64
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.gpu_harness import run_kernel


def as_bfloat(x, dtype):
    build = Build(x.size)
    (i,) = build.indices
    value = build.load(build.param(dtype, x.size), i)
    build.store(build.param(bfloat16, x.size, "write"), i, build.one("cast", (value,), bfloat16))
    result = np.zeros(x.size, ml_dtypes.bfloat16)
    run_kernel(build.kernel(), [x, result])
    return result


def test_a_float64_is_rounded_to_a_bfloat16_once():
    """Just above and below the middle of two, where rounding to float32 first ends at the middle."""
    middle, little = 1 + 2.0**-8, 2.0**-40
    x = np.array([middle, middle + little, middle - little, -middle - little, 3.0, 1e300, -1e300])
    wanted = [1, 1 + 2.0**-7, 1, -1 - 2.0**-7, 3, np.inf, -np.inf]
    np.testing.assert_array_equal(as_bfloat(x, float64).astype(np.float64), wanted)


def test_nan_keeps_its_sign_in_a_bfloat16():
    x = np.array([np.nan, -np.nan], np.float32)
    result = as_bfloat(x, float32).astype(np.float32)
    assert np.isnan(result).all()
    np.testing.assert_array_equal(np.signbit(result), np.signbit(x))
