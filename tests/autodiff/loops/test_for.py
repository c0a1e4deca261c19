"""For loops, uniform and per lane: gradients to second order against differences, and what they save."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float64, int64

X = np.array([0.1, 0.3, 0.51, 0.8])
TRIPS = np.array([0, 1, 3, 7])
LANES = TensorType((4,), int64)


def to_lanes(v):
    return ops.broadcast_to(v, (4,))


def index_as(k, like):
    return ops.broadcast_to(ops.cast(k, like.dtype), like.shape)


def linear_recurrence(x, n):
    return traced_for(n, [x], lambda k, v: [ops.add(ops.mul(v, 0.95), 0.01)])


def nonlinear_recurrence(x, n):
    return traced_for(n, [x], lambda k, v: [ops.add(ops.sin(v), 0.1)])


def side_output(x, n):
    return traced_for(n, [x, ops.zeros_like(x)], lambda k, v, y: [ops.add(v, 1), ops.add(y, ops.sin(v))])


def power(a, n):
    return traced_for(n, [ops.ones_like(a)], lambda k, r: [ops.mul(r, a)])


def fibonacci(a, b, n):
    return traced_for(n, [a, b], lambda k, p, q: [q, ops.add(p, q)])


def weighted_by_index(x, n):
    return traced_for(n, [ops.zeros_like(x)], lambda k, y: [ops.add(y, ops.mul(x, index_as(ops.add(k, 1), x)))])


def captured_scalar(x, c, n):
    return traced_for(n, [x], lambda k, v: [ops.mul(ops.sin(v), to_lanes(c))])


def captured_function_of_scalar(x, c, n):
    return traced_for(n, [x], lambda k, v: [ops.mul(ops.sin(v), to_lanes(ops.exp(ops.mul(c, c))))])


def passed_through(x, y, n):
    return traced_for(n, [x, y], lambda k, v, w: [ops.mul(ops.sin(v), w), w])


def overwritten(x, y, n):
    return traced_for(n, [x, y], lambda k, v, w: [ops.mul(w, 2), ops.sin(w)])


def complex_body(a, n):
    def body(k, weight, total_weight, total):
        return [
            ops.mul(ops.add(weight, 1), 4),
            ops.add(total_weight, ops.add(weight, 1)),
            ops.add(total, ops.mul(ops.add(weight, 1), a)),
        ]

    return traced_for(n, [ops.full(2.0, a.type), ops.zeros_like(a), ops.zeros_like(a)], body)[2:]


def integer_weight(a, b, n):
    def body(k, weight, s):
        return [ops.mul(weight, 10), ops.add(s, ops.add(ops.mul(ops.cast(weight, a.dtype), a), b))]

    return traced_for(n, [ops.full(1, LANES), ops.zeros_like(a)], body)[1:]


def interleaved_carries(x, n):
    def body(k, v, j, w, flag):
        return [
            ops.select(flag, ops.sin(v), ops.mul(v, w)), ops.add(j, 1), ops.mul(w, ops.cast(ops.add(j, 1), w.dtype)),
            ops.invert(flag),
        ]  # fmt: skip

    start = ops.gt(x, 0.4)
    return traced_for(n, [x, ops.full(0, LANES), ops.mul(x, 2), start], body)


def winner_flips(x, n):
    def body(k, acc):
        moved = ops.add(x, ops.mul(index_as(k, x), 0.05))
        return [ops.min(ops.add(ops.mul(acc, 0.5), 0.05), moved)]

    return traced_for(n, [ops.ones_like(x)], body)


def rebuilt_vector(x, n):
    def body(k, q0, q1):
        return [ops.mul(q0, q0), ops.add(q1, ops.mul(q0, 0.1))]

    return traced_for(n, [x, ops.mul(x, 0.5)], body)


def counted_backwards(x, n):
    body = lambda k, v: [ops.add(ops.sin(v), ops.mul(index_as(k, v), 0.1))]
    return traced_for(n, [x], body, reverse=True)


SMOOTH = {
    f.__name__: f
    for f in (
        linear_recurrence, nonlinear_recurrence, side_output, power, fibonacci, weighted_by_index, captured_scalar,
        captured_function_of_scalar, passed_through, overwritten, complex_body, integer_weight, interleaved_carries,
        winner_flips, rebuilt_vector, counted_backwards,
    )
}  # fmt: skip


def arguments(function):
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return [TRIPS if name == "n" else np.array(0.9) if name == "c" else X + 0.05 * i for i, name in enumerate(names)]


@pytest.mark.parametrize("name", SMOOTH)
def test_per_lane(derivatives, name):
    derivatives.check(SMOOTH[name], arguments(SMOOTH[name]), order=2)


@pytest.mark.in_turns
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("trips", [0, 1, 4])
def test_uniform(derivatives, name, trips):
    given = [np.array(trips) if a is TRIPS else a for a in arguments(SMOOTH[name])]
    derivatives.check(SMOOTH[name], given, order=2)


def test_third_order(derivatives):
    derivatives.check(nonlinear_recurrence, [X, TRIPS], order=3)


def test_negative_counts_are_zero_trips(derivatives):
    (gradient,) = derivatives.gradients(nonlinear_recurrence, [X, np.array([-3, 0, -1, 2])])
    np.testing.assert_array_equal(gradient[:3], [1, 1, 1])


def test_zero_trips_give_the_identity_and_exact_zeros(derivatives):
    x, c = derivatives.gradients(captured_scalar, [X, np.array(0.9), np.zeros(4, dtype=np.int64)])
    np.testing.assert_array_equal(x, np.ones(4))
    assert c == 0


def test_empty_lanes(derivatives):
    (gradient,) = derivatives.gradients(nonlinear_recurrence, [np.zeros(0), np.zeros(0, dtype=np.int64)])
    assert gradient.shape == (0,)


def test_an_invariant_with_a_pole_does_not_poison_idle_lanes(derivatives):
    """Lane 0 doesn't run the body; the invariant 1/c, computed outside for all lanes, is infinite there."""

    def function(x, c, n):
        return traced_for(n, [x], lambda k, v: [ops.add(v, ops.mul(ops.sqrt(c), ops.div(1.0, c)))])

    given = [X, np.array([0.0, 1.0, 2.0, 3.0]), TRIPS]
    x, c = derivatives.gradients(function, given)
    assert x[0] == 1
    assert c[0] == 0
    assert np.isfinite(c).all()


