"""Reshaping, joining and splitting against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import both, check, tensors

CUBE = np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize("shape", [(24,), (4, 6), (-1, 2), (2, -1, 2), (1, 24, 1)])
def test_reshape(device: str, shape: tuple[int, ...]) -> None:
    check(lg.asarray(CUBE).reshape(shape), CUBE.reshape(shape))
    check(lg.asarray(CUBE).reshape(*shape), CUBE.reshape(*shape))


def test_reshape_refuses() -> None:
    for shape in ((5, 5), (-1, -1), (-1, 7)):
        with pytest.raises(lg.ShapeError):
            lg.asarray(CUBE).reshape(shape)


def test_axes(device: str) -> None:
    x = lg.asarray(CUBE)
    check(x.T, CUBE.T)
    check(x.mT, np.swapaxes(CUBE, -1, -2))
    check(x.transpose(1, 0, 2), CUBE.transpose(1, 0, 2))
    check(lg.permute_dims(x, (2, 0, 1)), CUBE.transpose(2, 0, 1))
    check(lg.swapaxes(x, 0, -1), np.swapaxes(CUBE, 0, -1))
    check(lg.moveaxis(x, 0, -1), np.moveaxis(CUBE, 0, -1))
    check(lg.moveaxis(x, (0, 1), (-1, 0)), np.moveaxis(CUBE, (0, 1), (-1, 0)))
    check(lg.expand_dims(x, axis=1), np.expand_dims(CUBE, 1))
    check(lg.expand_dims(x, axis=(0, -1)), np.expand_dims(CUBE, (0, -1)))
    check(lg.squeeze(x[:, :1]), np.squeeze(CUBE[:, :1]))
    check(lg.squeeze(x[:, :1], axis=1), np.squeeze(CUBE[:, :1], 1))
    check(x.ravel(), CUBE.ravel())
    with pytest.raises(lg.ShapeError):
        lg.squeeze(x, axis=0)
    with pytest.raises(lg.ShapeError):
        lg.permute_dims(x, (0, 0, 1))


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2)])
def test_flip(device: str, axis: object) -> None:
    both("flip", CUBE, axis=axis)


@pytest.mark.parametrize(("shift", "axis"), [(1, None), (-2, 1), (5, 2), ((1, -1), (0, 2)), (0, 0), (3, 0)])
def test_roll(device: str, shift: object, axis: object) -> None:
    check(lg.roll(lg.asarray(CUBE), shift, axis=axis), np.roll(CUBE, shift, axis=axis))  # type: ignore[arg-type]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_joining(device: str, axis: int) -> None:
    parts = [CUBE, CUBE * 2, CUBE.astype(np.int64)]
    check(lg.concat(tensors(*parts), axis=axis), np.concatenate(parts, axis=axis))
    check(lg.stack(tensors(*parts), axis=axis), np.stack(parts, axis=axis))


def test_joining_scalars_and_everything(device: str) -> None:
    check(lg.stack([1.0, lg.asarray(2.0), 3]), [1.0, 2.0, 3.0])
    check(lg.concat(tensors(CUBE, CUBE[0]), axis=None), np.concatenate([CUBE, CUBE[0]], axis=None))
    check(lg.concatenate([lg.ones(2, dtype=lg.float32), lg.zeros(0, dtype=lg.float32)]), np.ones(2, np.float32))
    with pytest.raises(lg.ShapeError, match="stack"):
        lg.concat([lg.asarray(1.0), lg.asarray(2.0)])
    with pytest.raises(lg.ShapeError):
        lg.stack([lg.ones(2), lg.ones(3)])
    with pytest.raises(lg.ShapeError):
        lg.concat([])


@pytest.mark.parametrize(("cut", "axis"), [(2, 0), (3, 1), ([1, 3], 2), ([2], 2), ([0, 9], 2)])
def test_split(device: str, cut: object, axis: int) -> None:
    for got, expected in zip(lg.split(lg.asarray(CUBE), cut, axis=axis), np.split(CUBE, cut, axis=axis), strict=True):  # type: ignore[arg-type, call-overload]
        check(got, expected)
    with pytest.raises(lg.ShapeError):
        lg.split(lg.asarray(CUBE), 5, axis=2)


def test_unstack(device: str) -> None:
    for got, expected in zip(lg.unstack(lg.asarray(CUBE), axis=1), np.moveaxis(CUBE, 1, 0), strict=True):
        check(got, expected)


def test_repetition(device: str) -> None:
    x = lg.asarray(CUBE)
    check(lg.repeat(x, 2), np.repeat(CUBE, 2))
    check(lg.repeat(x, 3, axis=1), np.repeat(CUBE, 3, axis=1))
    check(lg.tile(x, 2), np.tile(CUBE, 2))
    check(lg.tile(x, (2, 1, 3, 1)), np.tile(CUBE, (2, 1, 3, 1)))
    check(lg.broadcast_to(x[0, 0], (5, 4)), np.broadcast_to(CUBE[0, 0], (5, 4)))
    with pytest.raises(lg.ShapeError):
        lg.broadcast_to(x, (2, 3))
    for got, expected in zip(lg.broadcast_arrays(x, lg.ones(4)), np.broadcast_arrays(CUBE, np.ones(4)), strict=True):
        check(got, expected)
    assert lg.broadcast_shapes((2, 1), (3,)) == (2, 3)


@pytest.mark.parametrize(
    ("window", "axis"), [((2, 1, 3), None), (0, 0), (3, -2), ((2, 2), (2, 0)), ((2, 3), (2, 2)), ((2, 3, 4), None)]
)
def test_sliding_windows(device: str, window: Any, axis: Any) -> None:
    """NumPy's, its function of tensors, and their derivative."""
    places = np.lib.stride_tricks.sliding_window_view(np.arange(CUBE.size).reshape(CUBE.shape), window, axis)
    windows = np.lib.stride_tricks.sliding_window_view(lg.asarray(CUBE), window, axis=axis)
    assert isinstance(windows, lg.Tensor)
    check(windows, CUBE.ravel()[places])
    weights = np.random.default_rng(2).standard_normal(places.shape)
    expected = np.zeros(CUBE.size)
    np.add.at(expected, places, weights)
    slope = lg.grad(lambda x: lg.sum(lg.sliding_window_view(x, window, axis) * weights))(lg.asarray(CUBE))
    check(slope, expected.reshape(CUBE.shape))
    for bad in ((4, 5), ((2, 2), 0), (-1, 0)):
        with pytest.raises(lg.ShapeError):
            lg.sliding_window_view(lg.asarray(CUBE), *bad)


@pytest.mark.parametrize("width", [1, (0, 2), [(1, 0), (0, 0), (2, 3)]])
def test_pad(device: str, width: object) -> None:
    check(lg.pad(lg.asarray(CUBE), width, constant_values=9), np.pad(CUBE, width, constant_values=9))  # type: ignore[arg-type, call-overload]


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_meshgrid(device: str, indexing: str) -> None:
    parts = [np.arange(2.0), np.arange(3.0), np.arange(4.0)]
    expected = np.meshgrid(*parts, indexing=indexing)  # type: ignore[call-overload]
    for got, e in zip(lg.meshgrid(*tensors(*parts), indexing=indexing), expected, strict=True):
        check(got, e)


@pytest.mark.parametrize("k", [-2, -1, 0, 1, 3])
def test_triangles(device: str, k: int) -> None:
    both("tril", CUBE, k=k)
    both("triu", CUBE, k=k)
