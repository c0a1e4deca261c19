"""Matrices with a pattern against what they are for in NumPy's terms, their derivatives, and SciPy where it is."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

C, R, K = np.array([1.5, 2.0, -3.0, 0.5]), np.array([9.0, 1.0, 2.0]), np.arange(1, 5)
Z, M = C + 1j * C[::-1], np.arange(12.0).reshape(3, 4)
CALLS = """
    toeplitz(C); toeplitz(C, R); toeplitz(Z); toeplitz(K); toeplitz(C[:1], R); hankel(C); hankel(C, R); hankel(K)
    circulant(C); circulant(C[:1]); convolution_matrix(C, 3); convolution_matrix(C, 3, "same")
    convolution_matrix(C, 6, "same"); convolution_matrix(C, 6, "valid"); convolution_matrix(C, 3, "valid")
    convolution_matrix(K, 1); fiedler(C); companion(C); companion(C[:2]); companion(K); leslie(C, R); leslie(K, K[1:])
    leslie(C, K[1:]); block_diag(C, R); block_diag(M, 2.5, C[None].T); block_diag(); block_diag(K, M[:, :0], K)
    khatri_rao(M, M[:2]); hilbert(4); hilbert(0); invhilbert(5); invhilbert(14, exact=True); hadamard(8); hadamard(1)
    pascal(5); pascal(5, "lower"); pascal(4, "upper", exact=False); pascal(34); invpascal(5); invpascal(5, "lower")
    invpascal(4, "upper"); invpascal(6, exact=False); invpascal(34); dft(5); dft(4, "sqrtn"); dft(3, scale="n")
    helmert(4); helmert(4, full=True); helmert(1)
"""


def test_matrices_are_scipys() -> None:
    pytest.importorskip("scipy")
    theirs = import_module("scipy.linalg")
    arrays = {"C": C, "R": R, "K": K, "Z": Z, "M": M}
    for text in CALLS.replace("\n", ";").split(";"):
        if call := text.strip():
            expected, got = eval(f"m.{call}", {"m": theirs, **arrays}), eval(f"m.{call}", {"m": lg.linalg, **arrays})
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype), call
            np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-13, atol=1e-15, err_msg=call)


def test_what_the_matrices_are_for(device: str) -> None:
    check(lg.linalg.circulant(C) @ R[[0, 1, 2, 0]], np.fft.ifft(np.fft.fft(C) * np.fft.fft(R[[0, 1, 2, 0]])).real)
    for mode in ("full", "same", "valid"):
        check(lg.linalg.convolution_matrix(C, 3, mode) @ R, np.convolve(C, R, mode))
    check(lg.linalg.dft(4) @ lg.asarray(C), np.fft.fft(C))
    check(lg.linalg.hilbert(4) @ lg.linalg.invhilbert(4), np.eye(4))
    check(lg.linalg.khatri_rao(M, M[:2])[:, 1], np.kron(M[:, 1], M[:2, 1]))
    roots = np.sort(np.roots(C).real)
    check(lg.sort(lg.real(lg.linalg.eigvals(lg.linalg.companion(C)))), roots)


def test_batches_are_matrices_side_by_side(device: str) -> None:
    rows = np.stack([C, C[::-1], 2.0 * C])
    for f in (lg.linalg.toeplitz, lg.linalg.hankel, lg.linalg.circulant, lg.linalg.fiedler, lg.linalg.companion):
        check(f(rows), np.stack([np.asarray(f(row)) for row in rows]))
    leslie = np.stack([np.asarray(lg.linalg.leslie(row, R)) for row in rows])
    check(lg.linalg.leslie(rows, R), leslie)
    blocks = lg.linalg.block_diag(leslie, M)
    assert blocks.shape == (3, 7, 8)
    check(blocks[1], np.asarray(lg.linalg.block_diag(leslie[1], M)))


DERIVED = {
    "toeplitz": lambda m, c, r: m.toeplitz(c, r), "hankel": lambda m, c, r: m.hankel(c, r),
    "circulant": lambda m, c, _: m.circulant(c), "convolution": lambda m, c, _: m.convolution_matrix(c, 2),
    "fiedler": lambda m, c, _: m.fiedler(c), "companion": lambda m, c, _: m.companion(c),
    "leslie": lambda m, c, r: m.leslie(c, r), "block_diag": lambda m, c, r: m.block_diag(c, r),
    "khatri_rao": lambda m, _, r: m.khatri_rao(r[:, None], r[None, :1]),
}  # fmt: skip


@pytest.mark.in_turns
@pytest.mark.usefixtures("formulas_alone")
@pytest.mark.parametrize("name", DERIVED)
def test_derivatives(name: str) -> None:
    def weighted(c: Any, r: Any) -> Any:
        matrix = DERIVED[name](lg.linalg, c, r)
        return lg.sum(lg.sin(matrix * lg.arange(1.0, matrix.shape[-1] + 1.0))) + lg.sum(c * r[0])

    lg.testing.check_grads(weighted, (lg.asarray(C), lg.asarray(R)), order=2)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("hadamard(6)", ValueError), ("hadamard(0)", ValueError),
        ("dft(2, 'x')", ValueError),
        ("leslie([1.0, 2.0], [1.0, 2.0])", ValueError), ("companion([1.0])", ValueError),
        ("pascal(3, 'x')", ValueError),
        ("pascal(35)", ValueError), ("convolution_matrix([1.0], 0)", ValueError),
        ("khatri_rao([1.0], [1.0])", ValueError),
        ("convolution_matrix([1.0], 2, 'x')", ValueError), ("khatri_rao([[1.0]], [[1.0, 2.0]])", ValueError),
        ("invhilbert(15, exact=True)", OverflowError),
    ],
)  # fmt: skip
def test_what_is_no_such_matrix_is_refused(call: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        eval(f"lg.linalg.{call}", {"lg": lg})


def test_a_number_is_a_vector_of_one(device: str) -> None:
    patterns = import_module("scipy.linalg")
    for name in ("toeplitz", "hankel", "circulant"):
        check(getattr(lg.linalg, name)(3.0), getattr(patterns, name)(np.asarray([3.0])))
    check(lg.linalg.fiedler(3.0), [[0.0]])
