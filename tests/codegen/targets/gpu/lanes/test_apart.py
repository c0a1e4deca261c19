"""A kernel that is straight in one part and loops in another one, which have nothing in common."""

from __future__ import annotations

import numpy as np

from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.gpu.lanes.apart import straight_part
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry
from loopgrad.codegen.targets.gpu.lanes.row_stages import with_row_stages
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType, float32
from tests.codegen.targets.gpu.gpu_harness import device, executable_of

SHAPE = (50, 40, 40)  # columns so short aren't reduced by workgroups


def rows_and_columns(x: Value) -> list[Value]:
    """Roots of rows' sums and sums of columns are as many, and known at the same time."""
    sums = ops.reduce_sum(ops.mul(x, x), (2,))
    off = ops.div(x, ops.broadcast(ops.sqrt(sums), x.shape, (0, 1)))
    return [off, ops.reduce_sum(ops.mul(x, ops.broadcast(sums, x.shape, (0, 1))), (1,))]


def test_sums_of_columns_dont_keep_the_stages_of_rows_apart() -> None:
    graph, _ = trace(rows_and_columns, [TensorType(SHAPE, float32)])
    program = schedule(graph, DEFAULT_OPTIONS)
    assert any(straight_part(kernel) for kernel in program.kernels)
    stages = [len(kernel.stages) for kernel in with_row_stages(program, Geometry()).kernels]
    assert sorted(stages) == [0, 4]  # one stores what rows are reduced to
    x = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
    for got, want in zip(executable_of(program).run([device().put(x)]), interpret(graph, [x]), strict=True):
        np.testing.assert_allclose(device().get(got), want, rtol=2e-5, atol=2e-5)


def test_parts_that_share_more_than_indices_stay_together() -> None:
    def both(x: Value) -> list[Value]:
        root = ops.sqrt(ops.reduce_sum(ops.mul(x, x), (2,)))
        columns = ops.reduce_sum(ops.mul(x, ops.broadcast(ops.exp(root), x.shape, (0, 2))), (1,))
        return [ops.exp(root), columns]

    graph, _ = trace(both, [TensorType(SHAPE, float32)])
    program = schedule(graph, DEFAULT_OPTIONS)
    assert any(op.opcode == "for" for kernel in program.kernels for op in kernel.body.ops)
    assert not any(straight_part(kernel) for kernel in program.kernels)
