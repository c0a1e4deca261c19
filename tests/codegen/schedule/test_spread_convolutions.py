"""Convolutions of arrays with zeros between their elements, phase by phase: the same sums, and fewer products."""

import numpy as np
import pytest

from loopgrad.codegen.schedule import spread_convolutions
from loopgrad.codegen.schedule.canonical import prepare
from loopgrad.codegen.schedule.spread_convolutions import rewrite_spread_convolutions
from loopgrad.graph.build import emit, trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.primitives.convolution import window_size
from loopgrad.graph.types import TensorType, float16, float64


def convolution(x, kernel, groups=1, absent=False, dtype=float64, **given):
    dims = len(x) - 2
    one, none = (1,) * dims, (0,) * dims
    attrs = {"strides": one, "dilation": one, "spread": one, "low": none, "high": none, **given}
    attrs |= {"groups": groups, "absent": absent}
    return trace(lambda *v: [emit("conv", v, attrs)[0]], [TensorType(shape, dtype) for shape in (x, kernel)])[0]


def products(graph):
    return sum(node.results[0].type.size * window_size(node) for node in graph.nodes if node.op == "conv")


@pytest.mark.parametrize(
    ("x", "kernel", "given"),
    [
        ((2, 3, 7), (4, 3, 3), {"spread": (2,), "low": (1,), "high": (1,)}),
        ((2, 3, 7), (4, 3, 5), {"spread": (3,), "low": (-2,), "high": (4,)}),
        ((2, 3, 7), (4, 3, 1), {"spread": (2,), "high": (1,)}),  # half of the places meet no element
        ((1, 4, 5, 6), (6, 2, 3, 2), {"spread": (2, 3), "low": (2, 1), "high": (1, 2), "groups": 2}),
        ((2, 3, 5, 6), (4, 3, 3, 3), {"spread": (2, 1), "strides": (1, 2), "dilation": (1, 2), "low": (0, 2)}),
        ((1, 2, 3, 4, 2), (3, 2, 2, 3, 2), {"spread": (2, 2, 2), "low": (1, 1, 1), "high": (1, 0, 1), "absent": True}),
        ((1, 2, 2), (3, 2, 2), {"spread": (4,)}),
    ],
)
def test_phases_are_the_convolution(x, kernel, given, monkeypatch, rng):
    graph = convolution(x, kernel, **given)
    assert rewrite_spread_convolutions(graph) is graph  # so little work is one kernel's
    monkeypatch.setattr(spread_convolutions, "WORTH", 1)
    found = rewrite_spread_convolutions(graph)
    convs = [node for node in found.nodes if node.op == "conv"]
    assert all(set(node.attrs["spread"]) == {1} for node in convs)
    arrays = [rng.integers(-4, 5, v.shape).astype(np.float64) for v in graph.inputs]
    (wanted,) = interpret(graph, arrays)
    np.testing.assert_array_equal(interpret(found, arrays)[0], wanted)
    np.testing.assert_allclose(interpret(prepare(graph), arrays)[0], wanted, rtol=1e-13)


@pytest.mark.parametrize(
    ("x", "kernel", "given"),
    [
        ((2, 3, 7), (4, 3, 3), {"spread": (2,), "low": (1,), "high": (1,)}),
        ((2, 3, 7), (4, 3, 7), {"spread": (3,), "low": (-2,), "high": (4,)}),
        ((2, 3, 5, 6), (4, 3, 3, 3), {"spread": (2, 1), "strides": (1, 2), "dilation": (1, 2), "low": (0, 2)}),
        ((1, 2, 3, 4), (3, 2, 2, 4), {"spread": (2, 2), "low": (1, 1), "high": (1, 0)}),
    ],
)
def test_phases_of_many_channels_are_results_of_one(x, kernel, given, monkeypatch, rng):
    for name in ("WORTH", "MANY"):
        monkeypatch.setattr(spread_convolutions, name, 1)
    graph = convolution(x, kernel, dtype=float16, **given)
    found = rewrite_spread_convolutions(graph, of_channels=True)
    (one,) = [node for node in found.nodes if node.op == "conv"]
    assert set(one.attrs["spread"]) == {1}
    arrays = [rng.integers(-4, 5, v.shape).astype(np.float16) for v in graph.inputs]
    np.testing.assert_array_equal(interpret(found, arrays)[0], interpret(graph, arrays)[0])


def test_what_is_left_of_the_products(monkeypatch):
    monkeypatch.setattr(spread_convolutions, "WORTH", 1)
    graph = convolution((8, 16, 32, 32), (16, 16, 4, 4), spread=(2, 2), low=(2, 2), high=(2, 2))
    assert products(rewrite_spread_convolutions(graph)) < 0.3 * products(graph)


@pytest.mark.parametrize("given", [{"strides": (2,)}, {"dilation": (2,)}, {"spread": (17,)}, {"spread": (1,)}])
def test_what_is_left_alone(given, monkeypatch):
    monkeypatch.setattr(spread_convolutions, "WORTH", 1)
    graph = convolution((2, 3, 7), (4, 3, 3), **{"spread": (2,), **given})
    assert rewrite_spread_convolutions(graph) is graph
