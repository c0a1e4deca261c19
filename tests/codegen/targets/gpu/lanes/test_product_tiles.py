"""Matrix products in rectangles: every size of these, edges, transposed operands, batches."""

import numpy as np
import pytest

from loopgrad.codegen import product_shapes
from loopgrad.codegen.program import ArraySlot, MatmulStep, Program
from loopgrad.codegen.targets.gpu.lanes import product_plan as product
from loopgrad.codegen.targets.gpu.lanes.product_plan import MOST_SUMS, in_rectangles
from loopgrad.graph.types import TensorType, bfloat16, dtype_named, float32, float64, int32
from loopgrad.runtime.cuda.blas import worthwhile
from loopgrad.runtime.gpu.driver import ProductTask
from tests.codegen.targets.gpu.gpu_harness import device, executable_of


def multiplied(left, right, transpose_left=False, transpose_right=False, result=None):
    """left @ right on the device; the operands are stored as the flags say."""
    batch, m, k = left.shape
    n = right.shape[2]
    dtype = dtype_named(left.dtype.name)
    stored = [x.swapaxes(1, 2) if flag else x for x, flag in ((left, transpose_left), (right, transpose_right))]
    slots = [ArraySlot(TensorType(x.shape, dtype), "input") for x in stored]
    slots.append(ArraySlot(TensorType((batch, m, n), result or dtype), "output"))
    step = MatmulStep(0, 1, 2, batch, m, k, n, transpose_left, transpose_right)
    executable = executable_of(Program(tuple(slots), (0, 1), (2,), (), (step,)))
    (result,) = executable.run([device().put(np.ascontiguousarray(x)) for x in stored])
    return device().get(result)


@pytest.mark.costly
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("few", [1, 6, 20, 1000])
def test_rectangles_of_every_size(monkeypatch, few, dtype):
    monkeypatch.setattr(product, "FEW_RECTANGLES", few)
    rng = np.random.default_rng(few)
    left, right = (rng.normal(size=shape).astype(dtype) for shape in ((1, 140, 37), (1, 37, 133)))
    wanted = left.astype(np.float64) @ right.astype(np.float64)
    for flags in ((False, False), (True, True)) if few % 4 else ((True, False), (False, True)):
        np.testing.assert_allclose(multiplied(left, right, *flags), wanted, rtol=0, atol=1e2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("result", [bfloat16, float32], ids=str)
@pytest.mark.parametrize(("few", "shape"), [(1, (1, 40, 50, 60)), (20, (2, 37, 100, 33)), (20, (1, 2, 300, 9))])
def test_factors_of_16_bits_are_added_up_in_32(monkeypatch, few, shape, result):
    monkeypatch.setattr(product, "FEW_RECTANGLES", few)
    batch, m, k, n = shape
    rng = np.random.default_rng(k)
    left, right = (rng.normal(size=s).astype(bfloat16.np) for s in ((batch, m, k), (batch, k, n)))
    wanted = left.astype(np.float64) @ right.astype(np.float64)
    for flags in ((False, False), (True, True)):
        got = multiplied(left, right, *flags, result)
        assert got.dtype == result.np
        rounding = 0.0 if result is float32 else 2.0**-8
        assert (np.abs(got.astype(np.float64) - wanted) <= rounding * np.abs(wanted) + 1e-4).all()


@pytest.mark.parametrize(
    "shape",
    [
        (1, 64, 64, 64),
        (3, 40, 50, 60),
        (2, 8, 1000, 9),
        (5, 17, 31, 100),
        (2, 100, 8, 70),
        (130, 20, 30, 150),
        (40, 32, 32, 32),
        (950, 12, 11, 13),
    ],
)
def test_edges_and_batches(shape):
    batch, m, k, n = shape
    rng = np.random.default_rng(m)
    left, right = rng.normal(size=(batch, m, k)), rng.normal(size=(batch, k, n))
    np.testing.assert_allclose(multiplied(left, right), left @ right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 180, 16, 13), (2, 20, 40, 150), (1, 129, 9, 60), (1, 150, 40, 20)])
