"""Loops in loops: stacks of inner loops are threaded through the outer ones, siblings run back in reverse."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.types import TensorType, int64

X = np.array([0.1, 0.3, 0.51, 0.8])
TRIPS = np.array([0, 1, 2, 3])
OTHERS = np.array([2, 0, 3, 1])


def inner_uses_outer(x, n, m):
    def body(k, v):
        (w,) = traced_for(m, [v], lambda j, w: [ops.add(ops.mul(ops.sin(w), v), 0.1)])
        return [ops.add(w, 0.05)]

    return traced_for(n, [x], body)


def triangular(x, n):
    def body(k, v):
        return [ops.add(traced_for(k, [v], lambda j, w: [ops.add(ops.sin(w), 0.1)])[0], 0.05)]

    return traced_for(n, [x], body)


def product_then_sum(a, b, n):
    """w = a**n in one loop, then 2n times s += w + b."""
    (w,) = traced_for(n, [ops.ones_like(a)], lambda j, w: [ops.mul(w, a)])
    return traced_for(ops.mul(n, 2), [ops.zeros_like(a)], lambda j, s: [ops.add(s, ops.add(w, b))])


def siblings_in_a_loop(a, b, n, m):
    def body(k, f):
        (w,) = traced_for(n, [f], lambda j, w: [ops.mul(ops.sin(w), a)])
        (s,) = traced_for(m, [ops.zeros_like(a)], lambda j, s: [ops.add(ops.mul(s, w), b)])
        return [ops.add(s, w)]

    return traced_for(ops.full(2, TensorType((), int64)), [a], body)


def trip_count_between_siblings(x, trips, n):
    def body(k, v):
        (v,) = traced_for(n, [v], lambda j, v: [ops.sin(v)])
        more = ops.gather(trips, k)
        (v,) = traced_for(more, [v], lambda j, v: [ops.add(ops.mul(v, v), 0.1)])
        return [v]

    return traced_for(n, [x], body)


def while_in_for(x, n):
    def body(k, v):
        (w,) = traced_while([v], lambda w: ops.lt(w, 1.0), lambda w: [ops.add(ops.mul(w, 1.3), ops.sin(w))])
        return [ops.mul(w, 0.3)]

    return traced_for(n, [x], body)


def for_in_while(x, n):
    def body(v):
        return traced_for(n, [ops.add(v, 0.5)], lambda j, w: [ops.add(w, ops.mul(ops.sin(w), 0.2))])

    return traced_while([x], lambda v: ops.lt(v, 2.0), body)


def three_levels(x, n, m):
    def body(k, v):
        def middle(j, w):
            (u,) = traced_for(j, [w], lambda i, u: [ops.sin(ops.add(u, v))])
            return [ops.add(u, ops.mul(w, w))]

        return traced_for(m, [v], middle)

    return traced_for(n, [x], body)


def four_levels_with_branches(x, n, m):
    def body(k, v):
        def middle(w, j):
            def turn(w):
                def innermost(i, u):
                    return traced_for(m, [u], lambda h, t: [ops.sin(ops.mul(t, 1.2))])

                return traced_for(j, [w], innermost)

            (w,) = traced_switch(ops.gt(w, 0.4), [turn, lambda w: [ops.mul(w, w)]], [w])
            return [ops.add(w, 0.2), ops.add(j, 1)]

        return traced_while([v, ops.zeros_like(k)], lambda w, j: ops.lt(j, m), middle)[:1]

    return traced_for(n, [x], body)


def accumulated_per_level(x, n, m):
    """Locals initialised in the middle loop, sums at two levels."""

    def body(k, y):
        def inner(j, s, t):
            return [ops.add(s, ops.add(ops.sin(x), 1)), ops.add(t, ops.mul(ops.sin(x), s))]

        s, t = traced_for(m, [ops.zeros_like(x), ops.zeros_like(x)], inner)
        return [ops.add(y, ops.add(s, t))]

    return traced_for(n, [ops.zeros_like(x)], body)


SHAPES = {
    f.__name__: f
    for f in (
        inner_uses_outer, triangular, product_then_sum, siblings_in_a_loop, while_in_for, for_in_while, three_levels,
        four_levels_with_branches, accumulated_per_level,
    )
}  # fmt: skip


def arguments(function):
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return [TRIPS if a == "n" else OTHERS if a == "m" else X + 0.1 * i for i, a in enumerate(names)]


@pytest.mark.parametrize("name", SHAPES)
def test_per_lane(derivatives, name):
    function = SHAPES[name]
    derivatives.check(function, arguments(function), order=2)
    assert 0 not in derivatives.lanes_of(function, arguments(function)) or name == "siblings_in_a_loop"


@pytest.mark.parametrize("name", SHAPES)
def test_uniform(derivatives, name):
    function = SHAPES[name]
    given = [np.array(2 if a is TRIPS else 3) if a.dtype.kind == "i" else a[2] for a in arguments(function)]
    derivatives.check(function, given, order=2)


def test_trip_count_between_siblings(derivatives):
    derivatives.check(trip_count_between_siblings, [X, np.array([2, 0, 3, 1]), TRIPS], order=2)


def test_uniform_loop_in_lanes(derivatives):
    def function(x, n):
        three = ops.full(3, TensorType((), int64))

        def body(k, v):
            shifted = lambda j, w: [ops.sin(ops.add(w, ops.broadcast_to(ops.cast(j, w.dtype), (4,))))]
            return traced_for(three, [v], shifted)

        return traced_for(n, [x], body)

    derivatives.check(function, [X, TRIPS], order=2)


def test_lanes_in_a_uniform_loop(derivatives):
    def function(x, n, m):
        return traced_for(n, [x], lambda k, v: traced_for(m, [v], lambda j, w: [ops.sin(ops.mul(w, v))]))

    derivatives.check(function, [X, np.array(3), OTHERS], order=2)


def test_lanes_of_lanes(derivatives):
    def function(x, n, m):
        def body(k, v):
            return traced_for(m, [v], lambda j, w: [ops.sin(ops.mul(w, v))])

        return traced_for(n, [x], body)

    x = np.random.default_rng(0).uniform(0, 1, (4, 2))
    derivatives.check(function, [x, TRIPS, np.array([[0, 1], [2, 3], [1, 1], [2, 0]])], order=2)


def test_reverse_through_a_body_that_takes_gradients_itself(derivatives):
    """A descent whose step is the gradient of an inner loop."""

    def inner(v):
        return traced_for(ops.full(3, TensorType((), int64)), [v], lambda j, w: [ops.sin(ops.mul(w, 1.3))])

    def function(x, n):
        def body(k, v):
            from_inner = inner(v)
            (slope,) = derivatives.vjp_emit(from_inner, [ops.ones_like(v)], [v])
            return [ops.sub(v, ops.mul(slope, 0.1))]

        return traced_for(n, [x], body)

    derivatives.check(function, [X, TRIPS], order=2)


def test_inner_stacks_are_threaded_not_saved(derivatives):
    assert derivatives.pushed(triangular, [X, TRIPS]) == [("cos", "float64[4]")]
    forward, reverse = [n for n in derivatives.region_nodes(triangular, [X, TRIPS]) if n.attrs["name"] != "depth"]
    assert [str(r.type) for r in forward.results] == ["float64[4]", "stack<float64[4]>"]
    assert reverse.attrs["reverse"]


@pytest.mark.parametrize("name", ["inner_uses_outer", "triangular"])
def test_third_order(derivatives, name):
    derivatives.check(SHAPES[name], arguments(SHAPES[name]), order=3)
