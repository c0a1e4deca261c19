"""Loop shapes that broke other systems, at graph level, by the ids of the project's case list.

What is covered by name elsewhere in this folder isn't repeated: recurrences, powers, sums, nests, siblings,
branches, integer carries and bounds are in test_for, test_nested, test_switch and test_sizes.
"""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.types import TensorType, float64, int64

X = np.array([0.1, 0.3, 0.51, 0.8])
F = TensorType((4,), float64)
LANES = TensorType((4,), int64)
ONE = TensorType((), int64)


def count(n):
    return ops.full(n, ONE)


def zeros():
    return ops.full(0.0, F)


def test_a10_long_loops_of_invariant_work_save_nothing(derivatives):
    def function(x):
        def innermost(k, y):
            return [ops.add(y, ops.add(ops.sin(x), 1))]

        def middle(k, y):
            return traced_for(count(20), [y], innermost)

        return traced_for(count(5), [zeros()], lambda k, y: traced_for(count(10), [y], middle))

    assert derivatives.pushed(function, [X]) == []
    (gradient,) = derivatives.gradients(function, [np.zeros(4)])
    np.testing.assert_array_equal(gradient, np.full(4, 1000.0))


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_a12_sum_over_the_index_then_exp(derivatives, trips):
    def function(x, n):
        def body(k, s):
            return [ops.add(s, ops.gather(x, ops.iota(LANES, 0), ops.broadcast_to(k, (4,))))]

        (s,) = traced_for(n, [zeros()], body)
        return [ops.exp(s)]

    derivatives.check(function, [np.random.default_rng(0).uniform(-1, 1, (4, 3)), np.array(trips)], order=2)


def test_a15_while_with_nested_ifs(derivatives):
    """y += w * w where 0 < w < 10."""

    def function(w):
        def body(step, y):
            def inside(y):
                return traced_switch(ops.lt(w, 10), [lambda y: [y], lambda y: [ops.add(y, ops.mul(w, w))]], [y])

            return [ops.add(step, 1), *traced_switch(ops.gt(w, 0), [lambda y: [y], inside], [y])]

        return traced_while([ops.full(0, TensorType(w.shape, int64)), ops.zeros_like(w)],
                            lambda step, y: ops.lt(step, 1), body)[1:]  # fmt: skip

    w = np.array([-2.0, 1.0, 2.0, 6.0, 20.0])
    (gradient,) = derivatives.gradients(function, [w])
    np.testing.assert_array_equal(gradient, [0, 2, 4, 12, 0])


def test_b7_windows(derivatives):
    def function(a, b):
        def outer(k, f):
            i = ops.add(ops.iota(LANES, 0), 0)

            def product(j, w):
                return [ops.mul(w, ops.gather(a, ops.add(i, ops.broadcast_to(j, (4,)))))]

            (w,) = traced_for(count(3), [ops.full(1.0, F)], product)

            def total(j, s):
                place = ops.add(ops.mul(i, 2), ops.broadcast_to(j, (4,)))
                return [ops.add(s, ops.add(w, ops.gather(b, place)))]

            return [ops.add(f, traced_for(count(6), [zeros()], total)[0])]

        return traced_for(count(8), [zeros()], outer)

    a, b = derivatives.gradients(function, [np.full(8, 2.0), np.ones(16)])
    np.testing.assert_allclose(a[:6], [8 * 6 * 4 * min(i + 1, 3, 6 - i) for i in range(6)])
    assert b.sum() == 8 * 6 * 4


def test_b9_triangular_products_of_loops(derivatives):
    def function(x):
        def row(j, y):
            inner = lambda i, y: [ops.add(y, x)]
            (y,) = traced_for(j, [y], inner)
            (y,) = traced_for(count(3), [y], lambda k, y: traced_for(j, [y], inner))
            deep = lambda k, y: traced_for(count(2), [y], lambda h, y: traced_for(j, [y], inner))
            return traced_for(count(3), [y], deep)

        return row(ops.iota(LANES, 0), ops.zeros_like(x))

    (gradient,) = derivatives.gradients(function, [np.ones(4)])
    np.testing.assert_array_equal(gradient, 10.0 * np.arange(4))


