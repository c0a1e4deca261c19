"""Totals that are rounded as they are stored: which launches become one, and that elements are those of two."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.program import Program
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.gpu.lanes.narrow_totals import with_narrow_totals
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.types import DType, TensorType, bfloat16, float16, float32
from tests.codegen.targets.gpu.gpu_harness import device, executable_of


def total(x: Value) -> list[Value]:
    return [ops.cumsum(x, len(x.shape) - 1)]


def from_the_end(x: Value) -> list[Value]:
    return [ops.cumsum(ops.mul(x, x), 0, reverse=True)]


def traced(function: Callable[[Value], list[Value]], shape: tuple[int, ...], dtype: DType) -> Graph:
    return trace(function, [TensorType(shape, dtype)])[0]


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (total, (70, 100)),
        (total, (33, 101)),
        (total, (3, 5000)),
        (from_the_end, (200, 37)),
        (total, (1, 1)),
        (total, (9001,)),
    ],
)
def test_elements_are_rounded_totals(function, shape, dtype) -> None:
    graph = traced(function, shape, dtype)
    x = np.random.default_rng(0).normal(size=shape).astype(dtype.np)
    x.reshape(-1)[-1] = np.nan
    made = executable_of(schedule(graph, DEFAULT_OPTIONS))
    assert len(made.program.steps) == 1
    (got,) = made.run([device().put(x)])
    (want,) = interpret(graph, [x])
    found = device().get(got)
    assert found.dtype == x.dtype
    epsilon = {float16: 1e-3, bfloat16: 8e-3}[dtype]
    np.testing.assert_allclose(found.astype(float), want.astype(float), rtol=epsilon, atol=1e-6)


def launches(program: Program) -> int:
    return len(with_narrow_totals(program).steps)


def test_what_else_reads_totals_has_them() -> None:
    def both(x: Value) -> list[Value]:
        y = ops.cumsum(x, 0)
        return [ops.cast(y, float16), y]

    def doubled(x: Value) -> list[Value]:
        return [ops.cast(ops.add(y := ops.cumsum(x, 0), y), float16)]

    def rounded(x: Value) -> list[Value]:
        return [ops.cast(ops.cumsum(x, 0), float16)]

    assert launches(schedule(traced(both, (5000,), float32), DEFAULT_OPTIONS)) == 2
    assert launches(schedule(traced(doubled, (5000,), float32), DEFAULT_OPTIONS)) == 2
    assert launches(schedule(traced(rounded, (5000,), float32), DEFAULT_OPTIONS)) == 1
