"""Region semantics against plain Python loops that run one lane at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph import types as T
from loopgrad.graph.build import trace
from loopgrad.graph.errors import LoopLimitError, ShapeError, VerifyError
from loopgrad.graph.interpret import interpret
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.types import TensorType

LANES = np.array([0, 3, 1, 5, -2], np.int32)


# ---- for


@pytest.mark.parametrize(("count", "expected"), [(0, 1.0), (-4, 1.0), (1, 2.0), (10, 1024.0)])
def test_a_scalar_loop_runs_count_times(run, count, expected):
    got = run(lambda n, x: traced_for(n, [x], lambda _, c: (ops.mul(c, 2),)), np.int64(count), 1.0)
    assert got[0] == expected


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("reverse", [False, True])
def test_k_counts_in_the_counts_dtype(run, dtype, reverse):
    def program(n, x):
        return traced_for(n, [x], lambda k, c: (ops.add(ops.mul(c, 10), k),), reverse=reverse)

    got = run(program, np.array(4, dtype), np.array(7, dtype))
    assert got[0] == (73210 if reverse else 70123)
    assert got[0].dtype == dtype


@pytest.mark.parametrize("reverse", [False, True])
def test_each_lane_runs_its_own_count(run, reverse):
    def program(n, x):
        def body(k, c):
            return (ops.add(ops.mul(c, 10), k),)

        return traced_for(n, [x], body, reverse=reverse)

    got = run(program, LANES, np.full(5, 9, np.int32))[0]
    for lane, n in enumerate(LANES):
        c = 9
        for k in reversed(range(n)) if reverse else range(n):
            c = c * 10 + k
        assert got[lane] == c


def test_lanes_may_carry_more_than_a_scalar(run):
    def program(n, v, m):
        return traced_for(n, [v, m], lambda _, a, b: (ops.reshape(ops.matmul(b, ops.reshape(a, (5, 2, 1))), (5, 2)), b))

    rng = np.random.default_rng(0)
    v, m = rng.normal(size=(5, 2)), rng.normal(size=(5, 2, 2))
    got = run(program, LANES, v, m)
    for lane, n in enumerate(LANES):
        np.testing.assert_allclose(got[0][lane], np.linalg.matrix_power(m[lane], max(n, 0)) @ v[lane])
    np.testing.assert_array_equal(got[1], m)


def test_no_lanes_no_trips(run):
    got = run(lambda n, x: traced_for(n, [x], lambda _, c: (ops.exp(c),)), np.zeros(0, np.int32), np.zeros(0))
    assert got[0].shape == (0,)
    got = run(lambda x: traced_while([x], lambda c: ops.lt(c, 5), lambda c: (ops.add(c, 1),)), np.zeros((3, 0)))
    assert got[0].shape == (3, 0)


# ---- while


def test_integer_and_bool_carries_of_a_lane_while(run):
    """Steps of the Collatz sequence to 1, and whether an odd number above 1 was met."""

    def cond(n, steps, odd):
        return ops.ne(n, 1)

    def body(n, steps, odd):
        is_odd = ops.eq(ops.mod(n, 2), 1)
        following = ops.select(is_odd, ops.add(ops.mul(n, 3), 1), ops.floordiv(n, 2))
        return following, ops.add(steps, 1), ops.or_(odd, is_odd)

    start = np.array([1, 2, 3, 7, 27, 64], np.int64)
    got = run(lambda n, s, o: traced_while([n, s, o], cond, body), start, np.zeros(6, np.int32), np.zeros(6, np.bool_))
    assert got[0].tolist() == [1] * 6
    assert got[1].tolist() == [0, 1, 7, 16, 111, 6]
    assert got[2].tolist() == [False, False, True, True, True, False]


def test_a_lane_whose_condition_failed_stays_stopped(run):
    """The condition holds again after the third trip; a stopped lane must not wake up."""

    def program(x, t):
        return traced_while([x, t], lambda x, t: ops.or_(ops.lt(x, 3), ops.gt(t, 2)), lambda x, t: (ops.add(x, 1), t))

    got = run(program, np.array([0, 5, 2]), np.array([0, 0, 0]))
    assert got[0].tolist() == [3, 5, 3]


def test_a_scalar_while(run):
    got = run(lambda x: traced_while([x], lambda c: ops.gt(c, 1e-3), lambda c: (ops.mul(c, 0.5),)), 1.0)
    assert got[0] == 2.0**-10


@pytest.mark.parametrize("shape", [(), (3,)])
def test_max_steps_raises_with_the_users_line_and_never_truncates(run, shape):
    def program(x, limit):
        return traced_while([x], lambda c: ops.lt(c, 5), lambda c: (ops.add(c, 1),), max_steps=limit, name="climb")

    assert (run(lambda x: program(x, 5), np.zeros(shape))[0] == 5).all()
    with pytest.raises(LoopLimitError, match=r"'climb'.*max_steps=4.*\n.*\w+\.py:\d+") as raised:
        run(lambda x: program(x, 4), np.zeros(shape))
    assert raised.value.loc is not None
    assert isinstance(raised.value, RuntimeError)


# ---- nesting and accumulators


def test_nested_lanes_with_accumulators(run):
    """Outer lanes i run n[i] trips; within trip k inner lanes (i, j) run m[i, j] + k trips."""
    n = np.array([2, 0, 3], np.int32)
    m = np.array([[0, 2], [9, 9], [1, -1]], np.int32)
    w = np.array([[0, 1], [2, 3], [4, 0]], np.int32)

    def program(n, m, w, acc):
        def outer(k, total, acc):
            inner_count = ops.add(m, ops.broadcast_leading(k, (3, 2)))

            def inner(q, s, acc):
                acc = ops.scatter("add", acc, [w], ops.add(ops.cast(q, T.float64), 1))
                return ops.add(s, 1), acc

            zeros = ops.full(0, TensorType((3, 2), T.float64))
            s, acc = traced_for(inner_count, [zeros, acc], inner, shared=(1,))
            return ops.add(total, ops.reduce_sum(s, (1,))), acc

        return traced_for(n, [ops.full(0, TensorType((3,), T.float64)), acc], outer, shared=(1,))

    total, acc = run(program, n, m, w, np.zeros(5))
    expected_total, expected_acc = np.zeros(3), np.zeros(5)
    for i in range(3):
        for k in range(n[i]):
            for j in range(2):
                for q in range(m[i, j] + k):
                    expected_total[i] += 1
                    expected_acc[w[i, j]] += q + 1
    np.testing.assert_array_equal(total, expected_total)
    np.testing.assert_array_equal(acc, expected_acc)


def test_a_scalar_loop_inside_lanes_hands_the_accumulator_through(run):
    def program(n, acc):
        def outer(k, acc):
            def inner(q, acc):
                lane_k = ops.add(k, ops.broadcast_to(q, (5,)))
                return (ops.scatter("add", acc, [lane_k], ops.full(1, TensorType((5,), T.int64))),)

            return traced_for(ops.full(2, TensorType((), T.int32)), [acc], inner, shared=(0,))

        return traced_for(n, [acc], outer, shared=(0,))

    got = run(program, LANES, np.zeros(8, np.int64))[0]
    expected = np.zeros(8, np.int64)
    for n in LANES:
        for k in range(n):
            expected[k] += 1
            expected[k + 1] += 1
    np.testing.assert_array_equal(got, expected)


def test_a_while_may_accumulate_too(run):
    def program(x, acc):
        def body(c, acc):
            return ops.add(c, 1), ops.scatter("max", acc, [c], ops.mul(c, 10))

        return traced_while([x, acc], lambda c, _: ops.lt(c, 3), body, shared=(1,))

    got = run(program, np.array([1, 7, 2]), np.zeros(8, np.int64))
    assert got[0].tolist() == [3, 7, 3]
    assert got[1].tolist() == [0, 10, 20, 0, 0, 0, 0, 0]


def test_an_ordinary_scatter_in_a_lane_body_is_not_masked(run):
    """It computes a fresh tensor from whole tensors, whichever lanes are active."""

    def program(n, x):
        def body(k, c):
            fresh = ops.scatter("add", ops.zeros_like(x), [ops.iota(TensorType((5,), T.int64), 0)], x)
            return (ops.add(c, ops.flip(fresh, (0,))),)

        return traced_for(n, [x], body)

    x = np.arange(5.0)
    np.testing.assert_array_equal(run(program, LANES, x)[0], x + np.maximum(LANES, 0) * x[::-1])


def test_an_accumulator_must_be_indexed_by_its_lanes(run):
    def program(n, acc):
        def body(k, acc):
            return (
                ops.scatter(
                    "add", acc, [ops.full(0, TensorType((), T.int64))], ops.full(1.0, TensorType((), T.float64))
                ),
            )

        return traced_for(n, [acc], body, shared=(0,))

    with pytest.raises(VerifyError, match=r"indices over the lanes \(5,\)"):
        run(program, LANES, np.zeros(2))


# ---- switch


@pytest.mark.parametrize(("index", "branch"), [(-3, 0), (0, 0), (1, 1), (2, 2), (99, 2)])
def test_a_scalar_switch_clamps_its_index(run, index, branch):
    def program(i, x):
        return traced_switch(i, [lambda x: (x,), lambda x: (ops.add(x, 1),), lambda x: (ops.add(x, 2),)], [x])

    assert run(program, np.int32(index), 10)[0] == 10 + branch


def test_a_lane_switch_keeps_the_poison_of_untaken_branches_out(run):
    def program(p, x):
        return traced_switch(p, [lambda x: (ops.full(0.0, x.type), x), lambda x: (ops.log(x), ops.sqrt(x))], [x])

    x = np.array([-1.0, 4.0, 0.0])
    got = run(program, x > 0, x)
    np.testing.assert_array_equal(got[0], [0, math.log(4), 0])
    np.testing.assert_array_equal(got[1], [-1, 2, 0])


def test_a_branch_no_lane_chose_does_not_run(run):
    def forever(x):
        return traced_while([x], lambda c: ops.lt(ops.reduce_sum(c, (0,)), 1e300), lambda c: (c,), max_steps=3)

    x = np.ones(3)
    got = run(lambda p, x: traced_switch(p, [lambda x: (x,), forever], [x]), np.zeros(3, np.bool_), x)
    np.testing.assert_array_equal(got[0], x)


def test_lanes_outside_a_branch_do_not_loop_in_it(run):
    """A per-lane loop in a branch would not end for the lanes that chose the other one."""

    def halve(x):
        return traced_while([x], lambda c: ops.ge(ops.abs(c), 1), lambda c: (ops.div(c, 2),), max_steps=20)

    def program(p, x):
        return traced_switch(p, [lambda x: (ops.neg(x),), halve], [x])

    x = np.array([np.inf, 8.0, 3.0])
    np.testing.assert_array_equal(run(program, np.isfinite(x), x)[0], [-np.inf, 0.5, 0.75])


def test_branches_of_a_lane_switch_share_an_accumulator(run):
    def program(i, x, acc):
        one = [lambda x, a: (x, ops.scatter("add", a, [i], x)), lambda x, a: (ops.neg(x), a)]
        two = [lambda x, a: (x, ops.scatter("add", a, [ops.add(i, 1)], ops.mul(x, 10)))]
        return traced_switch(i, one + two, [x, acc], shared=(1,))

    got = run(program, np.array([0, 1, 2, 2, 0]), np.arange(5.0), np.zeros(4))
    np.testing.assert_array_equal(got[0], [0, -1, 2, 3, 4])
    np.testing.assert_array_equal(got[1], [4, 0, 0, 50])


def test_a_lane_switch_inside_a_lane_loop_obeys_both_masks(run):
    def program(n, p, acc):
        def body(k, acc):
            def hit(k, acc):
                return (ops.scatter("add", acc, [k], ops.full(1, TensorType((5,), T.int64))),)

            return traced_switch(p, [lambda _, acc: (acc,), hit], [k, acc], shared=(0,))

        return traced_for(n, [acc], body, shared=(0,))

    p = np.array([True, True, False, True, True])
    got = run(program, LANES, p, np.zeros(6, np.int64))[0]
    assert got.tolist() == [2, 2, 2, 1, 1, 0]


def test_a_switch_result_without_its_accumulator_is_refused(run):
    fresh = [lambda a: (a,), lambda a: (ops.zeros_like(a),)]
    with pytest.raises(VerifyError, match="doesn't come from one accumulator"):
        run(lambda i, a: traced_switch(i, fresh, [a], shared=(0,)), np.array([0, 1]), np.zeros(3))


# ---- stacks


@pytest.mark.parametrize("count", [np.array(4), np.array([0, 3, 1])])
def test_values_pushed_in_one_loop_come_back_in_its_reverse(run, count):
    """The gradient of n-fold x -> sin(a * x) in x and a, pushing x each trip."""

    def program(n, a, x):
        empty = ops.stack_new(x.type)
        stack, y = traced_for(n, [empty, x], lambda _, s, x: (ops.push(s, x), ops.sin(ops.mul(a, x))))

        def adjoint(_, s, ct, ct_a):
            s, x = ops.pop(s)
            ct = ops.mul(ct, ops.cos(ops.mul(a, x)))
            return s, ops.mul(ct, a), ops.add(ct_a, ops.mul(ct, x))

        start = [stack, ops.ones_like(y), ops.zeros_like(a)]
        _, ct_x, ct_a = traced_for(n, start, adjoint, reverse=True)
        return y, ct_x, ct_a

    a, x = np.full(count.shape, 1.3), np.full(count.shape, 0.7)
    y, ct_x, ct_a = run(program, count, a, x)

    def primal(n, a, x):
        for _ in range(n):
            x = np.sin(a * x)
        return x

    for lane, n in np.ndenumerate(count):
        h = 1e-6
        assert y[lane] == primal(n, 1.3, 0.7)
        assert ct_x[lane] == pytest.approx((primal(n, 1.3, 0.7 + h) - primal(n, 1.3, 0.7 - h)) / (2 * h), abs=1e-9)
        assert ct_a[lane] == pytest.approx((primal(n, 1.3 + h, 0.7) - primal(n, 1.3 - h, 0.7)) / (2 * h), abs=1e-9)


def test_a_stack_of_an_inner_loop_goes_through_the_outer_one_and_a_branch(run):
    """Inner trip counts of a lane loop in a branch, saved per outer trip and replayed backwards."""

    def program(n, m, x):
        values, counts = ops.stack_new(x.type), ops.stack_new(m.type)

        def forward(k, vs, cs, x):
            def taken(vs, x, trips):
                vs, x = traced_for(trips, [vs, x], lambda _, s, x: (ops.push(s, x), ops.add(ops.mul(x, x), 1)))
                return vs, x

            trips = ops.min(m, k)
            even = ops.eq(ops.mod(k, 2), 0)
            vs, x = traced_switch(even, [lambda vs, x, _: (vs, ops.neg(x)), taken], [vs, x, trips])
            return vs, ops.push(cs, trips), x

        values, counts, y = traced_for(n, [values, counts, x], forward)

        def backward(k, vs, cs, x):
            cs, trips = ops.pop(cs)

            def taken(vs, x, trips):
                def undo(_, s, x):
                    return ops.pop(s)

                return traced_for(trips, [vs, x], undo, reverse=True)

            even = ops.eq(ops.mod(k, 2), 0)
            vs, x = traced_switch(even, [lambda vs, x, _: (vs, ops.neg(x)), taken], [vs, x, trips])
            return vs, cs, x

        _, _, back = traced_for(n, [values, counts, y], backward, reverse=True)
        return y, back

    n, m, x = np.array([5, 0, 3, 4]), np.array([3, 2, 1, 0]), np.array([0.1, 0.2, -0.3, 0.4])
    y, back = run(program, n, m, x)
    np.testing.assert_array_equal(back, x)
    for lane in range(4):
        c = x[lane]
        for k in range(n[lane]):
            if k % 2:
                c = -c
            else:
                for _ in range(min(m[lane], k)):
                    c = c * c + 1
        assert y[lane] == c


# ---- the boundary


def test_inputs_must_have_the_graphs_types():
    graph, _ = trace(lambda x: (ops.sin(x),), [TensorType((2,), T.float32)])
    with pytest.raises(ShapeError, match="expected 1 arrays, got 0"):
        interpret(graph, [])
    with pytest.raises(ShapeError, match=r"input 0 of type float32\[2\], got float64\[2\]"):
        interpret(graph, [np.zeros(2)])
    with pytest.raises(ShapeError, match=r"got float32\[3\]"):
        interpret(graph, [np.zeros(3, np.float32)])


def test_outputs_are_dense_and_nobody_elses(run):
    x = np.arange(6.0).reshape(2, 3)
    got = run(lambda x: (x, ops.transpose(x, (1, 0)), ops.broadcast_to(x, (4, 2, 3))), x)
    for array in got:
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert not np.shares_memory(array, x)


def test_a_stack_cannot_leave(run):
    with pytest.raises(VerifyError, match="pop the stack inside"):
        run(lambda x: (ops.push(ops.stack_new(x.type), x),), 1.0)
