"""Movement rows: linear, so both modes must agree with differences to rounding."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops

X = np.arange(12.0).reshape(3, 4) / 7 - 0.6

CASES = {
    "broadcast": lambda x: ops.broadcast(x, (2, 3, 5, 4), (1, 3)),
    "broadcast of extents of one": lambda x: ops.broadcast(ops.reshape(x, (3, 1, 4, 1)), (3, 5, 4, 2), (0, 1, 2, 3)),
    "reshape": lambda x: ops.reshape(x, (2, 6)),
    "transpose": lambda x: ops.transpose(x, (1, 0)),
    "slice": lambda x: ops.slice(x, (1, 0), (3, 4), (1, 2)),
    "slice with steps": lambda x: ops.slice(x, (0, 1), (3, 4), (2, 2)),
    "slice backwards": lambda x: ops.slice(x, (2, 3), (None, 0), (-1, -2)),
    "slice from beyond the end": lambda x: ops.slice(x, (9, 1), (None, 3), (-2, 1)),
    "empty slice": lambda x: ops.slice(x, (2, 0), (2, 4)),
    "pad": lambda x: ops.pad(x, (1, 0), (2, 3), 7.0),
    "pad with a value": lambda x: ops.pad(x, (1, 0), (2, 3), ops.reduce_sum(x, (0, 1))),
    "concat": lambda x: ops.concat([x, ops.sin(x), x], 1),
    "flip": lambda x: ops.flip(x, (0, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_row(derivatives, name):
    derivatives.check(lambda x: [ops.sin(CASES[name](x))], [X], order=2)


def over_differences(x):
    """A variance of each row, as it is written out."""
    mean = ops.div(ops.reduce_sum(x, (1,)), float(x.shape[1]))
    apart = ops.sub(x, ops.broadcast(mean, x.shape, (0,)))
    return [ops.sqrt(ops.reduce_sum(ops.mul(apart, apart), (1,)))]


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_factors_of_whole_rows_are_taken_out_of_sums(derivatives, dtype):
    """What reaches the mean is a sum of differences, which waits for no cotangent; not of halves, whose sums of what
    isn't small yet might leave their range."""
    x = np.array([[1.5, -2.5, 5.0, 0.5], [0.25, 3.0, -1.0, 4.0]])
    derivatives.check(over_differences, [x], order=2)
    graph = derivatives.graph_of(derivatives.gradient_of(over_differences, [0]), [x.astype(dtype)])
    summed = {n.operands[0].node.op for n in graph.nodes if n.op == "reduce_sum" and n.operands[0].node is not None}
    assert ("sub" in summed) == (dtype is np.float64)


def test_factors_of_some_axes_stay_where_others_are_summed(derivatives):
    def function(x, y, z):
        product = ops.mul(ops.broadcast(y, x.shape, (1,)), ops.broadcast(z, x.shape, (0, 1)))
        return [ops.mul(ops.mul(x, product), ops.broadcast(y, x.shape, (1,)))]

    rng = np.random.default_rng(0)
    derivatives.check(function, [rng.random((2, 3)), rng.random(3), rng.random((2, 1))], order=2)
