"""What a lane keeps in arrays of its own, in loops of lanes with ends of their own: carried, solved, factorised; by
NumPy, gradients through all of it by differences. One program a case, since devices compile slowly."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg

RNG = np.random.default_rng(5)
LANES = 40
TRIPS = np.arange(LANES) % 4


def solved(m, n):
    """Systems whose rows must change places, which depend on the solution before."""
    matrix = np.eye(n)[::-1] * 3.0

    def step(a, x):
        return 0.5 * x + m.linalg.solve(a + matrix + 0.1 * m.sum(x * x) / (1 + m.sum(x * x)) * np.eye(n), x)

    return step


def filtered(m, n):
    """A covariance, that of what is measured, its factor, and products."""
    move = np.eye(n) + 0.1 * np.cos(np.arange(n * n).reshape(n, n))
    transposed = (lambda v: v.T) if m is np else lg.matrix_transpose

    def step(a, p):
        p = move @ p @ move.T + 0.1 * np.eye(n)
        factor = m.linalg.cholesky(p + a @ transposed(a) + np.eye(n))
        gain = m.linalg.solve(factor, p) if m is np else lg.linalg.solve_triangular(factor, p, lower=True)
        return p - transposed(gain) @ gain

    return step


def start(name, n):
    a = RNG.standard_normal((LANES, n, n)) / n
    return a, RNG.standard_normal((LANES, n)) if name == "solved" else np.stack([np.eye(n)] * LANES)


def looped(step, trips, value):
    return lg.while_loop(lambda s: s[0] < trips, lambda s: (s[0] + 1, step(s[1])), (0, value))[1]


def by_hand(step, trips, value):
    for _ in range(trips):
        value = step(value)
    return value


def agrees(device, make, n, a, x):
    """Value and gradient of a program that makes as many steps as a lane has trips."""

    def loss(a):
        one = lambda a, x, trips: looped(lambda v: make(lg, n)(a, v), trips, x)
        found = lg.vmap(one)(a, lg.asarray(x), lg.asarray(TRIPS))
        return lg.sum(found * lg.cos(found)), found

    compiled = lg.compile(lg.value_and_grad(loss, has_aux=True))
    (_, found), slope = compiled(lg.asarray(a))
    one = lambda a, x, trips: by_hand(lambda v: make(np, n)(a, v), trips, x)
    expected = lambda a: np.stack([one(*lane) for lane in zip(a, x, TRIPS, strict=True)])
    np.testing.assert_allclose(np.asarray(found), expected(a), rtol=1e-9, atol=1e-9)
    direction, step = np.cos(np.arange(a.size)).reshape(a.shape), 1e-6
    ends = [np.sum(v * np.cos(v)) for v in (expected(a + step * direction), expected(a - step * direction))]
    near = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(np.sum(np.asarray(slope) * direction), near, rtol=1e-5, atol=1e-6)
    if device != "interpreter":
        assert "lockstep" not in str(compiled.plan(lg.asarray(a)))


def substituted(m, n):
    lower = (
        (lambda a, b: np.linalg.solve(a, b))
        if m is np
        else (lambda a, b: lg.linalg.solve_triangular(a, b[:, None], lower=True)[:, 0])
    )
    return lambda a, x: m.sin(x) + 0.5 * lower(m.tril(a) + 3.0 * np.eye(n), x[::-1])


def test_substituted(device):
    """Little code: what is carried is in an array, saved one element after the other."""
    agrees(device, substituted, 9, *start("solved", 9))


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("name", ["solved", "filtered"])
def test_factorised(device, name):
    agrees(device, {"solved": solved, "filtered": filtered}[name], 12, *start(name, 12))


def rotated(m, n):
    """Eigenvalues, singular values and QR factors, whose derivatives are finite where values differ."""
    t = (lambda v: v.T) if m is np else lg.matrix_transpose
    values = lambda v: m.linalg.svd(v, compute_uv=False)

    def step(a, x):
        w, v = m.linalg.eigh(a + t(a) + 0.1 * t(x) @ x)
        q, r = m.linalg.qr(x + 2 * np.eye(n) + a)
        return 0.1 * (v * m.sin(w)) @ t(v) + 0.05 * values(x + a)[0] * np.eye(n) + 0.1 * q + 0.05 * r

    return step


@pytest.mark.costly
def test_rotated(device):
    agrees(device, rotated, 9, *start("rotated", 9))


def turned(m, n):
    """Complex matrices: what is solved, and all factors."""
    t = (lambda v: np.conj(v.T)) if m is np else lambda v: lg.conj(lg.matrix_transpose(v))

    def step(a, x):
        positive = m.linalg.cholesky(x @ t(x) + n * np.eye(n))
        w, v = m.linalg.eigh(a + t(a) + 0.1 * x @ t(x))
        q, r = m.linalg.qr(x + a)
        u, s, vh = m.linalg.svd(x - a)
        rotated = (v * m.sin(w)) @ t(v) + (u * m.cos(s)) @ vh
        return 0.3 * x + 0.1 * m.linalg.solve(a + n * np.eye(n), positive) + 0.05 * (q + r) + 0.05 * rotated

    return step


@pytest.mark.costly
def test_complex(device):
    """In one kernel, with a matrix among them that has no factors."""
    n, rng = 5, np.random.default_rng(8)
    a, x, b, c = (rng.standard_normal((6, n, n)) + 1j * rng.standard_normal((6, n, n)) for _ in range(4))
    a[5, 1, 1] = np.nan

    def loss(m, a, x, one):
        found = one(turned(m, n), a, x)
        return m.sum(m.real(found * m.conj(found)) * np.cos(np.arange(n * n)).reshape(n, n)), found

    def ours(a, x, trips):
        return loss(lg, a, x, lambda step, a, x: looped(lambda v: step(a, v), trips, x))

    def total(a, x, trips):
        values, found = lg.vmap(ours)(a, x, trips)
        return lg.sum(values[:5]), found

    compiled = lg.compile(lg.value_and_grad(total, argnums=(0, 1), has_aux=True))
    trips = lg.asarray(np.arange(6) % 3)
    (value, found), slopes = compiled(lg.asarray(a), lg.asarray(x), trips)
    assert np.isnan(np.asarray(found)[5]).all()
    by_numpy = lambda a, x: sum(
        loss(np, *lane[:2], lambda step, a, x, trips=lane[2]: by_hand(lambda v: step(a, v), trips, x))[0]
        for lane in zip(a[:5], x[:5], np.arange(6) % 3, strict=False)
    )
    np.testing.assert_allclose(float(value), by_numpy(a, x), rtol=1e-11)
    ends = [by_numpy(a + h * b, x + h * c) for h in (1e-6, -1e-6)]
    along = sum(np.sum((np.conj(s) * d).real[:5]) for s, d in zip(map(np.asarray, slopes), (b, c), strict=True))
    np.testing.assert_allclose(along, (ends[0] - ends[1]) / 2e-6, rtol=1e-6)
    if device != "interpreter":
        assert "lockstep" not in str(compiled.plan(lg.asarray(a), lg.asarray(x), trips))
