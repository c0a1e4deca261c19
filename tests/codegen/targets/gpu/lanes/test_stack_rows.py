"""What loops over whole tensors save, written into the rows of stacks by launches that make it or pass by."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.autodiff.reverse import vjp_emit
from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.program import PushStep
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.steps import all_steps
from loopgrad.codegen.targets.gpu.lanes.stack_rows import with_stack_rows
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.region_ops import traced_for, traced_while
from loopgrad.graph.types import TensorType, float64, int64
from tests.codegen.targets.gpu.gpu_harness import device, executable_of

N = 24


def activated(n, x, w):
    """The product is saved, which a launch goes on with; the carry is a product's operand alone."""
    return traced_for(n, [x], lambda _, v: [ops.sin(ops.matmul(v, w))])[0]


def gated(n, x, w):
    """Carries that launches read, and that change places."""

    def body(_, v, c):
        z = ops.matmul(v, w)
        c = ops.add(ops.mul(c, ops.tanh(z)), ops.sin(z))
        return [ops.mul(ops.tanh(c), v), c]

    return traced_for(n, [x, x], body)[0]


def handed_on(n, x, w):
    """A carry that becomes another one as it is."""
    return traced_for(n, [x, w], lambda _, v, u: [ops.sin(ops.matmul(u, v)), v])[0]


def nested(n, x, w):
    return traced_for(n, [x], lambda _, v: [ops.tanh(ops.add(activated(n, v, w), v))])[0]


def uncounted(n, x, w):
    def body(k, v):
        return [ops.add(k, 1), ops.sin(ops.matmul(v, w))]

    return traced_while([ops.mul(n, 0), x], lambda k, _: ops.lt(k, n), body)[1]


def linear(n, x, w):
    """Products alone: no launch has a lane for each element of what is saved."""
    return traced_for(n, [x, w], lambda _, v, u: [ops.matmul(u, v), ops.matmul(v, u)])[0]


# the loop -> how many pushes remain copies
LOOPS = {activated: 0, gated: 0, handed_on: 0, nested: 0, uncounted: 0, linear: 2}


def programs(loop, rows=N):
    def loss(n, x, w):
        made = loop(n, x, w)
        value = ops.reduce_sum(ops.mul(made, made), (0, 1))
        return [value, *vjp_emit([value], [ops.ones_like(value)], [x, w])]

    types = [TensorType((), int64), TensorType((rows, N), float64), TensorType((N, N), float64)]
    graph, captured = trace(loss, types)
    assert not captured
    program = schedule(graph, DEFAULT_OPTIONS)
    assert any(isinstance(step, PushStep) for step in all_steps(program.steps))
    return program, with_stack_rows(program)


def arrays(trips):
    rng = np.random.default_rng(trips)
    return [np.array(trips), *[rng.normal(size=(N, N)) / 5 for _ in range(2)]]


@pytest.mark.parametrize("loop", LOOPS)
def test_rows_hold_what_was_copied(loop):
    before, after = programs(loop)
    for kernel in after.kernels:
        verify_kernel(kernel)
    pushes = [step for step in all_steps(after.steps) if isinstance(step, PushStep)]
    assert sum(not step.in_place for step in pushes) == LOOPS[loop]
    assert len(pushes) == sum(isinstance(step, PushStep) for step in all_steps(before.steps))
    for trips in (0, 1, 3):
        given = arrays(trips)
        for got, want in zip(interpret_program(after, given), interpret_program(before, given), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("loop", LOOPS)
def test_devices_run_them(loop):
    """Twice, with stacks that are too small at first."""
    program, _ = programs(loop)
    executable = executable_of(program)
    for trips in (2, 5, 0, 6):
        given = arrays(trips)
        got = [device().get(r) for r in executable.run([device().put(a) for a in given])]
        for g, want in zip(got, interpret_program(program, given), strict=True):
            np.testing.assert_allclose(g, want, rtol=1e-10, atol=1e-12)
