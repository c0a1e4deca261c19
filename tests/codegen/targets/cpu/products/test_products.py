"""Products of matrices against NumPy's in float64: every edge of a tile, every layout, the same bits on any threads."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loopgrad.codegen.program import MatmulStep
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.llvm import compile_module
from loopgrad.codegen.targets.cpu.products.products_interface import (
    DEEP,
    DEPTH,
    EXPORTS,
    EXPORTS_FOR_FEW,
    FEW_THREADS,
    SHAPE,
    shape_words,
)
from loopgrad.codegen.targets.cpu.products.products_module import products_ir
from loopgrad.runtime.cpu.loader import Code
from loopgrad.runtime.devices import get_device

MACHINES = {"host": {}, "256 bits": {"vector_bits": 256, "registers": 16}, "128": {"vector_bits": 128, "registers": 32},
            "64": {"vector_bits": 64, "registers": 16}}  # fmt: skip
SHAPES = [
    (1, 1, 1, 1), (1, 8, 3, 32), (1, 7, 5, 33), (3, 9, 17, 31), (1, 100, DEPTH + 1, 70), (1, 193, 11, 513),
    (2, 50, 2 * DEPTH + 3, 17), (5, 1, 40, 1), (1, 1, 300, 200), (1, 200, 300, 1), (40, 32, 32, 32),
    (40, 16, 16, 16), (7, 9, 31, 30), (3, 29, 8, 17), (2, 48, 37, 41),
    (3, 7, 79, 1100), (2, 1100, 66, 3), (1, 2, DEEP + 77, 5), (1, 7, 3, 7), (1, 5000, 9, 2),
    (1, 5, DEPTH + 30, 14), (2, 600, DEPTH + 9, 13), (1, 11, 530, 2100), (1, 2100, 20, 5), (1, 1, 600, 6),
    (1, 2100, 17, 1), (3, 70, 24, 1), (2, 1, 31, 90),
]  # fmt: skip
EMPTY = [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 4, 0), (2, 3, 0, 5)]


class Native:
    """The module's functions for a machine, on the threads of the process's pool."""

    def __init__(self, **changes: Any) -> None:
        machine = replace(host_machine(), **changes)
        symbols = (*EXPORTS.values(), *EXPORTS_FOR_FEW.values())
        self.code = Code(compile_module(products_ir(machine), machine), symbols)
        self.exports = EXPORTS
        self.pool = get_device("cpu").pool()
        self.heap = (ctypes.c_int64 * 2)()

    def __call__(self, left: np.ndarray, right: np.ndarray, flips: tuple[bool, bool], **words: int) -> np.ndarray:
        batch, m, k = left.shape
        n = right.shape[2]
        stored = [np.ascontiguousarray(a.swapaxes(1, 2) if f else a) for a, f in zip((left, right), flips, strict=True)]
        shape = dict(zip(SHAPE, shape_words(MatmulStep(0, 1, 2, batch, m, k, n, *flips)), strict=True)) | words
        out = np.full((batch, m, n), np.nan, left.dtype)
        types = [ctypes.c_void_p] * 6
        function = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(self.code.address(self.exports[left.dtype.name]))
        given = (ctypes.c_int64 * len(shape))(*shape.values())
        arrays = [a.ctypes.data for a in (*stored, out)]
        assert function(self.pool.run, ctypes.addressof(self.heap), *arrays, ctypes.addressof(given)) == 0
        return out


@pytest.fixture(scope="module", params=MACHINES)
def native(request: pytest.FixtureRequest) -> Native:
    return Native(**MACHINES[request.param])


@pytest.fixture(scope="module")
def host() -> Native:
    return Native()


def factors(batch: int, m: int, k: int, n: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(m + k + n)
    return generator.normal(size=(batch, m, k)).astype(dtype), generator.normal(size=(batch, k, n)).astype(dtype)


@pytest.mark.parametrize("dtype", EXPORTS)
@pytest.mark.parametrize("shape", [*SHAPES, *EMPTY])
@pytest.mark.parametrize("flips", [(False, False), (True, False), (False, True), (True, True)])
def test_against_numpy(native: Native, shape: tuple[int, int, int, int], dtype: str, flips: tuple[bool, bool]) -> None:
    left, right = factors(*shape, dtype)
    want = left.astype(np.float64) @ right.astype(np.float64)
    bound = np.abs(left).astype(np.float64) @ np.abs(right).astype(np.float64)
    got = native(left, right, flips)
    assert np.all(np.abs(got - want) <= 4 * np.sqrt(shape[2] + 1) * np.finfo(dtype).eps * bound)


def test_what_is_not_finite_stays_in_its_rows_and_columns(host: Native) -> None:
    left, right = factors(1, 20, DEPTH + 40, 70, "float32")
    left[0, 3, 5], right[0, 7, 69] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        want = left.astype(np.float64) @ right.astype(np.float64)
    got = host(left, right, (False, False))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isposinf(got), np.isposinf(want))
    assert np.isfinite(got[0, :3, :69]).all()


@pytest.mark.parametrize("dtype", EXPORTS)
def test_rows_by_a_vector_read_nothing_beyond_their_ends(host: Native, dtype: str) -> None:
    """The last vector of a row of 21 terms reaches into the next row, whose numbers are not finite."""
    left, right = factors(1, 77, 21, 1, dtype)
    left[0, 1::2] = np.nan
    left[0, 3::4] = np.inf
    want = left[0, ::2].astype(np.float64) @ right[0, :, 0].astype(np.float64)
    np.testing.assert_allclose(host(left, right, (False, False))[0, ::2, 0], want, rtol=1e-4, atol=1e-5)


def test_by_one_vector_sums_are_by_vectors_of_terms() -> None:
    words = dict(zip(SHAPE, shape_words(MatmulStep(0, 1, 2, 1, 16384, 24, 1)), strict=True))
    assert (words["narrow"], words["small"]) == (1, 0)


@pytest.mark.parametrize("dtype", EXPORTS)
def test_neither_tiles_nor_threads_change_a_bit(host: Native, dtype: str) -> None:
    left, right = factors(2, 210, DEPTH + 77, 530, dtype)
    usual, threads = host(left, right, (False, True)), host.pool.threads
    for tile in ((48, 64), (192, 512), (8, 32), (96, 512)):
        got = host(left, right, (False, True), tile_m=tile[0], tile_n=tile[1])
        np.testing.assert_array_equal(got, usual)
    try:
        for count in (1, 3):
            host.pool.set_threads(count)
            np.testing.assert_array_equal(host(left, right, (True, False)), usual)
            host.exports = EXPORTS_FOR_FEW
    finally:
        host.pool.set_threads(threads)
        host.exports = EXPORTS


@pytest.mark.parametrize("flips", [(False, False), (False, True)])
def test_nor_do_parts_of_a_narrow_product(host: Native, flips: tuple[bool, bool]) -> None:
    left, right = factors(2, 3, 500, 700, "float32")
    usual = host(left, right, flips)
    for part in (16, 100, 4096):
        np.testing.assert_array_equal(host(left, right, flips, tile_m=part), usual)
    same = host(right.swapaxes(1, 2).copy(), left.swapaxes(1, 2).copy(), (not flips[1], not flips[0]))
    np.testing.assert_array_equal(same.swapaxes(1, 2), usual)


@pytest.mark.parametrize("shape", [(2, 40, 2 * DEPTH + 77, 12), (1, 12, DEPTH + 5, 600), (1, 3, DEPTH + 5, 600)])
def test_what_is_not_packed_is_added_up_in_the_order_of_tiles(host: Native, shape: tuple[int, int, int, int]) -> None:
    left, right = factors(*shape, "float32")
    packed = host(left, right, (False, False), narrow=0, small=0, tile_m=48, tile_n=64)
    for part in (8, 24, 128):
        np.testing.assert_array_equal(host(left, right, (False, False), tile_m=part), packed)


def test_sums_of_many_terms_are_sums_of_sums(host: Native) -> None:
    terms = np.random.default_rng(3).random((1, 600, 1 << 14), "float32")
    for rows, others in ((600, 2), (5, 5)):
        left, right = terms[:, :rows], terms[:, :others].swapaxes(1, 2)
        want = left.astype(np.float64) @ right.astype(np.float64)
        np.testing.assert_allclose(host(left, right, (True, False)), want, rtol=5e-7)


@pytest.mark.parametrize(
    "shape", [(1, 2048, 2048, 2048), (1, 128, 256, 1024), (1, 256, 4096, 1024), (1, 10**6, 16, 16), (64, 256, 64, 256)]
)
def test_tiles_are_many_but_none_is_all_packing(shape: tuple[int, int, int, int]) -> None:
    words = dict(zip(SHAPE, shape_words(MatmulStep(0, 1, 2, *shape)), strict=True))
    batch, m, k, n = shape
    for name, threads in (("tile", 16), ("few", FEW_THREADS)):
        rows, columns = words[f"{name}_m"], words[f"{name}_n"]
        assert batch * -(-m // rows) * -(-n // columns) >= threads
        assert min(rows, m) * min(columns, n) * k >= 1 << 14
        assert min(rows, m) >= 64
    few, many = (words[f"{name}_m"] * words[f"{name}_n"] for name in ("few", "tile"))
    assert few >= many


def test_a_tile_is_not_cut_where_most_of_the_second_would_be_empty() -> None:
    words = dict(zip(SHAPE, shape_words(MatmulStep(0, 1, 2, 1, 200, 256, 540)), strict=True))
    assert words["few_m"] in (104, 200)
    assert words["few_n"] in (288, 544, 192)
