"""Products of 16-bit floats, by matrices of subgroups where a device has some: edges, transposed operands, batches,
epilogues; and which products are made so."""

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.program import MatmulStep
from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES
from loopgrad.codegen.targets.gpu.interface import NO_MATRICES, MatrixShape, SubgroupShapes
from loopgrad.codegen.targets.gpu.lanes import matrix_plan
from loopgrad.codegen.targets.gpu.lanes.matrix_plan import in_matrices
from loopgrad.graph.types import bfloat16, float16, float32
from tests.codegen.targets.gpu.gpu_harness import Choice, device
from tests.codegen.targets.gpu.lanes.test_product_tiles import multiplied
from tests.simulator.subgroup_matrices import SHAPES

NVIDIA = SubgroupShapes(32, (MatrixShape("f16", 16, 16, 16), MatrixShape("b16", 16, 16, 16)))
LAVAPIPE = SubgroupShapes(8, (MatrixShape("f16", 8, 8, 8),))
AMD = SubgroupShapes(64, (MatrixShape("f16", 16, 16, 16),))


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(1, 200, 104, 72), (2, 72, 40, 136)])
def test_edges_batches_and_transposed_operands(dtype, shape):
    batch, m, k, n = shape
    rng = np.random.default_rng(m)
    left, right = (rng.normal(size=s).astype(dtype.np) for s in ((batch, m, k), (batch, k, n)))
    wanted = left.astype(np.float64) @ right.astype(np.float64)
    for flags in ((False, False), (True, True)) if batch > 1 else ((True, False), (False, True)):
        got = multiplied(left, right, *flags, float32)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("k", [200, 24])
def test_rectangles_of_which_two_slabs_are_under_way(monkeypatch, k):
    """As many slabs as two at a time make up, and one more; one alone."""
    monkeypatch.setattr(matrix_plan, "ENOUGH", 1)
    monkeypatch.setattr(matrix_plan, "LONG_SLABS", 1 << 30)
    rng = np.random.default_rng(k)
    left, right = (rng.normal(size=s).astype(np.float16) for s in ((1, 136, k), (1, k, 128)))
    wanted = left.astype(np.float64) @ right.astype(np.float64)
    np.testing.assert_allclose(multiplied(left, right, False, False, float32), wanted, rtol=0, atol=1e-4)


def test_results_are_rounded_once():
    rng = np.random.default_rng(2)
    left, right = (rng.normal(size=(1, 64, 64)).astype(np.float16) for _ in range(2))
    wanted = left.astype(np.float64) @ right.astype(np.float64)
    got = multiplied(left, right).astype(np.float64)
    assert (np.abs(got - wanted) <= 2.0**-11 * np.abs(wanted) + 1e-4).all()


def test_nothing_beyond_the_matrix_is_read():
    left, right = np.full((1, 33, 72), np.nan, np.float16), np.zeros((1, 72, 136), np.float16)
    left[0, 1:] = 1.0
    right[0, :, 0] = 2.0
    got = multiplied(left, right)
    assert np.isnan(got[0, 0]).all()
    np.testing.assert_array_equal(got[0, 1:, 0], 144.0)
    np.testing.assert_array_equal(got[0, 1:, 1:], 0.0)


@pytest.mark.parametrize("heavy", [False, True])
def test_what_goes_on_with_a_product(heavy):
    """In registers, one element after the other in code, or in a loop where that would be long."""
    rng = np.random.default_rng(3)
    x, w, b = (rng.normal(size=s).astype(np.float16) for s in ((96, 80), (80, 72), (72,)))

    def layer(m, x, w, b):
        z = 0.1 * (x @ w + b)
        return m.sin(m.exp(m.tanh(z))) + m.log(2 + m.cos(z)) if heavy else z + 1

    with lg.default_device(Choice.name):
        fun, arguments = lg.compile(lambda *a: layer(lg, *a)), [lg.asarray(a) for a in (x, w, b)]
        got, rows = np.asarray(fun(*arguments)), [str(row) for row in fun.plan(*arguments).routines]
    wanted = layer(np, *[a.astype(np.float64) for a in (x, w, b)])
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=0, atol=2e-2 if heavy else 4e-3)
    if device().kind == "simulator":
        assert ["rectangles of 64x32 by matrix units of 16x8x16" in row and "epilogue" in row for row in rows] == [True]


def chosen(m, k, n, dtype=float16, batch=1, transposed=(False, False), matrices=NVIDIA, memory=48 << 10):
    return in_matrices(MatmulStep(0, 1, 2, batch, m, k, n, *transposed), dtype, 256, memory, matrices)


def test_which_products_are_made_so():
    assert (chosen(2048, 2048, 2048).tall, chosen(2048, 2048, 2048).broad) == (128, 128)
    assert (chosen(2048, 2048, 2048).group, chosen(2048, 2048, 2048).far_ahead) == (128, True)
    assert (chosen(1024, 1024, 1024).group, chosen(1024, 1024, 1024).far_ahead) == (256, False)
    assert (chosen(512, 512, 512).tall, chosen(512, 512, 512).broad) == (32, 64)
    assert chosen(2048, 2048, 2048, bfloat16) is not None
    assert chosen(2048, 2048, 2048, bfloat16, matrices=AMD) is None
    assert chosen(2048, 2048, 2048, float32) is None
    assert chosen(2048, 2048, 2048, matrices=NO_MATRICES) is None
    assert chosen(2048, 2044, 2048) is None  # rows that aren't whole chunks
    assert chosen(2044, 2048, 2048, transposed=(True, False)) is None
    assert chosen(2044, 2048, 2044, transposed=(False, True)) is not None
    assert chosen(8, 2048, 2048) is None
    assert chosen(32, 32, 32) is None
    assert chosen(2048, 2048, 2048, memory=16 << 10) is None


@pytest.mark.parametrize("matrices", [NVIDIA, LAVAPIPE, AMD, SHAPES])
@pytest.mark.parametrize("memory", [32 << 10, 48 << 10])
def test_the_work_is_shared_out_evenly(matrices, memory, monkeypatch):
    """Every invocation loads and stores as many chunks, every subgroup has as many matrices, and all of it fits."""
    found = []
    for enough in (1, 16, 128):
        monkeypatch.setattr(matrix_plan, "ENOUGH", enough)
        for m, k, n in ((64, 64, 64), (200, 4096, 72), (2048, 512, 2048)):
            for transposed in ((False, False), (True, True), (True, False)):
                product = chosen(m, k, n, transposed=transposed, matrices=matrices, memory=memory)
                found += [] if product is None else [product]
    assert found
    for p in found:
        assert p.high * p.down * p.shape.rows == p.tall
        assert p.wide * p.across * p.shape.columns == p.broad
        assert p.depth % p.shape.depth == 0
        assert [slab.lines * slab.chunks % p.group for slab in p.slabs] == [0, 0]
        assert p.finished.lines * p.finished.chunks * p.subgroups % p.group == 0
        assert p.chunks * VECTOR_BYTES <= memory
