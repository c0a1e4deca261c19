"""NumPy's short names for joining, splitting and turning."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import both, check

ROW, MATRIX, BOX = np.arange(5), np.arange(12.0).reshape(3, 4), np.arange(24).reshape(2, 3, 4)


@pytest.mark.parametrize("name", ["atleast_1d", "atleast_2d", "atleast_3d"])
@pytest.mark.parametrize("x", [np.float64(3.0), ROW, MATRIX, BOX], ids=["scalar", "vector", "matrix", "box"])
def test_axes_are_added(name: str, x: np.ndarray) -> None:
    both(name, x)


@pytest.mark.parametrize("name", ["vstack", "hstack", "dstack", "column_stack"])
@pytest.mark.parametrize("parts", [(ROW, ROW * 0.5), (MATRIX, MATRIX)], ids=["vectors", "matrices"])
def test_joining(device: str, name: str, parts: tuple[np.ndarray, ...]) -> None:
    check(getattr(lg, name)([lg.asarray(p) for p in parts]), getattr(np, name)(parts))


def test_blocks(device: str) -> None:
    a, b = lg.asarray(MATRIX), lg.zeros((3, 1))
    check(lg.block([[a, b], [a * 2, b]]), np.block([[MATRIX, np.zeros((3, 1))], [MATRIX * 2, np.zeros((3, 1))]]))
    check(lg.block([1.0, a[0]]), np.block([1.0, MATRIX[0]]))
    for blocks in ([[a], a], [[]], [[a], []]):
        with pytest.raises(lg.ShapeError, match="block"):
            lg.block(blocks)
    both("append", ROW, ROW)
    both("append", MATRIX, MATRIX, axis=1)
    both("kron", ROW, MATRIX)
    both("kron", MATRIX, MATRIX[:2, :2])


def test_splitting() -> None:
    for name, x, at in [("array_split", ROW, 3), ("array_split", ROW, [1, 3]), ("vsplit", MATRIX, 3),
                        ("hsplit", MATRIX, [1, 3]), ("hsplit", ROW, 5), ("dsplit", BOX, 2)]:  # fmt: skip
        for got, expected in zip(getattr(lg, name)(lg.asarray(x), at), getattr(np, name)(x, at), strict=True):
            check(got, expected)
    check(lg.split(ROW, np.array([2]))[1], ROW[2:])
    with pytest.raises(lg.ShapeError, match="vsplit"):
        lg.vsplit(ROW, 1)
    for sections in (0, 2**31):
        with pytest.raises(lg.ShapeError, match="from one section"):
            lg.array_split(ROW, sections)


@pytest.mark.parametrize("k", [-1, 0, 1, 2, 3, 4])
def test_turning(k: int) -> None:
    both("rot90", MATRIX, k=k)
    both("rot90", BOX, k=k, axes=(2, 0))
    with pytest.raises(lg.ShapeError, match="each axis once"):
        lg.rot90(MATRIX, axes=(0, 0))


def test_flips(device: str) -> None:
    both("fliplr", MATRIX)
    both("flipud", MATRIX)


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize("width", [2, (1, 7), ((0, 3), (2, 0))])
def test_padding_repeats_what_is_there(device: str, mode: str, width: object) -> None:
    check(lg.pad(lg.asarray(MATRIX), width, mode=mode), np.pad(MATRIX, width, mode=mode))


def test_padding_refuses() -> None:
    with pytest.raises(ValueError, match=r"constant, empty, linear_ramp, edge, .*, got 'odd'"):
        lg.pad(ROW, 1, mode="odd")
    with pytest.raises(lg.ShapeError, match="elements along axis 0"):
        lg.pad(lg.zeros(0), 1, mode="edge")


def test_repeats_of_their_own(device: str) -> None:
    check(lg.repeat(lg.asarray(ROW), [0, 2, 1, 0, 3]), np.repeat(ROW, [0, 2, 1, 0, 3]))
    check(lg.repeat(lg.asarray(MATRIX), np.array([2, 0, 1]), axis=0), np.repeat(MATRIX, [2, 0, 1], axis=0))
    check(lg.repeat(lg.asarray(ROW), lg.asarray([0, 2, 1, 0, 3])), np.repeat(ROW, [0, 2, 1, 0, 3]))
    check(lg.repeat(lg.asarray(MATRIX), lg.asarray(2, dtype=lg.uint8), axis=1), np.repeat(MATRIX, 2, axis=1))
    for counts in ([1, 2], [1, 1, 1, 1, -1], -1):
        with pytest.raises(lg.ShapeError, match="repeat: expected"):
            lg.repeat(ROW, counts)
    with pytest.raises(lg.DTypeError, match="repeat: expected integers"):
        lg.repeat(ROW, [0.5] * 5)


def test_repeats_while_tracing(device: str) -> None:
    """A length makes counts that depend on data possible: what is missing repeats the last element (as in JAX)."""
    counts = lg.asarray([0, 2, 1, 0, 3])
    row = ROW.astype(np.float64)
    for length in (0, 4, 6, 9):
        wanted = np.concatenate([np.repeat(row, [0, 2, 1, 0, 3]), np.repeat(row[-1:], 9)])[:length]
        repeated = lg.compile(lambda x, c, n=length: lg.repeat(x, c, total_repeat_length=n))
        check(repeated(lg.asarray(row), counts), wanted)
    slope = lg.grad(lambda x: lg.sum(lg.repeat(x, counts, total_repeat_length=6) ** 2))(lg.asarray(row))
    check(slope, 2 * row * [0, 2, 1, 0, 3])
    with pytest.raises(lg.DTypeError, match="total_repeat_length"):
        lg.compile(lambda x, c: lg.repeat(x, c))(lg.asarray(ROW), counts)


def test_column_order(device: str) -> None:
    x = lg.asarray(MATRIX)
    check(x.reshape(2, -1, order="F"), MATRIX.reshape(2, -1, order="F"))
    check(x.ravel("F"), MATRIX.ravel("F"))
    check(x.flatten(order="F"), MATRIX.flatten(order="F"))
    check(lg.asarray(BOX).reshape((4, 6), order="F"), BOX.reshape((4, 6), order="F"))
    with pytest.raises(ValueError, match="order 'C' or 'F', got 'K'"):
        x.ravel("K")


def test_sparse_grids() -> None:
    grids = np.meshgrid(ROW, ROW[:2], sparse=True)
    for got, expected in zip(lg.meshgrid(ROW, ROW[:2], sparse=True), grids, strict=True):
        check(got, expected)
