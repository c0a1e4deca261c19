"""Loops carry what changes and is needed, once."""

from __future__ import annotations

import pytest

from loopgrad.graph import ops
from loopgrad.graph.passes import carries, dce
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from tests.graph.passes import checking

checked, f, i, b, ops_of = checking.checked, checking.f, checking.i, checking.b, checking.ops_of


@pytest.mark.parametrize("seed", checking.SEEDS)
def test_random_programs(seed):
    checking.check_random(carries.run, seed)


def fewer(graph):
    return dce.run(carries.run(graph))


def loop_of(graph):
    (loop,) = [n for n in graph.nodes if n.op in ("for", "while")]
    return loop


def test_a_carry_passed_through_becomes_a_capture():
    def program(n, x, y):
        return traced_for(n, [x, y], lambda _k, c, d: [ops.mul(c, d), d])

    after = checked(fewer, program, i(), f(4), f(4))
    assert loop_of(after).attrs["carries"] == 1
    assert after.outputs[1] is after.inputs[2]


def test_a_carry_that_returns_to_its_initial_value():
    def program(n, x, y):
        return traced_for(n, [x, y, ops.full(3.0, f(4))], lambda _k, c, _d, _e: [ops.sin(c), y, ops.full(3.0, f(4))])

    after = checked(fewer, program, i(4), f(4), f(4))
    assert loop_of(after).attrs["carries"] == 1


def test_a_carry_nobody_needs_goes_with_what_computes_it():
    def program(n, x, y):
        return traced_for(n, [x, y], lambda _k, c, d: [ops.sin(c), ops.exp(ops.add(d, c))])[:1]

    after = checked(fewer, program, i(), f(4), f(4))
    assert ops_of(after) == ["for", "sin"]


def test_a_carry_needed_by_another_or_by_the_condition_stays():
    def program(x):
        return traced_while(
            [ops.full(0, i()), x, x],
            lambda k, *_: ops.lt(k, 3),
            lambda k, _c, d: [ops.add(k, 1), ops.sin(d), ops.cos(d)],
        )[1:2]

    assert loop_of(checked(fewer, program, f(4))).attrs["carries"] == 3


def test_a_stack_that_is_pushed_but_never_popped_goes():
    def program(n, x):
        stack = ops.stack_new(f(4))
        return traced_for(n, [stack, x], lambda _k, s, c: [ops.push(s, c), ops.sin(c)])[1:]

    assert ops_of(checked(fewer, program, i(), f(4))) == ["for", "sin"]


def test_twins_are_carried_once():
    def program(n, x):
        zero = ops.full(0, i())
        body = lambda _k, a, c, d: [ops.add(a, 1), ops.add(c, 1), ops.add(d, ops.cast(c, f().dtype))]  # noqa: E731
        return traced_for(n, [zero, ops.full(0, i()), x], body)

    after = checked(fewer, program, i(), f())
    assert loop_of(after).attrs["carries"] == 2
    assert after.outputs[0] is after.outputs[1]


def test_carries_that_start_alike_but_part_stay():
    def program(n, x):
        return traced_for(n, [x, x, x], lambda _k, a, c, d: [ops.sin(c), ops.cos(a), ops.sin(d)])

    assert loop_of(checked(fewer, program, i(), f(4))).attrs["carries"] == 3


def test_shared_positions_follow():
    def program(n, k, x, y, acc):
        def body(_k, c, a, d):
            return [c, ops.scatter("add", a, (k,), d), ops.sin(d)]

        return traced_for(n, [y, acc, x], body, shared=(1,))

    after = checked(fewer, program, i(4), i(4), f(4), f(4), f(3))
    assert loop_of(after).attrs["shared"] == (0,)


def test_switch_results_that_every_branch_passes_through():
    def program(n, x, y):
        return traced_switch(n, [lambda a, c: [a, ops.sin(c)], lambda a, c: [a, c]], [x, y])

    after = checked(fewer, program, i(), f(4), f(4))
    assert after.outputs[0] is after.inputs[1]
    assert len(after.nodes[-1].results) == 1


def test_nested_loops_are_cleaned_inside_out():
    def program(n, x, y):
        def outer(_k, c, d):
            return traced_for(n, [c, d], lambda _j, a, e: [ops.mul(a, e), e])

        return traced_for(n, [x, y], outer)

    after = checked(lambda graph: fewer(fewer(graph)), program, i(), f(4), f(4))
    assert loop_of(after).attrs["carries"] == 1


def test_a_carry_that_only_an_inner_loop_hands_on_goes():
    def program(n, x, total):
        def inner(_, v, t):
            return [ops.sin(v), ops.add(t, v)]

        def outer(_, v, t):
            return traced_for(n, [v, t], inner)

        return traced_for(n, [x, total], outer)[:1]

    loop = loop_of(checked(fewer, program, i(), f(), f()))
    assert len(loop.results) == 1
    assert len(loop_of(loop.regions[-1]).results) == 1


def test_a_stack_passed_through_a_switch_loses_that_use():
    def program(n, x):
        stack = ops.push(ops.stack_new(f(4)), x)
        branches = [lambda s, a: [s, ops.sin(a)], lambda s, a: [s, a]]
        stack, y = traced_switch(n, branches, [stack, x])
        return [y, ops.pop(stack)[1]]

    after = checked(carries.run, program, i(), f(4))
    assert len(after.nodes[-2].operands) == 2
