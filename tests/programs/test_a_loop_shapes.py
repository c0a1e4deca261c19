"""Group A: the shapes of a single dynamic loop."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check, check_gradient, tolerance

import loopgrad as lg

STARTS = [0.1, 0.3, 0.5, 0.8]


def decay(v):
    return 0.95 * v + 0.01


def decayed_uniform(x, n):
    """One scalar trip count for all elements."""
    return lg.fori_loop(0, n, lambda _, v: decay(v), x)


def decayed_per_lane(x, n):
    """A trip count per element, all equal."""
    return lg.fori_loop(0, lg.full(x.shape, n, dtype=lg.int32), lambda _, v: decay(v), x)


def decayed_mapped(x, n):
    """A scalar loop, mapped over the elements."""
    return lg.vmap(lambda one: lg.fori_loop(0, n, lambda _, v: decay(v), one))(x)


FORMS = [decayed_uniform, decayed_per_lane, decayed_mapped]


@pytest.mark.in_turns
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [1, 3, 10])
def test_a1_linear_recurrence(device, dtype, mode, form, n):
    x = lg.asarray(STARTS, dtype=dtype)
    rtol = tolerance(dtype, 1e-6, 1e-14)
    check_gradient(lambda x: lg.sum(form(x, n)), (x,), np.full(4, 0.95**n), mode=mode, rtol=rtol)


@pytest.mark.in_turns
@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("n", [1, 3, 10])
def test_a2_linear_sum(device, mode, n, static, indexed):
    x = lg.asarray(STARTS)

    def loss(x):
        def body(a, y):
            return y + lg.sum(x * (lg.astype(a, lg.float64) + 1.0) if indexed else x)

        y = lg.zeros((), dtype=lg.float64)
        if not static:
            return lg.fori_loop(0, n, body, y)
        for a in range(n):
            y = body(lg.asarray(a), y)
        return y

    want = n * (n + 1) / 2 if indexed else n
    check_gradient(loss, (x,), np.full(4, float(want)), mode=mode, rtol=1e-14)


@pytest.mark.parametrize("bound", [lg.int32, lg.int64])
def test_a3_nonlinear_recurrence(device, dtype, mode, bound):
    x = lg.asarray([0.3], dtype=dtype)
    trips = lg.asarray([5], dtype=bound)
    v, want = 0.3, 1.0
    for _ in range(5):
        want *= np.cos(v)
        v = np.sin(v) + 0.1

    def loss(x):
        return lg.sum(lg.fori_loop(0, trips, lambda _, v: lg.sin(v) + 0.1, x))

    check(loss(x), v, tolerance(dtype, 1e-6, 1e-13))
    check_gradient(loss, (x,), [want], mode=mode, rtol=tolerance(dtype, 1e-6, 1e-13))


@pytest.mark.parametrize(("n", "stored"), [(30, True), (100, True), (64, False), (128, False)])
def test_a4_side_output(device, dtype, mode, n, stored):
    x = lg.asarray(STARTS, dtype=dtype)
    table = lg.asarray(np.array([7, n, 9], dtype=np.int32))

    def loss(x):
        trips = table[1] if stored else n
        y, _ = lg.fori_loop(0, trips, lambda _, c: (c[0] + lg.sum(lg.sin(c[1])), c[1] + 1.0), (lg.sum(x) * 0.0, x))
        return y

    want = np.cos(np.asarray(STARTS)[:, None] + np.arange(n)).sum(axis=1)
    check_gradient(loss, (x,), want, mode=mode, rtol=tolerance(dtype, 1e-4, 1e-10), atol=tolerance(dtype, 2e-5, 0.0))


def test_a5_sum_with_per_lane_count(device, dtype, mode):
    trips = np.arange(10, dtype=np.int32)
    a = lg.asarray(np.linspace(0.5, 2.0, 10), dtype=dtype)

    def powers(a):
        return lg.fori_loop(0, lg.asarray(trips), lambda _, r: r + a, lg.ones_like(a))

    check(powers(a), np.linspace(0.5, 2.0, 10) * trips + 1, tolerance(dtype))
    rtol = tolerance(dtype, 1e-6, 1e-14)
    check_gradient(lambda a: lg.sum(powers(a)), (a,), trips.astype(float), mode=mode, rtol=rtol)


def test_a5_sum_with_per_lane_count_into_shared_cells(device):
    """The accumulation is a scatter-add into an outer array instead of a carried lane value."""
    trips = lg.asarray(np.arange(10, dtype=np.int32))
    lane = lg.arange(10)
    a = lg.asarray(np.linspace(0.5, 2.0, 10))

    def loss(a):
        cells = lg.ones((12,), dtype=lg.float64)
        total = lg.fori_loop(0, trips, lambda _, r: r.at[lane].add(a), cells)
        return lg.sum(total)

    check(loss(a), np.sum(np.linspace(0.5, 2.0, 10) * np.arange(10)) + 12, 1e-13)
    check(lg.grad(loss)(a), np.arange(10.0), 1e-14)


def test_a6_power(device, dtype, mode):
    trips = np.arange(10, dtype=np.int32)
    a = lg.full((10,), 3.0, dtype=dtype)

    def loss(a):
        return lg.sum(lg.fori_loop(0, lg.asarray(trips), lambda _, r: r * a, lg.ones_like(a)))

    want = np.array([0.0] + [b * 3.0 ** (b - 1) for b in range(1, 10)])
    check_gradient(loss, (a,), want, mode=mode, rtol=0.0 if mode == "reverse" else tolerance(dtype, 1e-6, 1e-14))


def fibonacci(n: int) -> list[int]:
    numbers = [0, 1]
    while len(numbers) < n:
        numbers.append(numbers[-1] + numbers[-2])
    return numbers[:n]


@pytest.mark.parametrize("wrt", [0, 1])
def test_a7_coupled_swap(device, dtype, mode, wrt):
    trips = lg.asarray(np.arange(15, dtype=np.int64))
    a = lg.zeros((15,), dtype=dtype)
    b = lg.ones((15,), dtype=dtype)

    def last(a, b):
        return lg.fori_loop(0, trips, lambda _, c: (c[1], c[0] + c[1]), (a, b))[1]

    f = np.array(fibonacci(17), dtype=float)
    check(last(a, b), f[1:16], 0.0)
    want = f[0:15] if wrt == 0 else f[1:16]
    rtol = 0.0 if mode == "reverse" else tolerance(dtype, 1e-6, 1e-14)
    check_gradient(lambda a, b: lg.sum(last(a, b)), (a, b), want, wrt=wrt, mode=mode, rtol=rtol)


def test_a8_empty_loops(device):
    x = lg.asarray(STARTS)

    def loss(x):
        nothing = lg.fori_loop(0, 3, lambda _, c: lg.fori_loop(0, 4, lambda _, d: d, c), ())
        assert nothing == ()
        return lg.sum(x * x)

    check(lg.grad(loss)(x), 2 * np.asarray(STARTS), 1e-14)


def test_a9_zero_trips(device, mode):
    x = lg.asarray(STARTS)
    trips = lg.asarray(np.array([0, 2, 0, -3], dtype=np.int32))

    def loss(x):
        return lg.sum(lg.fori_loop(0, trips, lambda _, v: v * v, x))

    want = np.array([1.0, 4 * 0.3**3, 1.0, 1.0])
    check_gradient(loss, (x,), want, mode=mode, rtol=1e-14)


def test_a9_zero_trips_of_every_lane(device, mode):
    x = lg.asarray(STARTS)

    def loss(x):
        carried = lg.while_loop(lambda v: v > 10.0, lambda v: lg.exp(v), x)
        return lg.sum(carried * carried)

    check_gradient(loss, (x,), 2 * np.asarray(STARTS), mode=mode, rtol=1e-14)


def test_a10_long_loops(device, mode):
    """Ten million additions; the interpreter takes the same nest with shorter loops."""
    shape = (5, 2000, 1000) if device != "interpreter" else (5, 4, 10)
    trips = np.prod(shape)

    def loss(x):
        def accumulate(y, remaining):
            if not remaining:
                return y + lg.sin(x) + 1.0
            return lg.fori_loop(0, remaining[0], lambda _, y: accumulate(y, remaining[1:]), y)

        return accumulate(lg.zeros((), dtype=lg.float64), shape)

    x = lg.asarray(0.0)
    check(loss(x), trips, 0.0)
    check_gradient(loss, (x,), float(trips), mode=mode, rtol=0.0 if mode == "reverse" else 1e-12)


def test_a10_long_loops_save_nothing(compiled_device):
    """Ten million trips that the adjoint reads nothing of: one slot is already too many."""

    def loss(x):
        inner = lambda _, y: lg.fori_loop(0, 1000, lambda _, y: y + lg.sin(x) + 1.0, y)
        return lg.sum(lg.fori_loop(0, 2000, inner, lg.zeros_like(x)))

    x = lg.zeros((5,))
    with lg.options(stack_capacity=1):
        gradient = lg.compile(lg.grad(loss))
        check(gradient(x), np.full(5, 2e6), 0.0)
        assert gradient.plan(x).residuals == ()


@pytest.mark.in_turns
@pytest.mark.parametrize("static", [False, True])
def test_a11_static_or_dynamic(device, mode, static):
    generator = np.random.default_rng(11)
    x = generator.normal(size=(3, 10, 3))
    w = generator.normal(size=(3, 10))

    def loss(x, w):
        def add(i, z):
            return z + x[i] * w[i][:, None]

        z = lg.zeros((10, 3), dtype=lg.float64)
        if static:
            for i in range(3):
                z = add(i, z)
        else:
            z = lg.fori_loop(0, 3, add, z)
        return lg.sum(z[:, 0] + z[:, 1] + z[:, 2])

    arguments = (lg.asarray(x), lg.asarray(w))
    check(loss(*arguments), np.sum(x * w[:, :, None]), 1e-12)
    check_gradient(loss, arguments, np.repeat(w[:, :, None], 3, axis=2), wrt=0, mode=mode)
    check_gradient(loss, arguments, x.sum(axis=2), wrt=1, mode=mode)


def test_a12_loop_index_as_data(device, mode):
    x = np.random.default_rng(12).normal(size=(2, 5))

    def loss(x):
        def lane(i):
            total = lg.fori_loop(0, 5, lambda j, s: s + x[i, j], lg.zeros((), dtype=lg.float64))
            return lg.exp(total)

        return lg.sum(lg.vmap(lane)(lg.arange(2)))

    want = np.repeat(np.exp(x.sum(axis=1))[:, None], 5, axis=1)
    check_gradient(loss, (lg.asarray(x),), want, mode=mode)


@pytest.mark.parametrize("offset", [0.0, 2.0])
@pytest.mark.parametrize("start", [0, 4])
def test_a13_in_place_sweep(device, mode, start, offset):
    """Element i+1 is overwritten by twice element i: only the first element read keeps a gradient."""
    x = np.random.default_rng(13).normal(size=(16, 8))
    k = lg.astype(lg.arange(16), lg.float64)

    def loss(x):
        def step(i, x):
            return x.at[:, i + 1].set(2.0 * x[:, i] + offset * k * k)

        return lg.sum(lg.fori_loop(start, 7, step, x)[:, 7])

    want = np.zeros((16, 8))
    want[:, start] = 2.0 ** (7 - start)
    check_gradient(loss, (lg.asarray(x),), want, mode=mode, rtol=1e-14)


def test_a14_loop_inside_a_called_function(device, mode):
    x = lg.asarray(STARTS)

    def caller(x):
        return decayed_per_lane(x, 3) * 1.0

    check_gradient(lambda x: lg.sum(caller(x)), (x,), np.full(4, 0.95**3), mode=mode, rtol=1e-14)


def test_a15_while_loop_with_nested_ifs(device, mode):
    w = np.array([-2.0, 1, 2, 3, 4, 5, 6, 20])

    def lane(w):
        def body(carry):
            step, y = carry
            inner = lambda: lg.cond(w < 10.0, lambda: y + w * w, lambda: y)
            return step + 1, lg.cond(w > 0.0, inner, lambda: y)

        return lg.while_loop(lambda c: c[0] < 1, body, (lg.asarray(0), lg.zeros((), dtype=lg.float64)))[1]

    want = np.where((w > 0) & (w < 10), 2 * w, 0.0)
    check_gradient(lambda w: lg.sum(lg.vmap(lane)(w)), (lg.asarray(w),), want, mode=mode, rtol=1e-14)
