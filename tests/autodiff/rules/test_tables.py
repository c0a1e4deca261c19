"""What the records say of derivatives is what the derivatives are."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.autodiff.forward import REGION_JVP
from loopgrad.autodiff.reverse import REGION_VJP
from loopgrad.autodiff.rules import PARTIALS
from loopgrad.graph import ops
from loopgrad.graph.build import emit, trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.primitives import FAMILIES, PRIMITIVES
from loopgrad.graph.primitives.elementwise import BINARY, UNARY
from loopgrad.graph.types import TensorType, float64

POINTS = np.array([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0])
DIFFERENTIABLE = [op for op in PARTIALS if op in UNARY or op in BINARY]


def _partials(op, *arrays):
    """The derivatives by all operands at points."""

    def function(*operands):
        (result,) = emit(op, operands)
        t = ops.ones_like(result)
        return [partial(t, result.node) for partial in PARTIALS[op]]

    graph, _ = trace(function, [TensorType(x.shape, float64) for x in arrays])
    return interpret(graph, list(arrays))


def test_every_region_operation_has_its_walk():
    assert set(REGION_VJP) == set(REGION_JVP) == set(FAMILIES["control"])


@pytest.mark.parametrize("op", [op for op in DIFFERENTIABLE if op in UNARY])
def test_singular_ones_have_derivatives_that_are_not_finite(op):
    (slope,) = _partials(op, POINTS)
    assert PRIMITIVES[op].singular == (not np.isfinite(slope).all())


@pytest.mark.parametrize("op", DIFFERENTIABLE)
def test_linear_ones_have_derivatives_of_few_numbers(op):
    if op in ("rem", "mod"):
        pytest.skip("piecewise linear, but with infinitely many pieces near a divisor of 0")
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(*((1.1, 1.9) if op == "acosh" else (0.1, 0.9)), 100) for _ in PARTIALS[op]]
    slopes = np.concatenate(_partials(op, *arrays))
    assert PRIMITIVES[op].linear == (len(np.unique(slopes)) <= 2)
