"""Launches that add to one table in turn: which become one, and that the sums stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.program import LaunchStep
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.steps import all_steps
from loopgrad.codegen.targets.gpu.lanes import joined_tables
from loopgrad.codegen.targets.gpu.lanes.choices import chosen
from loopgrad.codegen.targets.gpu.lanes.joined_tables import with_joined_tables
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.types import TensorType, float64, int64
from tests.codegen.targets.gpu.gpu_harness import device, executable_of

ROWS, TABLE = 70, 9


def corners(table, i, j, x):
    """All three read what the first launch makes."""
    y = ops.exp(x)
    table = ops.scatter("add", table, [i], y)
    table = ops.scatter("add", table, [j], ops.mul(y, x))
    return [ops.scatter("add", table, [ops.add(i, j)], ops.sin(y)), y]


def largest(table, i, j, x):
    return [ops.scatter("max", ops.scatter("max", table, [i], x), [j], ops.neg(x))]


def of_two_kinds(table, i, j, x):
    return [ops.scatter("add", ops.scatter("max", table, [i], x), [j], x)]


def read_between(table, i, j, x):
    first = ops.scatter("add", table, [i], x)
    return [first, ops.scatter("add", first, [j], x)]


def of_other_lanes(table, i, j, x):
    """The second launch reads what other lanes of the first one make."""
    y = ops.exp(x)
    return [ops.scatter("add", ops.scatter("add", table, [i], y), [j], ops.flip(y, (0,))), y]


def of_other_sizes(table, i, j, x):
    fewer, shorter = (ops.slice(v, (0,), (ROWS // 2,), (1,)) for v in (j, x))
    return [ops.scatter("add", ops.scatter("add", table, [i], x), [fewer], shorter)]


def with_sums_between(table, i, j, x):
    """What the second launch adds is made after the first one."""
    total = ops.reduce_sum(ops.mul(table, table), (0,))
    total = ops.reduce_sum(ops.sin(ops.mul(table, ops.broadcast(total, (TABLE,), ()))), (0,))
    first = ops.scatter("add", table, [i], ops.cast(j, float64))
    return [ops.scatter("add", first, [j], ops.mul(x, ops.broadcast(total, (ROWS,), ())))]


def begun_from_the_first(table, i, j, x):
    first = ops.scatter("add", table, [i], x)
    return [ops.scatter("add", first, [j], x), ops.scatter("add", first, [i], ops.neg(x))]


# the program -> how many launches fewer it becomes
PROGRAMS = {
    corners: 2,
    largest: 1,
    of_two_kinds: 0,
    read_between: 0,
    of_other_lanes: 0,
    of_other_sizes: 0,
    with_sums_between: 1,
    begun_from_the_first: 0,
}


# of which that many fewer where the table is summed part by part, by lanes that do nothing else
IN_PARTS = {**PROGRAMS, corners: 1}


@pytest.mark.parametrize("fewer", [PROGRAMS, IN_PARTS], ids=["whole", "in parts"])
@pytest.mark.parametrize("function", PROGRAMS)
def test_lanes_add_to_a_table_once_for_all(function, fewer, monkeypatch):
    if fewer is IN_PARTS:
        monkeypatch.setattr(joined_tables, "PART", 8 * TABLE - 1)
    types = [TensorType((TABLE,), float64), *[TensorType((ROWS,), dtype) for dtype in (int64, int64, float64)]]
    graph, captured = trace(function, types)
    assert not captured
    before = schedule(graph, DEFAULT_OPTIONS)
    after = with_joined_tables(replace(before, kernels=tuple(map(chosen, before.kernels))))
    for kernel in after.kernels:
        verify_kernel(kernel)
    counts = [sum(isinstance(s, LaunchStep) for s in all_steps(p.steps)) for p in (before, after)]
    assert counts[0] - counts[1] == fewer[function]
    rng = np.random.default_rng(0)
    given = [rng.normal(size=TABLE), *rng.integers(-2, TABLE + 2, (2, ROWS)), rng.normal(size=ROWS)]
    wanted = interpret_program(before, given)
    for got, want in zip(interpret_program(after, given), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    results = executable_of(after).run([device().put(a) for a in given])
    for got, want in zip(results, wanted, strict=True):
        np.testing.assert_allclose(device().get(got), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("parts", [False, True], ids=["whole", "in parts"])
def test_a_copy_of_the_table_is_made_behind_the_first_sums(parts, monkeypatch):
    """The second launch goes on with the first one's table, and adds to a copy of it besides."""
    if parts:
        monkeypatch.setattr(joined_tables, "PART", 8 * TABLE - 1)
    types = [TensorType((TABLE,), float64), *[TensorType((ROWS,), dtype) for dtype in (int64, int64, float64)]]
    graph, _ = trace(begun_from_the_first, types)
    apart = schedule(graph, DEFAULT_OPTIONS)
    first, second = apart.steps
    (table, *_), (own, *others) = first.slots, second.slots
    initials = tuple([(i, replace(start, source=table)) for i, start in second.initials])
    going_on = replace(second, slots=(table, *others), initials=initials)
    outputs = tuple([table if slot == own else slot for slot in apart.outputs])
    before = replace(apart, steps=(first, going_on), outputs=outputs)
    after = with_joined_tables(replace(before, kernels=tuple(map(chosen, before.kernels))))
    rng = np.random.default_rng(0)
    given = [rng.normal(size=TABLE), *rng.integers(0, TABLE, (2, ROWS)), rng.normal(size=ROWS)]
    wanted = interpret_program(apart, given)
    for program in (before, after):
        for got, want in zip(interpret_program(program, given), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
