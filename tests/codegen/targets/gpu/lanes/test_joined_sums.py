"""Sums over rows of the same array: which become one launch, and that the numbers stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.kernel.nodes import walk
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.program import LaunchStep
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.gpu.lanes.joined_sums import with_joined_sums
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType, float64
from tests.codegen.targets.gpu.gpu_harness import device, executable_of

ROWS, WIDE = 1200, 250


def over(row: Value, x: Value) -> Value:
    return ops.broadcast(row, x.shape, (1,))


def centred(x: Value) -> Value:
    mean = ops.div(ops.reduce_sum(x, (1,)), float(WIDE))
    return ops.sub(x, ops.broadcast(mean, x.shape, (0,)))


def derivatives(g: Value, x: Value) -> list[Value]:
    """Of what is added to all rows, which others go on with, and of what multiplies all."""
    return [ops.exp(ops.reduce_sum(g, (0,))), ops.reduce_sum(ops.mul(g, centred(x)), (0,))]


def one_by_the_other(g: Value, x: Value) -> list[Value]:
    total = ops.reduce_sum(g, (0,))
    return [total, ops.reduce_sum(ops.mul(g, ops.sin(over(total, x))), (0,))]


def of_others(g: Value, x: Value) -> list[Value]:
    return [ops.reduce_sum(g, (0,)), ops.reduce_sum(centred(x), (0,))]


@pytest.mark.parametrize(("function", "joined"), [(derivatives, True), (one_by_the_other, False), (of_others, False)])
def test_sums(function: Callable[[Value, Value], list[Value]], joined: bool) -> None:
    type = TensorType((ROWS, WIDE), float64)
    program = schedule(trace(function, [type, type])[0], DEFAULT_OPTIONS)
    made = with_joined_sums(program)
    launches = [step for step in program.steps if isinstance(step, LaunchStep)]
    assert len([step for step in made.steps if isinstance(step, LaunchStep)]) == len(launches) - joined
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=type.shape) * 0.01 for _ in range(2)]
    expected = interpret_program(program, arrays)
    for got, want in zip(interpret_program(made, arrays), expected, strict=True):
        np.testing.assert_array_equal(got, want)
    for kernel in made.kernels:
        verify_kernel(kernel)
        assert sum(op.opcode == "for" for op in walk(kernel.body)) <= 1
    compiled = executable_of(program)
    for got, want in zip(compiled.run([device().put(a) for a in arrays]), expected, strict=True):
        np.testing.assert_allclose(device().get(got), want, rtol=1e-10, atol=1e-14)
