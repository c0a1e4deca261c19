"""Scatters into a loop's carry happen in place where what else reads it can come first."""

from __future__ import annotations

import pytest

from loopgrad.autodiff.reverse import vjp_emit
from loopgrad.codegen.program import ForStep, LaunchStep
from loopgrad.codegen.schedule.order import reads_first
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float64, int64
from loopgrad.graph.verify import verify

ROWS, WIDTH = 12, 40
TABLE = TensorType((ROWS, WIDTH), float64)
COUNT = TensorType((), int64)


def loops(program):
    return [step for step in program.steps if isinstance(step, ForStep)]


def copies(loop):
    """Accumulated buffers that a trip first fills with those of another."""
    launches = [step for step in loop.body if isinstance(step, LaunchStep)]
    return [i for launch in launches for p, i in launch.initials if i.source != launch.slots[p]]


def set_row(table, k, row):
    return ops.scatter("set", table, (k,), row)


def next_row(k, a):
    return [set_row(a, ops.add(k, 1), ops.mul(ops.sin(ops.gather(a, k)), 1.1))]


def two_rows(k, a):
    row = ops.gather(a, k)
    a = set_row(a, k, ops.full(1.0, TensorType((WIDTH,), float64)))
    return [ops.scatter("add", a, (ops.add(k, 2),), ops.mul(row, 0.5))]


def normed_row(k, a):
    """A reduction reads the whole table, which the scatter then overwrites."""
    total = ops.reduce_sum(ops.reduce_sum(a, (1,)), (0,))
    return [set_row(a, k, ops.broadcast_to(ops.mul(total, 1e-3), (WIDTH,)))]


@pytest.mark.parametrize("body", [next_row, two_rows, normed_row])
def test_a_loop_writes_rows_in_place(check, rng, body):
    program = check(lambda n, a: traced_for(n, [a], body), [COUNT, TABLE], [9, rng.normal(size=TABLE.shape)])
    (loop,) = loops(program)
    assert copies(loop) == []
    assert loop.rotate == ()


def test_the_reverse_of_reading_a_row_and_writing_the_next_is_in_place(check, rng):
    def gradient(n, a):
        (out,) = traced_for(n, [a], next_row)
        return vjp_emit([out], [out], [a])

    program = check(gradient, [COUNT, TABLE], [9, rng.normal(size=TABLE.shape)])
    forward, reverse = loops(program)
    assert copies(forward) == copies(reverse) == []
    assert forward.rotate == reverse.rotate == ()


def test_a_row_that_is_read_again_after_it_was_written(check, rng):
    """Nothing may move: the second reader wants the old table, but depends on the new one."""

    def body(k, a):
        b = set_row(a, k, ops.sin(ops.gather(a, ops.add(k, 1))))
        place = ops.cast(ops.gather(b, ops.full(0, COUNT), ops.full(0, COUNT)), int64)
        return [set_row(b, ops.add(k, 1), ops.gather(a, ops.min(ops.abs(place), ROWS - 1)))]

    check(lambda n, a: traced_for(n, [a], body), [COUNT, TABLE], [9, rng.normal(size=TABLE.shape)])


def test_a_large_reader_is_not_stored_for_it(check, rng):
    def body(k, a):
        return [ops.add(set_row(a, k, ops.full(0.0, TensorType((WIDTH,), float64))), ops.mul(a, 0.5))]

    check(lambda n, a: traced_for(n, [a], body), [COUNT, TABLE], [5, rng.normal(size=TABLE.shape)])


def ops_in_order(graph):
    return [n.op for n in graph.nodes]


def test_readers_move_with_what_they_need():
    def program(t, k):
        new = set_row(t, k, ops.full(0.0, TensorType((WIDTH,), float64)))
        return [new, ops.gather(t, ops.add(k, 2))]

    ordered = reads_first(trace(program, (TABLE, COUNT))[0])
    verify(ordered)
    found = ops_in_order(ordered)
    assert found.index("add") < found.index("gather") < found.index("scatter")


def test_two_tables_that_each_wait_for_the_other_stay_in_an_order():
    def program(t, u, k):
        t_new, u_new = set_row(t, k, ops.gather(u, k)), set_row(u, k, ops.gather(t, k))
        wait_t = ops.gather(t, ops.cast(ops.gather(u_new, k, k), int64))
        wait_u = ops.gather(u, ops.cast(ops.gather(t_new, k, k), int64))
        return [t_new, u_new, wait_t, wait_u]

    before = trace(program, (TABLE, TABLE, COUNT))[0]
    after = reads_first(before)
    verify(after)
    assert sorted(map(id, after.nodes)) == sorted(map(id, before.nodes))


def test_what_needs_the_new_table_stays_behind():
    def program(t, k):
        new = set_row(t, k, ops.full(0.0, TensorType((WIDTH,), float64)))
        return [ops.gather(t, ops.cast(ops.gather(new, k, k), int64))]

    graph = trace(program, (TABLE, COUNT))[0]
    assert reads_first(graph) is graph
