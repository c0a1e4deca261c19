"""Peer cases 1 and 2: while loops with data-dependent exit, and the reverse pass through them."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import central_difference, check, check_gradient

import loopgrad as lg


def zero():
    return lg.zeros((), dtype=lg.float64)


def test_p1_limit_closed_over_eager_and_compiled(device):
    limit = lg.asarray(10)

    def remaining(start):
        return lg.while_loop(lambda c: c[0] < limit, lambda c: (c[0] + 1, c[1] + 1), (start, lg.asarray(0)))[1]

    compiled = lg.compile(remaining)
    for start in (2, 7, 12):
        for function in (remaining, compiled, compiled):
            check(function(lg.asarray(start)), max(10 - start, 0))


@pytest.mark.parametrize(("n", "want"), [(3, (3, 6)), (2, (2, 3)), (4, (4, 10))])
def test_p2_nested_while_over_the_outer_index(device, n, want):
    def outer(carry):
        i, count = carry
        i = i + 1
        _, count = lg.while_loop(lambda c: c[0] < i, lambda c: (c[0] + 1, c[1] + 1), (lg.asarray(0), count))
        return i, count

    limit = lg.asarray(n)
    i, count = lg.while_loop(lambda c: c[0] < limit, outer, (lg.asarray(0), lg.asarray(0)))
    assert (int(i), int(count)) == want


def test_p3_nested_while_writes_a_lower_triangle(device):
    source = np.random.default_rng(3).normal(size=(5, 5))
    x = lg.asarray(source)

    def row(carry):
        i, out = carry

        def column(carry):
            j, out = carry
            return j + 1, out.at[i, j].set(x[i, j])

        _, out = lg.while_loop(lambda c: c[0] <= i, column, (lg.asarray(0), out))
        return i + 1, out

    _, out = lg.while_loop(lambda c: c[0] < 5, row, (lg.asarray(0), lg.zeros((5, 5))))
    check(out, np.tril(source))


@pytest.mark.parametrize("num", [0, 5, 10, 15])
def test_p4_conjunction_of_conditions(device, mode, num):
    x = np.linspace(0, 1, 10)
    bound = lg.asarray(num)

    def loss(x):
        condition = lambda c: (c[0] < bound) & (c[0] < 10)
        return lg.while_loop(condition, lambda c: (c[0] + 1, c[1] + x[c[0]]), (lg.asarray(0), zero()))[1]

    check(loss(lg.asarray(x)), x[:num].sum(), 1e-14)
    check_gradient(loss, (lg.asarray(x),), (np.arange(10) < num).astype(float), mode=mode)
    counted = lambda x: lg.fori_loop(0, lg.minimum(bound, 10), lambda i, y: y + x[i], zero())
    check(counted(lg.asarray(x)), x[:num].sum(), 1e-14)


def test_p5_lanes_that_are_done_do_not_move(device):
    x = lg.asarray(np.array([0, 1, 2, 3]))
    check(lg.while_loop(lambda v: v < 3, lambda v: v + 2, x), [4, 3, 4, 3])
    check(lg.vmap(lambda v: lg.while_loop(lambda v: v < 3, lambda v: v + 2, v))(x), [4, 3, 4, 3])


def test_p5_batched_carry_condition_or_body_only(device):
    limits, steps, starts = np.array([3, 6, 0]), np.array([1, 2, 5]), np.array([0, 1, 2])

    def run(start, limit, step):
        return lg.while_loop(lambda v: v < limit, lambda v: v + step, start)

    def python(start, limit, step):
        while start < limit:
            start += step
        return start

    for axes in ((0, None, None), (None, 0, None), (None, None, 0), (0, 0, 0)):
        arguments = [(all_ if axis == 0 else all_[0]) for all_, axis in zip((starts, limits, steps), axes, strict=True)]
        want = [python(*[a[k] if np.ndim(a) else a for a in arguments]) for k in range(3)]
        got = lg.vmap(run, in_axes=axes)(*[lg.asarray(a) for a in arguments])
        check(got, want)


def test_p5_partial_exit_keeps_each_lanes_values(device):
    """`a = b` in a loop whose lanes leave at different times; the counter of each lane stops with it."""
    stop = lg.asarray(np.array([5, 5, 5, 5, 5, 5, 6]))

    def body(carry):
        i, _, b = carry
        return i + 1, b, b + 1

    start = (lg.zeros((7,), dtype=lg.int64), lg.zeros((7,), dtype=lg.int64), lg.ones((7,), dtype=lg.int64))
    i, a, b = lg.while_loop(lambda c: c[0] < stop, body, start)
    check(i, [5, 5, 5, 5, 5, 5, 6])
    check(a, [5, 5, 5, 5, 5, 5, 6])
    check(b, [6, 6, 6, 6, 6, 6, 7])


def test_p6_conditions_that_are_never_true(device):
    x = lg.asarray([1.0, 2.0])
    assert lg.while_loop(lambda c: lg.asarray(False), lambda c: c, ()) == ()
    diverging = lambda v: lg.while_loop(lambda v: v < np.inf, lambda v: v * 2.0, v)
    never = lambda v: lg.while_loop(lambda v: lg.asarray(False), diverging, v)
    check(never(x), [1.0, 2.0])
    check(lg.while_loop(lambda v: lg.sum(v) < 0.0, lambda v: lg.sin(v), x), [1.0, 2.0])
    check(lg.while_loop(lambda v: v < 0.0, lambda v: lg.cos(v), x), [1.0, 2.0])
    check(lg.grad(lambda x: lg.sum(never(x) * x))(x), [2.0, 4.0])


def test_p6_results_do_not_alias_a_mutable_input(device):
    host = np.array([1.0, 2.0])
    result = lg.while_loop(lambda v: lg.sum(v) < 0.0, lambda v: v * 2.0, lg.asarray(host))
    host[:] = 7.0
    check(result, [1.0, 2.0])


@pytest.mark.parametrize("condition", [lambda c: True, lambda c: lg.asarray(True), lambda c: lg.asarray(1) > 0])
def test_p7_condition_that_is_provably_always_true(device, condition):
    with pytest.raises(lg.EndlessLoopError, match="always True"):
        np.asarray(lg.while_loop(condition, lambda v: v + 1.0, lg.asarray(0.0)))


@pytest.mark.in_turns
def test_p8_many_carried_scalars(device):
    start = tuple(lg.asarray(float(k)) for k in range(256))
    result = lg.fori_loop(0, 3, lambda _, c: tuple(v + 1.0 for v in c), start)
    check(lg.stack(list(result)), np.arange(256) + 3.0)


def test_p9_side_effects_only(device, mode):
    def loss(x):
        def body(_, carry):
            small, large = carry
            small = small.at[lg.asarray([0, 1, 2])].add(x[:3] * lg.asarray([10.0, 5.0, 10.0]))
            return small, large.at[lg.asarray([3, 50, 50])].add(x[1:4])

        small, large = lg.fori_loop(0, 2, body, (lg.zeros((5,)), lg.zeros((100,))))
        return lg.sum(small * lg.arange(5, dtype=lg.float64)) + lg.sum(large)

    want = [0.0, 2 * 5.0 + 2, 4 * 10.0 + 2, 2.0]
    check_gradient(loss, (lg.ones((4,)),), want, mode=mode)


def test_p9_scatter_add_of_lanes(device):
    place = lg.asarray(np.array([0, 2, 1]))
    add = lambda _, b: b.at[place].add(lg.asarray([10.0, 5.0, 10.0]))
    check(lg.fori_loop(0, 2, add, lg.zeros((5,))), [20, 20, 10, 0, 0])


def test_p10_collatz(device):
    """Iteration counts for 1..N; the full 10,000 on compiled devices sum to 849,666."""
    count, want = (10_000, 849_666) if device != "interpreter" else (100, 3142)

    def body(carry):
        n, steps = carry
        return lg.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

    n = lg.arange(1, count + 1, dtype=lg.int64)
    _, steps = lg.while_loop(lambda c: c[0] > 1, body, (n, lg.zeros_like(n)))
    assert int(lg.sum(steps)) == want


def test_p12_trip_count_from_a_data_dependent_size(device, mode):
    b = np.array([0, 3, 0, 5, 1])

    def loss(x):
        n = lg.sum(lg.astype(lg.asarray(b) != 0, lg.int64))
        return lg.sum(lg.fori_loop(0, n, lambda _, v: v * v, x))

    check_gradient(loss, (lg.asarray([0.9]),), [8 * 0.9**7], mode=mode, rtol=1e-13)


def test_p20_what_others_refuse(device, mode):
    loss = lambda x: lg.while_loop(lambda v: v < 5.0, lambda v: v + 1.0, x)
    check_gradient(loss, (lg.asarray(0.5),), 1.0, mode=mode)
    square = lambda x: lg.while_loop(lambda v: v < 50.0, lambda v: v * v, x)
    check_gradient(square, (lg.asarray(1.5),), 16 * 1.5**15, mode=mode, rtol=1e-13)

    def counted(x, n):
        return lg.fori_loop(n, n + 2, lambda i, v: v * (v + lg.astype(i, v.dtype)), x)

    slope = lambda x, n: (2 * x + n) * (2 * x * (x + n) + n + 1)
    inside_cond = lambda x, n: lg.cond(n > 0, lambda: counted(x, n), lambda: 0.0 * x)
    check_gradient(inside_cond, (lg.asarray(0.7), lg.asarray(3)), slope(0.7, 3), mode=mode, rtol=1e-13)
    check_gradient(inside_cond, (lg.asarray(0.7), lg.asarray(0)), 0.0, mode=mode)
    inside_scan = lambda x, n: lg.sum(lg.scan(lambda c, t: (c, counted(c, t)), x, lg.asarray([0, 3]))[1])
    want = slope(0.7, 0) + slope(0.7, 3)
    check_gradient(inside_scan, (lg.asarray(0.7), lg.asarray(0)), want, mode=mode, rtol=1e-13)


def test_p21_newton_square_root(device, mode):
    x = np.array([2.0, 9.0, 0.25, 30.0])

    def roots(x):
        return lg.fori_loop(0, lg.full((4,), 50), lambda _, y: 0.5 * (y + x / y), lg.ones_like(x))

    check(roots(lg.asarray(x)), np.sqrt(x), 1e-14)
    check_gradient(lambda x: lg.sum(roots(x)), (lg.asarray(x),), 0.5 / np.sqrt(x), mode=mode, rtol=1e-13)


def test_p21_newton_until_it_converged(device, mode):
    x = np.array([2.0, 9.0, 0.25, 30.0])

    def roots(x):
        step = lambda y: 0.5 * (y + x / y)
        return lg.while_loop(lambda y: lg.abs(y * y - x) > 1e-13 * x, step, lg.ones_like(x))

    check(roots(lg.asarray(x)), np.sqrt(x), 1e-13)
    check_gradient(lambda x: lg.sum(roots(x)), (lg.asarray(x),), 0.5 / np.sqrt(x), mode=mode, rtol=1e-10)


def test_p22_sum_of_powers(device, mode):
    x = np.linspace(0.25, 1, 4)

    def loss(x):
        body = lambda i, y: y + lg.pow(x, lg.astype(i, x.dtype))
        return lg.sum(lg.fori_loop(0, lg.full((4,), 10), body, lg.zeros_like(x)))

    want = np.array([(np.arange(1, 10) * v ** np.arange(9.0)).sum() for v in x])
    check(want, [1.7777, 3.957, 12.0956, 45.0], 1e-3)
    check_gradient(loss, (lg.asarray(x),), want, mode=mode, rtol=1e-12)


def test_p23_forward_equals_reverse(device):
    loss = lambda x: lg.fori_loop(0, 4, lambda _, y: (y + 1.0) * x, x)
    x = 0.8
    polynomial = np.poly1d([1, 1, 1, 1, 1, 0])
    check(loss(lg.asarray(x)), polynomial(x), 1e-14)
    forward = lg.jvp(loss, (lg.asarray(x),), (lg.asarray(1.0),))[1]
    check(forward, polynomial.deriv()(x), 1e-14)
    check(lg.grad(loss)(lg.asarray(x)), polynomial.deriv()(x), 1e-14)


def test_p24_p26_per_lane_doubling(device, mode):
    trips = np.arange(1, 5)
    loss = lambda x: lg.sum(lg.fori_loop(0, lg.asarray(trips), lambda _, y: y * 2.0, x))
    check_gradient(loss, (lg.ones((4,)),), 2.0**trips, mode=mode)


def test_p25_fibonacci_swap(device, mode):
    loss = lambda a, b: lg.fori_loop(0, 4, lambda _, c: (c[1], c[0] + c[1]), (a, b))[1]
    arguments = (lg.asarray(1.0), lg.asarray(1.0))
    check_gradient(loss, arguments, 3.0, wrt=0, mode=mode)
    check_gradient(loss, arguments, 5.0, wrt=1, mode=mode)


def test_p31_p45_value_closed_over_by_the_body(device, mode):
    loss = lambda x: lg.fori_loop(0, 3, lambda _, power: power * x, x)
    check(loss(lg.asarray(2.0)), 16.0)
    check_gradient(loss, (lg.asarray(2.0),), 32.0, mode=mode)


def test_p32_aliasing_carries(device, mode):
    def final(x, pick):
        swapped = lg.fori_loop(0, 5, lambda _, c: (c[2], c[2], c[0] + c[1]), (x[0], x[1], x[2]))
        return swapped[pick]

    rows = np.eye(3)
    a, b, c = rows
    for _ in range(5):
        a, b, c = c, c, a + b
    x = lg.asarray([4.0, 4.0, 4.0])
    for pick, want in enumerate((a, b, c)):
        check(final(x, pick), 4.0 * want.sum())
        check_gradient(lambda x, pick=pick: final(x, pick), (x,), want, mode=mode)


def test_p32_accumulator_starts_as_the_input_itself(device, mode):
    loss = lambda x: lg.sum(lg.fori_loop(0, 3, lambda _, acc: acc * x, x))
    x = np.array([0.5, 1.5])
    check_gradient(loss, (lg.asarray(x),), 4 * x**3, mode=mode, rtol=1e-14)


def test_p33_one_of_several_captures_seeded(device):
    loss = lambda a, b: lg.fori_loop(0, 3, lambda _, y: y * a + b, lg.asarray(1.0))
    a, b = lg.asarray(2.0), lg.asarray(3.0)
    only_a = lg.jvp(lambda a: loss(a, b), (a,), (lg.asarray(1.0),))[1]
    only_b = lg.jvp(lambda b: loss(a, b), (b,), (lg.asarray(1.0),))[1]
    check(only_a, 3 * 2.0**2 + 3.0 * (2 * 2.0 + 1))
    check(only_b, 1 + 2.0 + 4.0)


def test_p34_p35_p36_a_limit_is_asserted_not_truncated(device):
    run = lambda x, limit: lg.while_loop(lambda v: v < 100.0, lambda v: v + 1.0, x, max_steps=limit)
    check(run(lg.asarray([95.0, 99.5]), 5), [100.0, 100.5])
    with pytest.raises(lg.LoopLimitError, match=r"test_peer_while\.py"):
        np.asarray(run(lg.asarray([0.0, 99.5]), 5))
    check(run(lg.asarray([98.0, 99.5]), 5), [100.0, 100.5])
    squared = lambda x: lg.while_loop(lambda v: v < 100.0, lambda v: v * v, x, max_steps=5)
    with pytest.raises(lg.LoopLimitError):
        np.asarray(lg.grad(lambda x: lg.sum(squared(x)))(lg.asarray([1.01, 99.5])))


def test_p37_p49_gradient_inside_a_body(device):
    """75 steps of gradient descent, differentiated; the inner gradient is taken in the body."""
    valley = lambda x, target: lg.sum((x - target) ** 2)

    def loss(target):
        step = lambda _, x: x - 0.1 * lg.grad(valley)(x, target)
        return lg.sum(lg.fori_loop(0, 75, step, lg.zeros((2,), dtype=lg.float64)))

    check(lg.grad(loss)(lg.asarray([1.0, -2.0])), np.full(2, 1 - 0.8**75), 1e-13)


def test_p42_zero_size_carry(device):
    x = lg.zeros((5, 0), dtype=lg.float64)
    result = lg.fori_loop(0, 3, lambda _, v: lg.sin(v), x)
    assert result.shape == (5, 0)
    assert np.asarray(lg.grad(lambda x: lg.sum(lg.fori_loop(0, 3, lambda _, v: lg.sin(v), x)))(x)).shape == (5, 0)


def test_p42_zero_lanes(device):
    x = lg.zeros((0,), dtype=lg.float64)
    run = lambda x: lg.while_loop(lambda v: v < 5.0, lambda v: v * v + 1.0, x)
    assert np.asarray(run(x)).shape == (0,)
    assert np.asarray(lg.grad(lambda x: lg.sum(run(x)))(x)).shape == (0,)


def test_p43_identity_body(device, mode):
    loss = lambda x: lg.sum(lg.fori_loop(0, 4, lambda _, v: v, x) * 3.0)
    check_gradient(loss, (lg.asarray([1.0, 2.0]),), [3.0, 3.0], mode=mode)


def test_p43_identity_body_saves_nothing(compiled_device):
    gradient = lg.compile(lg.grad(lambda x, n: lg.sum(lg.fori_loop(0, n, lambda _, v: v, x) * 3.0)))
    arguments = (lg.asarray([1.0, 2.0]), lg.asarray([7, 9]))
    check(gradient(*arguments), [3.0, 3.0])
    assert gradient.plan(*arguments).residuals == ()


def test_p44_undifferentiable_carries(device, mode):
    def loss(x):
        start = {"v": x, "n": lg.asarray(0), "flag": lg.asarray(False), "none": None, "still": lg.asarray(2.0)}

        def body(_, c):
            return {"v": c["v"] * c["still"], "n": c["n"] + 1, "flag": ~c["flag"], "none": None, "still": c["still"]}

        end = lg.fori_loop(0, 3, body, start)
        assert end["none"] is None
        return end["v"] + 0.0 * lg.astype(end["n"], lg.float64)

    check_gradient(loss, (lg.asarray(1.5),), 8.0, mode=mode)


def test_p47_jacobian_of_a_value_dependent_loop(device):
    def grown(x):
        return lg.while_loop(lambda v: lg.sum(v) < 20.0, lambda v: v * lg.flip(v) + 1.0, x)

    def numpy_grown(x):
        while x.sum() < 20.0:
            x = x * x[::-1] + 1.0
        return x

    x = np.array([1.2, 0.7])
    want = np.stack([central_difference(lambda x, k=k: numpy_grown(x)[k], x) for k in range(2)])
    check(lg.jacrev(grown)(lg.asarray(x)), want, 1e-6, 1e-6)
    check(lg.jacfwd(grown)(lg.asarray(x)), want, 1e-6, 1e-6)
