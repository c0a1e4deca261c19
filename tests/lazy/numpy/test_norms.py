"""`lg.linalg`: norms and powers against NumPy, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

X = np.random.default_rng(3).normal(size=(2, 3, 3))


@pytest.mark.parametrize("ord", [None, 0, 1, 2, 3, np.inf, -np.inf, 0.5])
def test_vector_norms(device: str, ord: object) -> None:
    check(lg.linalg.norm(lg.asarray(X[0, 0]), ord), np.linalg.norm(X[0, 0], ord))
    check(lg.linalg.norm(lg.asarray(X), ord, axis=1, keepdims=True), np.linalg.norm(X, ord, axis=1, keepdims=True))


@pytest.mark.parametrize("ord", [None, "fro", 1, -1, np.inf, -np.inf])
def test_matrix_norms(device: str, ord: object) -> None:
    check(lg.linalg.norm(lg.asarray(X[0]), ord), np.linalg.norm(X[0], ord))
    check(lg.linalg.norm(lg.asarray(X), ord, axis=(2, 0)), np.linalg.norm(X, ord, axis=(2, 0)))
    kept = np.linalg.norm(X, ord, axis=(0, 1), keepdims=True)
    check(lg.linalg.norm(lg.asarray(X), ord, axis=(0, 1), keepdims=True), kept)


def test_norms_refuse() -> None:
    with pytest.raises(ValueError, match="'nuc', 1"):
        lg.linalg.norm(X[0], 3)
    with pytest.raises(lg.ShapeError, match="one or two axes"):
        lg.linalg.norm(X, 1)
    check(lg.linalg.norm(X), np.linalg.norm(X))


def test_powers_and_chains(device: str) -> None:
    for n in (0, 1, 2, 5):
        check(lg.linalg.matrix_power(X, n), np.linalg.matrix_power(X, n))
    check(lg.linalg.multi_dot([X[0], X[1], X[0, 0]]), np.linalg.multi_dot([X[0], X[1], X[0, 0]]))
    with pytest.raises(lg.linalg.LinAlgError, match="square"):
        lg.linalg.matrix_power(X[0, :2], 2)


def test_what_is_not_there() -> None:
    name = "nonsense"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(lg.linalg, name)


def test_the_largest_of_nothing_is_zero(device: str) -> None:
    for x, axis in ((np.zeros(0), None), (np.zeros((3, 0)), 1), (np.zeros((2, 0), np.complex64), (0, 1))):
        check(lg.vector_norm(lg.asarray(x), ord=np.inf, axis=axis), np.linalg.vector_norm(x, ord=np.inf, axis=axis))
    check(lg.linalg.norm(lg.zeros(0), np.inf), np.linalg.norm(np.zeros(0), np.inf))
    with pytest.raises(lg.ShapeError, match="at least one element"):
        lg.vector_norm(lg.zeros(0), ord=-np.inf)
