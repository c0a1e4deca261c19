"""`x[index]` against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.build import trace
from loopgrad.graph.types import TensorType, float64
from loopgrad.lazy.tensor.core import wrap
from tests.lazy.oracle import check

CUBE = np.arange(60.0).reshape(3, 4, 5)
I = np.array([2, 0, -1])  # noqa: E741 - an index array, as in the tables below
J = np.array([[0, 3], [1, -4]])
MASK = CUBE[:, 0, 0] > 10

INDICES: list[Any] = [
    0, -1, (1, 2), (1, 2, 3), slice(1, 3), slice(None, None, -1), slice(3, 0, -2), slice(5, 1), slice(-2, None),
    (slice(None), slice(1, None, 2)), (..., 0), (0, ..., slice(None, None, -2)), None, (None, 0, None), ..., (),
    (slice(None), None, 1), I, J % 3, (slice(None), J), (I, I), (I, slice(None), I), (slice(None), I, I),
    (J % 3, I[:2]), (I, 1), (1, I), (1, slice(None), I), (0, I, slice(1, 3)),
    (slice(None, None, 2), J, slice(None, None, -1)), (None, I), (I, None, I), (I, ..., None), [0, 2],
    np.int64(1), np.array(2), (np.array(1), slice(None), np.array(2)),
    (slice(0, 2), [1, 3], None, 2), np.zeros((0,), int), (slice(0, 0), I), MASK, CUBE > 20,
    (slice(None), CUBE[0, :, 0] > 5),
    (I, slice(1, 4)), (slice(1, None), slice(None), J), (None, slice(None), I, None, 0),
    # dots of no axes stand between indices all the same
    (slice(None), I, ..., I), (0, slice(None), ..., I), (slice(None), ..., I, I), (slice(None), I, I, ...),
    (slice(None), 0, ..., J), (slice(None), slice(None), ..., 2), (None, slice(None), I, ..., None, I),
]  # fmt: skip


def as_index(index: Any) -> Any:
    """The same index with tensors for arrays."""
    if isinstance(index, tuple):
        return tuple(as_index(i) for i in index)
    return lg.asarray(index) if isinstance(index, np.ndarray) else index


@pytest.mark.in_turns
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_get_item(device: str, index: Any) -> None:
    check(lg.asarray(CUBE)[index], CUBE[index])
    check(lg.asarray(CUBE)[as_index(index)], CUBE[index])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_index_dtypes(device: str, dtype: str) -> None:
    index = np.array([1, 100, 127], dtype)
    table = np.arange(1000.0)
    check(lg.asarray(table)[lg.asarray(index)], table[index])
    if dtype.startswith("i"):
        check(lg.asarray(table)[lg.asarray(-index)], table[-index.astype(int)])


def test_data_out_of_range_is_clamped(device: str) -> None:
    x = lg.arange(5.0)
    assert x[lg.asarray([7, -9, 4, -5])].tolist() == [4, 0, 4, 0]


def test_python_ints_out_of_range_raise() -> None:
    x = lg.ones((2, 3))
    for index in (2, -3, (0, 3), (slice(None), 5)):
        with pytest.raises(lg.IndexRangeError, match="expected an index from"):
            x[index]
    with pytest.raises(IndexError):
        x[0, 0, 0]
    with pytest.raises(IndexError):
        x[..., ...]
    with pytest.raises(IndexError):
        lg.ones((0, 2))[0]


def test_what_is_no_index() -> None:
    x = lg.ones(3)
    for index in (1.0, "a", lg.asarray([0.5])):
        with pytest.raises(lg.DTypeError):
            x[index]


def test_masks_are_refused_while_tracing() -> None:
    def body(i: Any, v: Any) -> Any:
        return v[v > 0].sum() + v

    with pytest.raises(lg.DTypeError, match=r"depends on data(.|\n)*test_indexing.py"):
        lg.fori_loop(0, 3, body, lg.ones(3))


def test_traced_slice_bounds_are_refused() -> None:
    with pytest.raises(lg.DTypeError, match="arange"):
        lg.fori_loop(0, 3, lambda i, v: v[i:], lg.ones(3))


def test_take(device: str) -> None:
    x = lg.asarray(CUBE)
    check(lg.take(x, lg.asarray(I), axis=1), np.take(CUBE, I, axis=1))
    check(lg.take(x, lg.asarray(J)), np.take(CUBE, J))
    check(x.take(lg.asarray(I), axis=0), CUBE.take(I, axis=0))
    order = np.argsort(-CUBE, axis=1)
    check(lg.take_along_axis(x, lg.asarray(order), axis=1), np.take_along_axis(CUBE, order, axis=1))
    check(lg.take_along_axis(x, lg.asarray(order[:1]), axis=1), np.take_along_axis(CUBE, order[:1], axis=1))


def test_nonzero(device: str) -> None:
    for got, expected in zip(lg.nonzero(lg.asarray(CUBE) > 20), np.nonzero(CUBE > 20), strict=True):
        check(got, expected)


def test_counters_and_iotas_are_not_wrapped() -> None:
    """Indices that can't be negative reach the gather as they are."""
    table = lg.arange(10.0)
    assert "select" not in lg.to_text(table[lg.arange(5) * 2])
    assert "select" not in lg.to_text(lg.fori_loop(0, 3, lambda i, v: v + table[i + 1], 0.0))
    assert "select" in lg.to_text(table[lg.arange(5) - 1])


