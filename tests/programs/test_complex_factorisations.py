"""Factorisations of complex matrices and their derivatives on every device: values by NumPy's LAPACK, first derivatives
by finite differences of NumPy's functions, in both modes, second ones by differences of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg

RNG = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)


A = numbers(2, 3, 3) + 3 * np.eye(3)
HERMITIAN = A @ A.conj().swapaxes(1, 2)
TALL = numbers(4, 2)


def thin(m: Any, a: Any) -> list[Any]:
    """What of singular vectors doesn't depend on their phases."""
    u, s, vh = m.linalg.svd(a, full_matrices=False)
    return [m.abs(u), s, m.abs(vh), (u * m.sin(s)[..., None, :]) @ vh]


CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "solve": (lambda m, a, b: m.linalg.solve(a, b), (A, numbers(2, 3, 2))),
    "cholesky": (lambda m, a: m.linalg.cholesky(a), (HERMITIAN,)),
    "upper": (lambda m, a: m.linalg.cholesky(a, upper=True), (HERMITIAN,)),
    "det": (lambda m, a: m.linalg.det(a), (numbers(4, 4),)),
    "slogdet": (lambda m, a: m.linalg.slogdet(a), (numbers(4, 4),)),
    "qr": (lambda m, a: m.linalg.qr(a), (A,)),
    "tall qr": (lambda m, a: m.linalg.qr(a), (TALL,)),
    "wide qr": (lambda m, a: m.linalg.qr(a), (TALL.T,)),
    "eigvalsh": (lambda m, a: m.linalg.eigvalsh(a), (HERMITIAN,)),
    "eigh": (lambda m, a: m.abs(m.linalg.eigh(a)[1]), (HERMITIAN,)),
    "svd": (thin, (TALL,)),
    "wide svd": (thin, (TALL.T,)),
    "svdvals": (lambda m, a: m.linalg.svdvals(a), (A,)),
    "pinv": (lambda m, a: m.linalg.pinv(a), (TALL,)),
    "eigvals": (lambda m, a: m.sum(m.linalg.eigvals(a) ** 3, axis=-1), (A,)),
    "real eig": (lambda m, a: m.sum(m.abs(m.linalg.eig(a)[1]) ** 4, axis=-1), (A.real,)),
}


def loss(m: Any, function: Callable[..., Any], arrays: Any) -> Any:
    results = function(m, *arrays)
    total = 0.0
    for k, x in enumerate(results if isinstance(results, list | tuple) else [results]):
        weights = np.cos(np.arange(np.prod(x.shape)) + k).reshape(x.shape)
        total = total + m.sum(m.real(x) * weights) + m.sum(m.imag(x) * np.sin(3 * weights))
    return total


def slope(f: Callable[[float], float], step: float = 1e-3) -> float:
    return float((f(-2 * step) - 8 * f(-step) + 8 * f(step) - f(2 * step)) / (12 * step))


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(device, name):
    function, arrays = CASES[name]
    ours = lambda *xs: loss(lg, function, xs)
    tensors = tuple(lg.asarray(x) for x in arrays)
    directions = [numbers(*x.shape) if x.dtype.kind == "c" else RNG.standard_normal(x.shape) for x in arrays]
    places = tuple(range(len(arrays)))

    def along(gradients):
        return sum(np.sum(np.real(np.conj(np.asarray(g)) * d)) for g, d in zip(gradients, directions, strict=True))

    def moved(t):
        return [x + t * d for x, d in zip(arrays, directions, strict=True)]

    assert float(ours(*tensors)) == pytest.approx(loss(np, function, arrays), rel=1e-11, abs=1e-11)
    expected = slope(lambda t: loss(np, function, moved(t)))
    gradient = lg.grad(ours, argnums=places)
    assert along(gradient(*tensors)) == pytest.approx(expected, rel=1e-7, abs=1e-7)
    tangent = lg.jvp(ours, tensors, tuple(map(lg.asarray, directions)))[1]
    assert float(tangent) == pytest.approx(expected, rel=1e-7, abs=1e-7)
    if device != "cpu":
        return
    turned = lambda *xs: sum(lg.sum(lg.real(lg.conj(g) * d)) for g, d in zip(gradient(*xs), directions, strict=True))
    second = slope(lambda t: along(gradient(*map(lg.asarray, moved(t)))))
    assert along(lg.grad(turned, argnums=places)(*tensors)) == pytest.approx(second, rel=1e-6, abs=1e-6)


@pytest.mark.costly
def test_dtypes_and_what_is_empty(device):
    for dtype in ("complex64", "complex128"):
        a = HERMITIAN.astype(dtype)
        part = "float32" if dtype == "complex64" else "float64"
        for result, expected in (
            (lg.linalg.eigh(a).eigenvalues, part),
            (lg.linalg.svdvals(a), part),
            (lg.linalg.slogdet(a).logabsdet, part),
            (lg.linalg.slogdet(a).sign, dtype),
            (lg.linalg.eigvals(a.real), dtype),
            (lg.linalg.cholesky(a), dtype),
            (lg.linalg.eigh(a[:0]).eigenvalues, part),
        ):
            assert result.dtype == np.dtype(expected)
            assert np.isfinite(np.asarray(result)).all()
    for n in (3, 18):  # by lanes, and in blocks
        a = numbers(2, n, n) + n * np.eye(n)
        b = numbers(2, n, 1)
        np.testing.assert_allclose(np.asarray(lg.linalg.solve(a, b)), np.linalg.solve(a, b))
        positive = a @ a.conj().swapaxes(1, 2)
        np.testing.assert_allclose(np.asarray(lg.linalg.cholesky(positive)), np.linalg.cholesky(positive), atol=1e-9)
