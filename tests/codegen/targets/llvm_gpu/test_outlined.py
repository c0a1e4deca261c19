"""Recipes that a kernel uses often are functions of its module, with the same bits as copies."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from loopgrad.codegen.math.table import RECIPES
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.gpu.compile import compile_for
from loopgrad.codegen.targets.gpu.emit import outlined
from loopgrad.codegen.targets.nvptx.target import nvptx_image
from loopgrad.graph.types import float16, float32, float64
from loopgrad.runtime.devices import NUMBERED
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.gpu_harness import Choice, program_of, run_kernel
from tests.simulator.device import install

LANES = 70
BINARY = {"atan2", "pow", "rem", "mod", "floordiv"}
EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e30, -3e9, 5e9, 300.0, 1e-30, 2.0**80, -745.0]


@pytest.fixture
def simulator(monkeypatch):
    monkeypatch.setitem(NUMBERED, "simulator", NUMBERED.get("simulator"))
    install()
    monkeypatch.setattr(Choice, "name", "simulator:0")


def recipes(names, dtype, times):
    """Each recipe so often, of different values."""
    build = Build(LANES)
    (i,) = build.indices
    x, y = (build.load(build.param(dtype, LANES), i) for _ in range(2))
    for name in names:
        total = x
        for k in range(times):
            operands = [build.one("add", (x, build.const(0.25 * k, dtype)))] + [y] * (name in BINARY)
            total = build.one("sub", (total, build.one(name, operands)))
        build.store(build.param(dtype, LANES, "write"), i, total)
    return build.kernel()


def results(kernel, dtype):
    rng = np.random.default_rng(1)
    arrays = [rng.uniform(-8, 8, LANES).astype(dtype.np) for _ in range(2)]
    with np.errstate(over="ignore"):
        arrays[0][: len(EDGES)] = np.array(EDGES).astype(dtype.np)
    arrays += [np.zeros(LANES, dtype.np) for p in kernel.params if p.access == "write"]
    run_kernel(kernel, arrays)
    return [np.where(np.isnan(a), np.nan, a).tobytes() for a in arrays]  # NaN of either sign is NaN


@pytest.mark.parametrize("dtype", [float32, float64, float16], ids=str)
def test_calls_give_the_bits_of_copies(dtype, simulator, monkeypatch):
    kernel = recipes(sorted(RECIPES), dtype, 2)
    expected = results(kernel, dtype)
    monkeypatch.setattr(outlined, "MOST_COPIES", 1)
    assert results(kernel, dtype) == expected


def functions(text):
    return re.findall(r"define internal .*(@lg\.[\w.]+)\(", text)


@pytest.mark.parametrize("fast", [False, True])
def test_each_function_is_written_once_a_module(fast, monkeypatch):
    """What long kernels are of grows by a call for each use; kernels share functions."""
    monkeypatch.setattr(outlined, "MOST_COPIES", 6)
    names = ("pow", "sin", "cos", "lgamma")
    first, second = (program_of(recipes(names, float64, times)) for times in (7, 14))
    again = replace(first.steps[0], kernel=1)
    both = Program(first.slots, first.inputs, first.outputs, (*first.kernels, *second.kernels), (*first.steps, again))
    llvm = compile_for(both, Options(fast_math=fast), nvptx_image()).texts["llvm"]
    found = functions(llvm)
    assert sorted(name.split(".")[1] for name in found) == ["lgamma", "pow", "sine_cosine"]
    shorter, longer = (len(text) for text in re.findall(r"define ptx_kernel void @k[01]\(.*?\n}\n", llvm, re.S))
    copies = len(
        compile_for(program_of(recipes(names, float64, 1)), Options(fast_math=fast), nvptx_image()).texts["llvm"]
    )
    assert longer - shorter < 7 * copies / 4


def test_few_uses_are_copies():
    kernel = recipes(("pow", "sin"), float32, 5)
    assert not functions(compile_for(program_of(kernel), Options(), nvptx_image()).texts["llvm"])