WRAPPED: list[Callable[[Any], Any]] = [
    lambda k: k + k,
    lambda k: k * k,
    lambda k: k * 3 + k,
    lambda k: (k + k) // 3,
    lambda k: (k + k) // 2 + (k + k) // 2,
    lambda k: (k + k).astype("int64"),
    lambda k: (k.astype("uint8") + 100).astype("int8"),
    lambda k: (k.astype("int64") * 3000).astype("int8"),
    lambda k: (k << 1) >> 1,
    lambda k: (k * k) % 7 - 3,
    lambda k: abs(k - 100 - 28),
    lambda k: -k,
    lambda k: ~k,
    lambda k: k - 3,
]


@pytest.mark.in_turns
@pytest.mark.parametrize("i", range(len(WRAPPED)))
def test_indices_that_wrap_are_negative(device: str, i: int) -> None:
    table = np.arange(300.0)
    index = WRAPPED[i](np.arange(100, dtype=np.int8))
    wrapped = WRAPPED[i](lg.arange(100, dtype=lg.int8))
    check(lg.asarray(table)[wrapped], table[index])
    added = np.zeros(300)
    np.add.at(added, index, np.arange(100.0))
    check(lg.zeros(300).at[wrapped].add(np.arange(100.0)), added)
    check(lg.grad(lambda x: lg.sum(x[wrapped] * np.arange(100.0)))(lg.asarray(table)), added)


def test_a_sum_that_wraps_is_negative(device: str) -> None:
    rows = np.arange(120, dtype=np.int8).reshape(12, 10)
    index = lg.sum(lg.arange(120, dtype=lg.int8).reshape(12, 10), axis=1, dtype=lg.int8)
    check(lg.arange(300.0)[index], np.arange(300.0)[rows.sum(axis=1, dtype=np.int8)])


def test_hashed_counters(device: str) -> None:
    """Products that wrap int64, in a loop as well."""
    factor, table = 0x9E3779B97F4A7C1, np.arange(300.0)
    hashes = np.arange(1000) * np.int64(factor)
    check(lg.asarray(table)[lg.fmod(lg.arange(1000) * factor, 300)], table[np.fmod(hashes, 300)])
    looked_up = lg.fori_loop(0, 50, lambda k, s: s + lg.asarray(table)[(k * factor) >> 56], lg.asarray(0.0))
    assert float(looked_up) == table[hashes[:50] >> 56].sum()


def selections(function: Callable[[Any], Any]) -> int:
    """How many selects a program over a table of 50 takes: one for each index that may be negative."""
    graph, _ = trace(lambda v: (function(wrap(v))._value,), [TensorType((50,), float64)])
    nested = [graph]
    for g in nested:
        nested += [r for n in g.nodes for r in n.regions]
    return sum(n.op == "select" for g in nested for n in g.nodes)


@pytest.mark.parametrize(
    "index",
    [
        lambda: lg.arange(50),
        lambda: lg.arange(7)[:, None] * 7 + lg.arange(7),
        lambda: lg.clip(lg.arange(9) - 4, 0, 8),
        lambda: (lg.arange(9) - 4) % 9,
        lambda: (lg.arange(9, dtype=lg.int32) * 1103515245 + 12345) & 31,
        lambda: lg.maximum(lg.arange(9) - 4, 0) // 2,
        lambda: lg.minimum(lg.arange(9) << 2, 49) >> 1,
        lambda: lg.sum(lg.arange(9).reshape(3, 3), axis=0),
        lambda: lg.argsort(lg.arange(9.0)) + 3,
    ],
)
def test_no_select_where_an_index_cannot_be_negative(index: Callable[[], Any]) -> None:
    assert selections(lambda x: x[index()]) == 0


def test_no_select_for_the_counter_of_a_loop() -> None:
    add = lambda x, first, last, at: lg.fori_loop(first, last, lambda k, s: s + x[at(k)], lg.asarray(0.0))  # noqa: E731
    for last in (50, lg.asarray(50)):
        assert selections(lambda x, n=last: add(x, 0, n, lambda k: k)) == 0
        assert selections(lambda x, n=last: add(x, 0, n, lambda k: k + 3)) == 0
        assert selections(lambda x, n=last: lg.fori_loop(0, n, lambda k, s: s.at[k + 1].set(0.0), x)) == 0
    assert selections(lambda x: add(x, 2, 50, lambda k: k - 2)) == 0
    assert selections(lambda x: add(x, 2, 50, lambda k: k - 3)) == 1
    assert selections(lambda x: add(x, -1, 50, lambda k: k)) == 1
    assert selections(lambda x: lg.scan(lambda s, v: (s + v, s), 0.0, x)[1]) == 0


def test_unsigned_indices_beyond_int64_are_out_of_range(device: str) -> None:
    huge = lg.asarray(np.array([2**64 - 1, 1], np.uint64))
    x = lg.arange(12.0).reshape(3, 4)
    assert x[huge, 0].tolist() == [8, 4]
    assert x[huge, lg.asarray([0, 1])].tolist() == [8, 5]


def test_writing_where_dots_of_no_axes_part_indices(device: str) -> None:
    expected, rows = CUBE.copy(), np.array([[-1.0], [-2.0], [-3.0]])
    expected[:, I, ..., I] = rows
    check(lg.asarray(CUBE).at[:, lg.asarray(I), ..., I].set(rows), expected)