def test_empty_body_and_unrelated_loss(derivatives):
    def function(x, n):
        traced_for(n, [], lambda k: [])
        return [ops.mul(x, x)]

    derivatives.check(function, [X, TRIPS])


def test_twice_the_same_operand(derivatives):
    def function(x, n):
        return traced_for(n, [x, x, x], lambda k, a, b, c: [ops.mul(c, x), c, ops.add(a, ops.sin(b))])

    derivatives.check(function, [X, TRIPS], order=2)


def test_only_integer_results_have_no_gradient(derivatives):
    def function(x, n):
        count, _ = traced_for(n, [ops.full(0, LANES), x], lambda k, j, v: [ops.add(j, 1), ops.sin(v)])
        return [ops.cast(count, x.dtype)]

    (gradient,) = derivatives.gradients(function, [X, TRIPS])
    np.testing.assert_array_equal(gradient, np.zeros(4))


def test_matrix_carries_per_lane(derivatives):
    rng = np.random.default_rng(5)

    def function(m, a, n):
        return traced_for(n, [m], lambda k, m: [ops.tanh(ops.matmul(m, a))])

    derivatives.check(function, [rng.standard_normal((4, 2, 3)), rng.standard_normal((4, 3, 3)), TRIPS], order=2)


def test_sweep_along_an_array(derivatives):
    """x[i + 1] = 2 * x[i] * x[i], written in place."""

    def function(x, n):
        def body(k, a):
            here = ops.gather(a, k)
            return [ops.scatter("set", a, [ops.add(k, 1)], ops.mul(ops.mul(here, here), 2))]

        return traced_for(n, [x], body)

    x = np.linspace(0.2, 0.6, 8)
    derivatives.check(function, [x, np.array(7)], order=2)


def test_sweep_along_an_array_per_lane(derivatives):
    def function(x, n):
        lane = ops.iota(LANES, 0)

        def body(k, a):
            here = ops.gather(a, lane, k)
            return [ops.scatter("set", a, [lane, ops.add(k, 1)], ops.mul(ops.mul(here, here), 2))]

        return traced_for(n, [x], body)

    x = np.random.default_rng(0).uniform(0.2, 0.6, (4, 8))
    derivatives.check(function, [x, TRIPS], order=2)
    assert derivatives.lanes_of(function, [x, TRIPS]) == [1, 1]


