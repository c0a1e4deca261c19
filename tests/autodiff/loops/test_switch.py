"""Branches: chosen by the saved index, untaken ones cost nothing and never poison."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.types import TensorType, float64, int64

X = np.array([0.2, 0.9, -0.6, 1.4])
LANES = TensorType((4,), int64)
TRIPS = np.array([0, 1, 3, 5])


def four_arms(index, x, y):
    arms = [
        lambda x, y: [ops.mul(ops.sin(x), y)],
        lambda x, y: [y],
        lambda x, y: [ops.full(3.0, x.type)],
        lambda x, y: [ops.exp(ops.mul(x, y))],
    ]
    return traced_switch(index, arms, [x, y])


@pytest.mark.parametrize("index", [np.array([0, 1, 2, 3]), np.array([-5, 9, 3, 2])])
def test_per_lane(derivatives, index):
    derivatives.check(four_arms, [index, X, X + 0.3], order=2)


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 3, 7])
def test_uniform(derivatives, index):
    derivatives.check(four_arms, [np.array(index), X, X + 0.3], order=2)


def test_masked_reciprocal(derivatives):
    """The untaken arm divides by zero."""

    def function(x):
        return traced_switch(ops.gt(x, 0), [lambda x: [ops.zeros_like(x)], lambda x: [ops.div(1.0, x)]], [x])

    (gradient,) = derivatives.gradients(function, [np.array([0.0, 2.0, -1.0])])
    np.testing.assert_array_equal(gradient, [0, -0.25, 0])
    (gradient,) = derivatives.gradients(function, [np.array(0.0)])
    assert gradient == 0


@pytest.mark.parametrize("lanes", [True, False])
def test_untaken_root_of_a_captured_zero(derivatives, lanes):
    """sqrt(c) is computed from a captured scalar in a branch that nobody takes."""

    def function(x, c):
        pred = ops.gt(x, 9.0) if lanes else ops.gt(c, 9.0)
        taken = lambda x: [ops.mul(x, ops.broadcast_to(ops.sqrt(c), x.shape))]
        return traced_switch(pred, [lambda x: [ops.sin(x)], taken], [x])

    x, c = derivatives.gradients(function, [X, np.array(0.0)])
    np.testing.assert_allclose(x, np.cos(X))
    assert c == 0


def branch_in_loop(x, n):
    def body(k, v):
        return traced_switch(ops.gt(v, 0.5), [lambda v: [ops.mul(v, 1.1)], lambda v: [ops.mul(v, 0.9)]], [v])

    return traced_for(n, [x], body)


def nonlinear_branch_in_loop(x, n):
    def body(k, v):
        return traced_switch(ops.gt(v, 0.5), [lambda v: [ops.sin(v)], lambda v: [ops.mul(v, ops.cos(v))]], [v])

    return traced_for(n, [x], body)


def many_arms_in_loop(x, n):
    def body(k, v):
        arms = [lambda v: [ops.mul(v, 0.9)], lambda v: [ops.mul(v, 1.1)], lambda v: [ops.neg(v)]]
        return traced_switch(ops.cast(ops.mul(v, 3.0), int64), arms, [v])

    return traced_for(n, [x], body)


def loops_in_branches(x, n):
    """Both arms run loops of their own, which save into stacks threaded through the switch."""

    def arm(amount):
        return lambda v: traced_for(n, [v], lambda j, w: [ops.add(ops.sin(w), amount)])

    return traced_switch(ops.gt(x, 0.5), [arm(0.1), arm(0.2)], [x])


def loops_in_branches_in_a_loop(x, n):
    def body(k, v):
        def arm(amount):
            return lambda v: traced_for(k, [v], lambda j, w: [ops.add(ops.sin(w), amount)])

        return traced_switch(ops.gt(v, 0.5), [arm(0.1), arm(0.2)], [v])

    return traced_for(n, [x], body)


def while_in_one_branch(x, n):
    def body(k, v):
        def search(v):
            return traced_while([v], lambda w: ops.lt(w, 2.0), lambda w: [ops.add(w, ops.exp(ops.mul(w, 0.3)))])

        return traced_switch(ops.gt(v, 0.3), [lambda v: [ops.sin(v)], search], [v])

    return traced_for(n, [ops.abs(x)], body)


IN_LOOPS = [
    branch_in_loop, nonlinear_branch_in_loop, many_arms_in_loop, loops_in_branches, loops_in_branches_in_a_loop,
    while_in_one_branch,
]  # fmt: skip


@pytest.mark.parametrize("function", IN_LOOPS)
def test_with_loops_per_lane(derivatives, function):
    derivatives.check(function, [X, TRIPS], order=2)
    assert set(derivatives.lanes_of(function, [X, TRIPS])) == {1}


@pytest.mark.in_turns
@pytest.mark.parametrize("function", IN_LOOPS)
@pytest.mark.parametrize("x", X)
def test_with_loops_uniform(derivatives, function, x):
    derivatives.check(function, [np.array(x), np.array(4)], order=2)


def test_a_branch_saves_its_condition_as_one_byte(derivatives):
    assert derivatives.pushed(branch_in_loop, [X, TRIPS]) == [("gt", "bool[4]")]
    assert derivatives.pushed(many_arms_in_loop, [X, TRIPS]) == [("cast", "int8[4]")]


def test_branches_share_their_slots(derivatives):
    """Each arm must save one result of its own inner loop; both use the same extra result of the switch."""

    def function(x, n):
        def arm(amount):
            def branch(v):
                (w,) = traced_for(n, [v], lambda j, w: [ops.mul(w, amount)])
                return [ops.mul(w, w)]

            return branch

        return traced_switch(ops.gt(x, 0.5), [arm(0.5), arm(2.0)], [x])

    forward = derivatives.region_nodes(function, [X, TRIPS])[0]
    assert [str(r.type) for r in forward.results] == ["float64[4]", "float64[4]"]
    derivatives.check(function, [X, TRIPS], order=2)


def test_tables_and_accumulators_through_branches(derivatives):
    def function(t, x, n):
        def body(k, v, acc):
            place = ops.mod(k, 3)

            def deposit(v, acc):
                return [ops.mul(v, ops.gather(t, place)), ops.scatter("add", acc, [place], ops.sin(v))]

            return traced_switch(ops.gt(v, 0.2), [lambda v, acc: [ops.sin(v), acc], deposit], [v, acc], shared=[1])

        return traced_for(n, [x, t], body, shared=[1])

    given = [np.array([0.4, -0.2, 1.3, 0.8, 2.0]), X, TRIPS]
    derivatives.check(function, given, order=2)
    assert set(derivatives.lanes_of(function, given)) == {1}


def test_lanes_that_look_at_each_other_in_a_branch(derivatives):
    def function(x):
        spread = lambda v: [ops.add(v, ops.broadcast_to(ops.reduce_sum(ops.mul(v, v), [0]), v.shape))]
        return traced_switch(ops.gt(x, 0.5), [lambda v: [ops.sin(v)], spread], [x])

    derivatives.check(function, [X], order=2)


def test_a_captured_scalar_used_by_one_branch_in_a_loop(derivatives):
    def function(x, c, n):
        def body(k, v):
            scaled = lambda v: [ops.mul(v, ops.broadcast_to(ops.exp(ops.neg(c)), (4,)))]
            return traced_switch(ops.gt(v, 0.5), [lambda v: [ops.sin(v)], scaled], [v])

        return traced_for(n, [x], body)

    given = [X, np.array(0.4), TRIPS]
    derivatives.check(function, given, order=2)
    assert set(derivatives.lanes_of(function, given)) == {1}


def test_the_branch_flag_is_saved_not_recomputed(derivatives):
    """The first trip writes from x, the others constants; the flag comes from the trip, not from the data."""

    def function(x, n):
        def body(k, out):
            first = lambda out: [x]
            later = lambda out: [ops.full(7.0, out.type)]
            row = traced_switch(ops.gt(k, 0), [first, later], [ops.gather(out, k)])[0]
            return [ops.scatter("set", out, [k], row)]

        return traced_for(n, [ops.full(0.0, TensorType((3, 4), float64))], body)

    (gradient,) = derivatives.gradients(function, [X, np.array(2)])
    np.testing.assert_array_equal(gradient, np.ones(4))


def test_a_constant_accumulator_stays_an_operand(derivatives):
    def function(x):
        def add(total, v):
            return [ops.scatter("add", total, [ops.mod(ops.iota(LANES, 0), 3)], ops.sin(v)), v]

        total = ops.full(0.0, TensorType((3,), float64))
        return traced_switch(ops.gt(x, 0.5), [lambda t, v: [t, ops.sin(v)], add], [total, x], shared=[0])

    derivatives.check(function, [X], order=2)


@pytest.mark.parametrize("repeated", [False, True])
def test_second_order_through_a_branch_whose_loop_is_masked(derivatives, repeated):
    """Several stacks pass through one switch; some of them have tangents, some don't."""

    def function(x, h, n):
        def inner(v):
            def body(k, acc, u):
                u = ops.tanh(ops.add(ops.mul(u, u), u))
                return [ops.scatter("max", acc, [n, k], u), u]

            total, u = traced_for(n, [h, v], body, shared=[0])
            return [ops.add(ops.tanh(ops.reduce_sum(total, [1])), u)]

        def step(k, v):
            return traced_switch(ops.gt(v, 0.4), [lambda v: [ops.sin(v)], inner], [v])

        return traced_for(n, [x], step) if repeated else step(None, x)

    h = np.linspace(0.1, 0.9, 12).reshape(4, 3)
    derivatives.check(function, [X + 0.05, h, np.array([0, 1, 3, 2])], order=2, numeric=False)


@pytest.mark.parametrize("function", [loops_in_branches, loops_in_branches_in_a_loop])
def test_value_only_after_a_gradient_was_taken(derivatives, function):
    """Nobody asks for the stacks' cotangents: they are neither filled nor emptied."""

    def both(x, n):
        (y,) = function(x, n)
        (gradient,) = derivatives.vjp_emit([y], [ops.ones_like(y)], [x])
        (again,) = derivatives.vjp_emit([y, gradient], [ops.ones_like(y), None], [x])
        return [ops.sub(gradient, again)]

    arrays = [X, TRIPS]
    (difference,) = derivatives.interpret(derivatives.graph_of(both, arrays), arrays)
    np.testing.assert_array_equal(difference, np.zeros(4))
