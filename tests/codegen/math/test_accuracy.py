"""Units in the last place of every recipe, as compiled for the CPU, against extended precision."""

import math

import numpy as np
import pytest
import scipy.special

from loopgrad.codegen.math.table import RECIPES
from loopgrad.graph.types import float32, float64
from tests.codegen.targets.cpu.cpu_harness import CompiledKernel
from tests.codegen.targets.cpu.kernel_build import Build

LANES = 20_011
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
         "atanh": "arctanh", "atan2": "arctan2", "pow": "power", "rem": "fmod", "mod": "remainder",
         "floordiv": "floor_divide"}  # fmt: skip


def compute(name, *arrays):
    dtype = {np.dtype(np.float32): float32, np.dtype(np.float64): float64}[arrays[0].dtype]
    build = Build(arrays[0].size)
    (i,) = build.indices
    operands = [build.load(build.param(dtype, a.size), i) for a in arrays]
    out = build.param(dtype, arrays[0].size, "write")
    build.store(out, i, build.one(name, operands))
    result = np.empty_like(arrays[0])
    CompiledKernel(build.kernel()).run([*arrays, result])
    return result


def ulps(got, wanted):
    with np.errstate(all="ignore"):
        rounded = wanted.astype(got.dtype)
        unit = np.spacing(np.abs(rounded)).astype(np.longdouble)
        distance = np.abs(got.astype(np.longdouble) - wanted) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    return float(np.where(same, 0, distance).max())


def uniform(low, high):
    return np.random.default_rng(0).uniform(low, high, LANES)


def logarithmic(low, high, signed=True):
    rng = np.random.default_rng(1)
    x = np.exp(rng.uniform(np.log(low), np.log(high), LANES))
    return x * rng.choice([-1, 1], LANES) if signed else x


RANGES = {
    "sin": [uniform(-10, 10), logarithmic(1e-5, 1e5)],
    "cos": [uniform(-10, 10), logarithmic(1e-5, 1e5)],
    "tan": [uniform(-10, 10), logarithmic(1e-5, 1e5)],
    "exp": [uniform(-1, 1), uniform(-110, 95)],
    "exp2": [uniform(-1, 1), uniform(-150, 130)],
    "expm1": [uniform(-1, 1), logarithmic(1e-10, 0.1), uniform(-30, 95)],
    "log": [logarithmic(0.1, 10, False), logarithmic(1e-44, 1e38, False)],
    "log2": [logarithmic(0.1, 10, False), logarithmic(1e-44, 1e38, False)],
    "log10": [logarithmic(0.1, 10, False), logarithmic(1e-44, 1e38, False)],
    "log1p": [uniform(-0.9, 1), logarithmic(1e-10, 0.5), logarithmic(1e-3, 1e30, False)],
    "asin": [uniform(-1, 1), logarithmic(1e-6, 1)],
    "acos": [uniform(-1, 1)],
    "atan": [uniform(-5, 5), logarithmic(1e-6, 1e10)],
    "cbrt": [uniform(-2, 2), logarithmic(1e-44, 1e38)],
    "sinh": [uniform(-2, 2), uniform(-92, 92)],
    "cosh": [uniform(-2, 2), uniform(-92, 92)],
    "tanh": [uniform(-2, 2), logarithmic(1e-6, 20)],
    "asinh": [uniform(-2, 2), logarithmic(1e-6, 1e30)],
    "acosh": [uniform(1, 3), logarithmic(1, 1e10, False)],
    "atanh": [uniform(-1, 1), logarithmic(1e-6, 0.9)],
}


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(RANGES))
def test_within_three_units(name, dtype):
    for x in RANGES[name]:
        x = x.astype(dtype)
        with np.errstate(all="ignore"):
            wanted = getattr(np, NUMPY.get(name, name))(x.astype(np.longdouble))
        assert ulps(compute(name, x), wanted) < (2.95 if name in ("tan", "log10", "asin") else 2.2)