def test_tables_accumulate_by_scatter(derivatives):
    def function(t, x, n):
        def body(k, v):
            entry = ops.gather(t, ops.mod(k, 3))
            return [ops.add(ops.mul(v, entry), ops.mul(entry, entry))]

        return traced_for(n, [x], body)

    given = [np.array([0.3, -0.7, 1.1, 9.0]), X, TRIPS]
    derivatives.check(function, given, order=2)
    forward, reverse = derivatives.region_nodes(function, given)
    assert (forward.attrs["shared"], reverse.attrs["shared"]) == ((), (1,))


def test_a_carried_integer_addresses_a_table(derivatives):
    def function(a, n):
        def body(k, p, q, s):
            here = ops.gather(a, p)
            return [q, ops.add(p, q), ops.add(s, ops.mul(here, here))]

        zero = ops.full(0.0, TensorType((4,), float64))
        return traced_for(n, [ops.full(0, LANES), ops.full(1, LANES), zero], body)[2:]

    derivatives.check(function, [np.arange(1.0, 9.0), np.array([0, 2, 3, 5])], order=2)


def test_shared_accumulators_save_nothing(derivatives):
    """b[q] += a[q] * a[q] over lanes: the cotangent of b is gathered from; a is a captured table."""

    def function(b, a, n):
        def body(k, acc):
            place = ops.mod(ops.add(ops.iota(LANES, 0), k), 5)
            here = ops.gather(a, place)
            return [ops.scatter("add", acc, [place], ops.mul(here, here))]

        return traced_for(n, [b], body, shared=[0])

    given = [np.zeros(5), np.arange(1.0, 6.0), TRIPS]
    derivatives.check(function, given, order=2)
    assert derivatives.pushed(function, given) == []
    assert derivatives.lanes_of(function, given) == [1, 1]


@pytest.mark.parametrize("kind", ["mul", "min", "max", "set"])
def test_other_shared_scatters(derivatives, kind):
    def function(b, x, n):
        def body(k, v, acc):
            place = ops.mod(ops.add(ops.iota(LANES, 0), k), 5)
            return [ops.sin(v), ops.scatter(kind, acc, [place], ops.mul(v, 1.3))]

        return traced_for(n, [x, b], body, shared=[1])

    derivatives.check(function, [np.linspace(0.1, 0.5, 5), X, TRIPS], order=2)


MIXING = {
    "sum over lanes": lambda v, w: ops.add(ops.sin(v), to_lanes(ops.mul(ops.reduce_sum(v, [0]), 0.1))),
    "captured matrix": lambda v, w: ops.tanh(ops.reshape(ops.matmul(ops.reshape(v, (1, 4)), w), (4,))),
    "shifted lanes": lambda v, w: ops.sin(ops.add(v, ops.mul(ops.flip(v, [0]), 0.3))),
}


@pytest.mark.parametrize("name", MIXING)
def test_lanes_that_look_at_each_other(derivatives, name):
    w = np.random.default_rng(0).standard_normal((4, 4)) * 0.4
    derivatives.check(lambda x, w, n: traced_for(n, [x], lambda k, v: [MIXING[name](v, w)]), [X, w, TRIPS], order=2)


def test_a_captured_matrix_as_wide_as_the_lanes_is_not_mistaken_for_lanes(derivatives):
    rng = np.random.default_rng(1)

    def function(x, w, n):
        return traced_for(n, [x], lambda k, v: [ops.tanh(ops.matmul(v, w))])

    derivatives.check(function, [rng.standard_normal((4, 4)), rng.standard_normal((4, 4)), TRIPS], order=2)


# ---- what is saved

SAVED = {
    "linear_recurrence": [],
    "nonlinear_recurrence": [("cos", "float64[4]")],
    "side_output": [("cos", "float64[4]")],
    "fibonacci": [],
    "weighted_by_index": [],
    "winner_flips": [("eq", "bool[4]"), ("lt", "bool[4]")],
    "power": [("carry", "float64[4]")],
    "counted_backwards": [("cos", "float64[4]")],
    "rebuilt_vector": [("carry", "float64[4]")],
}


@pytest.mark.parametrize("name", SAVED)
def test_what_is_saved(derivatives, name):
    assert sorted(derivatives.pushed(SMOOTH[name], arguments(SMOOTH[name]))) == SAVED[name]


def test_wide_captures_are_not_saved(derivatives):
    def function(x, w, n):
        return traced_for(n, [x], lambda k, v: [ops.add(v, ops.reduce_sum(ops.sin(w), [1]))])

    assert derivatives.pushed(function, [X, np.ones((4, 100)), TRIPS]) == []