def test_c6_else_chain_with_boundaries(derivatives):
    """4v | 2v | 3 | -1 by interval."""

    def function(v):
        last = lambda v: traced_switch(ops.lt(v, 20), [lambda v: [ops.full(-1.0, v.type)],
                                                       lambda v: [ops.full(3.0, v.type)]], [v])  # fmt: skip
        middle = lambda v: traced_switch(ops.lt(v, 10), [last, lambda v: [ops.mul(v, 2)]], [v])
        return traced_switch(ops.lt(v, 5), [middle, lambda v: [ops.mul(v, 4)]], [v])

    (gradient,) = derivatives.gradients(function, [np.array([-1.0, 4.9, 5.0, 9.0, 10.0, 25.0])])
    np.testing.assert_array_equal(gradient, [4, 4, 2, 2, 0, 0])


def test_d6_ragged_offsets(derivatives):
    def function(x, starts):
        lane = ops.iota(TensorType((3,), int64), 0)
        first = ops.gather(starts, lane)
        length = ops.sub(ops.gather(starts, ops.add(lane, 1)), first)

        def body(j, acc):
            here = ops.gather(x, ops.add(first, j))
            return [ops.add(acc, ops.mul(here, here))]

        return traced_for(length, [ops.full(0.0, TensorType((3,), float64))], body)

    x = np.arange(1.0, 7.0)
    (gradient,) = derivatives.gradients(function, [x, np.array([0, 2, 3, 6])])
    np.testing.assert_array_equal(gradient, 2 * x)


def test_e1_the_second_loop_reads_what_the_first_wrote(derivatives):
    def function(x, w):
        def once(k, s, out):
            (s,) = traced_for(count(4), [s], lambda i, s: [ops.scatter("set", s, [i], ops.gather(x, i))])

            def scale(i, out):
                return [ops.scatter("set", out, [i], ops.mul(ops.gather(s, i), ops.gather(w, i)))]

            return [s, *traced_for(count(4), [out], scale)]

        return traced_for(count(1), [zeros(), zeros()], once)[1:]

    x, w = derivatives.gradients(function, [X, X + 2])
    np.testing.assert_array_equal(x, X + 2)
    np.testing.assert_array_equal(w, X)


def test_e7_a_write_after_the_loop_replaces_its_writes(derivatives):
    def function(a, b):
        lane = ops.iota(LANES, 0)
        step = ops.cast(lane, float64)

        def body(j, p):
            return [ops.scatter("add", p, [lane], ops.mul(step, a))]

        (p,) = traced_for(b, [zeros()], body)
        return [ops.scatter("set", p, [lane], ops.mul(a, step))]

    (gradient,) = derivatives.gradients(function, [X, np.arange(4)])
    np.testing.assert_array_equal(gradient, np.arange(4.0))


def test_f1_a_condition_around_a_loop(derivatives):
    def function(x, active):
        def run(v):
            def body(k, v, acc):
                return [ops.add(ops.mul(v, 0.95), 0.01), ops.add(acc, v)]

            return traced_for(count(4), [v, ops.zeros_like(v)], body)[1:]

        return traced_switch(ops.lt(ops.iota(LANES, 0), ops.broadcast_to(active, (4,))),
                             [lambda v: [ops.zeros_like(v)], run], [x])  # fmt: skip

    (gradient,) = derivatives.gradients(function, [X, np.array(3)])
    np.testing.assert_allclose(gradient, [sum(0.95**k for k in range(4))] * 3 + [0], rtol=1e-14)


def test_g6_a_counter_as_index(derivatives):
    def function(a):
        def body(k, p, total):
            here = ops.gather(a, p)
            return [ops.add(p, 1), ops.add(total, ops.mul(here, here))]

        return traced_for(count(4), [ops.full(0, LANES), zeros()], body)[1:]

    (gradient,) = derivatives.gradients(function, [X])
    np.testing.assert_allclose(gradient, 2 * X * 4)


def test_h2_vector_divided_every_trip(derivatives):
    def function(x, y, s):
        def body(k, q0, q1):
            return [ops.div(ops.add(q0, ops.mul(q1, 0.1)), s), ops.div(ops.add(q1, ops.mul(q0, 0.2)), s)]

        return traced_for(count(3), [x, y], body)

    derivatives.check(function, [X, X + 1, X + 2], order=2)
    x, y, _ = derivatives.gradients(function, [np.ones(4), np.ones(4), np.full(4, 2.0)])
    m = np.linalg.matrix_power(np.array([[1, 0.1], [0.2, 1]]) / 2, 3).sum(axis=0)
    np.testing.assert_allclose([x[0], y[0]], m, rtol=1e-14)


