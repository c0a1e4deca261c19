"""Which reductions of columns are made by workgroups that have these columns."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.options import DEFAULT_OPTIONS, OwnProducts
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.schedule.canonical import rewrite_block
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.types import TensorType, float32, float64


def reduced(graph: Graph) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The operand's shape and the axes of each reduction."""
    return [(n.operands[0].shape, n.attrs["axes"]) for n in graph.nodes if n.op.startswith("reduce")]


def largest(x: Value, axes: tuple[int, ...]) -> list[Value]:
    return [ops.reduce_max(x, axes)]


def centred(x: Value, axes: tuple[int, ...]) -> list[Value]:
    kept = [d for d in range(len(x.shape)) if d not in axes]
    return [ops.sub(x, ops.broadcast(ops.reduce_max(x, axes), x.shape, kept))]


@pytest.mark.parametrize(
    ("shape", "axes", "rows"),
    [
        ((128, 512), (0,), (512, 128)),
        ((6, 10, 12, 64), (1, 2), (6, 64, 120)),
        ((3, 512), (0,), (512, 3)),
        ((2000, 512), (0,), None),  # longer than a workgroup of 256 holds
        ((128, 100), (0,), None),  # too few
        ((512, 128), (1,), None),  # rows
        ((8, 64, 8), (0, 2), None),  # not neighbours
    ],
)
def test_columns_that_go_on_are_rows_of_the_transposed(shape, axes, rows) -> None:
    graph = trace(lambda x: centred(x, axes), [TensorType(shape, float32)])[0]
    last = (len(rows or ()) - 1,)
    found = (rows, last) in reduced(rewrite_block(graph))
    assert found == (rows is not None)
    assert (rows, last) not in reduced(rewrite_block(graph, in_order=True))


def test_who_has_larger_workgroups_holds_longer_columns() -> None:
    graph = trace(lambda x: centred(x, (0,)), [TensorType((2000, 512), float32)])[0]
    made = rewrite_block(graph, options=DEFAULT_OPTIONS, long_columns=True)
    assert reduced(made) == [((512, 2000), (1,))]


@pytest.mark.parametrize(
    ("shape", "rows"),
    [((128, 512), True), ((1000, 100), True), ((1024, 784), True), ((63, 512), False), ((128, 20_000), False)],
)
def test_columns_that_few_lanes_would_go_down_are_rows_too(shape: tuple[int, int], rows: bool) -> None:
    """Of those that don't go back. Many lanes, or down short ones, go down columns in as little time."""
    graph = trace(lambda x: largest(x, (0,)), [TensorType(shape, float32)])[0]
    assert reduced(rewrite_block(graph)) == ([(shape[::-1], (1,))] if rows else reduced(graph))
    assert reduced(rewrite_block(graph, in_order=True))[0][0] != shape[::-1]


@pytest.mark.parametrize("shape", [(65_536, 64), (5003, 30), (3, 8192, 20)])
def test_what_blocks_of_long_columns_leave_is_reduced_as_rows(shape, rng) -> None:
    """By workgroups, in one more launch; also where products became sums since, and all of it is looked at again."""

    def sums(x: Value, y: Value) -> list[Value]:
        axis = len(shape) - 2
        near = ops.matmul(y, ops.transpose(y, (1, 0)))
        return [ops.reduce_sum(ops.mul(x, x), (axis,)), ops.reduce_max(x, (axis,)), ops.add(near, 1.0)]

    graph, _ = trace(sums, [TensorType(shape, float64), TensorType((100, 3), float64)])
    program = schedule(graph, own_products=OwnProducts.IN_LOOPS)
    columns = [kernel for kernel in program.kernels if kernel.reductions]
    assert len(columns) == 1, "of what blocks leave; those go down their columns each"
    assert columns[0].domain[-1] >= 64
    assert len(program.kernels) <= 4
    given = [rng.integers(-4, 5, v.shape).astype(np.float64) for v in graph.inputs]
    given[0][..., 1000, 3] = np.nan
    for found, expected in zip(interpret_program(program, given), interpret(graph, given), strict=True):
        np.testing.assert_array_equal(found, expected)
