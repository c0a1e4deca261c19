"""Cotangents have the dtype of what they belong to; nothing is widened or narrowed on the way."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.types import DTYPES, TensorType, float32, float64, int64

X = np.array([0.1, 0.3, 0.51, 0.8])
TOLERANCE = {"float16": 5e-3, "bfloat16": 4e-2, "float32": 1e-5, "float64": 1e-13}


def program(x, n):
    def body(k, v):
        (v,) = traced_switch(ops.gt(v, 0.5), [lambda v: [ops.sin(v)], lambda v: [ops.mul(v, v)]], [v])
        return [ops.add(ops.max(v, 0.2), ops.div(v, ops.add(ops.exp(v), 1)))]

    (v,) = traced_for(n, [x], body)
    return traced_while([v], lambda v: ops.lt(v, 1.0), lambda v: [ops.add(ops.sqrt(v), 0.1)])


@pytest.mark.parametrize("name", TOLERANCE)
def test_gradient_in_each_float_dtype(derivatives, name):
    n = np.array([0, 1, 2, 3])
    (exact,) = derivatives.gradients(program, [X, n])
    (gradient,) = derivatives.gradients(program, [X.astype(DTYPES[name].np), n], [0])
    assert gradient.dtype == DTYPES[name].np
    np.testing.assert_allclose(gradient.astype(np.float64), exact, rtol=TOLERANCE[name])


def test_casts_between_dtypes_in_a_loop(derivatives):
    def function(x, n):
        return traced_for(n, [x], lambda k, v: [ops.cast(ops.sin(ops.cast(v, float64)), float32)])

    n = np.array([0, 1, 2, 3])
    (exact,) = derivatives.gradients(lambda x, n: traced_for(n, [x], lambda k, v: [ops.sin(v)]), [X, n])
    (gradient,) = derivatives.gradients(function, [X.astype(np.float32), n])
    assert gradient.dtype == np.float32
    np.testing.assert_allclose(gradient, exact, rtol=1e-5)


def test_mixed_carries_save_the_cheaper_dtype(derivatives):
    def function(x, n):
        def body(k, v):
            return [ops.cast(ops.sin(ops.cast(v, float64)), float32)]

        return traced_for(n, [x], body)

    given = [X.astype(np.float32), np.array([0, 1, 2, 3])]
    assert derivatives.pushed(function, given) == [("carry", "float32[4]")]


@pytest.mark.parametrize("shape", [(0,), (5, 0), (0, 3)])
def test_empty_carries(derivatives, shape):
    def function(x, n):
        return traced_for(n, [x], lambda k, v: [ops.sin(v)])

    (gradient,) = derivatives.gradients(function, [np.zeros(shape), np.array(4)])
    assert gradient.shape == shape


def test_integer_inputs_have_no_cotangent(derivatives):
    def both(x, i):
        y = ops.mul(x, ops.cast(i, x.dtype))
        found = derivatives.vjp_emit([y], [ops.ones_like(y)], [x, i])
        assert found[1] is None
        return [y, found[0]]

    derivatives.graph_of(both, [X, np.arange(4)])


def test_wrong_cotangents_are_refused(derivatives):
    def function(x):
        y = ops.sin(x)
        return derivatives.vjp_emit([y], [ops.full(1.0, TensorType((), float64))], [x])

    with pytest.raises(TypeError, match=r"expected a cotangent of type float64\[4\], got float64\[\]"):
        derivatives.graph_of(function, [X])


def test_an_output_that_is_an_input(derivatives):
    (gradient,) = derivatives.gradients(lambda x: [x, ops.mul(x, 3), x], [X])
    np.testing.assert_array_equal(gradient, np.full(4, 5.0))


def test_independent_outputs_have_no_tangent(derivatives):
    def function(x, y):
        assert derivatives.vjp_emit([y], [ops.ones_like(y)], [x]) == [None]
        assert derivatives.jvp_emit([y], [x], [ops.ones_like(x)]) == [None]
        return [ops.full(0, TensorType((), int64))]

    derivatives.graph_of(function, [X, X])