@pytest.mark.in_turns
@pytest.mark.parametrize(("name", "limit"), [("erf", 1.5), ("erfc", 4.5), ("lgamma", 1.0), ("digamma", 1.0)])
def test_special_functions_in_single(name, limit):
    reference = {"lgamma": scipy.special.gammaln, "digamma": scipy.special.psi}.get(name) or getattr(
        scipy.special, name
    )
    for x in (uniform(-4, 9), uniform(0.1, 30)):
        x = x.astype(np.float32)
        with np.errstate(all="ignore"):
            wanted = reference(x.astype(np.float64)).astype(np.longdouble)
        assert ulps(compute(name, x), wanted) < limit


@pytest.mark.parametrize("name", ["erf", "erfc", "lgamma", "digamma"])
def test_special_functions_in_double(name):
    reference = {"lgamma": scipy.special.gammaln, "digamma": scipy.special.psi}.get(name) or getattr(
        scipy.special, name
    )
    x = uniform(-4, 20)
    wanted = reference(x)
    np.testing.assert_allclose(compute(name, x), wanted, rtol=2e-13, atol=3e-13 if name[0] in "ld" else 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_arguments(dtype):
    """Exact reduction: compared with the sum formula on numbers whose parts libm handles exactly."""
    x = logarithmic(1e5, 1e38 if dtype is np.float32 else 1e300).astype(dtype)
    for name, reference in (("sin", math.sin), ("cos", math.cos), ("tan", math.tan)):
        wanted = np.array([reference(float(v)) for v in x])  # glibc is right to 0.55 ulp of f64
        assert ulps(compute(name, x), wanted.astype(np.longdouble)) < (3.8 if name == "tan" else 2.1)


def test_lgamma_of_tiny_negative_numbers():
    x = -logarithmic(1e-300, 1e-15, False)
    np.testing.assert_allclose(compute("lgamma", x), -np.log(-x), rtol=1e-15)


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_power(dtype):
    """Also where a small error of the logarithm would be a large one of the power."""
    most, limit = (88, 1) if dtype is np.float32 else (709, 1.4)
    base = logarithmic(1e-3, 1e3, False).astype(dtype)
    near = uniform(0.7, 1.42).astype(dtype)
    farthest = np.random.default_rng(2).uniform(-most, most, LANES) / np.log(near.astype(np.float64))
    for x, y in ((base, uniform(-12, 12)), (near, farthest)):
        y = y.astype(dtype)
        assert ulps(compute("pow", x, y), np.power(x.astype(np.longdouble), y.astype(np.longdouble))) < limit
        whole = np.round(y)
        wanted = np.power(-x.astype(np.longdouble), whole.astype(np.longdouble))
        assert ulps(compute("pow", -x, whole), wanted) < limit


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, np.inf, -np.inf, np.nan, 1e-40, 1e30, -1e30, 2.5]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["pow", "atan2", "rem", "mod", "floordiv"])
def test_special_pairs(name, dtype):
    x, y = (a.ravel().astype(dtype) for a in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        wanted = getattr(np, NUMPY[name])(x, y)
    got = compute(name, x, y)
    np.testing.assert_allclose(got, wanted, rtol=3 * np.finfo(dtype).eps, atol=0)
    if name != "floordiv":
        known = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(wanted)[known])


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(set(RECIPES) - {"pow", "atan2", "rem", "mod", "floordiv"}))
def test_special_values(name, dtype):
    x = np.array([v for v in SPECIAL if name not in ("lgamma", "digamma") or abs(v) != 1e30], dtype)
    reference = {"lgamma": scipy.special.gammaln, "digamma": scipy.special.psi, "erf": scipy.special.erf,
                 "erfc": scipy.special.erfc}.get(name) or getattr(np, NUMPY.get(name, name))  # fmt: skip
    if name == "digamma":
        x = x[x != 0]
    if name == "lgamma":
        x = x[x != -np.inf]
    with np.errstate(all="ignore"):
        wanted = reference(x)
    np.testing.assert_allclose(compute(name, x), wanted, rtol=1e-6 if dtype is np.float32 else 1e-14, atol=1e-45)
