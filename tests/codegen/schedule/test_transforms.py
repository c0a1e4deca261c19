"""Transforms along several axes keep what they compute, and become as few as can be."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from loopgrad.codegen.schedule.canonical import through_pipeline
from loopgrad.codegen.schedule.transforms import ANY_AXES, rewrite_transforms
from loopgrad.graph import ops
from loopgrad.graph.build import emit, trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.primitives import fourier
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float64, int64
from loopgrad.graph.verify import verify

LIBRARY = frozenset(fourier.ROWS)
HOST = LIBRARY | {ANY_AXES}
EXTENTS = (10, 12, 9, 16)
FORWARD = {"inverse": False, "norm": "full"}


def rewritten(f, *shapes, library=LIBRARY):
    """The rewritten graph, and the names of what is left of transforms; it computes the same."""
    graph = through_pipeline(trace(f, [TensorType(shape, float64) for shape in shapes])[0])
    found = through_pipeline(rewrite_transforms(graph, library))
    verify(found)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in shapes]
    for got, wanted in zip(interpret(found, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
    names = sorted(node.op for node in found.nodes if "dft" in node.op)
    return found, names


def along(value, axis, attrs=FORWARD):
    rank = len(value.shape) - 1
    order = [*[d for d in range(rank) if d != axis], axis, rank]
    (made,) = emit("dft", (ops.transpose(value, order),), attrs)
    return ops.transpose(made, np.argsort(order).tolist())


def test_orders_of_axes():
    """All of some orders: one call for up to three axes in a row."""
    for axes in ((3, 2), (2, 3), (0, 1), (3, 1, 2), (0, 2, 1), (0, 3), (3, 2, 1, 0), (1, 3, 0, 2), (1,), (2, 0), (0,)):

        def f(z, axes=axes):
            for axis in axes:
                z = along(z, axis)
            return [z]

        _, names = rewritten(f, (*EXTENTS, 2))
        ordered = sorted(axes)
        if len(axes) <= 3 and all(b == a + 1 for a, b in pairwise(ordered)) and (3 in axes or axes == (0,)):
            assert names == ["dft_along"], axes
        assert rewritten(f, (*EXTENTS, 2), library=HOST)[1] == ["dft_along"]
        rewritten(f, (*EXTENTS, 2), library=frozenset())


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
    _, names = rewritten(lambda z: [along(along(z, 1), 0)], (20, 20, 2))  # not worth a call, but a launch
    assert names == ["dft", "dft_along"]
    _, names = rewritten(lambda z: [along(z, 0)], (34, 20, 2), library=frozenset())  # nor that: 17 isn't a small prime
    assert names == ["dft"]


def test_real_numbers():
    def rows(x):
        (made,) = emit("real_dft", (ops.transpose(x, (1, 0, 2)),), {"norm": "full"})
        return [along(ops.transpose(made, (1, 0, 2, 3)), 1)]

    found, names = rewritten(rows, (16, 20, 60))
    assert names == ["real_dft_along"]
    assert next(node for node in found.nodes if "dft" in node.op).attrs["axes"] == (1, 2)

    def columns(x):
        (made,) = emit("real_dft", (ops.transpose(x, (1, 0)),), {"norm": "full"})
        return [along(made, 0), emit("hermitian_dft", (made,), {"length": 131, "norm": "full"})[0]]

    _, names = rewritten(columns, (131, 130))
    assert names == ["dft", "hermitian_dft_along", "real_dft_along"]


def test_back_to_real_numbers():
    """The other axes first, in the same direction and with the same norm; what the half spectrum isn't the transform of
    real numbers makes no difference."""

    def back(z, first, *, inverse=True, norm="full", axis=1):
        z = along(z, first, {"inverse": inverse, "norm": "full"})
        order = [*[d for d in range(3) if d != axis], axis, 3]
        (made,) = emit("hermitian_dft", (ops.transpose(z, order),), {"length": 30, "norm": norm})
        return [ops.transpose(made, np.argsort(order[:-1]).tolist())]

    shape = (20, 16, 40, 2)
    assert rewritten(lambda z: back(z, 0), shape, library=HOST)[1] == ["hermitian_dft_along"]
    assert rewritten(lambda z: back(z, 2), shape, library=HOST)[1] == ["hermitian_dft_along"]
    for changed in ({"inverse": False}, {"norm": "none"}):
        names = rewritten(lambda z, changed=changed: back(z, 0, **changed), shape, library=HOST)[1]
        assert names == ["dft_along", "hermitian_dft_along"]
    assert rewritten(lambda z: back(z, 1, axis=2), (20, 40, 16, 2))[1] == ["hermitian_dft_along"]
    assert rewritten(lambda z: back(z, 2), shape)[1] == ["dft", "hermitian_dft_along"]


def test_parts_of_pairs_that_were_transposed():
    def f(x, y):
        parts = [ops.reshape(ops.transpose(v, (1, 0)), (*v.shape[::-1], 1)) for v in (x, y)]
        return [emit("dft", (ops.concat(parts, 2),), FORWARD)[0]]

    _, names = rewritten(f, (99, 100), (99, 100))
    assert names == ["dft_along"]


def test_programs_with_loops():
    """They are recorded with own kernels, which have nothing for several axes; the host has, in loops too."""

    def f(z, x):
        count = ops.cast(ops.abs(ops.reduce_sum(x, (0,))), int64)
        (z,) = traced_for(count, [z], lambda _, z: [along(along(z, 1), 0)])
        return [along(along(z, 1), 0)]

    shapes = (128, 100, 2), (3,)
    assert rewritten(f, *shapes)[1] == ["dft", "dft_along"]
    found, names = rewritten(f, *shapes, library=HOST)
    (loop,) = [node for node in found.nodes if node.regions]
    assert names == [n.op for n in loop.regions[0].nodes if "dft" in n.op] == ["dft_along"]
