"""Derivatives of factorisations, to the second order, of batches and of what isn't square."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops

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
