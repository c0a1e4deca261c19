"""Every recipe on a GPU within a few units in the last place of extended precision."""

import math

import numpy as np
import pytest
import scipy.special

from loopgrad.codegen.math.table import RECIPES
from loopgrad.graph.types import float32, float64
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.gpu_harness import run_kernel

LANES = 4000
TINY = {float32: 1e-30, float64: 1e-300}  # below, devices may flush to zero


def uniform(low, high):
    return np.random.default_rng(0).uniform(low, high, LANES)


def logarithmic(low, high, signed=True):
    rng = np.random.default_rng(1)
    x = np.exp(rng.uniform(np.log(low), np.log(high), LANES))
    return x * rng.choice([-1, 1], LANES) if signed else x


RANGES = {
    "exp": uniform(-80, 80),
    "exp2": uniform(-100, 100),
    "log": logarithmic(1e-30, 1e30, False),
    "log2": logarithmic(1e-30, 1e30, False),
    "log10": logarithmic(1e-30, 1e30, False),
    "log1p": uniform(-0.9, 5),
    "asin": uniform(-1, 1),
    "acos": uniform(-1, 1),
    "acosh": logarithmic(1.001, 1e10, False),
    "atanh": uniform(-0.99, 0.99),
    "lgamma": logarithmic(3, 50, False),  # away from its zeros
    "digamma": logarithmic(2, 50, False),
    "pow": logarithmic(1e-3, 1e3, False),
}
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
         "atanh": "arctanh", "atan2": "arctan2", "pow": "power", "rem": "fmod", "mod": "remainder",
         "floordiv": "floor_divide"}  # fmt: skip
SPECIAL = {"erf": scipy.special.erf, "erfc": scipy.special.erfc, "lgamma": scipy.special.gammaln,
           "digamma": scipy.special.psi}  # fmt: skip
BINARY = ("atan2", "pow", "rem", "mod", "floordiv")
LOOSE = {"lgamma": 60, "digamma": 60, "erfc": 100, "pow": 8, "tan": 8, "atanh": 8, "acosh": 8, "asinh": 8, "sinh": 8}


def compute(name, arrays, dtype):
    build = Build(arrays[0].size)
    (i,) = build.indices
    operands = [build.load(build.param(dtype, a.size), i) for a in arrays]
    build.store(build.param(dtype, arrays[0].size, "write"), i, build.one(name, operands))
    everything = [*arrays, np.empty_like(arrays[0])]
    run_kernel(build.kernel(), everything)
    return everything[-1]


def reference(name, arrays):
    if name in SPECIAL:
        return SPECIAL[name](*[a.astype(np.float64) for a in arrays])
    with np.errstate(all="ignore"):
        return getattr(np, NUMPY.get(name, name))(*[a.astype(np.longdouble) for a in arrays])


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_accuracy(name, dtype):
    arrays = [RANGES.get(name, uniform(-10, 10)).astype(dtype.np)]
    if name in BINARY:
        arrays.append(uniform(-3, 3).astype(dtype.np)[::-1].copy())
    got, wanted = compute(name, arrays, dtype), reference(name, arrays)
    rounded = wanted.astype(dtype.np)
    unit = np.maximum(np.spacing(np.abs(rounded)), TINY[dtype])
    with np.errstate(invalid="ignore"):
        distance = np.abs(got.astype(np.longdouble) - wanted) / unit
    distance = np.where((got == rounded) | (np.abs(rounded) < TINY[dtype]), 0, distance)
    assert distance.max() <= LOOSE.get(name, 4), f"{float(distance.max()):.1f} ulp"


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_large_angles(name, dtype):
    top = 1e38 if dtype is float32 else 1e300
    x = logarithmic(1e5, top).astype(dtype.np)
    got = compute(name, [x], dtype)
    wanted = np.array([float(getattr(math, name)(v)) for v in x.astype(np.float64)])  # right to 0.55 ulp of f64
    distance = np.abs(got - wanted) / np.spacing(np.abs(wanted.astype(dtype.np)))
    assert distance.max() < (3.3 if name == "tan" else 1.6) + (0.55 if dtype is float64 else 0.0)
    assert np.isnan(compute(name, [np.array([np.inf, -np.inf, np.nan], dtype.np)], dtype)).all()


def test_lgamma_of_tiny_negative_numbers():
    x = -logarithmic(1e-290, 1e-15, False)
    np.testing.assert_allclose(compute("lgamma", [x], float64), -np.log(-x), rtol=1e-15)


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_remainders_of_large_quotients(dtype):
    x = logarithmic(1e10, 1e30).astype(dtype.np)[:200]
    y = logarithmic(1e-10, 1.0).astype(dtype.np)[:200]
    np.testing.assert_array_equal(compute("rem", [x, y], dtype), np.fmod(x, y))


EDGES = [0.0, -0.0, 1e-40, 1e-30, 0.3, -0.7, 1.5, 40.0, 87.4, 88.7, 89.0, -87.5, -103.0, -105.0, 1e5, 3e5, -1e9, 1e38,
         np.inf, -np.inf, np.nan]  # fmt: skip


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, float32) for name in sorted(RECIPES)] + [(name, float64) for name in ("sin", "exp", "log")],
)
def test_lanes_that_run_at_once_have_the_results_of_single_ones(name, dtype):
    """Also where some of them take the rare branches."""
    rng = np.random.default_rng(3)
    few = np.concatenate([np.array(EDGES).astype(dtype.np), rng.uniform(-5, 5, 103).astype(dtype.np)])
    many = np.tile(few, 40_000 // few.size)
    for x in (few, many):
        rng.permuted(x, out=x)
    arrays = [many, many[::-1].copy()] if name in BINARY else [many]
    single = [a[:1000] for a in arrays]
    together, alone = compute(name, arrays, dtype)[:1000], compute(name, single, dtype)
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(np.signbit(together) | np.isnan(together), np.signbit(alone) | np.isnan(alone))
