"""What is computed of transposed arrays, in the order of these: products, reductions, and what stays as it is."""

import numpy as np
import pytest

from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.options import OwnProducts
from loopgrad.codegen.program import MatmulStep
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.schedule.memory_order import in_memory_order
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.types import TensorType, float64

ROWS, COLUMNS = 70, 40


def turned(v):
    rank = len(v.shape)
    return ops.transpose(v, (*range(rank - 2), rank - 1, rank - 2))


def centred(x):
    """Of the transposed array, less what is one number for each of its rows."""
    rows = turned(x)
    mean = ops.div(ops.reduce_sum(rows, (1,)), float(ROWS))
    return ops.sub(rows, ops.broadcast(ops.reshape(mean, (COLUMNS, 1)), rows.shape, (0, 1)))


def covariance(x):
    gap = centred(x)
    return [ops.matmul(gap, turned(gap))]


def graph_of(program, *shapes):
    return trace(program, [TensorType(shape, float64) for shape in shapes])[0]


def stored(graph):
    """Shapes of what products read, as it is in memory."""
    program = schedule(graph, own_products=OwnProducts.IN_LOOPS)
    steps = [step for step in program.steps if isinstance(step, MatmulStep)]
    return [program.slots[slot].type.shape for step in steps for slot in (step.left, step.right)]


def agrees(graph, rng):
    program = schedule(graph, own_products=OwnProducts.IN_LOOPS)
    arrays = [rng.integers(-4, 5, v.shape).astype(np.float64) for v in graph.inputs]
    for got, wanted in zip(interpret_program(program, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-9)


def test_a_covariance_reads_rows_as_they_lie(rng):
    graph = graph_of(covariance, (ROWS, COLUMNS))
    assert stored(graph) == [(ROWS, COLUMNS)] * 2
    sums = [node.attrs["axes"] for node in in_memory_order(graph).nodes if node.op == "reduce_sum"]
    assert sums == [(0,)]
    agrees(graph, rng)


@pytest.mark.parametrize(
    ("program", "shapes", "changed"),
    [
        (lambda x, w: ops.matmul(ops.tanh(turned(x)), w), ((30, 50), (30, 20)), True),
        (lambda x, y: ops.matmul(ops.mul(turned(x), turned(y)), x), ((3, 30, 50), (3, 30, 50)), True),
        (lambda x: ops.matmul(turned(ops.exp(turned(x))), turned(x)), ((30, 50),), True),
        (lambda x, y: ops.matmul(y, turned(ops.mul(x, y))), ((50, 30), (50, 30)), False),
        (lambda x, y: ops.matmul(ops.mul(turned(x), y), x), ((30, 50), (50, 30)), False),  # one lies so, one so
    ],
)
def test_products(program, shapes, changed, rng):
    graph = graph_of(lambda *arrays: [program(*arrays)], *shapes)
    agrees(graph, rng)
    assert (in_memory_order(graph) is not graph) == changed


@pytest.mark.parametrize("op", ["reduce_sum", "reduce_max"])
@pytest.mark.parametrize(
    ("perm", "axes", "inner"),
    [((2, 0, 1), (2,), (1,)), ((2, 1, 0), (0, 1), (1, 2)), ((0, 2, 1), (1,), (2,)), ((1, 2, 0), (1,), (2,)),
     ((1, 0, 2), (1,), None)],
)  # fmt: skip
def test_reductions(op, perm, axes, inner, rng):
    """`inner`: the axes that are reduced where the array lies; rows stay rows."""

    def program(x, y):
        moved = ops.transpose(ops.mul(x, 2.0), perm)
        repeated = ops.broadcast(y, moved.shape, (0, 2))
        return [getattr(ops, op)(ops.add(moved, repeated), axes)]

    shape = (4, 5, 6)
    there = tuple(shape[p] for p in perm)
    graph = graph_of(program, shape, (there[0], there[2]))
    (reduction,) = [node for node in in_memory_order(graph).nodes if node.op == op]
    assert reduction.attrs["axes"] == (axes if inner is None else inner)
    agrees(graph, rng)


def test_what_is_read_in_its_order_anyway_stays_in_it():
    def program(x, w):
        rows = ops.exp(turned(x))
        return [rows, ops.matmul(rows, w)]

    graph = graph_of(program, (30, 50), (30, 20))
    assert in_memory_order(graph) is graph
