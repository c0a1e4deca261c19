"""Stack traffic that is known or unread disappears."""

from __future__ import annotations

import pytest

from loopgrad.graph import ops
from loopgrad.graph.passes import carries, dce, forward_stacks
from loopgrad.graph.region_ops import traced_for
from tests.graph.passes import checking

checked, f, i, b, ops_of = checking.checked, checking.f, checking.i, checking.b, checking.ops_of


@pytest.mark.parametrize("seed", checking.SEEDS)
def test_random_programs(seed):
    checking.check_random(forward_stacks.run, seed)


def forwarded(graph):
    return dce.run(carries.run(forward_stacks.run(graph)))


def pair(n, x, push, use):
    """A loop that pushes push(k, c) and a reverse loop that adds use(popped)."""

    def forward(k, stack, c):
        return [ops.push(stack, push(k, c)), ops.sin(c)]

    def backward(_k, stack, c):
        stack, saved = ops.pop(stack)
        return [stack, ops.add(ops.cos(c), use(saved))]

    stack, y = traced_for(n, [ops.stack_new(f(4)), x], forward)
    return [y, traced_for(n, [stack, y], backward, reverse=True)[1]]


def test_a_pop_of_a_push():
    def program(x):
        stack = ops.push(ops.push(ops.stack_new(f(4)), x), ops.sin(x))
        stack, top = ops.pop(stack)
        return [top, ops.pop(stack)[1]]

    assert ops_of(checked(forwarded, program, f(4))) == ["sin"]


def test_an_unread_stack_disappears_from_both_loops():
    zero = lambda saved: ops.full(0.0, f(4))  # noqa: ARG005, E731
    after = checked(forwarded, lambda n, x: pair(n, x, lambda _k, c: c, zero), i(), f(4))
    assert not {"stack_new", "push", "pop"} & set(ops_of(after))


def test_a_constant_on_the_stack_is_known():
    def program(n, x):
        return pair(n, x, lambda _k, _c: ops.full(0.5, f(4)), ops.sin)

    after = checked(forwarded, program, i(), f(4))
    assert not {"stack_new", "push", "pop"} & set(ops_of(after))


def test_what_is_needed_stays():
    after = checked(forwarded, lambda n, x: pair(n, x, lambda _k, c: c, ops.sin), i(), f(4))
    assert {"stack_new", "push", "pop"} <= set(ops_of(after))


def test_two_different_constants_stay():
    def program(n, x):
        def forward(_k, stack, c):
            return [ops.push(ops.push(stack, ops.full(1.0, f(4))), ops.full(2.0, f(4))), ops.sin(c)]

        def backward(_k, stack, c):
            stack, a = ops.pop(stack)
            stack, d = ops.pop(stack)
            return [stack, ops.add(ops.mul(c, a), d)]

        stack, y = traced_for(n, [ops.stack_new(f(4)), x], forward)
        return [traced_for(n, [stack, y], backward, reverse=True)[1]]

    assert "push" in ops_of(checked(forwarded, program, i(), f(4)))
