"""Launches that put side by side what the launch before them made: which become one, and that the numbers stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from loopgrad.autodiff.reverse import vjp_emit
from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.program import LaunchStep
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.steps import all_steps
from loopgrad.codegen.targets.gpu.lanes.choices import chosen
from loopgrad.codegen.targets.gpu.lanes.joined_pieces import with_pieces
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.types import TensorType, float64
from tests.codegen.targets.gpu.gpu_harness import device, executable_of

ROWS, WIDE = 12, 20


def part(z, start, stop):
    return ops.slice(z, (0, start), (ROWS, stop), (1, 1))


def derivatives(z, y):
    """Of gates that are slices of one array: cotangents meet side by side."""
    gates = [ops.tanh(part(z, k * WIDE, (k + 1) * WIDE)) for k in range(3)]
    made = ops.add(ops.mul(gates[0], y), ops.mul(gates[1], ops.sin(ops.mul(gates[2], gates[0]))))
    (by_z,) = vjp_emit([made], [y], [z])
    return [ops.matmul(ops.transpose(by_z, (1, 0)), by_z)]


def pieces(y):
    a = ops.tanh(y)
    return a, ops.exp(ops.mul(a, y))


def beside(z, y):
    """Pieces that are results as well."""
    a, b = pieces(y)
    return [a, b, ops.concat([b, a], axis=1)]


def above(z, y):
    a, b = pieces(y)
    return [a, b, ops.concat([b, a, b], axis=0)]


def many_rolled(z, y):
    """More pieces than a recurrent layer's gates, of lanes that know their row; the whole is numbered as it lies."""
    a, b = pieces(y)
    rows = [ops.concat([ops.slice(v, (1, 0), (ROWS, WIDE)), ops.slice(v, (0, 0), (1, WIDE))], axis=0) for v in (a, b)]
    made = [ops.reshape(ops.sin(ops.mul(rows[k % 2], float(k))), (1, ROWS, WIDE)) for k in range(9)]
    return [a, b, ops.concat(made, axis=0)]


def turned(z, y):
    """A lane would read another one's element."""
    a, b = pieces(y)
    return [a, b, ops.concat([ops.flip(b, (1,)), a], axis=1)]


# the program -> how many launches fewer it becomes
PROGRAMS = {derivatives: 1, beside: 1, above: 1, many_rolled: 1, turned: 0}


@pytest.mark.parametrize("function", PROGRAMS)
def test_pieces_come_from_registers(function):
    types = [TensorType((ROWS, 3 * WIDE), float64), TensorType((ROWS, WIDE), float64)]
    graph, captured = trace(function, types)
    assert not captured
    before = schedule(graph, DEFAULT_OPTIONS)
    after = with_pieces(replace(before, kernels=tuple(map(chosen, before.kernels))))
    for kernel in after.kernels:
        verify_kernel(kernel)
    counts = [sum(isinstance(s, LaunchStep) for s in all_steps(p.steps)) for p in (before, after)]
    assert counts[0] - counts[1] == PROGRAMS[function]
    rng = np.random.default_rng(0)
    given = [rng.normal(size=t.shape) for t in types]
    wanted = interpret_program(before, given)
    for got, want in zip(interpret_program(after, given), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    results = executable_of(before).run([device().put(a) for a in given])
    for got, want in zip(results, wanted, strict=True):
        np.testing.assert_allclose(device().get(got), want, rtol=1e-12, atol=1e-12)
