"""`lg.linalg.solve` and its like against NumPy: batches, dtypes, sizes without elements, bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

RNG = np.random.default_rng(5)


def matrices(*shape: int, dtype: str = "float64") -> np.ndarray:
    return (RNG.standard_normal(shape) + 2 * np.eye(shape[-1])).astype(dtype)


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 5, 5), (70, 4, 4), (3, 0, 0), (0, 3, 3), (2, 20, 20)], ids=str)
def test_shapes_and_dtypes(device: str, shape: tuple[int, ...], dtype: str) -> None:
    """One matrix, batches, what lanes do and what a library does, nothing."""
    a, b = matrices(*shape, dtype=dtype), RNG.standard_normal((*shape[:-1], 2)).astype(dtype)
    positive = a @ a.swapaxes(-1, -2) + np.eye(shape[-1], dtype=dtype)
    tolerance = 2e-3 if dtype == "float32" else 1e-10
    check(lg.linalg.solve(lg.asarray(a), lg.asarray(b)), np.linalg.solve(a, b), tolerance)
    check(lg.linalg.inv(lg.asarray(a)), np.linalg.inv(a), tolerance)
    check(lg.linalg.cholesky(lg.asarray(positive)), np.linalg.cholesky(positive), tolerance)


def test_as_numpy_takes_them(device: str) -> None:
    a, b = matrices(2, 3, 3), RNG.standard_normal(3)
    check(lg.linalg.solve(a, b), np.linalg.solve(a, b))
    check(lg.linalg.solve(a[0], RNG.standard_normal((4, 3, 1))).shape, (4, 3, 1))
    check(lg.linalg.solve([[2, 1], [1, 3]], [1, 2]), np.linalg.solve([[2, 1], [1, 3]], [1, 2]))
    upper = np.linalg.cholesky(a @ a.swapaxes(1, 2)).swapaxes(1, 2)
    check(lg.linalg.cholesky(a @ a.swapaxes(1, 2), upper=True), upper)
    read = np.array([[4.0, np.nan], [2.0, 5.0]])
    check(lg.linalg.cholesky(read), np.linalg.cholesky(read))
    assert isinstance(np.linalg.solve(lg.asarray(a), b), lg.Tensor)


def test_without_a_factorisation(device: str) -> None:
    """In a compiled function a matrix of a batch doesn't hurt the others."""
    a = matrices(3, 3, 3)
    positive = a @ a.swapaxes(1, 2)
    indefinite = np.stack([positive[0], -positive[1], np.full((3, 3), np.nan)])
    factors = np.asarray(lg.compile(lg.linalg.cholesky)(indefinite))
    np.testing.assert_allclose(factors[0], np.linalg.cholesky(positive[0]))
    assert np.isnan(factors[1:]).all()
    singular = np.stack([a[0], np.ones((3, 3)), a[2]])
    x = np.asarray(lg.compile(lg.linalg.solve)(singular, np.arange(3.0)))
    np.testing.assert_allclose(x[[0, 2]], np.linalg.solve(a[[0, 2]], np.arange(3.0)))
    assert not np.isfinite(x[1]).all()


NAN, INF = np.nan, np.inf
MATRICES: dict[str, object] = {
    "good": [[4.0, 1.0], [1.0, 3.0]], "singular": [[1.0, 2.0], [2.0, 4.0]], "zero": [[0.0, 0.0], [0.0, 0.0]],
    "indefinite": [[1.0, 2.0], [2.0, 1.0]], "a NaN": [[1.0, NAN], [NAN, 1.0]], "triangular": [[0.0, 0.0], [2.0, 1.0]],
    "the other triangle": [[1.0, NAN], [2.0, 1.0]], "infinite": [[INF, 0.0], [0.0, 1.0]], "one row": [[0.0]],
    "a batch": [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]], "complex": [[1j, 1.0], [1j, 1.0]],
    "three rows": np.full((3, 3), NAN), "empty": np.zeros((0, 2, 2)), "no rows": np.zeros((2, 0, 0)),
}  # fmt: skip
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "solve": lambda m, a: m.solve(a, np.ones((a.shape[-1], 2))),
    "power": lambda m, a: m.matrix_power(a, -1),
    "norm 2": lambda m, a: m.norm(a, 2, (-2, -1)),
    "cond 1": lambda m, a: m.cond(a, 1) if a.size else 0.0,
    "cond": lambda m, a: m.cond(a) if a.size else 0.0,
    "norm": lambda m, a: m.norm(a),
    "lstsq": lambda m, a: m.lstsq(a, np.ones(a.shape[-2:-1]), rcond=None),
    **{name: lambda m, a, name=name: getattr(m, name)(a) for name in (
        "inv", "det", "slogdet", "cholesky", "eigvals", "eig", "svd", "svdvals", "pinv", "matrix_rank",
    )},
}  # fmt: skip


def outcome(function: Callable[[Any, Any], Any], module: Any, a: np.ndarray) -> str:
    try:
        result = function(module, lg.asarray(a) if module is lg.linalg else a)
        np.asarray(result[0] if isinstance(result, tuple) else result)
    except np.linalg.LinAlgError:
        return "refused"
    return "done"


@pytest.mark.costly
def test_what_numpy_refuses_is_refused_where_it_is_evaluated(device: str) -> None:
    for name, function in FUNCTIONS.items():
        for which, rows in MATRICES.items():
            a = np.array(rows)
            batches = name == "lstsq" and a.ndim > 2  # of which NumPy's has none
            if not batches and not (name in {"cond", "cond 1"} and which == "no rows"):
                with np.errstate(all="ignore"):
                    expected = outcome(function, np.linalg, a)
                assert outcome(function, lg.linalg, a) == expected, (name, which)