def test_a_select_saves_its_condition_only(derivatives):
    def function(x, n):
        return traced_for(n, [x], lambda k, v: [ops.select(ops.gt(v, 0.5), ops.mul(v, 0.9), ops.mul(v, 1.1))])

    assert derivatives.pushed(function, [X, TRIPS]) == [("gt", "bool[4]")]


def test_one_saved_value_serves_two_uses(derivatives):
    """sin(v) and cos(v) both come from v, which costs half."""

    def function(x, n):
        return traced_for(n, [x], lambda k, v: [ops.mul(v, ops.sin(v))])

    assert derivatives.pushed(function, [X, TRIPS]) == [("carry", "float64[4]")]


def test_a_small_product_of_wide_values_is_saved_instead_of_them(derivatives):
    def function(x, y, n):
        def body(k, v, w):
            s = ops.reduce_sum(ops.mul(v, w), [1])
            return [v, w, s]

        def outer(k, v, w, s):
            t = ops.reduce_sum(v, [1])
            return [ops.add(v, 0.1), w, ops.add(ops.sin(ops.add(s, t)), 0.1)]

        return traced_for(n, [x, y, ops.reduce_sum(x, [1])], outer)[2:]

    given = [np.ones((4, 40)), np.ones((4, 40)), TRIPS]
    assert derivatives.pushed(function, given) == [("cos", "float64[4]")]


def test_heavy_work_is_not_done_again(derivatives):
    def function(h, w, n):
        return traced_for(n, [h], lambda k, h: [ops.tanh(ops.matmul(h, w))])

    forward, reverse = derivatives.region_nodes(function, [np.ones((2, 3)), np.ones((3, 3)), np.array(3)])
    assert [n.op for n in forward.regions[0].nodes].count("matmul") == 1
    assert [n.op for n in reverse.regions[0].nodes].count("matmul") == 2


def scan_outputs(x, n):
    """One row of the result per trip, as a scan collects them."""
    rows = ops.full(0.0, TensorType((5, 4), float64))

    def body(k, v, rows):
        new = ops.sin(ops.mul(v, 1.3))
        return [new, ops.scatter("set", rows, [k], new)]

    return traced_for(n, [x, rows], body)


@pytest.mark.parametrize("trips", [0, 3, 5, 7])
def test_collected_rows(derivatives, trips):
    """Trips beyond the rows drop theirs; the rows' cotangent is captured, not carried and erased row by row."""
    derivatives.check(scan_outputs, [X, np.array(trips)], order=2)
    _, reverse = derivatives.region_nodes(scan_outputs, [X, np.array(trips)])
    assert all(str(r.type) != "float64[5,4]" for r in reverse.results)


def test_collected_rows_per_lane(derivatives):
    def function(x, n):
        lane = ops.iota(LANES, 0)

        def body(k, v, rows):
            new = ops.sin(ops.mul(v, 1.3))
            return [new, ops.scatter("set", rows, [lane, k], new)]

        return traced_for(n, [x, ops.full(0.0, TensorType((4, 5), float64))], body)

    derivatives.check(function, [X, np.array([0, 2, 5, 6])], order=2)
    _, reverse = derivatives.region_nodes(function, [X, np.array([0, 2, 5, 6])])
    assert all(str(r.type) != "float64[4,5]" for r in reverse.results)


def test_rows_over_a_differentiated_start(derivatives):
    """The start's rows that are overwritten get nothing, so here the cotangent must be erased."""

    def function(x, start, n):
        def body(k, v, rows):
            return [ops.sin(v), ops.scatter("set", rows, [k], v)]

        return traced_for(n, [x, start], body)

    derivatives.check(function, [X, np.ones((5, 4)), np.array(3)], order=2)
    _, start = derivatives.gradients(function, [X, np.ones((5, 4)), np.array(3)])
    np.testing.assert_array_equal(start.sum(axis=1), [0, 0, 0, 4, 4])


def test_rows_written_twice_or_read(derivatives):
    def twice(x, n):
        def body(k, v, rows):
            return [ops.sin(v), ops.scatter("set", rows, [ops.floordiv(k, 2)], v)]

        return traced_for(n, [x, ops.full(0.0, TensorType((5, 4), float64))], body)

    def read(x, n):
        def body(k, v, rows):
            seen = ops.gather(rows, ops.max(ops.sub(k, 1), 0))
            return [ops.sin(ops.add(v, seen)), ops.scatter("set", rows, [k], v)]

        return traced_for(n, [x, ops.full(0.0, TensorType((5, 4), float64))], body)

    for function in (twice, read):
        derivatives.check(function, [X, np.array(4)], order=2)
