"""Loops of a lane over the same array: which become one, and that the numbers stay."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.kernel.nodes import Kernel, walk
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.gpu.lanes import joined_loops
from loopgrad.codegen.targets.gpu.lanes.joined_loops import with_joined_loops
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType, float64
from tests.codegen.targets.gpu.gpu_harness import device, executable_of

ROWS, WIDE, TAPS = 2112, 150, 4

Function = Callable[[Value, Value], list[Value]]


def by_taps(g: Value, x: Value) -> list[Value]:
    """Derivatives by the taps of a filter along columns."""
    before = ops.pad(x, (TAPS - 1, 0), (0, 0))
    shifted = [ops.slice(before, (i, 0), (i + ROWS, WIDE)) for i in range(TAPS)]
    return [ops.reduce_sum(ops.mul(g, v), (0,)) for v in shifted]


def extremes(g: Value, x: Value) -> list[Value]:
    return [ops.reduce_max(ops.mul(g, x), (0,)), ops.reduce_min(ops.mul(g, ops.sin(x)), (0,))]


def one_by_the_other(g: Value, x: Value) -> list[Value]:
    total = ops.reduce_sum(g, (0,))
    near = ops.sub(ops.slice(g, (0, 0), (50, WIDE)), ops.broadcast(ops.slice(total, (0,), (WIDE,)), (50, WIDE), (1,)))
    return [ops.reduce_sum(ops.mul(near, near), (0,))]


def of_others(g: Value, x: Value) -> list[Value]:
    return [ops.reduce_sum(g, (0,)), ops.reduce_sum(x, (0,))]


def made(function: Function) -> tuple[list[Kernel], list[Kernel], object]:
    """The kernels as they were and as they are, and the program with these."""
    type = TensorType((ROWS, WIDE), float64)
    program = schedule(trace(function, [type, type])[0], DEFAULT_OPTIONS)
    kernels = [with_joined_loops(kernel) for kernel in program.kernels]
    return list(program.kernels), kernels, replace(program, kernels=tuple(kernels))


def loops(kernel: Kernel) -> int:
    return sum(op.opcode == "for" for op in walk(kernel.body))


@pytest.mark.parametrize(
    ("function", "joined"), [(by_taps, True), (extremes, True), (one_by_the_other, False), (of_others, False)]
)
def test_which_loops_are_one(function: Function, joined: bool) -> None:
    before, after, program = made(function)
    assert (sum(map(loops, after)) < sum(map(loops, before))) == joined
    if joined:
        assert all(sum(op.opcode == "for" for op in kernel.body.ops) <= 1 for kernel in after)
    for kernel in after:
        verify_kernel(kernel)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(ROWS, WIDE)) for _ in range(2)]
    arrays[0][7, 3] = np.nan
    expected = interpret_program(replace(program, kernels=tuple(before)), arrays)
    for got, want in zip(interpret_program(program, arrays), expected, strict=True):
        np.testing.assert_array_equal(got, want)
    compiled = executable_of(program)
    for got, want in zip(compiled.run([device().put(a) for a in arrays]), expected, strict=True):
        np.testing.assert_allclose(device().get(got), want, rtol=1e-10, atol=1e-12)


def test_what_all_have_in_common_is_read_once() -> None:
    """By each trip, which has some rows."""
    _, kernels, _ = made(by_taps)
    kernel = next(kernel for kernel in kernels if loops(kernel))
    read = [op.attrs["param"] for op in walk(kernel.body) if op.opcode == "load"]
    once, taps = sorted(read.count(param) for param in set(read))
    assert taps == TAPS * once


def test_many_loops_take_no_longer_each() -> None:
    """Those that are found to be alike are joined at once: one by one, 60 of them took twenty seconds."""

    def moments(g: Value, x: Value) -> list[Value]:
        return [ops.reduce_sum(ops.mul(g, ops.add(x, float(i))), (0,)) for i in range(40)]

    began = time.process_time()
    before, after, _ = made(moments)
    assert sum(map(loops, after)) < sum(map(loops, before)) / 4
    assert time.process_time() - began < 10


def test_loops_that_are_heavy_together_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    before, _, _ = made(by_taps)
    monkeypatch.setattr(joined_loops, "HEAVIEST", 10)
    assert [with_joined_loops(kernel) for kernel in before] == before
