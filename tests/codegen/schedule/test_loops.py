"""Loops and branches: in kernels where lanes stay apart, as steps where they don't."""

import numpy as np
import pytest

from loopgrad.autodiff.reverse import vjp_emit
from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.program import ForStep, LaunchStep, PopStep, PushStep, SwitchStep, WhileStep
from loopgrad.codegen.schedule import schedule
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.errors import LoopLimitError
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.types import TensorType, bool_, float32, float64, int32, int64

N = 40
VECTOR = TensorType((N,), float64)
TALL = TensorType((9 * N,), float64)
COUNTS = TensorType((N,), int32)
SCALAR = TensorType((), float64)
COUNT = TensorType((), int32)


def steps_of(program, kind):
    """All steps of a type, nested ones included."""
    found, pending = [], list(program.steps)
    while pending:
        step = pending.pop()
        if isinstance(step, kind):
            found.append(step)
        for name in ("body", "condition"):
            pending.extend(getattr(step, name, ()))
        for branch in getattr(step, "branches", ()):
            pending.extend(branch)
    return found


def smoothed(u):
    left, right = ops.slice(u, (0,), (u.shape[0] - 2,)), ops.slice(u, (2,), (None,))
    return ops.add(ops.mul(ops.pad(ops.add(left, right), (1,), (1,)), 0.25), ops.mul(u, 0.5))


def test_a_uniform_loop_over_independent_elements_is_one_kernel(check, rng):
    def loop(n, x):
        return traced_for(n, [x], lambda _, v: [ops.mul(ops.sin(v), 0.9)])

    program = check(loop, [COUNT, TensorType((N, 3), float64)], [5, rng.normal(size=(N, 3))], kernels=1)
    assert program.kernels[0].domain == (3 * N,)
    assert not program.notes


def test_carries_of_several_shapes_share_the_common_lanes(check, rng):
    def loop(n, x, s):
        def body(k, v, w, t):
            total = ops.reduce_sum(v, (1,))
            return [ops.mul(v, 0.5), ops.add(w, ops.mul(total, ops.broadcast_to(t, w.shape))), ops.add(t, 1.0)]

        return traced_for(n, [x, ops.reduce_sum(x, (1,)), s], body)

    check(loop, [COUNT, TensorType((N, 3), float64), SCALAR], [4, rng.normal(size=(N, 3)), 0.5])


def test_nested_lane_loops_with_lane_counts(check, rng):
    def loop(x, n, m):
        def outer(k, v):
            (w,) = traced_for(m, [v], lambda j, w: [ops.add(ops.mul(w, 0.9), ops.cast(j, float64))])
            return [ops.add(ops.sin(w), ops.cast(k, float64))]

        return traced_for(n, [x], outer)

    arrays = [rng.normal(size=N), rng.integers(-1, 4, N), rng.integers(-1, 5, N)]
    check(loop, [VECTOR, COUNTS, COUNTS], arrays, kernels=1)


def test_a_stencil_loop_rotates_pointers(check, rng):
    def loop(n, x):
        return traced_for(n, [x], lambda _, u: [smoothed(u)])

    program = check(loop, [COUNT, TensorType((500,), float64)], [5, rng.normal(size=500)], kernels=1)
    (step,) = steps_of(program, ForStep)
    assert [type(s) for s in step.body] == [LaunchStep]
    assert len(step.rotate) == 1
    assert any("sub-program" in note for note in program.notes)


def test_a_lane_loop_that_mixes_lanes_runs_masked(check, rng):
    def loop(n, x):
        def body(k, v):
            return [ops.sub(v, ops.mul(ops.broadcast_to(ops.reduce_sum(v, (0,)), v.shape), 0.01))]

        return traced_for(n, [x], body)

    program = check(loop, [TensorType((500,), int32), TensorType((500,), float64)], [
        rng.integers(0, 5, 500), rng.normal(size=500)])  # fmt: skip
    assert any("masked" in note and "reduce_sum" in note for note in program.notes)


def test_a_scatter_into_a_dead_carry_happens_in_place(check, rng):
    def loop(n, x, i):
        return traced_for(n, [x], lambda _, v: [ops.scatter("add", v, [i], ops.mul(smoothed(ops.gather(v, i)), 0.1))])

    types = [COUNT, TensorType((900,), float64), TensorType((30,), int64)]
    program = check(loop, types, [4, rng.normal(size=900), rng.integers(0, 900, 30)])
    (step,) = steps_of(program, ForStep)
    assert not step.rotate
    launches = [s for s in step.body if isinstance(s, LaunchStep)]
    assert len(launches) == len(step.body)
    starts = [(s.slots[p], i.source) for s in launches for p, i in s.initials]
    assert starts == [(starts[0][0], starts[0][0])]  # it starts from itself: nothing is copied


