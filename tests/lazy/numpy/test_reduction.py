"""Reductions and running sums against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import both, check

CUBE = np.array([[[3.0, -1.0, 2.5, 0.0], [1.0, 1.0, -2.0, 7.0], [0.5, 4.0, 4.0, -3.0]]] * 2)
CUBE[1] *= -0.5
AXES = [None, 0, -1, (0, 2), (0, 1, 2), ()]


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "mean", "all", "any", "var", "std", "count_nonzero"])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(device: str, name: str, axis: object, keepdims: bool) -> None:
    both(name, CUBE, axis=axis, keepdims=keepdims)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "min", "max"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "uint64", "float32"])
def test_dtypes_of_reductions(device: str, name: str, dtype: str) -> None:
    both(name, np.array([[1, 0, 1], [1, 1, 0]]).astype(dtype))


@pytest.mark.parametrize("name", ["sum", "prod", "all", "any"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_reductions_of_nothing(device: str, name: str, axis: int | None) -> None:
    both(name, np.zeros((0, 3)), axis=axis)


def test_extremum_of_nothing_is_refused() -> None:
    for name in ("min", "max", "argmin", "argmax"):
        with pytest.raises(ValueError, match="at least one element"):
            getattr(lg, name)(lg.zeros((0,)))
    assert lg.max(lg.zeros((0, 3)), axis=1).shape == (0,)


@pytest.mark.parametrize("name", ["argmin", "argmax"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_positions(device: str, name: str, axis: int | None, keepdims: bool) -> None:
    both(name, CUBE, axis=axis, keepdims=keepdims)


def test_nan_wins(device: str) -> None:
    x = np.array([1.0, np.nan, 3.0])
    for name in ("min", "max", "argmin", "argmax", "sum"):
        both(name, x)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_running(device: str, name: str, axis: int | None) -> None:
    both(name, CUBE, axis=axis)
    both(name, CUBE.astype(np.int32), axis=axis)


def test_running_backwards_and_extrema(device: str) -> None:
    x = lg.asarray(CUBE)
    check(lg.cumsum(x, axis=1, reverse=True), np.flip(np.cumsum(np.flip(CUBE, 1), 1), 1))
    check(lg.cummax(x, axis=2), np.maximum.accumulate(CUBE, 2))
    check(lg.cummin(x, axis=0), np.minimum.accumulate(CUBE, 0))


def test_diff_and_logsumexp(device: str) -> None:
    both("diff", CUBE)
    both("diff", CUBE, n=2, axis=1)
    check(lg.logsumexp(lg.asarray([1000.0, 1000.0])), np.float64(1000 + np.log(2)))
    check(lg.logsumexp(lg.asarray(CUBE), axis=1, keepdims=True), np.log(np.exp(CUBE).sum(1, keepdims=True)))


@pytest.mark.parametrize("correction", [0, 1, 0.5])
def test_variance_correction(device: str, correction: float) -> None:
    check(lg.var(lg.asarray(CUBE), axis=2, correction=correction), np.var(CUBE, axis=2, ddof=correction))  # type: ignore[arg-type]


def test_axis_errors() -> None:
    with pytest.raises(lg.ShapeError, match="axis"):
        lg.sum(lg.ones(3), axis=1)
    with pytest.raises(lg.ShapeError, match="once"):
        lg.sum(lg.ones((3, 3)), axis=(0, -2))
    with pytest.raises(lg.DTypeError):
        lg.sum(lg.ones(3), axis=0.5)


@pytest.mark.parametrize("name", ["max", "min", "nanmax", "nanmin"])
def test_extremes_of_no_bools_are_refused(name):
    for shape, axis in (((0,), None), ((3, 0), 1), ((0, 0), 0)):
        with pytest.raises(lg.ShapeError, match="at least one element"):
            getattr(lg, name)(lg.zeros(shape, dtype=bool), axis=axis)
    assert getattr(lg, name)(lg.zeros((0, 3), dtype=bool), axis=1).shape == (0,)
    assert getattr(lg, name)(lg.zeros(0, dtype=bool), initial=True).tolist() is True
