"""Factorisations in programs, on every device: in loops that each lane runs for itself, in loops over whole tensors,
under vmap, compiled, with gradients through all of it; by NumPy and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg

RNG = np.random.default_rng(11)


def near(result, expected, tolerance=1e-9):
    np.testing.assert_allclose(np.asarray(result), expected, rtol=tolerance, atol=tolerance)


def slope(loss, x, step=1e-6):
    """Finite differences in the direction of a fixed array."""
    direction = np.cos(np.arange(x.size)).reshape(x.shape)
    return direction, (loss(x + step * direction) - loss(x - step * direction)) / (2 * step)


def refined(m, solve, a, b, trips):
    """Steps that solve a system which depends on the solution."""
    x = b
    for _ in range(trips):
        x = 0.5 * x + solve(a + 0.1 * m.eye(a.shape[-1]) * m.sum(x * x) / (1 + m.sum(x * x)), b)
    return x


@pytest.mark.in_turns
@pytest.mark.parametrize("n", [2, 5, pytest.param(34, marks=pytest.mark.costly)])
def test_lanes_with_trips_of_their_own(device, n):
    """Newton-like steps with a system each, of which a lane takes its own number. Systems of 34 rows are too large for
    lanes, which then go together, masked."""
    lanes = 3
    a = RNG.standard_normal((lanes, n, n)) + (3 + n**0.5) * np.eye(n)
    b, trips = RNG.standard_normal((lanes, n)), np.array([3, 0, 2])

    def one(a, b, count):
        step = lambda k, x: 0.5 * x + lg.linalg.solve(a + 0.1 * lg.eye(n) * lg.sum(x * x) / (1 + lg.sum(x * x)), b)
        return lg.fori_loop(0, count, step, b)

    expected = [refined(np, np.linalg.solve, a[i], b[i], trips[i]) for i in range(lanes)]
    function = lg.compile(lg.vmap(one))
    near(function(lg.asarray(a), lg.asarray(b), lg.asarray(trips)), expected)
    loss = lambda a: lg.sum(lg.vmap(one)(a, lg.asarray(b), lg.asarray(trips)) ** 2)
    found = np.asarray(lg.compile(lg.grad(loss))(lg.asarray(a)))
    direct = lambda a: sum(np.sum(refined(np, np.linalg.solve, a[i], b[i], trips[i]) ** 2) for i in range(lanes))
    direction, difference = slope(direct, a)
    near(np.sum(found * direction), difference, 1e-5)


@pytest.mark.costly
def test_a_filter_of_covariances(device):
    """A Kalman filter's covariance, whose innovation is factorised, in a loop of whole batches and in lanes."""
    lanes, n = 4, 3
    start = RNG.standard_normal((lanes, n, n))
    start = start @ start.swapaxes(1, 2) + np.eye(n)
    move = np.eye(n) + 0.1 * RNG.standard_normal((n, n))

    def advance(m, p, cholesky, solve):
        p = move @ p @ move.T + 0.1 * np.eye(n)
        s = p[:2, :2] + 0.5 * np.eye(2)
        gain = m.matrix_transpose(solve(s, p[:2, :]))
        return p - gain @ p[:2, :], cholesky(s)

    def one(p):
        def body(k, state):
            p, total = state
            p, factor = advance(lg, p, lg.linalg.cholesky, lg.linalg.solve)
            return p, total + lg.sum(lg.log(lg.linalg.diagonal(factor)))

        return lg.fori_loop(0, 4, body, (p, lg.asarray(0.0)))

    def oracle(start):
        totals = []
        for p in start:
            total = 0.0
            for _ in range(4):
                p, factor = advance(np, p, np.linalg.cholesky, np.linalg.solve)
                total += np.sum(np.log(np.diagonal(factor)))
            totals.append(total)
        return np.array(totals)

    near(lg.compile(lg.vmap(one))(lg.asarray(start))[1], oracle(start))
    found = lg.compile(lg.grad(lambda p: lg.sum(lg.vmap(one)(p)[1])))(lg.asarray(start))
    direction, difference = slope(lambda p: oracle(p).sum(), start)
    near(np.sum(np.asarray(found) * direction), difference, 1e-5)


def test_plan_says_who(device):
    if device != "cpu":
        return
    a = RNG.standard_normal((30, 30))
    plan = str(lg.compile(lg.linalg.cholesky).plan(lg.asarray(a)))
    assert "cholesky" in plan
    assert "on the host" in plan


def test_matrices_of_constants(device):
    """What a program factorises may be known when it is compiled."""
    equal, data = lg.full((3, 3), 2.0), np.full((3, 3), 2.0)
    values, vectors = lg.linalg.eigh(equal)
    near((vectors * values) @ vectors.T, data)
    q, r = lg.linalg.qr(equal)
    near(q @ r, data)
    near(lg.compile(lambda: lg.linalg.det(equal) + lg.linalg.svdvals(equal)[0])(), 6.0)
    with pytest.raises(lg.linalg.LinAlgError):
        np.asarray(lg.linalg.inv(equal))


@pytest.mark.in_turns
@pytest.mark.parametrize("shape", [(10, 6, 5), (9, 12, 12)])
def test_matrices_that_are_stacked_before_they_are_factorised(device, shape):
    """Each lane's matrix is in one operand of what joins them, which the lane finds by its number."""
    matrices = RNG.standard_normal(shape)
    order, lower, upper = lg.linalg.lu(lg.stack(list(matrices)))
    near(order @ lower @ upper, matrices)
    squares = list(matrices @ matrices.swapaxes(1, 2) + np.eye(shape[1]))
    near(lg.linalg.cholesky(lg.concat([lg.asarray(a[None]) for a in squares])), np.linalg.cholesky(np.stack(squares)))
    size = lambda *a: lg.sum(lg.linalg.cholesky(lg.stack(a)) ** 2)  # the sum of the traces
    slopes = lg.compile(lg.grad(size, argnums=range(len(squares))))(*squares)
    for slope in slopes:
        near(slope, np.eye(shape[1]))


TALL = {
    "values": (lambda m, a: m.linalg.svd(a, compute_uv=False), (9, 7), 0),
    "complex values": (lambda m, a: m.linalg.svd(a, compute_uv=False), (3, 2), 1j),
    "triangle": (lambda m, a: m.abs(m.linalg.qr(a)[1]), (9, 7), 0),
    "inverse": (lambda m, a: m.linalg.pinv(a), (9, 7), 0),
}


@pytest.mark.parametrize("name", TALL)
def test_results_as_long_as_what_goes_on_with_them(device, name):
    """What is made of a tall matrix at once is as long as the vector it is added to, whose elements could be lanes."""
    function, shape, unit = TALL[name]
    a = RNG.standard_normal((2, *shape)) + unit * RNG.standard_normal((2, *shape))
    start = np.zeros_like(function(np, a[0]))
    one = lambda a: lg.fori_loop(0, 3, lambda k, x: x + function(lg, a * (k + 1.0)), lg.asarray(start))
    expected = [sum(function(np, x * k) for k in (1.0, 2.0, 3.0)) for x in a]
    near(lg.compile(one)(lg.asarray(a[0])), expected[0])
    near(lg.compile(lg.vmap(one))(lg.asarray(a)), expected)
