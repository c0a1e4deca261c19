"""Which reductions of columns are made by workgroups that have these columns."""

from __future__ import annotations

import pytest

from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.schedule.canonical import rewrite_block
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.types import TensorType, float32


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
        ((128, 512), (0,), (1, 512, 128)),
        ((6, 10, 12, 64), (1, 2), (6, 64, 120)),
        ((2000, 512), (0,), None),  # longer than a workgroup of 256 holds
        ((128, 100), (0,), None),  # too few
        ((512, 128), (1,), None),  # rows
        ((8, 64, 8), (0, 2), None),  # not neighbours
    ],
)
def test_columns_that_go_on_are_rows_of_the_transposed(shape, axes, rows) -> None:
    graph = trace(lambda x: centred(x, axes), [TensorType(shape, float32)])[0]
    found = (rows, (2,)) in reduced(rewrite_block(graph))
    assert found == (rows is not None)
    assert (rows, (2,)) not in reduced(rewrite_block(graph, in_order=True))


def test_who_has_larger_workgroups_holds_longer_columns() -> None:
    graph = trace(lambda x: centred(x, (0,)), [TensorType((2000, 512), float32)])[0]
    made = rewrite_block(graph, options=DEFAULT_OPTIONS, long_columns=True)
    assert reduced(made) == [((1, 512, 2000), (2,))]


def test_what_doesnt_go_back_is_read_in_pieces() -> None:
    graph = trace(lambda x: largest(x, (0,)), [TensorType((128, 512), float32)])[0]
    assert reduced(rewrite_block(graph)) == reduced(graph)
