"""Columns in the registers of a workgroup: how they lie there, and that stages find them."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.kernel.linear_index import Linear
from loopgrad.codegen.options import DEFAULT_OPTIONS, LONG_COLUMNS
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.gpu.lanes import row_layouts
from loopgrad.codegen.targets.gpu.lanes.column_members import SHORT, column_members
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry
from loopgrad.codegen.targets.gpu.lanes.row_stages import with_row_stages
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType, float16, float32, float64, int32
from tests.codegen.targets.gpu.gpu_harness import device, executable_of


def back(value: Value, x: Value, axis: int) -> Value:
    return ops.broadcast(value, x.shape, [d for d in range(len(x.shape)) if d != axis])


def softmax(x: Value, axis: int) -> list[Value]:
    e = ops.exp(ops.sub(x, back(ops.reduce_max(x, (axis,)), x, axis)))
    return [ops.div(e, back(ops.reduce_sum(e, (axis,)), x, axis))]


def softmax_and_parts(x: Value, axis: int) -> list[Value]:
    """What stages make is a result as well: of rows by a reduction and by a stage, of all lanes."""
    most = ops.reduce_max(x, (axis,))
    e = ops.exp(ops.sub(x, back(most, x, axis)))
    total = ops.reduce_sum(e, (axis,))
    return [ops.div(e, back(total, x, axis)), most, e, total, ops.add(ops.log(total), most)]


def ranged(x: Value, axis: int) -> list[Value]:
    low = back(ops.reduce_min(x, (axis,)), x, axis)
    return [ops.sub(ops.add(x, x), ops.mul(low, back(ops.reduce_max(x, (axis,)), x, axis)))]


def softmax_and_totals(x: Value, axis: int) -> list[Value]:
    """What all columns are reduced to, as a loss is, beside what goes back to each."""
    (y,) = softmax(x, axis)
    every = tuple(range(len(x.shape)))
    inner = ops.reduce_sum(ops.mul(y, x), (axis,))
    gradient = ops.mul(y, ops.sub(x, back(inner, x, axis)))
    return [ops.reduce_sum(ops.mul(y, x), every), gradient, ops.reduce_max(gradient, every)]


def softmax_of_transposed(x: Value, axis: int) -> list[Value]:
    """Whose lanes are numbered along the columns that they read, in all stages."""
    return softmax(ops.transpose(x, (1, 0)), 1 - axis)


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("function", "shape", "axis", "dtype"),
    [
        (softmax, (70, 300), 0, float32),
        (softmax, (3, 65, 130), 1, float64),
        (softmax_and_parts, (64, 517), 0, float32),
        (softmax_and_totals, (67, 301), 0, float32),
        (softmax_and_totals, (2, 64, 140), 1, float64),
        (softmax_of_transposed, (65, 260), 0, float32),
        (ranged, (66, 270), 0, int32),
        (ranged, (2, 64, 136), 1, float16),
        (softmax, (3, 21, 1300), 1, float32),
        (softmax, (2, 5001), 0, float32),
        (softmax_and_parts, (9, 701), 0, float32),
        (softmax_and_totals, (2, 5, 640), 1, float64),
        (softmax_of_transposed, (20, 260), 0, float32),
        (ranged, (33, 270), 0, int32),
        (ranged, (2, 16, 136), 1, float16),
    ],
)
def test_columns_of_any_number(function, shape, axis, dtype) -> None:
    graph = trace(lambda x: function(x, axis), [TensorType(shape, dtype)])[0]
    made = executable_of(schedule(graph, DEFAULT_OPTIONS))
    assert len(made.program.steps) == 1
    x = (3 * np.random.default_rng(0).normal(size=shape)).astype(dtype.np)
    tolerance = {float16: 1e-2, float64: 1e-12}.get(dtype, 1e-5)
    for got, want in zip(made.run([device().put(x)]), interpret(graph, [x]), strict=True):
        np.testing.assert_allclose(device().get(got), want, rtol=tolerance, atol=1e-6)


def members(shape: tuple[int, ...], geometry: Geometry) -> tuple[int, int, int] | None:
    """Of a softmax: members of a column, the elements that each has, invocations of a workgroup."""
    graph = trace(lambda x: softmax(x, 0), [TensorType(shape, float32)])[0]
    program = with_row_stages(schedule(graph, DEFAULT_OPTIONS, frozenset([LONG_COLUMNS])), geometry)
    found = [column_members(kernel, geometry) for kernel in program.kernels if kernel.columns]
    whole = len(program.kernels) == 1 and found[0] is not None
    return (found[0].shape.members, found[0].shape.turns, found[0].group) if whole else None


def test_wide_arrays_have_more_columns_in_a_workgroup() -> None:
    """Where workgroups fill a device all the same; few of them have more invocations."""
    large = Geometry(columns_group=1024)
    assert members((512, 16384), large) == (8, 64, 256)
    assert members((128, 16384), large) == (8, 16, 256)
    assert members((512, 512), large) == (64, 8, 512)
    assert members((512, 256), large) == (128, 4, 256)  # of little, which caches hold
    assert members((4096, 4096), large) == (64, 64, 512)
    assert members((1000, 512), Geometry()) == (32, 32, 256)
    assert members((4096, 4096), Geometry()) is None


def test_short_columns_of_many_have_an_invocation_each() -> None:
    for geometry in (Geometry(), Geometry(asked_memory=1 << 17)):
        assert members((2, 1 << 20), geometry) == (1, 2, 256)
        assert members((SHORT, 1 << 20), geometry) == (1, SHORT, 256)
        assert members((SHORT + 1, 1 << 20), geometry) == (8, 5, 256)
    assert members((SHORT, 512), Geometry()) == (32, 1, 256)


def test_an_element_that_all_lanes_read_says_nothing_of_columns(monkeypatch) -> None:
    """As the pivots of a matrix that each lane solves: nothing lies between an element and itself."""
    graph = trace(lambda x: [ops.reduce_sum(x, (1,))], [TensorType((4, 4), float64)])[0]
    (kernel,) = schedule(graph, DEFAULT_OPTIONS).kernels
    monkeypatch.setattr(row_layouts, "indices", lambda *_: [Linear((0, 0), 0)])
    assert row_layouts.beside(kernel, 4, 4) == 1