def test_h3_component_store_then_use_of_the_whole(derivatives):
    def function(x):
        q = ops.scatter("set", ops.full(0.0, F), [ops.full(1, ONE)], x)
        q = ops.mul(q, ops.broadcast_to(ops.reduce_sum(ops.mul(q, q), [0]), (4,)))
        return [ops.reduce_sum(q, [0])]

    (gradient,) = derivatives.gradients(function, [np.array(1.7)])
    np.testing.assert_allclose(gradient, 3 * 1.7**2)


def test_r1_a_conditional_zero_survives(derivatives):
    def function(c, reset):
        def chosen(k, y):
            flag = ops.broadcast_to(ops.ne(ops.gather(reset, k), 0), (4,))
            return [ops.add(y, ops.sin(ops.select(flag, 0.0, ops.sin(c))))]

        return traced_for(count(4), [zeros()], chosen)

    (gradient,) = derivatives.gradients(function, [X, np.array([0, 1, 0, 1])])
    np.testing.assert_allclose(gradient, 2 * np.cos(X) * np.cos(np.sin(X)))


def test_r2_an_inactive_division_by_zero(derivatives):
    def function(d, m):
        def body(k, out):
            here = ops.gather(m, k)
            ratio = lambda out: [ops.add(out, ops.div(ops.gather(d, k), here))]
            return traced_switch(ops.gt(here, 0), [lambda out: [out], ratio], [out])

        return traced_for(count(4), [ops.full(0.0, TensorType((), float64))], body)

    d, m = derivatives.gradients(function, [np.full(4, 4.0), np.array([0.0, 0.0, 2.0, 0.0])])
    np.testing.assert_array_equal(d, [0, 0, 0.5, 0])
    np.testing.assert_array_equal(m, [0, 0, -1, 0])


def test_r3_a_value_divided_by_itself_and_read_again(derivatives):
    def function(x):
        def body(k, v):
            ratio = ops.div(v, v)
            return [ops.add(ops.sub(v, ratio), 1.0)]

        return traced_for(count(3), [x], body)

    (gradient,) = derivatives.gradients(function, [X])
    np.testing.assert_allclose(gradient, np.ones(4), atol=1e-12)


UNARY = ("sin", "cos", "abs", "tanh", "exp", "tan", "log", "sqrt", "rsqrt", "asin", "acos")


@pytest.mark.in_turns
@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("trips", [1, 3, 10])
def test_u1_operators_in_a_loop(derivatives, op, trips):
    def function(x):
        def body(k, acc):
            index = ops.broadcast_to(ops.cast(k, float64), (4,))
            return [ops.add(acc, emit(op, (ops.add(x, ops.mul(index, 0.03)),))[0])]

        return traced_for(count(trips), [zeros()], body)

    derivatives.check(function, [np.array([0.011, 0.15, 0.26, 0.399])], order=2)


@pytest.mark.parametrize("op", UNARY)
def test_u1_operators_on_a_carry(derivatives, op):
    def function(x, n):
        squash = lambda v: ops.add(ops.mul(ops.tanh(emit(op, (v,))[0]), 0.2), 0.4)
        return traced_for(n, [x], lambda k, v: [squash(v)])

    derivatives.check(function, [np.array([0.011, 0.15, 0.26, 0.399]), np.array([0, 1, 3, 10])], order=2)


@pytest.mark.parametrize("reuses", [4, 32])
def test_u3_an_outer_value_used_many_times(derivatives, reuses):
    def function(x):
        a = ops.sin(x)

        def body(k, acc):
            weight = ops.broadcast_to(ops.add(ops.mul(ops.cast(k, float64), 0.01), 1), (4,))
            return [ops.add(acc, ops.mul(ops.cos(a), weight))]

        return traced_for(count(reuses), [zeros()], body)

    derivatives.check(function, [X], order=2)


def test_u8_logarithm_of_a_negative_number_has_the_derivative_of_its_formula(derivatives):
    value, tangent = derivatives.run_jvp(lambda x: [ops.log(x)], [np.array(-0.3)], [0], [np.array(1.0)])
    assert np.isnan(value)
    np.testing.assert_allclose(tangent, 1 / -0.3)
