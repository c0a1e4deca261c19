"""Derivatives of determinants, of singular matrices first: cofactors, and cofactors of those, by NumPy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import loopgrad as lg


def cofactors(a):
    """The derivative by each element."""
    n = len(a)
    found = np.zeros_like(a)
    for i, j in product(range(n), repeat=2):
        rest = np.delete(np.delete(a, i, 0), j, 1)
        found[i, j] = (-1) ** (i + j) * np.linalg.det(rest)
    return found


def moved_cofactors(a, e):
    """The derivative of the cofactors along e."""
    n = len(a)
    found = np.zeros_like(a)
    for i, j in product(range(n), repeat=2):
        rest, along = (np.delete(np.delete(x, i, 0), j, 1) for x in (a, e))
        found[i, j] = (-1) ** (i + j) * (cofactors(rest) * along).sum()
    return found


def matrices(n, rng):
    """Regular, of every rank below n, with columns and rows of zeros in front, and nearly singular."""
    made = [rng.normal(size=(n, n))]
    factors = [rng.integers(-2, 3, size=(2, n, rank)).astype(float) for rank in range(n)]
    made += [left @ right.T for left, right in factors]
    made += [np.diag(np.arange(float(n))), np.diag(np.arange(float(n)))[::-1], made[-1] + 1e-13 * made[0]]
    column = made[0].copy()
    column[:, 1] = 2.0 * column[:, 0]
    return np.stack([*made, column])


def check(a, e, accuracy):
    gradient = lambda a: lg.grad(lambda a: lg.sum(lg.linalg.det(a)))(a)  # noqa: E731
    got, moved = (np.asarray(x) for x in lg.compile(lambda a: lg.jvp(gradient, (a,), (lg.asarray(e),)))(lg.asarray(a)))
    for k, (x, along) in enumerate(zip(a, e, strict=True)):
        scale = max(1.0, np.abs(x).max() ** (len(x) - 1))
        np.testing.assert_allclose(got[k], cofactors(x), atol=accuracy * scale, err_msg=f"matrix {k}")
        np.testing.assert_allclose(moved[k], moved_cofactors(x, along), atol=8 * accuracy * scale, err_msg=f"{k}")


def test_first_and_second_derivatives(device):
    rng = np.random.default_rng(4)
    a = matrices(4, rng)
    check(a, rng.normal(size=a.shape), 1e-12)


@pytest.mark.in_turns
@pytest.mark.usefixtures("formulas_alone")
@pytest.mark.parametrize(
    ("n", "dtype", "tolerance"), [(5, "float64", 1e-10), (9, "float64", 1e-10), (4, "float32", 1e-4)]
)
def test_larger_matrices(n, dtype, tolerance):
    rng = np.random.default_rng(5)
    a = matrices(n, rng).astype(dtype)
    check(a, rng.normal(size=a.shape).astype(dtype), tolerance)


@pytest.mark.usefixtures("formulas_alone")
def test_third_derivatives():
    """Of a matrix that lacks three ranks no lower ones are other than 0."""
    a = np.zeros((4, 4))
    a[2, 1] = 3.0
    e = np.random.default_rng(6).normal(size=(4, 4))
    exact = 6 * 3.0 * -np.linalg.det(np.delete(np.delete(e, 2, 0), 1, 1))
    np.testing.assert_allclose(_third(a, e), exact, rtol=1e-12)


def _third(a, e):
    return float(_moved(_moved(_moved(lg.linalg.det, e), e), e)(lg.asarray(a)))


def _moved(f, e):
    along = lg.asarray(e)
    return lambda a: lg.jvp(f, (a,), (along,))[1]


@pytest.mark.usefixtures("formulas_alone")
def test_fourth_derivatives():
    """Of a matrix that lacks four ranks, or does but for rounding, they are NaN and no wrong number; the regular one
    beside it has its own."""
    rng = np.random.default_rng(9)
    left, right = rng.normal(size=(2, 5, 1))
    regular = rng.normal(size=(5, 5))
    e = np.stack([regular.T - regular] * 3)
    with lg.default_device("interpreter"):  # the program is long
        a = lg.asarray(np.stack([left @ right.T, regular, np.zeros((5, 5))]))
        third = _moved(_moved(_moved(lg.linalg.det, e), e), e)
        value, slope = map(np.asarray, lg.value_and_grad(lambda a: lg.sum(third(a)))(a))
    assert np.isfinite(value)
    np.testing.assert_allclose((slope[1] * e[0]).sum(), _fourth_of_regular(regular, e[0]), rtol=1e-9)
    assert np.isnan(slope[[0, 2]]).all()


def _fourth_of_regular(a, e):
    """24 times a coefficient of det(a) det(1 + s inv(a) e), a symmetric function of eigenvalues."""
    return 24 * np.linalg.det(a) * np.poly(np.linalg.eigvals(np.linalg.solve(a, e)))[4].real


def test_complex_matrices(device):
    """A holomorphic function: its derivative by each element is the cofactor."""
    rng = np.random.default_rng(7)
    a = rng.integers(-2, 3, size=(3, 4, 4)) + 1j * rng.integers(-2, 3, size=(3, 4, 4))
    a[1, :, 1] = (1 + 2j) * a[1, :, 0]
    a[2, 1:3] = 0.0
    e = rng.normal(size=a.shape) + 1j * rng.normal(size=a.shape)
    value, moved = lg.jvp(lg.linalg.det, (lg.asarray(a),), (lg.asarray(e),))
    np.testing.assert_allclose(np.asarray(value), np.linalg.det(a), atol=1e-12)
    exact = [(cofactors(x) * t).sum() for x, t in zip(a, e, strict=True)]
    np.testing.assert_allclose(np.asarray(moved), exact, atol=1e-11)


def test_in_lanes():
    """Each lane multiplies its matrix by a number in as many trips as it likes."""
    rng = np.random.default_rng(8)
    a = matrices(4, rng)
    trips = np.arange(len(a))

    def total(a, n):
        return lg.fori_loop(0, n, lambda _, c: c + lg.linalg.det(a), 0.0)

    slope = np.asarray(lg.vmap(lg.grad(total))(lg.asarray(a), lg.asarray(trips)))
    for k, x in enumerate(a):
        np.testing.assert_allclose(slope[k], trips[k] * cofactors(x), atol=1e-11 * (1 + np.abs(x).max() ** 3))
