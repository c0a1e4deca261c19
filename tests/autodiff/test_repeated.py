"""Several derivatives of one program in one graph: loops are shared or run again, stacks are never shared."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.autodiff.forward import jvp_emit
from loopgrad.autodiff.reverse import vjp_emit
from loopgrad.graph import ops
from loopgrad.graph.interpret import interpret
from loopgrad.graph.region_ops import traced_for

X = np.array([0.1, 0.3, 0.51, 0.8])
TRIPS = np.array([0, 3, 5, 9])


def loop(x, n):
    return traced_for(n, [x], lambda k, v: [ops.sin(ops.mul(v, v))])[0]


def reverse(y, x, t):
    return vjp_emit([y], [t], [x])[0]


def forward(y, x, t):
    return jvp_emit([y], [x], [t])[0]


@pytest.mark.parametrize("second", [reverse, forward])
@pytest.mark.parametrize("first", [reverse, forward])
def test_of_the_value(derivatives, first, second):
    def function(x, n, a, b):
        y = loop(x, n)
        return [y, first(y, x, a), second(y, x, b)]

    arrays = [X, TRIPS, X, 2 * X]
    _, one, two = interpret(derivatives.graph_of(function, arrays), arrays)
    np.testing.assert_allclose(2 * one, two)


@pytest.mark.parametrize("second", [reverse, forward])
@pytest.mark.parametrize("first", [reverse, forward])
def test_of_the_gradient(derivatives, first, second):
    """Both read the same stacks of the first reverse pass; `verify` would refuse two consumers."""

    def function(x, n, a, b):
        y = loop(x, n)
        gradient = reverse(y, x, ops.ones_like(y))
        return [y, gradient, first(gradient, x, a), second(gradient, x, b)]

    arrays = [X, TRIPS, X, 2 * X]
    _, _, one, two = interpret(derivatives.graph_of(function, arrays), arrays)
    np.testing.assert_allclose(2 * one, two)


def test_value_and_gradient_share_the_forward_loop(derivatives):
    nodes = derivatives.region_nodes(lambda x, n: [loop(x, n)], [X, TRIPS])
    assert [n.attrs["reverse"] for n in nodes] == [False, True]


def test_partial_gradients_one_after_the_other(derivatives):
    def function(x, c, n):
        (y,) = traced_for(n, [x], lambda k, v: [ops.sin(ops.mul(v, c))])
        return [vjp_emit([y], [ops.ones_like(y)], [v])[0] for v in (x, c)]

    arrays = [X, X + 0.5, TRIPS]
    apart = interpret(derivatives.graph_of(function, arrays), arrays)
    together = derivatives.gradients(lambda x, c, n: traced_for(n, [x], lambda k, v: [ops.sin(ops.mul(v, c))]), arrays)
    for a, b in zip(apart, together, strict=True):
        np.testing.assert_allclose(a, b)
