"""Math recipes that a kernel uses often are functions, with the same bits as copies."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.math import trigonometric
from loopgrad.codegen.math.table import RECIPES
from loopgrad.codegen.targets.cpu.vector import math_calls
from loopgrad.graph.types import bfloat16, float16, float32, float64, int64
from tests.codegen.targets.cpu.cpu_harness import CompiledKernel, Options
from tests.codegen.targets.cpu.kernel_build import Build

LANES = 83
BINARY = {"atan2", "pow", "rem", "mod", "floordiv"}
EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e30, -3e9, 5e9, 300.0, 1e-30, 2.0**80, -745.0]
USES = 3


def inputs(dtype, seed):
    x = np.random.default_rng(seed).uniform(-8, 8, LANES).astype(dtype.np)
    with np.errstate(over="ignore"):
        x[: len(EDGES)] = np.array(EDGES).astype(dtype.np)
    return x


def often(name, dtype, uniform):
    """A kernel that applies a recipe USES times to different values, and cos where sin is."""
    build = Build(LANES)
    (i,) = build.indices
    at = build.const(3, int64) if uniform else i
    x, y = (build.load(build.param(dtype, LANES), at) for _ in range(2))
    for k in range(USES):
        operands = [build.one("add", (x, build.const(0.25 * k, dtype)))] + [y] * (name in BINARY)
        for recipe in [name, "cos"] if name == "sin" else [name]:
            build.store(build.param(dtype, LANES, "write"), i, build.one(recipe, operands))
    return build.kernel()


def run(kernel, dtype):
    outputs = sum(p.access == "write" for p in kernel.params)
    arrays = [inputs(dtype, 1), inputs(dtype, 2), *[np.zeros(LANES, dtype.np) for _ in range(outputs)]]
    compiled = CompiledKernel(kernel, Options())
    compiled.run(arrays)
    return compiled.text, [np.where(np.isnan(a), np.nan, a).tobytes() for a in arrays]  # NaN of either sign is NaN


@pytest.mark.in_turns
@pytest.mark.parametrize("uniform", [False, True], ids=["lanes", "uniform"])
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_calls_give_the_bits_of_copies(name, dtype, uniform, monkeypatch):
    monkeypatch.setattr(math_calls, "FEW", USES - 1)
    kernel = often(name, dtype, uniform)
    copies, expected = run(kernel, dtype)
    monkeypatch.setattr(math_calls, "MOST_LINES", 1)
    calls, found = run(kernel, dtype)
    assert found == expected
    assert "@lg.math." not in copies
    part = "sine_cosine" if name in trigonometric.RECIPES else name
    assert calls.count(f"@lg.math.{part}.") in (USES + 1, 2 * USES + 1)  # short code has a copy for the last lanes


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_halves_compute_in_float(dtype, monkeypatch):
    monkeypatch.setattr(math_calls, "FEW", USES - 1)
    kernel = often("exp", dtype, uniform=False)
    _, expected = run(kernel, dtype)
    monkeypatch.setattr(math_calls, "MOST_LINES", 1)
    text, found = run(kernel, dtype)
    assert found == expected
    assert "@lg.math.exp.float." in text


def chain(length, recipe="sin"):
    build = Build(LANES)
    (i,) = build.indices
    x = build.load(build.param(float64, LANES), i)
    for _ in range(length):
        x = build.one("mul", (build.one(recipe, (x,)), build.const(1.01, float64)))
    build.store(build.param(float64, LANES, "write"), i, x)
    return CompiledKernel(build.kernel(), Options()).text


def test_long_straight_code_stays_short():
    """A longer chain adds its calls, not the recipe."""
    short, long = (len(chain(n).splitlines()) for n in (100, 300))
    assert long - short < 200 * 20
    assert "lg.math" not in chain(math_calls.MOST_LINES // math_calls.recipe_lines("sin", "double", 1))


def test_long_recipes_are_functions_sooner():
    assert "lg.math.lgamma" in chain(12, "lgamma")
    assert "lg.math" not in chain(12, "exp")
