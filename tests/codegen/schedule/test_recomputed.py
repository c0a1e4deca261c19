"""Values that several kernels would compute are found in time that grows with the program."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.schedule.partition import Partition
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.types import TensorType, float32, float64, int32


def chained_sums(n, x):
    for _ in range(n):
        x = x * 0.9 + lg.sum(x * x) * 1e-3
    return x


def test_dependent_sums_are_scheduled_in_linear_time(monkeypatch):
    looked = [0]
    edges = Partition.edges

    def counted(self, *args):
        looked[0] += 1
        return edges(self, *args)

    monkeypatch.setattr(Partition, "edges", counted)
    counts = []
    for n in (50, 200):
        looked[0] = 0
        step = lg.compile(lambda x, n=n: lg.sum(chained_sums(n, x)), device="cpu")
        step.plan(lg.ones(100))
        counts.append(looked[0])
    assert counts[1] < 6 * counts[0]


@pytest.mark.costly
def test_the_gradient_of_dependent_sums(device):
    x, n = np.linspace(0.1, 1.0, 100), 12
    y, steps = x, []
    for _ in range(n):
        steps.append(y)
        y = y * 0.9 + np.sum(y * y) * 1e-3
    slope = np.ones_like(x)
    for y in reversed(steps):
        slope = slope * 0.9 + np.sum(slope) * 2e-3 * y
    np.testing.assert_allclose(lg.grad(lambda x: lg.sum(chained_sums(n, x)))(lg.asarray(x)), slope, rtol=1e-12)


@pytest.mark.parametrize(("axes", "stored"), [((0, 2), 0), ((2,), 1)])
def test_what_is_made_of_one_array_is_stored_only_where_short_rows_keep_it(axes, stored):
    """Those of batch norm aren't rows. A guarded quotient counts its parts once."""
    shape = (64, 8, 100)

    def scaled(x, root):
        quotient = ops.div(x, ops.broadcast(ops.sqrt(root), shape, (1,)))
        guarded = ops.select(ops.and_(ops.eq(x, 0.0), ops.is_nan(quotient)), x, quotient)
        kept = [axis for axis in range(3) if axis not in axes]
        total = ops.reduce_sum(ops.mul(guarded, guarded), axes)
        return [ops.mul(guarded, ops.broadcast(total, shape, tuple(kept)))]

    graph, _ = trace(scaled, [TensorType(shape, float32), TensorType((8,), float32)])
    program = schedule(graph, DEFAULT_OPTIONS)
    written = [p.size for kernel in program.kernels for p in kernel.params if p.access == "write"]
    assert written.count(int(np.prod(shape))) == 1 + stored


def test_differences_of_fewer_numbers_are_computed_again():
    """Each of 4,096 points beside each of 64: what their distances and the derivatives of these are made of is cheaper
    to make than to read, even where short rows of it are added up."""
    shape = (4096, 64, 8)

    def distances(x, y, unit, w):
        apart = ops.sub(ops.broadcast(x, shape, (0, 2)), ops.broadcast(y, shape, (1, 2)))
        apart = ops.div(apart, ops.broadcast(unit, shape, (2,)))
        near = ops.exp(ops.neg(ops.reduce_sum(ops.mul(apart, apart), (2,))))
        return [ops.reduce_sum(ops.mul(apart, ops.broadcast(ops.mul(near, w), shape, (0, 1))), (0,))]

    extents = [(4096, 8), (64, 8), (8,), (4096, 64)]
    graph, _ = trace(distances, [TensorType(extent, float32) for extent in extents])
    program = schedule(graph, DEFAULT_OPTIONS)
    written = [p.size for kernel in program.kernels for p in kernel.params if p.access == "write"]
    assert max(written) <= 4096 * 64


