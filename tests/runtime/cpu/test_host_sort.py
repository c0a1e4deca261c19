"""Sorts of the CPU: the bits of NumPy's stable sort, by other ways and on several threads."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph.primitives import REFERENCE
from loopgrad.runtime.cpu import host_sort

DTYPES = ["bool", "int8", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
SPECIAL = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0, -1.0, 6e-8, -6e-8]


def elements(dtype: str, shape: tuple[int, ...], special: bool) -> np.ndarray:
    rng, kind = np.random.default_rng(0), np.dtype(dtype)
    if kind.kind == "f":
        return rng.choice(np.array(SPECIAL).astype(kind), shape) if special else rng.standard_normal(shape).astype(kind)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max // 2 if special else limits.max, shape, dtype=kind)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (1000,), (7, 33), (300, 400), (3, 1)], ids=str)
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_same_bits(dtype: str, shape: tuple[int, ...], special: bool, threads: int) -> None:
    x = elements(dtype, shape, special)
    assert host_sort.sort(x, threads).tobytes() == np.sort(x, kind="stable").tobytes()
    np.testing.assert_array_equal(host_sort.argsort(x, threads), np.argsort(x, kind="stable"))


def test_equal_elements_with_bits_of_their_own_stay_in_order() -> None:
    nans = np.array([0x7FC00001, 0xFFC00000, 0x7FC00000], np.uint32).view(np.float32)
    for x in (np.array([1.0, -0.0, 0.0, -0.0], np.float32), np.append(nans, np.float32(2))):
        assert host_sort.sort(x, 1).tobytes() == np.sort(x, kind="stable").tobytes()


def test_wide_elements_that_are_alike_in_their_upper_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of their bits count, then their order: few alike, many, all; ranges that fit beside a position, and don't."""
    monkeypatch.setattr(host_sort, "WORTH_PACKING", 2)
    rng = np.random.default_rng(1)
    wide = rng.integers(0, 1 << 64, 3000, dtype=np.uint64)
    few, many = wide.copy(), np.repeat(rng.standard_normal(1500), 2)
    few[::200], few[1::150] = few[0], few[1] ^ np.uint64(1)
    edge = np.full(3000, -1, np.int64)
    edge[7], edge[9] = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    floats = np.append(rng.standard_normal(2900) * 10.0 ** rng.integers(-300, 300, 2900), np.resize(SPECIAL, 100))
    rows = (wide, few, many, edge, floats, np.zeros(3000), rng.integers(-3, 4, 3000), np.arange(3000)[::-1].copy())
    for x in (*rows, np.stack([floats, floats[::-1]]), np.array([2.0, 1.0])):
        np.testing.assert_array_equal(host_sort.argsort(x, 1), np.argsort(x, kind="stable"))


def test_rows_are_divided_among_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    original = host_sort._sorted_rows
    monkeypatch.setattr(host_sort, "_sorted_rows", lambda rows: sizes.append(len(rows)) or original(rows))
    x = elements("float32", (1000, 200), False)
    np.testing.assert_array_equal(host_sort.sort(x, 4), np.sort(x))
    assert sorted(sizes) == [250] * 4
    sizes.clear()
    host_sort.sort(x[:10], 4)
    assert sizes == [10]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("special", [False, True])
def test_the_largest_are_those_that_a_sort_finds(dtype: str, special: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long rows of which few are wanted, rows of few elements, and all of a row; the order of equal elements too."""
    monkeypatch.setattr(host_sort, "TO_LOOK_THROUGH", 1 << 10)
    for shape in [(3, 5000), (2, 3, 700), (40, 33), (4, 1)]:
        x = elements(dtype, shape, special)
        for k in sorted({0, 1, min(7, shape[-1]), min(150, shape[-1]), shape[-1]}):
            (wanted,) = REFERENCE["top_positions"]({"axis": len(shape) - 1, "k": k}, x)
            for threads in (1, 3):
                np.testing.assert_array_equal(host_sort.top_positions(x, k, threads), wanted, f"{shape} {k}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("places", [(0,), (699,), (3, 4), (0, 1, 350, 699), tuple(range(0, 700, 50))], ids=len)
def test_elements_at_some_places(
    dtype: str, special: bool, places: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_sort, "TO_PARTITION", 1 << 10)
    x = elements(dtype, (90, 700), special)
    given = x.copy()
    wanted = np.sort(x, kind="stable")[:, places]
    assert host_sort.select(x, places, 3)[:, places].tobytes() == wanted.tobytes()
    np.testing.assert_array_equal(x, given)