def test_a_refused_matrix_is_named() -> None:
    """By what asks for it, again and again, and in derivatives; not in functions that are traced."""
    both = lg.asarray([[[2.0, 0.0], [0.0, 4.0]], [[1.0, 2.0], [2.0, 4.0]]])
    inverses = lg.linalg.inv(both)
    later = inverses @ both
    for asked in (later, inverses, later):
        with pytest.raises(lg.linalg.LinAlgError, match=r"inv: .*singular one at index \(1,\).*test_solving.py"):
            lg.eval(asked)
    assert lg.eval(both + 1.0) is None
    with pytest.raises(lg.linalg.LinAlgError, match="singular"):
        lg.eval(lg.grad(lambda a: lg.sum(lg.linalg.inv(a)))(both[1]))
    with pytest.raises(lg.linalg.LinAlgError, match="solve_triangular"):
        lg.eval(lg.linalg.solve_triangular(both[1] * 0.0, lg.ones(2)))

    def rounds(a: lg.Tensor) -> Any:
        return lg.fori_loop(0, 2, lambda _, x: lg.linalg.inv(x), a)

    for traced in (lg.compile(lg.linalg.inv), lg.vmap(lg.linalg.inv), lg.vmap(rounds), lg.checkpoint(lg.linalg.inv)):
        found = np.asarray(traced(both))
        assert np.isfinite(found[0]).all()
        assert not np.isfinite(found[1]).all()
    replay = lg.compile(lg.linalg.cholesky).capture(both)
    assert np.isnan(np.asarray(replay.replay(-both))).all()


def test_errors_are_of_numpys_kinds() -> None:
    for call in (np.linalg, lg.linalg):
        for bad in (lambda m: m.solve(np.ones((2, 3)), np.ones(2)), lambda m: m.cholesky(np.ones(3))):
            with pytest.raises(np.linalg.LinAlgError):
                bad(call)
        with pytest.raises(ValueError, match=r"rows|mismatch"):
            call.solve(np.eye(2), np.ones(3))
        with pytest.raises(TypeError):
            call.inv(np.eye(2, dtype=np.float16))
    with pytest.raises(lg.linalg.LinAlgError, match=r"solve: expected square matrices(.|\n)*test_solving.py"):
        lg.linalg.solve(np.ones((2, 3)), np.ones(2))


@pytest.mark.parametrize(("name", "bounds"), [("pinv", ("rcond", "rtol")), ("matrix_rank", ("tol", "rtol"))])
def test_two_bounds_of_singular_values_are_not_both_taken(name: str, bounds: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=f"one of {bounds[0]} and {bounds[1]}"):
        getattr(lg.linalg, name)(lg.eye(2), **dict.fromkeys(bounds, 1e-3))


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_what_is_known_of_matrices(device: str, dtype: str) -> None:
    """Only the part is read that the structure needs, also of transposed ones."""
    a = matrices(4, 4).astype(dtype) + (1j * matrices(4, 4) if dtype == "complex128" else 0)
    b, positive = RNG.standard_normal((4, 2)), a @ a.conj().T + np.eye(4)
    for lower in (False, True):
        triangle, rest = (np.tril(a), np.tril(a, -1)) if lower else (np.triu(a), np.triu(a, 1))
        real = triangle - 1j * np.diag(np.diag(triangle).imag) if dtype == "complex128" else triangle
        whole = {
            "gen": a, "pos": positive, "sym": triangle + rest.T, "her": real + rest.conj().T,
            "upper triangular": np.triu(a), "lower triangular": np.tril(a), "diagonal": np.diag(np.diag(a)),
        }  # fmt: skip
        for name, matrix in whole.items():
            given = positive if name == "pos" else a
            for transposed in (False, True):
                x = lg.linalg.solve(given, b, lower=lower, assume_a=name, transposed=transposed)
                expected = np.linalg.solve(matrix.T if transposed else matrix, b).astype(dtype)
                check(x, expected, 1e-10)
    with pytest.raises(ValueError, match="assume_a"):
        lg.linalg.solve(a, b, assume_a="nice")
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        lg.eval(lg.linalg.solve(-positive, b, assume_a="pos"))


def test_tridiagonal_systems(device: str) -> None:
    """Batches, one right side for several matrices, slopes by all four."""
    lower, upper = RNG.uniform(-1, 1, size=(2, 3, 6))
    diagonal, b = RNG.uniform(2.5, 3.0, size=(3, 6)), RNG.standard_normal((6, 2))
    dense = np.zeros((3, 6, 6))
    for k in range(6):
        dense[:, k, k] = diagonal[:, k]
        dense[:, k, k - 1] += lower[:, k] if k else 0.0
        dense[:, k, (k + 1) % 6] += upper[:, k] if k < 5 else 0.0
    check(lg.linalg.tridiagonal_solve(lower, diagonal, upper, b), np.linalg.solve(dense, b[None]))

    def value(*parts):
        return lg.sum(lg.linalg.tridiagonal_solve(*parts) ** 2)

    parts = [lg.asarray(t[..., :3] if t.ndim == 2 and t is not b else t[:3]) for t in (lower, diagonal, upper, b)]
    lg.testing.check_grads(value, tuple(parts), order=1)
    assert lg.linalg.tridiagonal_solve(lg.ones(0), lg.ones(0), lg.ones(0), lg.ones((0, 2))).shape == (0, 2)
    with pytest.raises(lg.ShapeError, match="add an axis"):
        lg.linalg.tridiagonal_solve(lg.ones(3), lg.ones(3), lg.ones(3), lg.ones(3))
