"""Reductions, scans and sorts against central differences, with ties and zeros."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.autodiff.reverse import vjp_emit
from loopgrad.graph import ops
from loopgrad.graph.build import emit, trace
from loopgrad.graph.types import TensorType, float64

X = np.array([[0.3, -1.2, 0.9, 2.1], [1.4, 0.2, -0.5, 0.8], [-0.7, 1.9, 0.6, -1.1]])


@pytest.mark.parametrize("op", ["reduce_sum", "reduce_prod", "reduce_min", "reduce_max"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), ()])
def test_reduce(derivatives, op, axes):
    derivatives.check(lambda x: [ops.sin(emit(op, (x,), {"axes": axes})[0])], [X], order=2)


@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummin", "cummax"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(derivatives, op, axis, reverse):
    derivatives.check(lambda x: [ops.sin(emit(op, (x,), {"axis": axis, "reverse": reverse})[0])], [X], order=2)


@pytest.mark.parametrize("scan", [ops.cumprod, ops.logcumsumexp])
def test_running_products_have_derivatives_that_are_one_scan(scan):
    """Which GPUs have a launch for; by blocks rows of 64 were lanes with 3,600 operations."""
    graph, _ = trace(lambda x, ct: vjp_emit([scan(x, 1)], [ct], [x]), [TensorType((5, 64), float64)] * 2)
    assert [node.op for node in graph.nodes].count("associative_scan") == 1


@pytest.mark.parametrize("axis", [0, 1])
def test_sort(derivatives, axis):
    derivatives.check(lambda x: [ops.mul(ops.sort(x, axis), ops.iota(x.type, axis))], [X], order=2)


@pytest.mark.parametrize("zeros", [1, 2, 3])
def test_products_with_zeros(derivatives, zeros):
    x = np.array([1.5, 0.7, -2.0, 0.4, 3.0])
    x[1 : 1 + zeros] = 0
    derivatives.check(lambda x: [ops.reduce_prod(x, [0])], [x], order=2)
    derivatives.check(lambda x: [ops.cumprod(x, 0)], [x], order=2)
    derivatives.check(lambda x: [ops.cumprod(x, 0, True)], [x], order=2)


def test_equal_winners_share(derivatives):
    x = np.array([2.0, 5.0, 5.0, 1.0])
    (gradient,) = derivatives.gradients(lambda x: [ops.reduce_max(x, [0])], [x])
    np.testing.assert_array_equal(gradient, [0, 0.5, 0.5, 0])


def test_the_latest_running_winner_takes_all(derivatives):
    x = np.array([2.0, 5.0, 5.0, 1.0])
    (gradient,) = derivatives.gradients(lambda x: [ops.cummax(x, 0)], [x])
    np.testing.assert_array_equal(gradient, [1, 1, 2, 0])


@pytest.mark.parametrize(("op", "total"), [(ops.argmin, 2), (ops.argmax, 1), (ops.argsort, 3)])
def test_positions_have_no_derivative(derivatives, op, total):
    def function(x):
        positions = ops.cast(op(x, 0), x.dtype)
        return [ops.mul(x, ops.broadcast_to(ops.reduce_sum(positions, range(len(positions.shape))), x.shape))]

    (gradient,) = derivatives.gradients(function, [np.array([2.0, 5.0, -1.0])])
    np.testing.assert_array_equal(gradient, np.full(3, total))


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "function",
    [lambda x: [ops.cumprod(x, 0)], lambda x: [ops.reduce_prod(x, [0])], lambda x: [ops.reduce_sum(x, [0])]],
)
def test_empty_arrays(derivatives, function):
    (gradient,) = derivatives.gradients(function, [np.zeros(0)])
    assert gradient.shape == (0,)
