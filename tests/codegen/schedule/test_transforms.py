"""Transforms along several axes keep what they compute, and become as few as can be."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from loopgrad.codegen.schedule.canonical import through_pipeline
from loopgrad.codegen.schedule.transforms import rewrite_transforms
from loopgrad.graph import ops
from loopgrad.graph.build import emit, trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float64, int64
from loopgrad.graph.verify import verify

LIBRARY = frozenset({"dft", "real_dft", "hermitian_dft", "dft_along", "real_dft_along"})
EXTENTS = (10, 12, 9, 16)
FORWARD = {"inverse": False, "norm": "full"}


def rewritten(f, *shapes):
    """The rewritten graph, and the names of what is left of transforms; it computes the same."""
    graph = through_pipeline(trace(f, [TensorType(shape, float64) for shape in shapes])[0])
    found = through_pipeline(rewrite_transforms(graph, LIBRARY))
    verify(found)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in shapes]
    for got, wanted in zip(interpret(found, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
    names = sorted(node.op for node in found.nodes if "dft" in node.op)
    assert graph is rewrite_transforms(graph, frozenset({"dft"}))
    return found, names


def along(value, axis, attrs=FORWARD):
    rank = len(value.shape) - 1
    order = [*[d for d in range(rank) if d != axis], axis, rank]
    (made,) = emit("dft", (ops.transpose(value, order),), attrs)
    return ops.transpose(made, np.argsort(order).tolist())


def test_orders_of_axes():
    """All of some orders: one call for up to three axes in a row."""
    for axes in ((3, 2), (2, 3), (0, 1), (3, 1, 2), (0, 2, 1), (0, 3), (3, 2, 1, 0), (1, 3, 0, 2), (1,), (2, 0)):

        def f(z, axes=axes):
            for axis in axes:
                z = along(z, axis)
            return [z]

        _, names = rewritten(f, (*EXTENTS, 2))
        ordered = sorted(axes)
        if len(axes) <= 3 and all(b == a + 1 for a, b in pairwise(ordered)) and (0 in axes or 3 in axes):
            assert names == ["dft_along"], axes


def test_what_stays_apart():
    other = {"inverse": True, "norm": "none"}
    _, names = rewritten(lambda z: [along(along(z, 1), 0, other)], (128, 100, 2))
    assert names == ["dft", "dft_along"]
    _, names = rewritten(lambda z: [along(z, 1), along(along(z, 1), 0)], (128, 100, 2))
    assert names == ["dft", "dft_along"]
    _, names = rewritten(lambda z: [along(along(z, 0), 0)], (128, 100, 2))
    assert names == ["dft_along", "dft_along"]
    _, names = rewritten(lambda z: [along(z, 1)], (100, 50, 4, 2))
    assert names == ["dft"]
    _, names = rewritten(lambda z: [along(along(z, 1), 0)], (20, 20, 2))  # not worth a call
    assert names == ["dft", "dft"]


def test_real_numbers():
    def rows(x):
        (made,) = emit("real_dft", (ops.transpose(x, (1, 0, 2)),), {"norm": "ortho"})
        return [along(ops.transpose(made, (1, 0, 2, 3)), 1)]

    found, names = rewritten(rows, (16, 20, 60))
    assert names == ["real_dft_along"]
    assert next(node for node in found.nodes if "dft" in node.op).attrs["axes"] == (1, 2)

    def columns(x):
        (made,) = emit("real_dft", (ops.transpose(x, (1, 0)),), {"norm": "full"})
        return [along(made, 0), emit("hermitian_dft", (made,), {"length": 131, "norm": "full"})[0]]

    _, names = rewritten(columns, (131, 130))
    assert names == ["dft", "hermitian_dft", "real_dft_along"]


def test_parts_of_pairs_that_were_transposed():
    def f(x, y):
        parts = [ops.reshape(ops.transpose(v, (1, 0)), (*v.shape[::-1], 1)) for v in (x, y)]
        return [emit("dft", (ops.concat(parts, 2),), FORWARD)[0]]

    _, names = rewritten(f, (99, 100), (99, 100))
    assert names == ["dft_along"]


def test_programs_with_loops_stay():
    """They are recorded with own kernels, which have nothing for several axes."""

    def f(z, x):
        count = ops.cast(ops.abs(ops.reduce_sum(x, (0,))), int64)
        (x,) = traced_for(count, [x], lambda _, x: [ops.mul(x, 2.0)])
        return [along(along(z, 1), 0), x]

    _, names = rewritten(f, (128, 100, 2), (3,))
    assert names == ["dft", "dft"]