def test_thin_products(monkeypatch, shape):
    monkeypatch.setattr(product_shapes, "LONG", 100)
    batch, m, k, n = shape
    assert not worthwhile(ProductTask(1 << 9, m, k, n, False, False, float32, float32))
    assert worthwhile(ProductTask(1 << 9, m, k, n, False, False, float64, float64))
    found = in_rectangles(MatmulStep(0, 1, 2, *shape), float32, 256, 48 << 10)
    long = product.THIN_SIDE * (2 if n == 20 else 1)  # of columns that lie beside each other for each term
    assert (max(found.tall, found.broad), found.slices) == (long, 1)
    rng = np.random.default_rng(m)
    left, right = (rng.normal(size=s).astype(np.float32) for s in ((batch, m, k), (batch, k, n)))
    for flags in ((False, False), (True, True)):
        np.testing.assert_allclose(multiplied(left, right, *flags), left @ right, rtol=0, atol=1e-4)


def test_nothing_beyond_the_matrix_is_read():
    left, right = np.full((1, 33, 40), np.nan), np.zeros((1, 40, 41))
    left[0, 1:] = 1.0
    right[0, :, 0] = 2.0
    got = multiplied(left, right)
    assert np.isnan(got[0, 0]).all()
    np.testing.assert_array_equal(got[0, 1:, 0], 80.0)
    np.testing.assert_array_equal(got[0, 1:, 1:], 0.0)


def test_many_tiny_products_are_left_to_lanes():
    shapes = {
        (1 << 16, 12, 12, 12): False,
        (1 << 16, 12, 12, 17): True,
        (1 << 9, 16, 16, 16): False,
        (1 << 8, 16, 16, 16): True,
    }
    for shape, large in shapes.items():
        assert worthwhile(ProductTask(*shape, False, False, float32, float32)) == large
        assert (in_rectangles(MatmulStep(0, 1, 2, *shape), float32, 256, 48 << 10) is not None) == large


def test_deep_and_short_products_are_left_to_own_kernels():
    shapes = {
        (1, 16, 1 << 20, 16): False,
        (2048, 16, 512, 16): False,
        (1, 128, 1 << 20, 16): True,
        (1, 4096, 8, 4096): False,
        (1, 4096, 40, 4096): True,
        (4096, 32, 32, 32): True,
    }
    for shape, by_library in shapes.items():
        assert worthwhile(ProductTask(*shape, False, False, float32, float32)) == by_library


def test_rectangles_are_chosen_by_shape():
    def sides(m, k, n, dtype=float32, group=256, memory=48 << 10):
        found = in_rectangles(MatmulStep(0, 1, 2, 1, m, k, n), dtype, group, memory)
        return None if found is None else (found.tall, found.broad)

    assert sides(4096, 4096, 4096) == (128, 128)
    assert sides(1024, 64, 1024) == (64, 64)
    assert sides(256, 256, 256) == (16, 16)
    assert sides(4, 4096, 4096) is None
    assert sides(64, 64, 64, int32) is None
    assert sides(4096, 4096, 4096, group=100) is None
    assert sides(4096, 4096, 4096, group=128) == (64, 128)  # broad before tall
    assert sides(32, 4096, 100_000) == (32, 256)
    assert sides(20_000, 4096, 32) == (64, 32)
    assert sides(10, 512, 10_000) == (16, 32)
    assert sides(4096, 4096, 4096, float64, memory=16 << 10) == (64, 128)
    assert sides(4096, 4096, 4096, float64, memory=1 << 10) is None
    for dtype in (float32, float64):
        found = in_rectangles(MatmulStep(0, 1, 2, 1, 512, 512, 512), dtype, 128, 16 << 10)
        assert found.high * found.wide <= MOST_SUMS


@pytest.mark.parametrize("group", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("dtype", [float32, float64])
def test_slabs_and_slices_are_whole(dtype, group):
    """Every invocation loads as many elements of a slab, and every slice has as many terms of it."""
    for k in (8, 10, 33, 100, 5000):
        for m, n in ((100, 60), (128, 1024), (1000, 1000), (5000, 5000)):
            found = in_rectangles(MatmulStep(0, 1, 2, 1, m, k, n), dtype, group, 32 << 10)
            assert found is not None
            assert found.slices * found.threads == group
            assert [side * found.depth % group for side in (found.tall, found.broad)] == [0, 0]
            assert found.depth % found.slices == 0
            assert found.tall * found.broad % group == 0
