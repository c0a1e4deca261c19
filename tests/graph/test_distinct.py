"""Updates of a scatter that provably go to elements of their own."""

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.distinct import distinct_axis, no_duplicates
from loopgrad.graph.interpret import interpret
from loopgrad.graph.types import TensorType, float64, int64

MATRIX = TensorType((4, 6), float64)
PLACES = TensorType((4, 6), int64)


def scatter(indices, width=6):
    """The scatter of a traced function, and its indices' values for some matrix."""

    def body(x):
        found = indices(x)
        table = ops.full(0.0, TensorType((40,) * len(found), float64))
        return [ops.scatter("add", table, found, ops.full(1.0, TensorType(found[0].shape, float64))), *found]

    graph, _ = trace(body, [MATRIX])
    (node,) = [n for n in graph.nodes if n.op == "scatter"]
    x = np.random.default_rng(0).integers(0, 3, (4, 6)).astype(np.float64)
    total, *_ = interpret(graph, [x])
    return node, float(np.max(total))


def turned(v):
    return ops.flip(ops.sub(ops.full(5, v.type), v), (1,))


def strided(v, step, start):
    return ops.add(ops.mul(v, ops.full(step, v.type)), ops.full(start, v.type))


APART = {
    "rows": lambda x: [ops.iota(PLACES, 0), ops.argsort(x, 1)],
    "columns": lambda x: [ops.argsort(x, 0), ops.iota(PLACES, 1)],
    "turned": lambda x: [ops.iota(PLACES, 0), turned(ops.argsort(x, 1))],
    "first": lambda x: [
        ops.slice(ops.iota(PLACES, 0), (0, 0), (4, 2)), ops.slice(turned(ops.argsort(x, 1)), (0, 0), (4, 2)),
    ],
    "transposed": lambda x: [ops.transpose(ops.argsort(x, 1), (1, 0)), ops.iota(TensorType((6, 4), int64), 1)],
    "steps": lambda _: [strided(ops.iota(PLACES, 0), 2, 1), strided(ops.iota(PLACES, 1), -3, 20)],
    "steps of rows": lambda x: [ops.argsort(x, 1), strided(ops.iota(PLACES, 0), 5, 0)],
}  # fmt: skip
TOGETHER = {
    "no steps": lambda _: [strided(ops.iota(PLACES, 0), 0, 1), ops.iota(PLACES, 1)],
    "no rows": lambda x: [ops.argsort(x, 1)],
    "wrong axis": lambda x: [ops.iota(PLACES, 1), ops.argsort(x, 1)],
    "sums": lambda x: [ops.iota(PLACES, 0), ops.add(ops.argsort(x, 1), ops.argsort(ops.neg(x), 1))],
    "halves": lambda x: [ops.iota(PLACES, 0), ops.div(ops.argsort(x, 1), ops.full(2, PLACES))],
    "repeated": lambda x: [
        ops.broadcast(ops.slice(ops.argsort(x, 1), (0, 0), (4, 1)), (4, 6), (0, 1)), ops.iota(PLACES, 0),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_apart(name):
    node, most = scatter(APART[name])
    assert most == 1
    assert no_duplicates(node)


@pytest.mark.parametrize("name", TOGETHER)
def test_together(name):
    node, most = scatter(TOGETHER[name])
    assert most > 1, "the test itself: some updates meet"
    assert not no_duplicates(node)


def test_the_axis():
    graph, _ = trace(lambda x: [ops.transpose(ops.argsort(x, 0), (1, 0)), ops.argsort(x, 1), x], [MATRIX])
    assert [distinct_axis(v) for v in graph.outputs] == [1, 1, None]