def test_a_carry_that_is_read_later_is_not_overwritten(check, rng):
    def loop(n, x, i):
        def body(k, v, w):
            return [ops.scatter("add", v, [i], ops.gather(w, i)), ops.add(smoothed(v), w)]

        return traced_for(n, [x, x], body)

    types = [COUNT, TensorType((900,), float64), TensorType((30,), int64)]
    check(loop, types, [4, rng.normal(size=900), rng.integers(0, 900, 30)])


def test_carries_that_change_places(check, rng):
    def loop(n, x):
        return traced_for(n, [x, smoothed(x)], lambda _, u, w: [w, ops.add(smoothed(u), w)])

    check(loop, [COUNT, TensorType((500,), float64)], [7, rng.normal(size=500)])


def test_a_value_dependent_loop_over_tensors(check, rng):
    def loop(x):
        def on(u):
            return ops.gt(ops.reduce_max(ops.abs(u), (0,)), 0.2)

        return traced_while([x], on, lambda u: [smoothed(u)])

    program = check(loop, [TensorType((500,), float64)], [rng.normal(size=500)])
    assert len(steps_of(program, WhileStep)) == 1


def test_max_steps_raises_in_kernels_and_in_steps(rng):
    def lanes(x):
        return traced_while([x], lambda v: ops.gt(v, -1.0), lambda v: [ops.mul(v, 0.5)], max_steps=7)

    def tensors(x):
        def on(u):
            return ops.gt(ops.reduce_max(ops.abs(u), (0,)), 0.0)

        return traced_while([x], on, lambda u: [smoothed(u)], max_steps=7)

    for function, size in ((lanes, N), (tensors, 500)):
        graph, _ = trace(function, [TensorType((size,), float64)])
        with pytest.raises(LoopLimitError, match="max_steps=7"):
            interpret_program(schedule(graph), [np.abs(rng.normal(size=size))])


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
def test_a_uniform_branch_in_a_kernel_and_as_steps(check, rng, index):
    def inside(i, x):
        return traced_switch(i, [lambda x: [ops.sin(x)], lambda x: [ops.cos(x)], lambda x: [ops.neg(x)]], [x])

    def outside(i, x):
        def heavy(x):
            return [ops.mul(ops.flip(x, (0,)), ops.broadcast_to(ops.reduce_sum(x, (0,)), x.shape))]

        def loop(x):
            return traced_for(ops.full(3, COUNT), [x], lambda _, u: [smoothed(u)])

        return traced_switch(i, [heavy, loop, lambda x: [x]], [x])

    check(inside, [COUNT, VECTOR], [index, rng.normal(size=N)], kernels=1)
    program = check(outside, [COUNT, TensorType((500,), float64)], [index, rng.normal(size=500)])
    assert len(steps_of(program, SwitchStep)) == 1


def test_lane_branches_with_loops_inside(check, rng):
    def function(p, n, x):
        def loop(x, n):
            return traced_for(n, [x], lambda _, v: [ops.mul(v, 0.5)])

        return traced_switch(p, [lambda x, _: [ops.sin(x)], loop], [x, n])

    types = [TensorType((N,), bool_), COUNTS, VECTOR]
    check(function, types, [rng.integers(0, 2, N), rng.integers(0, 4, N), rng.normal(size=N)], kernels=1)


def test_lanes_scatter_into_shared_memory(check, rng):
    def function(x, n, t):
        def body(k, v, acc):
            where = ops.rem(ops.add(ops.cast(ops.abs(ops.mul(v, 3.0)), int32), k), t.shape[0])
            return [ops.mul(v, 0.8), ops.scatter("add", acc, [where], v)]

        return traced_for(n, [x, t], body, shared=(1,))

    program = check(function, [VECTOR, COUNTS, TensorType((7,), float64)], [
        rng.normal(size=N), rng.integers(0, 5, N), rng.normal(size=7)], kernels=1)  # fmt: skip
    (step,) = program.steps
    (start,) = [i for _, i in step.initials]
    assert program.slots[start.source].kind == "input"


