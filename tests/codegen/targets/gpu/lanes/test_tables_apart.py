"""Launches that add to a large table and do something else: which become two, and that all stays the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.gpu.emit import accumulate
from loopgrad.codegen.targets.gpu.lanes import table_parts
from loopgrad.codegen.targets.gpu.lanes.tables_apart import with_tables_apart
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.types import TensorType, float32, int64
from tests.codegen.targets.gpu.gpu_harness import device, executable_of

ROWS, TABLE = 70, 9
PART = 8 * TABLE


def with_a_loss(table, i, x):
    y = ops.exp(x)
    return [ops.reduce_sum(ops.mul(y, y), (0,)), ops.scatter("add", table, [i], y)]


def with_a_store(table, i, x):
    y = ops.exp(x)
    return [ops.scatter("add", table, [i], ops.mul(y, y)), y]


def alone(table, i, x):
    return [ops.scatter("add", table, [i], ops.exp(x))]


def largest(table, i, x):
    return [ops.reduce_sum(x, (0,)), ops.scatter("max", table, [i], x)]


CASES = {with_a_loss: 1, with_a_store: 1, alone: 0, largest: 0}


@pytest.fixture(autouse=True)
def large(monkeypatch):
    monkeypatch.setattr(accumulate, "EXACT_BYTES", 0)
    monkeypatch.setattr(table_parts, "PART", PART)


def scheduled(function):
    types = [TensorType((TABLE,), float32), TensorType((ROWS,), int64), TensorType((ROWS,), float32)]
    return types, schedule(trace(function, types)[0], DEFAULT_OPTIONS)


@pytest.mark.parametrize("function", CASES)
def test_what_is_added_to_a_large_table_is_a_launch(function):
    types, before = scheduled(function)
    after = with_tables_apart(before, DEFAULT_OPTIONS, True)
    for kernel in after.kernels:
        verify_kernel(kernel)
    assert len(after.kernels) - len(before.kernels) == CASES[function]
    rng = np.random.default_rng(0)
    given = [rng.normal(size=t.shape).astype(t.dtype.np) for t in types]
    given[1] = rng.integers(-2, TABLE + 2, ROWS)
    wanted = interpret_program(before, given)
    for got, want in zip(interpret_program(after, given), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    for got, want in zip(executable_of(after).run([device().put(a) for a in given]), wanted, strict=True):
        np.testing.assert_allclose(device().get(got), want, rtol=1e-5, atol=1e-5)


def test_tables_of_one_part_stay(monkeypatch):
    """What lanes read would be read once more."""
    monkeypatch.setattr(table_parts, "PART", 2 * PART)
    _, program = scheduled(with_a_loss)
    assert with_tables_apart(program, DEFAULT_OPTIONS, True) is program


def test_slots_that_are_read_and_written_stay_in_one_launch():
    _, program = scheduled(with_a_store)
    (step,) = program.steps
    read = next(i for i, p in enumerate(program.kernels[0].params) if p.access == "read" and p.dtype is float32)
    written = next(i for i, p in enumerate(program.kernels[0].params) if p.access == "write")
    slots = [step.slots[read] if i == written else slot for i, slot in enumerate(step.slots)]
    program = replace(program, steps=(replace(step, slots=tuple(slots)),))
    assert len(with_tables_apart(program, DEFAULT_OPTIONS, True).kernels) == 1
