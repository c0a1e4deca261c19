"""Which reads stay at their lane."""

from __future__ import annotations

import pytest

from loopgrad.codegen.schedule.access import keeps_lanes
from loopgrad.graph import ops
from loopgrad.graph.build import emit, trace
from loopgrad.graph.types import TensorType, float32, int64


def _node(function, *shapes):
    graph, _ = trace(lambda *x: [function(*x)], [TensorType(s, float32) for s in shapes])
    return graph.nodes[-1]


def _own_rows(x):
    return ops.gather(x, ops.iota(TensorType((3,), int64), 0))


@pytest.mark.parametrize(
    ("function", "shape", "n", "kept"),
    [
        (ops.sin, (3, 4), 5, True),
        (lambda x: ops.reshape(x, (6, 4)), (2, 3, 4), 6, True),
        (lambda x: ops.reshape(x, (6, 4)), (2, 3, 4), 2, False),
        (lambda x: ops.reshape(x, (3, 2)), (2, 3), 6, True),
        (lambda x: emit("transpose", (x,), {"perm": (1, 0)})[0], (3, 3), 3, False),
        (lambda x: emit("transpose", (x,), {"perm": (1, 0, 2)})[0], (1, 3, 4), 3, True),
        (lambda x: emit("broadcast", (x,), {"shape": (3, 4), "dims": (0,)})[0], (3,), 3, True),
        (lambda x: emit("broadcast", (x,), {"shape": (3, 3), "dims": (1,)})[0], (3,), 3, False),
        (lambda x: ops.reduce_sum(x, (1,)), (3, 4), 3, True),
        (lambda x: ops.reduce_sum(x, (0,)), (3, 3), 3, False),
        (_own_rows, (3, 4), 3, True),
        (_own_rows, (3, 4), 12, True),
        (_own_rows, (5, 4), 5, False),
    ],
)
def test_reads_of_the_own_lane(function, shape, n, kept):
    assert keeps_lanes(_node(function, shape), 0, n) is kept


def test_factors_of_a_product():
    node = _node(ops.matmul, (2, 3, 4), (2, 4, 5))
    assert [n for n in (2, 6, 24) if keeps_lanes(node, 0, n)] == [2, 6]
    assert [n for n in (2, 8, 40) if keeps_lanes(node, 1, n)] == [2]
