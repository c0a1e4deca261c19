"""Functions of elements as data."""

from __future__ import annotations

import json

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.build import emit, trace
from loopgrad.graph.primitives import REFERENCE
from loopgrad.graph.scalar_functions import CONST, ScalarFunction, scalar_function
from loopgrad.graph.types import TensorType, float32, float64, int32

T = TensorType((3, 2), float32)


def found(function, *types):
    graph, _ = trace(function, types)
    return scalar_function(graph)


def applied(row, operands):
    if row.op == CONST:
        return np.asarray(row.attributes()["value"], row.dtype)
    return REFERENCE[row.op](row.attributes(), *operands)[0]


def test_they_compute_what_the_graph_does():
    def function(x, y):
        larger = emit("gt", (x, y))[0]
        wide = emit("cast", (x,), {"dtype": float64})[0]
        return [
            ops.select(larger, ops.add(x, 2.0), ops.exp(y)),
            emit("cast", (ops.mul(wide, wide),), {"dtype": float32})[0],
        ]

    rows = found(function, T, T)
    again = ScalarFunction.of(json.loads(json.dumps(rows.data())))
    assert again == rows
    x, y = np.random.default_rng(0).normal(size=(2, 7)).astype(np.float32)
    first, second = again.evaluate([x, y], applied)
    np.testing.assert_array_equal(first, np.where(x > y, x + np.float32(2), np.exp(y)))
    np.testing.assert_array_equal(second, (x.astype(np.float64) ** 2).astype(np.float32))


def test_what_reads_other_elements_is_none():
    assert found(lambda x: [ops.flip(x, (0,))], T) is None
    assert found(lambda x: [ops.mul(x, ops.broadcast(ops.reduce_sum(x, (0, 1)), T.shape, ()))], T) is None
    assert found(lambda x, y: [ops.add(x, ops.slice(y, (0, 0), (3, 2)))], T, TensorType((4, 2), float32)) is None
    assert found(lambda _: [ops.iota(TensorType(T.shape, int32), 0)], T) is None
