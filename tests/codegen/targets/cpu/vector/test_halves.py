"""float16 and bfloat16: conversions round once, arithmetic rounds a float32 result."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.graph.types import bfloat16, bool_, float16, float32, float64, int32, int64, uint8
from tests.codegen.targets.cpu.cpu_harness import CompiledKernel, check, narrower
from tests.codegen.targets.cpu.kernel_build import Build

HALVES = (float16, bfloat16)
MACHINES = {"host": host_machine, "256": lambda: narrower(256), "128": lambda: narrower(128)}
LANES = 300


def doubles(dtype, seed):
    """Values of `dtype`, their midpoints, and doubles just beside these, of every magnitude."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        exact = np.concatenate([rng.uniform(-4, 4, 60), np.exp2(rng.uniform(-30, 17, 30)), [0.0, 65504.0, 6e-8]])
        exact = exact.astype(dtype.np).astype(np.float64)
        step = np.abs(np.nextafter(exact.astype(np.float32), np.float32(np.inf)) - exact.astype(np.float32))
        step = step.astype(np.float64) * 2.0 ** (12 if dtype is float16 else 15)  # half a unit of the narrow type
        near = [exact, exact + step, exact + step * (1 + 2.0**-30), exact + step * (1 - 2.0**-30)]
        found = np.concatenate([*near, [np.inf, -np.inf, np.nan, 1e300, -1e300, 1e-300]])
    return found[rng.permutation(found.size)[:LANES]]


def rounded(x, dtype):
    """To nearest, ties to even, from all bits of the double."""
    if dtype is float16:
        with np.errstate(over="ignore", under="ignore"):
            return x.astype(np.float16)
    out = np.empty(x.shape, np.uint16)
    for i, v in enumerate(x):
        with np.errstate(all="ignore"):
            near = np.float32(v)
        bits = int(near.view(np.uint32))
        low = bits - (np.isfinite(v) and abs(float(near)) > abs(v))  # toward zero
        rest, inexact = low & 0xFFFF, float(np.uint32(low).view(np.float32)) != v
        up = rest > 0x8000 or (rest == 0x8000 and (inexact or (low >> 16) & 1))
        out[i] = ((low >> 16) + (bool(up) and np.isfinite(v))) & 0xFFFF
    return out.view(dtype.np)


def casted(source, result, values, machine):
    build = Build(len(values))
    (i,) = build.indices
    x = build.load(build.param(source, len(values)), i)
    build.store(build.param(result, len(values), "write"), i, build.one("cast", (x,), result))
    arrays = [np.asarray(values).astype(source.np), np.zeros(len(values), result.np)]
    CompiledKernel(build.kernel(), None, machine).run(arrays)
    return arrays


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_doubles_round_once(dtype, machine):
    x = doubles(dtype, 1)
    found = casted(float64, dtype, x, MACHINES[machine]())[1]
    np.testing.assert_array_equal(found.astype(np.float32), rounded(x, dtype).astype(np.float32))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("other", [float32, int32, int64, uint8, bool_, *HALVES], ids=str)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_casts_from_and_to_other_types(dtype, other, machine):
    generator = np.random.default_rng(2)
    values = generator.integers(0, 200, LANES) if other.kind != "f" else generator.normal(size=LANES) * 100
    for source, result in ((other, dtype), (dtype, other)):
        if result.kind in "bu":
            values = np.abs(values)
        given, found = casted(source, result, values, MACHINES[machine]())
        expected = given.astype(np.float32).astype(result.np)
        np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_arithmetic_rounds_a_float_result(dtype, machine):
    build = Build(LANES)
    (i,) = build.indices
    x, y = (build.load(build.param(dtype, LANES), i) for _ in range(2))
    for name in ("add", "mul", "div", "min", "exp", "sin", "tanh"):
        value = build.one(name, (x, y) if name in ("add", "mul", "div", "min") else (x,))
        build.store(build.param(dtype, LANES, "write"), i, value)
    generator = np.random.default_rng(3)
    arrays = [generator.uniform(-3, 3, LANES).astype(dtype.np), generator.uniform(0.5, 3, LANES).astype(dtype.np)]
    arrays += [np.zeros(LANES, dtype.np) for _ in range(7)]
    unit = 2.0**-10 if dtype is float16 else 2.0**-7
    check(build.kernel(), arrays, None, MACHINES[machine](), rtol=unit, atol=1e-6)
