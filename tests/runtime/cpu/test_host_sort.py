"""Sorts of the CPU: the bits of NumPy's stable sort, by other ways and on several threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from loopgrad.graph.primitives import REFERENCE
from loopgrad.runtime.cpu import host_sort
from loopgrad.runtime.cpu.native_pool import NativePool
from loopgrad.runtime.devices import get_device

DTYPES = ["bool", "int8", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
SPECIAL = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0, -1.0, 6e-8, -6e-8]


@pytest.fixture(params=[1, 3])
def pool(request: pytest.FixtureRequest) -> Iterator[NativePool]:
    """The process's, with so many threads."""
    pool = get_device("cpu").pool()
    usual = pool.threads
    pool.set_threads(request.param)
    yield pool
    pool.set_threads(usual)


@pytest.fixture
def by_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows, in parts of few elements."""
    for table in ("BY_DIGITS", "POSITIONS_BY_DIGITS"):
        monkeypatch.setattr(host_sort, table, dict.fromkeys((1, 2, 4, 8), 1))
    monkeypatch.setattr(host_sort, "WORTH_A_PART", 100)


def elements(dtype: str, shape: tuple[int, ...], special: bool) -> np.ndarray:
    rng, kind = np.random.default_rng(0), np.dtype(dtype)
    if kind.kind == "f":
        return rng.choice(np.array(SPECIAL).astype(kind), shape) if special else rng.standard_normal(shape).astype(kind)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max // 2 if special else limits.max, shape, dtype=kind)


def check_sorts(x: np.ndarray, pool: NativePool) -> None:
    given, values, order = x.copy(), np.empty_like(x), np.empty(x.shape, np.int64)
    host_sort.sort(x, values, pool)
    host_sort.argsort(x, order, pool)
    assert values.tobytes() == np.sort(x, kind="stable").tobytes()
    np.testing.assert_array_equal(order, np.argsort(x, kind="stable"))
    assert x.tobytes() == given.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (1000,), (7, 33), (300, 400), (3, 1), (5, 3000)], ids=str)
@pytest.mark.parametrize("special", [False, True])
def test_same_bits(dtype: str, shape: tuple[int, ...], special: bool, pool: NativePool) -> None:
    check_sorts(elements(dtype, shape, special), pool)


@pytest.mark.usefixtures("by_digits")
@pytest.mark.parametrize("dtype", DTYPES)
def test_same_bits_by_digits(dtype: str, pool: NativePool) -> None:
    """Short rows, long ones in parts; digits that all elements share are passed over, of one to all of them."""
    for shape in [(1,), (7,), (2, 1001), (9, 50)]:
        for special in (False, True):
            check_sorts(elements(dtype, shape, special), pool)
    check_sorts(np.zeros(400, dtype), pool)
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    if dtype != "bool":
        for first in range(0, 8 * bits.itemsize, 8):
            mask = bits.type(255 << first & (1 << 8 * bits.itemsize) - 1)
            check_sorts((elements(bits.name, (500,), False) & mask).view(dtype), pool)


def test_equal_elements_with_bits_of_their_own_stay_in_order(pool: NativePool) -> None:
    nans = np.array([0x7FC00001, 0xFFC00000, 0x7FC00000], np.uint32).view(np.float32)
    for x in (np.array([1.0, -0.0, 0.0, -0.0], np.float32), np.append(nans, np.float32(2))):
        check_sorts(x, pool)
        check_sorts(np.tile(x, 1000), pool)


def test_rows_are_divided_among_threads(monkeypatch: pytest.MonkeyPatch, pool: NativePool) -> None:
    sizes: list[int] = []
    original = host_sort._sorted_rows
    monkeypatch.setattr(host_sort, "_sorted_rows", lambda rows, to: sizes.append(len(rows)) or original(rows, to))
    x = elements("float32", (1200, 200), False)
    check_sorts(x, pool)
    assert sorted(sizes) == [1200 // pool.threads] * pool.threads
    sizes.clear()
    check_sorts(x[:10], pool)
    assert sizes == [10]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("special", [False, True])
def test_the_largest_are_those_that_a_sort_finds(
    dtype: str, special: bool, monkeypatch: pytest.MonkeyPatch, pool: NativePool
) -> None:
    """Long rows of which few are wanted, rows of few elements, and all of a row; the order of equal elements too."""
    for name in ("TO_LOOK_THROUGH", "TO_LOOK_AT"):
        monkeypatch.setattr(host_sort, name, 1 << 10)
    for shape in [(3, 5000), (2, 3, 700), (40, 33), (4, 1)]:
        x = elements(dtype, shape, special)
        for k in sorted({0, 1, min(7, shape[-1]), min(9, shape[-1]), min(150, shape[-1]), shape[-1]}):
            (wanted,) = REFERENCE["top_positions"]({"axis": len(shape) - 1, "k": k}, x)
            found = np.empty((*shape[:-1], k), np.int64)
            host_sort.top_positions(x, found, pool)
            np.testing.assert_array_equal(found, wanted, f"{shape} {k}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("places", [(0,), (699,), (3, 4), (0, 1, 350, 699), tuple(range(0, 700, 50))], ids=len)
def test_elements_at_some_places(
    dtype: str, special: bool, places: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, pool: NativePool
) -> None:
    """Of sorted rows, and of those of which a sample is sorted."""
    monkeypatch.setattr(host_sort, "TO_LOOK_THROUGH", 1 << 10)
    x = elements(dtype, (90, 700), special)
    for to_sample in (701, 700):
        monkeypatch.setattr(host_sort, "TO_SAMPLE", to_sample)
        check_places(x, places, pool)


def check_places(x: np.ndarray, places: tuple[int, ...], pool: NativePool) -> None:
    given, found = x.copy(), np.full_like(x, 77)
    host_sort.select(x, places, found, pool)
    assert found[:, places].tobytes() == np.sort(x, kind="stable")[:, places].tobytes()
    np.testing.assert_array_equal(x, given)


def test_long_rows_are_looked_through_but_not_sorted(monkeypatch: pytest.MonkeyPatch, pool: NativePool) -> None:
    """However many elements are equal, and whether or not a row is in order; unless the sample says nothing of it."""
    n = 40_000
    numbers = np.random.default_rng(1).standard_normal(n)
    rows = [
        numbers,
        np.sort(numbers),
        np.maximum(numbers, 0.0),
        np.trunc(abs(numbers)),
        np.zeros(n),
        -np.arange(n) // 3.0,
    ]
    sorted_rows: list[int] = []
    original = host_sort._sorted_rows
    monkeypatch.setattr(host_sort, "_sorted_rows", lambda x, to: sorted_rows.append(len(x)) or original(x, to))
    for row in rows:
        check_places(row[None], (0, n // 2 - 1, n // 2, n - 1), pool)
    assert not sorted_rows
    step = max(n // host_sort.SAMPLE, host_sort.SPARSE) | 1
    misleading = np.where(np.arange(n) % step == 0, numbers + 10.0, numbers)
    for row in (misleading, np.where(numbers > 0.0, np.nan, numbers), np.where(numbers > 0.0, 0.0, -0.0)):
        sorted_rows.clear()
        check_places(row[None], (n // 2,), pool)
        assert sorted_rows
