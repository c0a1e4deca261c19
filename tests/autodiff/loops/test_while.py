"""While loops: trips counted per lane as data, exits that depend on data, no bound given by anybody."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.region_ops import traced_for, traced_while
from loopgrad.graph.types import TensorType, int64

X = np.array([0.3, 1.4, 2.5, 0.9])


def grow(x):
    return traced_while([x], lambda v: ops.lt(v, 2.0), lambda v: [ops.mul(ops.add(v, ops.sin(v)), 1.1)])


def grow_linearly(x):
    return traced_while([x], lambda v: ops.lt(v, 2.0), lambda v: [ops.mul(v, 1.5)])


def cube_root(x):
    """Newton's method to a tolerance."""

    def unfinished(v):
        return ops.gt(ops.abs(ops.sub(ops.mul(v, ops.mul(v, v)), x)), 1e-9)

    def step(v):
        return [ops.sub(v, ops.div(ops.sub(ops.mul(v, ops.mul(v, v)), x), ops.mul(ops.mul(v, v), 3)))]

    return traced_while([ops.ones_like(x)], unfinished, step)


def counted(x):
    """The condition looks at an integer carry, the body at a bool one."""

    def step(v, j, odd):
        return [ops.select(odd, ops.sin(v), ops.mul(v, v)), ops.add(j, 1), ops.invert(odd)]

    start = [x, ops.full(0, TensorType(x.shape, int64)), ops.gt(x, 1.0)]
    return traced_while(start, lambda v, j, odd: ops.lt(j, 5), step)


def partial_exit(x, limit):
    """Some carries move on after others would have been done; the limit is captured."""

    def step(a, b):
        return [b, ops.mul(ops.add(a, b), 0.7)]

    return traced_while([x, ops.mul(x, 1.3)], lambda a, b: ops.lt(a, limit), step)


@pytest.mark.parametrize("function", [grow, grow_linearly, cube_root, counted])
def test_per_lane(derivatives, function):
    derivatives.check(function, [X], order=2, rtol=1e-4)


@pytest.mark.parametrize("function", [grow, grow_linearly, cube_root, counted])
@pytest.mark.parametrize("x", X)
def test_uniform(derivatives, function, x):
    derivatives.check(function, [np.array(x)], order=2, rtol=1e-4)


def test_captured_limit(derivatives):
    derivatives.check(partial_exit, [X, np.array([1.0, 5.0, 2.0, 1.5])], order=2)


def test_newton_gradient_is_that_of_the_root(derivatives):
    (gradient,) = derivatives.gradients(cube_root, [X])
    np.testing.assert_allclose(gradient, X ** (-2 / 3) / 3, rtol=1e-6)


def test_a_loop_that_never_runs(derivatives):
    (gradient,) = derivatives.gradients(grow, [np.array([3.0, 4.0])])
    np.testing.assert_array_equal(gradient, [1, 1])


def test_the_pole_beyond_the_exit_does_not_poison(derivatives):
    """Lane 1 leaves at once with v = 0, where the body divides by v."""

    def function(x):
        return traced_while([x], lambda v: ops.gt(v, 0.5), lambda v: [ops.sub(v, ops.div(0.2, v))])

    (gradient,) = derivatives.gradients(function, [np.array([2.0, 0.0])])
    assert gradient[1] == 1
    assert np.isfinite(gradient[0])


def test_what_is_saved(derivatives):
    assert derivatives.pushed(grow, [X]) == [("cos", "float64[4]")]
    assert derivatives.pushed(grow_linearly, [X]) == []
    assert derivatives.pushed(cube_root, [X]) == [("carry", "float64[4]")]


def test_trips_are_counted_once_per_lane(derivatives):
    forward, reverse = derivatives.region_nodes(grow, [X])
    counter = reverse.operands[0]
    assert counter.node is forward
    assert str(counter.type) == "int32[4]"
    (forward, reverse) = derivatives.region_nodes(grow_linearly, [X])
    assert str(reverse.operands[0].type) == "int64[4]"  # nothing is saved, so nothing bounds the trips


