"""Peer cases 3: scan and fori_loop."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from oracles import central_difference, check, check_gradient

import loopgrad as lg


@pytest.mark.parametrize("length", [0, -1, -7])
def test_p60_no_trips(device, mode, length):
    loss = lambda x: lg.sum(lg.fori_loop(0, length, lambda _, v: lg.sin(v), x) * x)
    check_gradient(loss, (lg.asarray([0.5, 2.0]),), [1.0, 4.0], mode=mode)
    compiled = lg.compile(lambda x, n: lg.fori_loop(0, n, lambda _, v: lg.sin(v), x))
    check(compiled(lg.asarray([0.5]), lg.asarray(length)), [0.5])


def test_p60_scan_over_nothing(device):
    carry, ys = lg.scan(lambda c, x: (c + x, c * 2.0), lg.asarray(1.5), lg.zeros((0,)))
    check(carry, 1.5)
    assert np.asarray(ys).shape == (0,)


@pytest.mark.parametrize("bound", ["int8", "uint8", "int32", "int64"])
def test_p61_integer_types_of_bounds(device, bound):
    n = lg.asarray(5, dtype=getattr(lg, bound))
    check(lg.fori_loop(0, n, lambda i, y: y + lg.astype(i, lg.float64), lg.asarray(0.0)), 10.0)
    check(lg.fori_loop(lg.asarray(2, dtype=getattr(lg, bound)), 5, lambda i, y: y + 1.0, lg.asarray(0.0)), 3.0)


@pytest.mark.parametrize("reverse", [False, True])
def test_p62_scan_is_a_cumulative_sum(device, mode, reverse):
    x = np.random.default_rng(62).normal(size=7)

    def sums(x):
        return lg.scan(lambda c, v: (c + v, c + v), lg.asarray(0.0), x, reverse=reverse)[1]

    want = np.cumsum(x[::-1])[::-1] if reverse else np.cumsum(x)
    check(sums(lg.asarray(x)), want, 1e-14)
    check(lg.cumsum(lg.asarray(x)), np.cumsum(x), 1e-14)
    weights = np.arange(1.0, 8.0)
    gradient = np.cumsum(weights) if reverse else np.cumsum(weights[::-1])[::-1]
    check_gradient(lambda x: lg.sum(sums(x) * lg.asarray(weights)), (lg.asarray(x),), gradient, mode=mode, rtol=1e-13)


def test_p63_length_without_xs(device, mode):
    loss = lambda x: lg.sum(lg.scan(lambda c, _: (c * x, c), x, None, length=4)[1])
    check_gradient(loss, (lg.asarray(0.9),), sum((k + 1) * 0.9**k for k in range(4)), mode=mode, rtol=1e-14)


class State(NamedTuple):
    position: object
    rest: object


def test_p64_structured_carries(device):
    start = {"state": State(lg.asarray(1.0), ()), "pair": (lg.asarray(2.0), [])}

    def body(carry, x):
        state = State(carry["state"].position + x, ())
        return {"state": state, "pair": (carry["pair"][0] * 2.0, [])}, (state.position, {})

    end, (history, empty) = lg.scan(body, start, lg.asarray([1.0, 10.0]))
    check(end["state"].position, 12.0)
    check(end["pair"][0], 8.0)
    check(history, [2.0, 12.0])
    assert isinstance(end["state"], State)
    assert empty == {}
    assert end["pair"][1] == []


def test_p65_recurrent_network(device):
    generator = np.random.default_rng(65)
    w, u = generator.normal(size=(2, 2)), generator.normal(size=(2, 3))
    inputs, hidden = generator.normal(size=(3, 3)), generator.normal(size=2)

    def value(w):
        h = hidden
        for x in inputs:
            h = np.tanh(w @ h + u @ x)
        return float((h * h).sum())

    def loss(w):
        step = lambda h, x: (lg.tanh(lg.matmul(w, h) + lg.matmul(lg.asarray(u), x)), None)
        h, _ = lg.scan(step, lg.asarray(hidden), lg.asarray(inputs))
        return lg.sum(h * h)

    check(loss(lg.asarray(w)), value(w), 1e-13)
    want = central_difference(value, w)
    check(lg.grad(loss)(lg.asarray(w)), want, 1e-7, 1e-9)
    along = np.array([[1.0, -0.5], [0.25, 2.0]])
    check(lg.jvp(loss, (lg.asarray(w),), (lg.asarray(along),))[1], np.sum(want * along), 1e-7)
    h = 1e-5
    curvature = (central_difference(value, w + h * along) - central_difference(value, w - h * along)) / (2 * h)
    product = lg.jvp(lg.grad(loss), (lg.asarray(w),), (lg.asarray(along),))[1]
    check(product, curvature, 1e-3, 1e-4)
    batch = np.stack([w, 2 * w, -w])
    check(lg.vmap(loss)(lg.asarray(batch)), [value(b) for b in batch], 1e-13)


def test_p67_carry_shifted_left_with_one_batched_element(device):
    def shifted(x):
        step = lambda _, c: (c[1], c[2], c[0])
        return lg.stack(list(lg.fori_loop(0, 2, step, (lg.asarray(1.0), lg.asarray(2.0), x))))

    x = np.array([3.0, 4.0])
    check(lg.vmap(shifted)(lg.asarray(x)), np.stack([x, np.full(2, 1.0), np.full(2, 2.0)], axis=1))


def test_p68_loop_invariant_matrix(device, mode):
    """x_t = A x_{t-1}: A is needed by every trip and saved by none."""
    a = np.array([[0.9, 0.2], [-0.1, 0.8]])
    loss = lambda a, x: lg.sum(lg.fori_loop(0, 6, lambda _, x: lg.matmul(a, x), x))
    value = lambda a: np.sum(np.linalg.matrix_power(a, 6) @ np.array([1.0, 2.0]))
    arguments = (lg.asarray(a), lg.asarray([1.0, 2.0]))
    check_gradient(loss, arguments, central_difference(value, a), mode=mode, rtol=1e-7)
    check_gradient(loss, arguments, np.linalg.matrix_power(a.T, 6) @ np.ones(2), wrt=1, mode=mode, rtol=1e-13)


def test_p68_what_a_linear_recurrence_saves(compiled_device):
    """By x nothing; by A the vectors it multiplied, not A itself."""
    loss = lambda a, x: lg.sum(lg.fori_loop(0, 6, lambda _, x: lg.matmul(a, x), x))
    arguments = (lg.asarray([[0.9, 0.2], [-0.1, 0.8]]), lg.asarray([1.0, 2.0]))
    by_vector = lg.compile(lg.grad(loss, argnums=1))
    by_matrix = lg.compile(lg.grad(loss, argnums=0))
    check(by_vector(*arguments), np.linalg.matrix_power(np.array([[0.9, -0.1], [0.2, 0.8]]), 6) @ np.ones(2), 1e-13)
    assert by_vector.plan(*arguments).residuals == ()
    assert [saved.type for saved in by_matrix.plan(*arguments).residuals] == ["float64[2]"]


def test_p69_second_trip_is_not_run_by_python(device):
    calls = []

    def body(_, v):
        calls.append(1)
        return v * 2.0

    check(lg.fori_loop(0, 1000, body, lg.asarray(0.0)), 0.0)
    assert len(calls) <= 2


def test_p71_mutable_host_array_as_start(device):
    host = np.array([1.0, 2.0])
    result = lg.fori_loop(0, 3, lambda _, v: v * 2.0, lg.asarray(host))
    check(result, [8.0, 16.0])
    check(host, [1.0, 2.0])


def test_p72_conditionals_and_scans_in_each_other(device, mode):
    def loss(x):
        def step(c, v):
            c = lg.cond(v > 0.0, lambda c: c * v, lambda c: c - v, c)
            return c, c

        inner = lambda x: lg.sum(lg.scan(step, lg.asarray(1.0), x)[1])
        return lg.cond(lg.sum(x) > 0.0, inner, lambda x: lg.sum(x) * 0.0, x)

    def value(x):
        c, total = 1.0, 0.0
        for v in x:
            c = c * v if v > 0 else c - v
            total += c
        return total

    x = np.array([0.5, -0.3, 1.5, 2.0, -0.1])
    check_gradient(loss, (lg.asarray(x),), central_difference(value, x), mode=mode, rtol=1e-8)


def test_p72_scan_over_a_view(device, mode):
    x = np.random.default_rng(72).normal(size=(4, 6))

    def loss(x):
        columns = lg.permute_dims(x[:, ::2], (1, 0))
        return lg.sum(lg.scan(lambda c, row: (c + row * row, None), lg.zeros((4,)), columns)[0])

    want = np.zeros_like(x)
    want[:, ::2] = 2 * x[:, ::2]
    check_gradient(loss, (lg.asarray(x),), want, mode=mode, rtol=1e-14)


def test_p48_second_order_through_scan(device):
    loss = lambda x: lg.sum(lg.scan(lambda c, v: (lg.sin(c) * v, c * c), lg.asarray(0.7), x)[1])

    def value(x):
        c, total = 0.7, 0.0
        for v in x:
            c, total = np.sin(c) * v, total + c * c
        return total

    x = np.array([0.9, 1.4, 0.3])
    gradient = lambda x: central_difference(value, x, 1e-5)
    want = np.stack([(gradient(x + e) - gradient(x - e)) / 2e-4 for e in 1e-4 * np.eye(3)])
    rows = [lg.jvp(lg.grad(loss), (lg.asarray(x),), (lg.asarray(e),))[1] for e in np.eye(3)]
    check(lg.stack(rows), want, 1e-3, 1e-4)
    check(lg.hessian(loss)(lg.asarray(x)), want, 1e-3, 1e-4)
    columns = [lg.grad(lambda x, k=k: lg.grad(loss)(x)[k])(lg.asarray(x)) for k in range(3)]
    check(lg.stack(columns), want, 1e-3, 1e-4)


@pytest.mark.parametrize(
    ("body", "pattern"),
    [
        (lambda _, c: (c[0], lg.astype(c[1], lg.bool)), r"\[1\].*float64.*bool"),
        (lambda _, c: (c[0], lg.stack([c[1], c[1]])), r"\[1\].*(\(\)|\[\]).*2"),
        (lambda _, c: (c[0],), "(?i)structure|leaves|carr"),
    ],
)
def test_p73_mismatched_carries_are_named(device, body, pattern):
    with pytest.raises((TypeError, ValueError), match=pattern) as caught:
        lg.fori_loop(0, 3, body, (lg.asarray(1.0), lg.asarray(2.0)))
    assert "test_peer_scan.py" in str(caught.value)


@pytest.mark.parametrize("place", ["condition", "body"])
def test_p74_exceptions_of_the_user_come_through(device, place):
    def fail(_):
        raise KeyError("mine")

    condition = fail if place == "condition" else lambda v: v < 3.0
    body = fail if place == "body" else lambda v: v + 1.0
    with pytest.raises(KeyError, match="mine"):
        lg.while_loop(condition, body, lg.asarray(0.0))
    check(lg.while_loop(lambda v: v < 3.0, lambda v: v + 1.0, lg.asarray(0.0)), 3.0)
