"""Factorisations and what is made of them against NumPy and SciPy, on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import loopgrad as lg
from tests.lazy.oracle import check

RNG = np.random.default_rng(8)
LARGE = pytest.param((2, 18, 18), "float64", marks=pytest.mark.costly, id="large")
CASES = [
    *[(shape, "float64") for shape in ((1, 1), (3, 3), (2, 3, 5), (5, 2), (66, 3, 3), (0, 3, 3), (2, 3, 0), (0, 0))],
    *[(shape, "float32") for shape in ((2, 4, 4), (0, 3, 3))],
    LARGE,
]


def near(found: Any, expected: Any, dtype: str) -> None:
    check(found, expected, 2e-4 if dtype == "float32" else 1e-10)


def orthonormal(columns: np.ndarray) -> None:
    eye = np.broadcast_to(np.eye(columns.shape[-1]), (*columns.shape[:-2], *(columns.shape[-1],) * 2))
    tolerance = 1e-4 if columns.dtype == np.float32 else 1e-11
    np.testing.assert_allclose(columns.swapaxes(-1, -2) @ columns, eye, atol=tolerance)


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize(("shape", "dtype"), CASES)
def test_factors(device: str, shape: tuple[int, ...], dtype: str) -> None:
    a = RNG.standard_normal(shape).astype(dtype)
    x = lg.asarray(a)
    for mode in ("reduced", "complete"):
        q, r = lg.linalg.qr(x, mode=mode)
        expected = np.linalg.qr(a, mode)
        near(q, expected.Q, dtype)
        near(r, expected.R, dtype)
    near(lg.linalg.qr(x, mode="r"), np.linalg.qr(a, "r"), dtype)
    for full in (True, False):
        found, expected = lg.linalg.svd(x, full_matrices=full), np.linalg.svd(a, full_matrices=full)
        near(found.S, expected.S, dtype)
        u, vh = np.asarray(found.U), np.asarray(found.Vh)
        assert (u.shape, vh.shape) == (expected.U.shape, expected.Vh.shape)
        orthonormal(u)
        orthonormal(vh.swapaxes(-1, -2))
        k = min(shape[-2:])
        near((u[..., :k] * np.asarray(found.S)[..., None, :]) @ vh[..., :k, :], a, dtype)
    near(lg.linalg.svdvals(x), np.linalg.svdvals(a), dtype)
    near(lg.linalg.pinv(x), np.linalg.pinv(a), dtype)
    if shape[-1] != shape[-2]:
        return
    symmetric = a + a.swapaxes(-1, -2)
    w, v = (np.asarray(part) for part in lg.linalg.eigh(lg.asarray(symmetric)))
    near(w, np.linalg.eigvalsh(symmetric), dtype)
    orthonormal(v)
    near(symmetric @ v, v * w[..., None, :], dtype)
    near(lg.linalg.eigvalsh(lg.asarray(np.triu(symmetric)), "U"), w, dtype)
    sign, logarithm = lg.linalg.slogdet(x)
    near(sign, np.linalg.slogdet(a).sign, dtype)
    near(logarithm, np.linalg.slogdet(a).logabsdet, dtype)


def test_special_matrices(device: str) -> None:
    """Equal values, zeros, ranks below full, NaN and infinities; each in a batch beside others."""
    a = np.stack([np.eye(3), np.zeros((3, 3)), np.ones((3, 3)), np.diag([1e-200, 1.0, 1e200]), -np.eye(3)])
    near(lg.linalg.eigvalsh(lg.asarray(a)), np.linalg.eigvalsh(a), "float64")
    u, s, vh = (np.asarray(part) for part in lg.linalg.svd(lg.asarray(a)))
    largest = np.maximum(s[:, :1], 1)
    np.testing.assert_allclose(s / largest, np.linalg.svdvals(a) / largest, rtol=1e-12, atol=1e-14)
    orthonormal(u)
    orthonormal(vh)
    check(lg.linalg.matrix_rank(lg.asarray(a)), np.linalg.matrix_rank(a))
    check(lg.linalg.pinv(lg.asarray(a[:3])), np.linalg.pinv(a[:3]))
    check(lg.linalg.det(lg.asarray(a)), np.linalg.det(a))
    lost = np.stack([np.eye(3), np.full((3, 3), np.nan), np.full((3, 3), np.inf)])
    for function in (lg.linalg.eigvalsh, lg.linalg.svdvals):
        found = np.asarray(lg.compile(function)(lost))
        np.testing.assert_array_equal(found[0], np.ones(3))
        assert np.isnan(found[1:]).all()


@pytest.mark.parametrize(
    "shapes", [((2, 3, 5, 3), (3, 5, 2)), ((4, 2, 3), (2,)), ((4, 3), (2, 4, 0)), ((0, 3, 2), (3, 1))]
)
def test_least_squares_of_batches(shapes: tuple[tuple[int, ...], ...]) -> None:
    """Are those of each matrix, whose last is of less than its full rank; leading axes broadcast."""
    a, b = (np.random.default_rng(3).standard_normal(shape) for shape in shapes)
    a.reshape(-1, *a.shape[-2:])[-1:, :, 1] = a.reshape(-1, *a.shape[-2:])[-1:, :, 0]
    x, rests, rank, values = map(np.asarray, lg.linalg.lstsq(lg.asarray(a), lg.asarray(b)))
    m, n = a.shape[-2:]
    columns = b if b.ndim > 1 else b[:, None]
    batch = np.broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    assert x.shape == ((*batch, n) if b.ndim == 1 else (*batch, n, columns.shape[-1]))
    assert rests.shape == (*batch, columns.shape[-1] if m > n else 0)
    check(x, np.linalg.pinv(a) @ b if b.ndim > 1 else (np.linalg.pinv(a) @ columns)[..., 0], 1e-10)
    if m > n:
        check(rests, ((a @ np.linalg.pinv(a) @ columns - columns) ** 2).sum(-2), 1e-10)
    np.testing.assert_array_equal(rank, np.linalg.matrix_rank(a))
    check(values, np.linalg.svd(a, compute_uv=False), 1e-10)


@pytest.mark.costly
def test_functions_made_of_them(device: str) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((4, 4)), rng.standard_normal((4, 2))
    tall = rng.standard_normal((5, 3))
    x = lg.asarray(a)
    for right in (rng.standard_normal(5), rng.standard_normal((5, 2))):
        for found, expected in zip(lg.linalg.lstsq(tall, right), np.linalg.lstsq(tall, right), strict=True):
            check(np.asarray(found, np.float64), np.asarray(expected, np.float64), 1e-10)
    for p in (None, 2, -2, 1, -1, np.inf, "fro", "nuc"):
        check(lg.linalg.cond(x, p), np.linalg.cond(a, p), 1e-9)
        if p is not None:
            check(lg.linalg.norm(x, p), np.linalg.norm(a, p), 1e-10)
    assert np.asarray(lg.linalg.cond(lg.zeros((2, 2)))) == np.inf
    for scale in (1e-3, 1.0, 30.0):
        expected = scipy.linalg.expm(scale * a)
        check(np.asarray(lg.linalg.expm(scale * x)) / abs(expected).max(), expected / abs(expected).max(), 1e-11)
    check(lg.linalg.matrix_power(x, -2), np.linalg.matrix_power(a, -2), 1e-10)
    check(lg.linalg.multi_dot([a, a, b]), np.linalg.multi_dot([a, a, b]))
    check(lg.linalg.multi_dot([a[0], a, a, b[:, 0]]), np.linalg.multi_dot([a[0], a, a, b[:, 0]]))
    tensor = rng.standard_normal((2, 3, 6))
    check(lg.linalg.tensorsolve(tensor, np.ones((2, 3))), np.linalg.tensorsolve(tensor, np.ones((2, 3))), 1e-9)
    moved = np.moveaxis(tensor, 2, 0)
    expected = np.linalg.tensorsolve(moved, np.ones((2, 3)), axes=(0,))
    check(lg.linalg.tensorsolve(moved, np.ones((2, 3)), axes=(0,)), expected, 1e-9)
    check(lg.linalg.tensorinv(tensor), np.linalg.tensorinv(tensor), 1e-9)


@pytest.mark.costly
def test_scipys_functions(device: str) -> None:
    a, b = RNG.standard_normal((4, 4)), RNG.standard_normal((4, 2))
    wide = RNG.standard_normal((3, 5))
    for trans in (0, 1, "T"):
        for lower in (True, False):
            expected = scipy.linalg.solve_triangular(a, b, trans=trans, lower=lower)
            check(lg.linalg.solve_triangular(a, b, trans=trans, lower=lower), expected, 1e-9)
    unit = scipy.linalg.solve_triangular(a, b[:, 0], unit_diagonal=True)
    check(lg.linalg.solve_triangular(a, b[:, 0], unit_diagonal=True), unit, 1e-9)
    for matrix in (a, wide, wide.T):
        for found, expected in zip(lg.linalg.lu(matrix), scipy.linalg.lu(matrix), strict=True):
            check(found, expected, 1e-11)
        for found, expected in zip(lg.linalg.lu(matrix, permute_l=True), scipy.linalg.lu(matrix, True), strict=True):
            check(found, expected, 1e-11)
        packed, swaps = scipy.linalg.lu_factor(matrix)
        check(lg.linalg.lu_factor(matrix)[0], packed, 1e-11)
        check(np.asarray(lg.linalg.lu_factor(matrix)[1]), swaps.astype(np.int64))
        indices = scipy.linalg.lu(matrix, p_indices=True)[0]
        check(np.asarray(lg.linalg.lu(matrix, p_indices=True)[0]), indices.astype(np.int64))
    for trans in (0, 1):
        expected = scipy.linalg.lu_solve(scipy.linalg.lu_factor(a), b, trans)
        check(lg.linalg.lu_solve(lg.linalg.lu_factor(a), b, trans), expected, 1e-9)
    positive = a @ a.T + np.eye(4)
    for lower in (True, False):
        factor = lg.linalg.cho_factor(positive, lower)
        check(lg.linalg.cho_solve(factor, b[:, 0]), np.linalg.solve(positive, b[:, 0]), 1e-9)


def test_factors_of_a_column_leave_it_as_it_is(device: str) -> None:
    """It lies by columns already, so LAPACK would factorise it in place."""
    for shape in ((5, 1), (9, 1), (2, 12, 1)):
        a = RNG.standard_normal(shape)
        x = lg.asarray(a.copy())
        p, left, right = map(np.asarray, lg.linalg.lu(x))
        np.testing.assert_array_equal(np.asarray(x), a)
        np.testing.assert_allclose(p @ left @ right, a, atol=1e-14)


def test_bad_input_is_refused_as_numpy_does() -> None:
    for m in (np.linalg, lg.linalg):
        for name in ("qr", "svd", "svdvals", "pinv", "cond", "det", "slogdet", "eigh", "eigvalsh", "inv", "cholesky"):
            with pytest.raises(np.linalg.LinAlgError):
                getattr(m, name)(np.ones(3))
        for name in ("det", "slogdet", "eigh", "eigvalsh"):
            with pytest.raises(np.linalg.LinAlgError):
                getattr(m, name)(np.ones((2, 3)))
        with pytest.raises(ValueError, match="UPLO"):
            m.eigh(np.eye(2), "X")
        with pytest.raises(TypeError):
            m.matrix_power(np.eye(2), 1.5)
    tall, wide = lg.ones((3, 2)), lg.ones((2, 3))
    free = [
        (lambda a: lg.linalg.svd(a).U, tall, "full_matrices=False"),
        (lambda a: lg.linalg.svd(a).Vh, wide, "full_matrices=False"),
        (lambda a: lg.linalg.qr(a, mode="complete").Q, tall, "mode='reduced'"),
    ]
    for function, a, fix in free:
        for derivative in (lg.jacrev, lg.jacfwd):
            with pytest.raises(lg.GradientError, match=fix):
                derivative(function)(a)


SINGULAR = [
    np.zeros((5, 5)), np.ones((4, 4)), np.diag([np.inf, 0.0, 2.0, 3.0]), np.diag([np.inf, 1.0, 2.0, -3.0]),
    np.where(np.eye(20) == 1, np.arange(20.0), 0),
]  # fmt: skip


@pytest.mark.parametrize("a", SINGULAR, ids=str)
def test_determinants_without_an_inverse(device: str, a: np.ndarray) -> None:
    """A pivot that is 0 makes it 0, whatever the others are."""
    with np.errstate(all="ignore"):
        wanted = np.linalg.det(a), *np.linalg.slogdet(a)
    found = lg.linalg.det(lg.asarray(a)), *lg.linalg.slogdet(lg.asarray(a))
    np.testing.assert_array_equal([float(x) for x in found], wanted)


def test_conditions_of_no_matrices(device: str) -> None:
    for p in (None, -2, 1, "fro"):
        assert lg.linalg.cond(lg.zeros((0, 3, 3)), p).shape == np.linalg.cond(np.zeros((0, 3, 3)), p).shape
        with pytest.raises(np.linalg.LinAlgError, match="matrices with elements"):
            lg.linalg.cond(lg.zeros((2, 0, 0)), p)


def test_many_small_matrices_are_for_lanes() -> None:
    """Not for a library's calls, one after the other, from Python."""
    for count, n, by_lanes in ((1, 4, False), (8, 4, True), (8, 20, True), (8, 40, False)):
        a = RNG.standard_normal((count, n, n)) + n * np.eye(n)
        compiled = lg.compile(lg.linalg.inv, device="cpu")
        near(compiled(lg.asarray(a)), np.linalg.inv(a), "float64")
        assert (not compiled.plan(lg.asarray(a)).routines) == by_lanes, (count, n)


