"""`x[index]` against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
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
]  # fmt: skip


def as_index(index: Any) -> Any:
    """The same index with tensors for arrays."""
    if isinstance(index, tuple):
        return tuple(as_index(i) for i in index)
    return lg.asarray(index) if isinstance(index, np.ndarray) else index


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
    for index in (1.0, True, "a", lg.asarray([0.5])):
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
