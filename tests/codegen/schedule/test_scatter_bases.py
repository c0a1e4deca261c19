"""Sums into zeros that are added to an array, or summed along an axis, and where the result is written."""

import numpy as np
import pytest

from loopgrad.codegen.program import CopyStep, LaunchStep
from loopgrad.codegen.schedule.scatter_bases import rewrite_scatter_bases
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.types import TensorType, float32, int64, uint64

SHAPE = TensorType((5, 7), float32)
PLACES = TensorType((20,), int64)
TERMS = TensorType((20,), float32)


def scattered(i, j, u):
    return ops.scatter("add", ops.full(0.0, SHAPE), (i, j), u)


def added(x, i, j, u):
    return [ops.add(scattered(i, j, u), x)]


def subtracted(x, i, j, u):
    return [ops.sub(x, scattered(i, j, u)), ops.sub(ops.scatter("add", scattered(i, j, u), (j, i), u), ops.mul(x, x))]


def summed(x, i, j, u):
    """As the gradient of a loss of the logarithms of softmax: read as a whole, and summed along an axis."""
    sums = scattered(i, j, u)
    total = ops.reduce_sum(ops.neg(sums), (1,))
    return [ops.add(sums, ops.mul(ops.broadcast(total, SHAPE.shape, (0,)), x))]


def read_twice(x, i, j, u):
    sums = scattered(i, j, u)
    return [ops.add(sums, x), ops.mul(sums, x)]


def arrays(dtype=np.int64):
    """Places beyond either end, too."""
    rng = np.random.default_rng(0)
    low = 0 if dtype is np.uint64 else -2
    i, j = (rng.integers(low, n, 20).astype(dtype) for n in (7, 9))
    return [rng.integers(-9, 9, SHAPE.shape).astype(np.float32), i, j, rng.integers(-9, 9, 20).astype(np.float32)]


def tables(graph):
    return [node.operands[0].type.shape for node in graph.nodes if node.op == "scatter"]


def zeros(graph):
    starts = [node.operands[0].node for node in graph.nodes if node.op == "scatter"]
    return [node is not None and node.op == "const" for node in starts]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
@pytest.mark.parametrize(
    ("function", "shapes", "starts"),
    [
        (added, [(5, 7)], [False]),
        (subtracted, [(5, 7)] * 3, [False, False, False]),
        (summed, [(5,), (5, 7)], [True, False]),
        (read_twice, [(5, 7)], [True]),
    ],
)
def test_the_sums_are_the_same(function, shapes, starts, dtype):
    places = TensorType((20,), uint64) if dtype is np.uint64 else PLACES
    graph, _ = trace(function, [SHAPE, places, places, TERMS])
    found = rewrite_scatter_bases(graph)
    assert (tables(found), zeros(found)) == (shapes, starts)
    given = arrays(dtype)
    for got, want in zip(interpret(found, given), interpret(graph, given), strict=True):
        np.testing.assert_array_equal(got, want)


def test_zeros_keep_the_sign_that_a_sum_gives_them():
    """Where nothing is added, 0 + -0 is 0, 0 - 0 too, and -0 - 0 is -0."""

    def function(x, i, j, u):
        return [*added(x, i, j, u), ops.sub(scattered(i, j, u), x), ops.sub(x, scattered(i, j, u))]

    graph, _ = trace(function, [SHAPE, PLACES, PLACES, TERMS])
    x, i, j, u = arrays()
    given = [np.copysign(np.zeros_like(x), x), i, j, np.abs(u) + 1]
    found = rewrite_scatter_bases(graph)
    assert zeros(found) == [False] * 3
    for got, want in zip(interpret(found, given), interpret(graph, given), strict=True):
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def two_tables(x, i, j, u):
    return [ops.add(scattered(i, j, u), ops.add(scattered(j, i, u), x))]


def test_zero_is_added_once():
    graph, _ = trace(two_tables, [SHAPE, PLACES, PLACES, TERMS])
    found = rewrite_scatter_bases(graph)
    assert [node.op for node in found.nodes].count("add") == 1
    for got, want in zip(interpret(found, arrays()), interpret(graph, arrays()), strict=True):
        np.testing.assert_array_equal(got, want)


def into_what_is_computed(x, i, u):
    """Also twice, and into what is read beside."""
    once = ops.scatter("add", ops.exp(x), (i,), u)
    twice = ops.scatter("add", ops.scatter("max", ops.sin(x), (i,), u), (i,), u)
    kept = ops.cos(x)
    return [once, twice, kept, ops.scatter("add", kept, (i,), u), ops.scatter("add", x, (i,), u)]


def test_what_is_scattered_into_is_computed_where_the_result_is_wanted(check, rng):
    given = [rng.normal(size=30).astype(np.float32), rng.integers(0, 30, 20), rng.normal(size=20).astype(np.float32)]
    program = check(into_what_is_computed, [TensorType((30,), float32), PLACES, TERMS], given)
    assert not any(isinstance(step, CopyStep) for step in program.steps)
    starts = [(start.source, step.slots[i]) for step in program.steps if isinstance(step, LaunchStep)
              for i, start in step.initials]  # fmt: skip
    once, twice, kept, beside, of_input = program.outputs
    assert sorted(starts) == sorted([(once, once), (twice, twice), (twice, twice), (kept, beside), (0, of_input)])
