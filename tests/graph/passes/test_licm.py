"""Invariant nodes leave loops; what depends on a trip, and what is free, stays."""

from __future__ import annotations

import pytest

from loopgrad.graph import ops
from loopgrad.graph.passes import dce, licm
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from tests.graph.passes import checking

checked, f, i, ops_of = checking.checked, checking.f, checking.i, checking.ops_of


@pytest.mark.parametrize("seed", checking.SEEDS)
def test_random_programs(seed):
    checking.check_random(licm.run, seed)


def body_ops(graph, depth=1):
    """Operations in the innermost region of the last node."""
    for _ in range(depth):
        graph = graph.nodes[-1].regions[-1]
    return ops_of(graph, deep=False)


def test_an_invariant_chain_leaves_as_one_capture():
    def program(n, x, y):
        return traced_for(n, [x], lambda _k, c: [ops.add(c, ops.cos(ops.sin(y)))])

    after = checked(licm.run, program, i(), f(4), f(4))
    assert body_ops(after) == ["add"]
    assert ops_of(after, deep=False) == ["sin", "cos", "for"]
    assert len(dce.run(after).nodes[-1].operands) == 3


def test_what_depends_on_the_trip_stays():
    def program(n, x, y):
        return traced_for(
            n, [x], lambda k, c: [ops.add(c, ops.mul(y, ops.broadcast(ops.cast(k, f().dtype), (4,), ())))]
        )

    assert body_ops(checked(licm.run, program, i(), f(4), f(4))) == ["cast", "broadcast", "mul", "add"]


def test_several_loops_are_left_at_once():
    def program(n, x, y):
        def outer(_k, c):
            return traced_for(n, [c], lambda _j, d: [ops.add(d, ops.sin(y))])

        return traced_for(n, [x], outer)

    after = checked(licm.run, program, i(), f(4), f(4))
    assert body_ops(after, depth=2) == ["add"]
    assert ops_of(after, deep=False) == ["sin", "for"]


def test_conditions_are_left_too():
    def program(x, y):
        def cond(c):
            return ops.lt(c, ops.add(ops.abs(y), 2.0))

        return traced_while([x], cond, lambda c: [ops.add(c, ops.exp(y))])

    after = checked(lambda graph: dce.run(licm.run(graph)), program, f(), f())
    assert ops_of(after.nodes[-1].regions[0]) == ["lt"]
    assert body_ops(after) == ["add"]


def test_constants_iotas_and_their_movement_stay():
    def program(n, x):
        def body(_k, c):
            rows = ops.broadcast(ops.iota(i(4), 0), (4, 3), (0,))
            return [ops.add(ops.mul(c, 2.0), ops.cast(rows, f().dtype))]

        return traced_for(n, [x], body)

    after = checked(licm.run, program, i(), f(4, 3))
    assert ops_of(after, deep=False) == ["for"]


def test_a_constant_operand_is_copied_out():
    def program(n, x, y):
        return traced_for(n, [x], lambda _k, c: [ops.mul(c, ops.mul(y, 3.0))])

    after = checked(licm.run, program, i(), f(4), f(4))
    assert ops_of(after, deep=False) == ["const", "mul", "for"]


@pytest.mark.parametrize(("count", "leaves"), [(3, True), (None, False)])
def test_loops_leave_only_loops_that_certainly_run(count, leaves):
    def program(n, x, y):
        def outer(_k, c):
            (d,) = traced_for(n, [y], lambda _j, d: [ops.sin(d)])
            return [ops.add(c, d)]

        return traced_for(n if count is None else ops.full(count, i()), [x], outer)

    after = checked(licm.run, program, i(), f(4), f(4))
    assert ("for" in body_ops(after)) is not leaves


def test_branches_are_not_left():
    def program(n, x, y):
        def body(_k, c):
            negative = ops.lt(ops.reduce_sum(c, (0,)), 0.0)
            return traced_switch(negative, [lambda _a: [ops.sin(y)], lambda a: [a]], [c])

        return traced_for(n, [x], body)

    assert "sin" in ops_of(checked(licm.run, program, i(), f(4), f(4)).nodes[-1].regions[0])


def test_stacks_stay():
    def program(n, x, y):
        def body(_k, c):
            _, top = ops.pop(ops.push(ops.stack_new(f(4)), y))
            return [ops.add(c, top)]

        return traced_for(n, [x], body)

    assert body_ops(checked(licm.run, program, i(), f(4), f(4))) == ["stack_new", "push", "pop", "add"]