def test_branches_scatter_into_shared_memory(check, rng):
    def function(p, x, i, t):
        def then(x, i, acc):
            return [ops.mul(x, 2.0), ops.scatter("add", acc, [i], x)]

        return traced_switch(p, [lambda x, _, acc: [x, acc], then], [x, i, t], shared=(1,))

    types = [TensorType((N,), bool_), VECTOR, TensorType((N,), int64), TensorType((7,), float64)]
    arrays = [rng.integers(0, 2, N), rng.normal(size=N), rng.integers(-1, 9, N), rng.normal(size=7)]
    check(function, types, arrays, kernels=1)


def test_a_lane_owned_array_is_updated_in_registers(check, rng):
    """A13: each lane sweeps along its own row."""

    def function(x, n):
        def body(k, rows):
            lane = ops.iota(TensorType((N,), int32), 0)
            value = ops.mul(ops.gather(rows, lane, k), 2.0)
            return [ops.scatter("set", rows, [lane, ops.add(k, 1)], value)]

        return traced_for(n, [x], body)

    check(function, [TensorType((N, 8), float64), COUNTS], [rng.normal(size=(N, 8)), rng.integers(0, 9, N)], kernels=1)


def test_the_stack_of_a_tensor_loop_is_a_program_stack(check, rng):
    def loss(n, x):
        (u,) = traced_for(n, [x], lambda _, u: [ops.sin(smoothed(u))])
        value = ops.reduce_sum(ops.mul(u, u), (0,))
        (gradient,) = vjp_emit([value], [ops.ones_like(value)], [x])
        return [value, gradient]

    program = check(loss, [COUNT, TensorType((500,), float64)], [4, rng.normal(size=500)])
    assert program.stacks
    assert len(steps_of(program, PushStep)) == len(steps_of(program, PopStep)) == len(program.stacks)
    assert {r.place for r in program.residuals} == {"program"}


@pytest.mark.parametrize("size", [0, 1])
def test_loops_of_no_or_one_lane(check, rng, size):
    def function(x, n, t):
        def body(k, v, acc):
            return [ops.sin(v), ops.scatter("add", acc, [k], v)]

        v, acc = traced_for(n, [x, t], body, shared=(1,))
        return [v, acc, ops.reduce_sum(v, (0,))]

    types = [TensorType((size,), float64), TensorType((size,), int32), TensorType((4,), float64)]
    check(function, types, [rng.normal(size=size), np.full(size, 3), rng.normal(size=4)])


def test_what_a_trip_makes_before_it_looks_at_saved_rows_is_in_their_kernel(check, rng):
    """A row is there at once; what reads it waits for nothing that its kernel can't make."""

    def program(n, u, x):
        (stack, _) = traced_for(n, [ops.stack_new(TALL), x], lambda _, s, v: [ops.push(s, v), ops.sin(smoothed(v))])

        def back(_, s, u, total):
            s, row = ops.pop(s)
            u = ops.mul(smoothed(u), 0.9)
            return [s, u, ops.add(total, ops.mul(u, row))]

        return traced_for(n, [stack, u, x], back)[1:]

    found = check(program, [COUNT, TALL, TALL], [3, rng.normal(size=9 * N), rng.normal(size=9 * N)])
    (back,) = [loop for loop in steps_of(found, ForStep) if any(isinstance(step, PopStep) for step in loop.body)]
    assert len([step for step in back.body if isinstance(step, LaunchStep)]) == 1


@pytest.mark.parametrize(
    ("in_order", "lanes", "as_steps"), [(False, 64, True), (False, 1 << 14, False), (True, 64, False)]
)
def test_few_lanes_that_do_much_are_steps_where_lanes_run_side_by_side(in_order, lanes, as_steps):
    """Each lane has 32 maxima of 32 numbers to find in each trip: devices share that out where they would be idle."""
    scores, table = TensorType((lanes, 32), float32), TensorType((32, 32), float32)

    def along(n, s, t):
        wide = (lanes, 32, 32)

        def trip(_, v):
            return [ops.reduce_max(ops.add(ops.broadcast(v, wide, (0, 1)), ops.broadcast(t, wide, (1, 2))), (1,))]

        return traced_for(n, [s], trip)

    graph, _ = trace(along, [COUNT, scores, table])
    program = schedule(graph, in_order=in_order)
    assert bool(steps_of(program, ForStep)) is as_steps
