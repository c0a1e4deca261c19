"""Powers to small constants, whose logarithms are shorter, as machine code of this computer."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.math import power
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.recipes import ScalarOps
from tests.codegen.math.test_accuracy import ulps
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.nvptx.test_division import compute

LIMITS = {np.float32: 0.9, np.float64: 1.2}  # those of all powers, in units of the last place


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("exponent", [0.7, 2.4, -1 / 3, 7.5])
def test_powers_to_small_constants(dtype, exponent):
    rng = np.random.default_rng(0)
    x = np.exp(np.concatenate([rng.uniform(-0.4, 0.4, 20_000), rng.uniform(-12, 12, 20_000)])).astype(dtype)
    odd = np.array([0.0, -0.0, -1.0, np.inf, -np.inf, np.nan, np.finfo(dtype).smallest_subnormal], dtype)

    def write(b, x):
        m = ScalarOps(Emitter(Build(1).kernel("empty"), b))
        y = b.const(x.type, exponent)
        assert m.known(y) is not None
        return power.pow(m, x, y)

    y = np.longdouble(dtype(exponent))
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(np.longdouble), y)
        for error in (-1, 1):
            assert ulps(compute(write, error, x), wanted) < LIMITS[dtype]
        np.testing.assert_allclose(compute(write, 0, odd), np.power(odd, dtype(exponent)), rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize(("bits", "digits"), [(32, 30), (64, 58)])
def test_logarithms_for_them(bits, digits):
    """They lack little beside 1, which is what the power can see of them."""
    x = np.exp(np.random.default_rng(1).uniform(-20, 20, 20_000)).astype(f"f{bits // 8}")

    def part(i):
        def write(b, x):
            return power.rough_log2_pair(ScalarOps(Emitter(Build(1).kernel("empty"), b)), x)[i]

        return compute(write, 1, x).astype(np.longdouble)

    assert np.abs(part(0) + part(1) - np.log2(x.astype(np.longdouble))).max() < 2.0**-digits