@pytest.mark.in_turns
@pytest.mark.parametrize("kind", ["complex", "real"])
def test_derivatives_of_eigenvectors_are_for_the_phases_that_they_have(kind: str) -> None:
    """By differences of what LAPACK gives: its largest entry is real. Signs may change, so those of real matrices are
    squared."""
    if kind == "complex":
        z = RNG.standard_normal((2, 3, 3)) + 1j * RNG.standard_normal((2, 3, 3))
        lg.testing.check_grads(lg.linalg.eig, (lg.asarray(z),), order=2)
        return
    turning = np.array([[0.3, 2.0, 0.1], [-1.0, 0.4, 0.2], [0.1, -0.5, 1.7]])  # two complex values and a real one
    assert np.sum(np.linalg.eigvals(turning).imag != 0) == 2
    lg.testing.check_grads(lambda a: lg.linalg.eig(a).eigenvectors ** 2, (lg.asarray(turning),), order=2)


@pytest.mark.in_turns
@pytest.mark.parametrize("shape", [(4, 3), (3, 5)])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_columns_in_order_of_their_length(shape: tuple[int, int], dtype: Any) -> None:
    """LAPACK's order and factors, batches, and the derivative for columns in that order."""
    rng = np.random.default_rng(3)
    a = rng.normal(size=(2, *shape)) + (1j if dtype is np.complex128 else 0.0) * rng.normal(size=(2, *shape))
    q, r, p = lg.linalg.qr(lg.asarray(a), pivoting=True)
    for i, matrix in enumerate(a):
        expected = scipy.linalg.qr(matrix, mode="economic", pivoting=True)
        for got, want in zip((q[i], r[i], p[i]), expected, strict=True):
            np.testing.assert_allclose(np.asarray(got), want, atol=1e-12)
    assert p.dtype == lg.int64
    np.testing.assert_allclose(lg.linalg.qr(lg.asarray(a), "r", pivoting=True)[0], r)
    if dtype is np.float64 and shape == (4, 3):
        lg.testing.check_grads(lambda a: lg.linalg.qr(a, pivoting=True)[:2], (lg.asarray(a[0]),), order=1)


def test_keywords_of_scipy_change_nothing() -> None:
    a = lg.asarray([[2.0, 1.0], [1.0, 3.0]])
    for function in (lg.linalg.svd, lg.linalg.inv, lg.linalg.det, lg.linalg.qr):
        plain, told = function(a), function(a, overwrite_a=True, check_finite=False)
        for x, y in zip(lg.tree.leaves(plain), lg.tree.leaves(told), strict=True):
            np.testing.assert_array_equal(x, y)