def test_trips_that_save_only_in_loops_inside_are_not_bounded(derivatives):
    """The inner loop may make no trip."""

    def function(x, n):
        inner = lambda v: traced_for(n, [v], lambda _, w: [ops.sin(w)])
        return traced_while([x], lambda v: ops.lt(v, 2.0), lambda v: [ops.add(inner(v)[0], 1.0)])

    nodes = derivatives.region_nodes(function, [X, np.array([0, 1, 0, 2])])
    counters = {str(node.operands[0].type) for node in nodes if node.op == "for"}
    assert counters == {"int64[4]"}


def test_depth_is_measured(derivatives):
    assert derivatives.depths(grow, [X]) == [None]


def test_limit_is_kept(derivatives):
    def function(x):
        return traced_while([x], lambda v: ops.lt(v, 2.0), lambda v: [ops.sin(v)], max_steps=7)

    forward, _ = derivatives.region_nodes(lambda x: grow_with_limit(x), [X])
    assert forward.attrs["max_steps"] == 50
    with pytest.raises(RuntimeError, match="max_steps=7"):
        derivatives.gradients(function, [X])


def grow_with_limit(x):
    return traced_while([x], lambda v: ops.lt(v, 2.0), lambda v: [ops.add(v, ops.sin(v))], max_steps=50)


def test_condition_that_looks_at_all_lanes(derivatives):
    def function(x):
        def unfinished(v):
            return ops.lt(v, ops.broadcast_to(ops.add(ops.reduce_max(v, [0]), -0.5), v.shape))

        return traced_while([x], unfinished, lambda v: [ops.add(ops.mul(v, 1.2), ops.mul(ops.sin(v), 0.3))])

    derivatives.check(function, [X], order=2)


@pytest.mark.parametrize("table", [False, True])
def test_lanes_discarded_after_the_loop_do_not_poison(derivatives, table):
    """Lane 1 divides by zero in the loop, and a select afterwards throws its result away."""

    def function(x, c):
        factor = ops.gather(c, ops.iota(TensorType((4,), int64), 0)) if table else c

        def body(v, j):
            return [ops.sin(ops.div(ops.mul(v, factor), ops.sub(1.5, x))), ops.add(j, 1)]

        v, _ = traced_while([x, ops.full(0, TensorType((4,), int64))], lambda v, j: ops.lt(j, 3), body)
        return [ops.select(ops.gt(x, 1.0), x, v)]

    x = np.array([0.3, 1.5, 0.5, 0.9])
    dx, dc = derivatives.gradients(function, [x, np.array([0.5, 0.6, 0.7, 0.8])])
    assert (dx[1], dc[1]) == (1, 0)
    assert np.isfinite(dx).all()
    assert np.isfinite(dc).all()
    assert (dc[[0, 2, 3]] != 0).all()


def test_a_discarded_loop_is_guarded_once_a_trip(derivatives):
    def function(x):
        (v,) = grow(x)
        return [ops.select(ops.gt(x, 1.0), v, 0.0)]

    _, reverse = derivatives.region_nodes(function, [X])
    assert [n.op for n in reverse.regions[0].nodes].count("is_nan") == 1
    derivatives.check(function, [X], order=2)


def test_second_derivative_where_a_lane_has_no_first_cotangent(derivatives):
    """(v - target)**2 with v at the target in lane 0, behind a select: the first cotangent is exactly 0."""

    def function(x):
        (v,) = grow(x)
        miss = ops.sub(v, ops.stop_gradient(v))
        return [ops.select(ops.gt(x, 0.0), ops.mul(miss, miss), 0.0)]

    def slope(x):
        return grow(x)

    (first,) = derivatives.gradients(slope, [X])
    (second,) = derivatives.gradients(derivatives.gradient_of(function, [0]), [X])
    np.testing.assert_allclose(second, 2 * first**2)
