"""Depths as size expressions: ordinary scalar subgraphs, exact, of any bound; None where only running tells."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.types import TensorType, float64, int32, int64

X = np.linspace(0.1, 0.8, 6)
LANES = TensorType((6,), int64)
TABLE = np.array([4, 0, 7, 2, 5, 1])


def sine(n, x):
    return traced_for(n, [x], lambda k, v: [ops.sin(v)])


def lane():
    return ops.iota(LANES, 0)


BOUNDS = {
    "a[i]": (lambda a: a, 7),
    "a[i // 2]": (lambda a: ops.gather(a, ops.floordiv(lane(), 2)), 7),
    "a[a[i] % 6]": (lambda a: ops.gather(a, ops.mod(a, 6)), 7),
    "max(a[i] - 3, 0)": (lambda a: ops.max(ops.sub(a, 3), 0), 4),
    "difference, negative in some lanes": (lambda a: ops.sub(a, ops.flip(a, [0])), 5),
    "floor(sqrt(a[i]))": (lambda a: ops.cast(ops.sqrt(ops.cast(a, float64)), int64), 2),
    "32 bits": (lambda a: ops.cast(a, int32), 7),
    "a[i] * i": (lambda a: ops.mul(a, lane()), 20),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds(derivatives, name):
    bound, expected = BOUNDS[name]
    assert derivatives.depths(lambda x, a: sine(bound(a), x), [X, TABLE]) == [expected]


def test_scalar_bound(derivatives):
    assert derivatives.depths(lambda x, n: sine(n, x), [X, np.array(5)]) == [5]
    assert derivatives.depths(lambda x, n: sine(n, x), [X, np.array(-5)]) == [0]


def test_empty_lanes(derivatives):
    assert derivatives.depths(lambda x, n: sine(n, x), [np.zeros(0), np.zeros(0, dtype=np.int64)]) == [0]


def nested(inner_bound):
    def function(x, n, m):
        return traced_for(n, [x], lambda k, v: sine(inner_bound(k, m), v))

    return function


def test_a_loop_that_counts_down(derivatives):
    """The inner bound is carried: it grows by 3, 2, 1 in this order, so the inner trips are 0 + 3 + 5 + 6. It is saved
    itself, once a trip."""

    def function(x, n):
        step = lambda k, m, v: [ops.add(m, k), *sine(m, v)]
        return traced_for(n, [ops.full(0, TensorType((), int64)), x], step, reverse=True)[1:]

    assert derivatives.depths(function, [X, np.array(4)]) == [14, 4]


def test_products_need_no_loop(derivatives):
    """The inner bound doesn't depend on the trip: n * m per lane, then the maximum."""
    function = nested(lambda k, m: m)
    given = [X, TABLE, TABLE[::-1].copy()]
    assert derivatives.depths(function, given) == [max(TABLE * TABLE[::-1])]
    assert [n.attrs["name"] for n in derivatives.region_nodes(function, given)] == [None, None]


def test_triangular(derivatives):
    function = nested(lambda k, m: k)
    assert derivatives.depths(function, [X, TABLE, TABLE]) == [max(n * (n - 1) // 2 for n in TABLE)]
    assert "depth" in [n.attrs["name"] for n in derivatives.region_nodes(function, [X, TABLE, TABLE])]


def test_bound_read_at_the_outer_index(derivatives):
    def function(x, n, m):
        return traced_for(n, [x], lambda k, v: sine(ops.broadcast_to(ops.gather(m, k), (6,)), v))

    assert derivatives.depths(function, [X, np.array(4), TABLE]) == [sum(TABLE[:4])]


def test_three_levels_with_triangles(derivatives):
    def function(x, n):
        def middle(k, v):
            return traced_for(k, [v], lambda j, w: sine(j, w))

        return traced_for(n, [x], middle)

    expected = max(sum(j for k in range(n) for j in range(k)) for n in TABLE)
    assert derivatives.depths(function, [X, TABLE]) == [expected]


def test_an_integer_carry_as_bound(derivatives):
    def function(x, n):
        def body(k, v, j):
            return [sine(j, v)[0], ops.add(ops.mul(j, 2), 1)]

        return traced_for(n, [x, ops.full(0, LANES)], body)

    inner = max(sum(2**k - 1 for k in range(n)) for n in TABLE)
    assert sorted(derivatives.depths(function, [X, TABLE])) == [7, inner]  # the bound itself is saved too


def test_uniform_around_lanes(derivatives):
    def function(x, n, m):
        return traced_for(n, [x], lambda k, v: sine(m, v))

    assert derivatives.depths(function, [X, np.array(3), TABLE]) == [21]


def test_siblings_count_apart(derivatives):
    def function(x, n, m):
        def body(k, v):
            (v,) = sine(m, v)
            (v,) = sine(k, v)
            return [v]

        return traced_for(n, [x], body)

    found = derivatives.depths(function, [X, TABLE, TABLE])
    assert sorted(found) == sorted([max(TABLE * TABLE), max(n * (n - 1) // 2 for n in TABLE)])


def test_a_branch_counts_as_if_taken(derivatives):
    def function(x, n, m):
        def body(k, v):
            return traced_switch(ops.gt(v, 0.5), [lambda v: [ops.mul(v, 2)], lambda v: sine(m, v)], [v])

        return traced_for(n, [x], body)

    found = derivatives.depths(function, [X, TABLE, np.full(6, 3)])
    assert sorted(found) == [7, 21]  # the condition, and the inner loop


def test_switch_at_the_top(derivatives):
    def function(x, n):
        return traced_switch(ops.gt(x, 0.5), [lambda v: [ops.mul(v, 2)], lambda v: sine(n, v)], [x])

    assert derivatives.depths(function, [X, TABLE]) == [7]


def test_a_value_dependent_while_inside_is_measured(derivatives):
    def function(x, n):
        def body(k, v):
            return traced_while([v], lambda w: ops.lt(w, 1.0), lambda w: [ops.add(w, ops.exp(ops.neg(w)))])

        return traced_for(n, [x], body)

    depths = derivatives.depths(function, [X, TABLE])
    assert depths.count(None) >= 1
    assert 7 in depths  # the trip counts of the inner loop: one per outer trip


def test_a_bound_from_float_carries_is_measured(derivatives):
    def function(x, n):
        return traced_for(n, [x], lambda k, v: sine(ops.cast(ops.mul(v, 5), int64), v))

    assert None in derivatives.depths(function, [X, TABLE])


def test_second_order_keeps_depths_known(derivatives):
    def gradient(x, n):
        (y,) = sine(n, x)
        return derivatives.vjp_emit([y], [ops.ones_like(y)], [x])

    found = derivatives.depths(gradient, [X, TABLE])
    assert set(found) == {7}
    assert len(found) > 2


def test_a_bound_that_an_earlier_loop_counted(derivatives):
    """The earlier loop saves floats of its own; counting runs only its integers."""

    def function(x, n):
        v, j = traced_for(n, [x, ops.full(0, LANES)], lambda k, v, j: [ops.sin(v), ops.add(j, 2)])

        def body(k, w):
            u, i = traced_for(k, [w, j], lambda h, u, i: [ops.cos(u), ops.add(i, 1)])
            return sine(ops.mod(i, 4), u)

        return traced_for(ops.full(3, LANES), [v], body)

    found = derivatives.depths(function, [X, TABLE])
    assert None not in found[:1]
    derivatives.check(function, [X, TABLE])
