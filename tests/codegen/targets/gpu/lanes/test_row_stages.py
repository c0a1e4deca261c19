"""Launches over the same rows as one."""

from __future__ import annotations

import numpy as np

from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry
from loopgrad.codegen.targets.gpu.lanes.row_stages import with_row_stages
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType, float32, float64
from tests.codegen.targets.gpu.gpu_harness import device, executable_of


def test_a_sum_of_all_beside_sums_of_rows() -> None:
    """The launch for all elements has one dim, which is cut into rows: it is one sum all the same."""

    def centred(x: Value) -> list[Value]:
        rows = ops.broadcast(ops.reduce_sum(x, (1,)), x.shape, (0,))
        return [ops.add(ops.sub(x, rows), ops.broadcast(ops.reduce_sum(x, (0, 1)), x.shape, ()))]

    made = executable_of(schedule(trace(centred, [TensorType((70, 300), float64)])[0], DEFAULT_OPTIONS))
    assert [len(kernel.domain) for kernel in made.program.kernels] == [2, 2]
    x = np.random.default_rng(0).normal(size=(70, 300))
    (got,) = made.run([device().put(x)])
    np.testing.assert_allclose(device().get(got), x - x.sum(1, keepdims=True) + x.sum(), rtol=1e-12, atol=1e-12)


def test_rows_that_a_warp_has_are_held_where_they_are_only_reduced() -> None:
    for length, held in ((100, False), (130, True), (1000, True), (2000, False)):
        graph = trace(lambda x: [ops.reduce_sum(ops.mul(x, x), (1,))], [TensorType((50_000, length), float32)])[0]
        (kernel,) = with_row_stages(schedule(graph, DEFAULT_OPTIONS), Geometry(exchanges=True)).kernels
        assert len(kernel.stages) == held