def test_what_differences_in_each_dimension_are_multiplied_by_is_what_is_stored(rng):
    """Derivatives of distances, added up along both of the dims of pairs: three numbers of each pair, of two. Products
    of batches have had dims of one element."""
    n, shape, batch = 300, (300, 300, 3), (300, 1, 300, 3)

    def pushes(x, one, other):
        apart = ops.sub(ops.broadcast(x, shape, (0, 2)), ops.broadcast(x, shape, (1, 2)))
        far = ops.mul(ops.broadcast(one, batch, (0, 2)), ops.broadcast(x, batch, (2, 3)))
        push = ops.add(ops.reshape(far, shape), ops.mul(ops.broadcast(other, shape, (0, 1)), ops.mul(apart, apart)))
        return [ops.reduce_sum(push, (0,)), ops.reduce_sum(push, (1,))]

    graph, _ = trace(pushes, [TensorType(extent, float64) for extent in ((n, 3), (n, n), (n, n))])
    program = schedule(graph, DEFAULT_OPTIONS)
    assert max(p.size for kernel in program.kernels for p in kernel.params if p.access == "write") <= n * n
    arrays = [rng.normal(size=v.shape) for v in graph.inputs]
    for found, expected in zip(interpret_program(program, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(("width", "kernels"), [(8, 1), (100, 2)])
def test_numbers_of_short_rows_are_made_again_in_each_lane(width, kernels):
    """Rather than written by a kernel of their own, which is worth it for long rows."""
    shape = (5000, width)

    def moved(table, k):
        rows = ops.broadcast(ops.select(ops.lt(k, 0), ops.add(k, 300), k), shape, (0,))
        columns = ops.iota(TensorType(shape, int32), 1)
        return [ops.scatter("add", table, [rows, columns], ops.gather(table, rows, columns))]

    graph, _ = trace(moved, [TensorType((300, width), float32), TensorType(shape[:1], int32)])
    assert len(schedule(graph, DEFAULT_OPTIONS).kernels) == kernels


def pairs(x):
    """Distances of points, a weight by them, and what goes on with them once the weights are added up."""
    n, dims = x.shape
    shape = (n, n, dims)
    apart = ops.sub(ops.broadcast(x, shape, (0, 2)), ops.broadcast(x, shape, (1, 2)))
    far = ops.sqrt(ops.add(ops.reduce_sum(ops.mul(apart, apart), (2,)), 1.0))
    square, near, left = ops.mul(far, far), ops.lt(far, 1.5), ops.sub(2.0, far)
    total = ops.reduce_sum(ops.select(near, square, ops.mul(left, square)), (1,))
    wide = ops.broadcast(total, (n, n), (0,))
    factor = ops.select(near, ops.mul(wide, square), ops.mul(wide, ops.mul(left, left)))
    return [ops.reduce_sum(ops.mul(apart, ops.broadcast(factor, shape, (0, 1))), (0,)), total]


def test_of_what_is_made_of_each_other_one_is_stored():
    """Distances, not their squares and comparisons besides."""
    graph, _ = trace(pairs, [TensorType((128, 3), float32)])
    program = schedule(graph, DEFAULT_OPTIONS)
    written = [p.size for kernel in program.kernels for p in kernel.params if p.access == "write"]
    assert written.count(128 * 128) <= 2
    x = np.random.default_rng(0).normal(size=(128, 3)).astype(np.float32)
    for got, want in zip(interpret_program(program, [x]), interpret(graph, [x]), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize(("n", "by_lanes"), [(1024, False), (2048, True)])
def test_very_many_short_rows_of_differences_are_added_up_by_lanes(n, by_lanes):
    graph, _ = trace(pairs, [TensorType((n, 8), float32)])
    domains = [np.prod(kernel.domain) for kernel in schedule(graph, DEFAULT_OPTIONS).kernels]
    assert (8 * n * n in domains) != by_lanes


@pytest.mark.parametrize("extent", [16, 32])
def test_workgroups_reduce_rows_that_a_small_sum_is_part_of(extent, rng):
    """Scores and a number for each of the classes, as a mixture's weights and widths give: the classes' own sums are
    small, and in memory."""
    n, shape = 6000, (6000, extent)

    def program(x, widths):
        each = ops.add(x, ops.broadcast(ops.reduce_sum(widths, (1,)), shape, (1,)))
        over = ops.exp(ops.sub(each, ops.broadcast(ops.reduce_max(each, (1,)), shape, (0,))))
        return [ops.div(over, ops.broadcast(ops.reduce_sum(over, (1,)), shape, (0,)))]

    graph, _ = trace(program, [TensorType(shape, float32), TensorType((extent, 7), float32)])
    program = schedule(graph, DEFAULT_OPTIONS)
    assert sum(np.prod(kernel.domain) == n for kernel in program.kernels) == 0
    arrays = [rng.normal(size=v.shape).astype(np.float32) for v in graph.inputs]
    (found,) = interpret_program(program, arrays)
    np.testing.assert_allclose(found, interpret(graph, arrays)[0], rtol=1e-5)
