"""Derivatives of factorisations, to the second order, of batches and of what isn't square."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.types import TensorType, float64

RNG = np.random.default_rng(3)
SQUARE = RNG.standard_normal((2, 3, 3)) + 3 * np.eye(3)
POSITIVE = SQUARE @ SQUARE.swapaxes(1, 2)
RIGHT = RNG.standard_normal((2, 3, 2))


def test_cholesky(derivatives):
    derivatives.check(lambda a: [mx.cholesky(a)], [POSITIVE], order=2)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("unit_diagonal", [True, False])
def test_triangular_solve(derivatives, lower, transpose, unit_diagonal):
    attrs = {"lower": lower, "transpose": transpose, "unit_diagonal": unit_diagonal}
    derivatives.check(lambda a, b: [mx.solve_triangular(a, b, **attrs)], [SQUARE, RIGHT], order=2)


def test_solve(derivatives):
    derivatives.check(lambda a, b: [mx.solve(a, b)], [SQUARE, RIGHT], order=2)


def test_solve_transposed(derivatives):
    def solution(a, b):
        packed, _, rows = mx.lu(a)
        return [mx.solve_factored(a, packed, rows, b, transpose=True)]

    derivatives.check(solution, [SQUARE, RIGHT], order=2)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2), (2, 1, 1), (3, 2, 3)])
def test_lu(derivatives, shape):
    a = np.random.default_rng(4).standard_normal(shape)
    derivatives.check(lambda a: [ops.sin(mx.lu(a)[0])], [a], order=2)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2)])
def test_qr(derivatives, shape):
    derivatives.check(lambda a: list(mx.qr(a)), [np.random.default_rng(5).standard_normal(shape)], order=2)


def test_eigh(derivatives):
    """Products of vectors, which don't ask for their signs."""

    def functions(a):
        right = ops.literal(RIGHT, float64)
        w, v = mx.eigh(a)
        seen = ops.matmul(mx.transposed(v), right)
        return [w, ops.mul(seen, seen), mx.eigvalsh(a)]

    derivatives.check(functions, [POSITIVE], order=2)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2)])
def test_svd(derivatives, shape):
    a = np.random.default_rng(6).standard_normal(shape)

    def functions(a):
        u, s, vh = mx.svd(a)
        both = ops.matmul(mx.scaled_columns(u, ops.sin(s)), vh)
        return [s, both, ops.mul(u, u), mx.svdvals(a)]

    derivatives.check(functions, [a], order=2)


@pytest.mark.parametrize("shape", [(4, 2), (2, 4)])
def test_what_full_factors_determine(derivatives, shape):
    """All but vectors of no singular value, and columns of q beyond the rank."""

    def functions(a):
        u, s, vh = mx.svd(a, full=True)
        determined = u if shape[0] < shape[1] else vh
        return [s, ops.mul(determined, determined), ops.sin(mx.qr(a, complete=True)[1])]

    derivatives.check(functions, [np.random.default_rng(6).standard_normal(shape)], order=2)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
def test_pinv(derivatives, shape):
    """Of rank 1 too, where no singular value is kept apart from another."""
    rng = np.random.default_rng(7)

    def of_full_rank(a):
        return [mx.pinv(a, ops.full(1e-9, TensorType((), float64)))]

    derivatives.check(of_full_rank, [rng.standard_normal(shape)], order=2)

    def of_rank_one(x, y):
        return of_full_rank(ops.mul(ops.broadcast(x, shape, (0,)), ops.broadcast(y, shape, (1,))))

    derivatives.check(of_rank_one, [rng.standard_normal(n) for n in shape], order=2)
