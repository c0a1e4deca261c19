"""Factorisations in branches and loops that all elements take together: one for them all, not one for each element."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg

RNG = np.random.default_rng(11)


def positive(*shape):
    a = RNG.standard_normal((*shape, shape[-1]))
    return a @ a.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])


FUNCTIONS = {
    "cholesky": lambda m, a: m.linalg.cholesky(a),
    "solve": lambda m, a: m.linalg.solve(a, a[..., ::-1, :]),
    "inv": lambda m, a: m.linalg.inv(a),
    "qr": lambda m, a: m.linalg.qr(a)[1],
    "eigvalsh": lambda m, a: m.linalg.eigvalsh(a)[..., None] * a,
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.costly) if n in ("eigvalsh", "inv") else n for n in FUNCTIONS]
)
def test_in_a_branch(device, name):
    f, a = FUNCTIONS[name], positive(2, 10)

    @lg.compile
    def branch(a):
        return lg.cond(lg.sum(a) > 0, lambda a: f(lg, a), lambda a: a, a)

    for matrix in (a, a[0], -a[1]):
        wanted = f(np, matrix) if matrix.sum() > 0 else matrix
        np.testing.assert_allclose(np.asarray(branch(lg.asarray(matrix))), wanted, rtol=1e-9, atol=1e-9)


def test_in_a_loop(device):
    """All matrices and vectors are as long as there are lanes."""
    n = 9
    a, x, trips = positive(n) / n, RNG.standard_normal((n, n)), np.arange(n) % 4

    step = lambda k, x: lg.sin(x) + 0.1 * lg.linalg.solve(lg.asarray(a) + k * np.eye(n), x)
    one = lambda x, trips: lg.fori_loop(0, trips, step, x)

    wanted = x.copy()
    for lane, count in enumerate(trips):
        for k in range(count):
            wanted[lane] = np.sin(wanted[lane]) + 0.1 * np.linalg.solve(a + k * np.eye(n), wanted[lane])
    found = lg.compile(lg.vmap(one))(lg.asarray(x), lg.asarray(trips))
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n", [64, pytest.param(100, marks=pytest.mark.costly)])
def test_in_blocks(device, n):
    """Matrices that GPUs factorise block by block."""
    a = positive(n).astype(np.float32)
    found = lg.compile(lg.linalg.cholesky)(lg.asarray(a))
    np.testing.assert_allclose(np.asarray(found), np.linalg.cholesky(a), rtol=1e-4, atol=1e-4)
    x = lg.compile(lg.linalg.solve)(lg.asarray(a), lg.asarray(a[0]))
    np.testing.assert_allclose(np.asarray(x), np.eye(n)[0], atol=1e-4)
