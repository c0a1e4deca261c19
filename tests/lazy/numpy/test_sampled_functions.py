"""Functions given by samples, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import both, check

POINTS, VALUES = np.array([0.0, 1.0, 1.5, 4.0]), np.array([1.0, 3.0, -2.0, 0.5])
SIGNAL, KERNEL = np.array([1.0, -2.0, 0.5, 4.0, 3.0]), np.array([0.5, 1.0, -1.0, 2.0])


def test_interpolation(device: str) -> None:
    x = np.array([[-1.0, 0.0, 0.3], [1.0, 1.25, 1.5], [3.9, 4.0, 7.0]])
    both("interp", x, POINTS, VALUES)
    check(lg.interp(x, POINTS, VALUES, left=-9.0, right=9.0), np.interp(x, POINTS, VALUES, left=-9.0, right=9.0))
    both("interp", x, POINTS[:1], VALUES[:1])
    slope = lg.grad(lambda v: lg.sum(lg.interp(lg.asarray([0.25, 9.0]), POINTS, v)))(lg.asarray(VALUES))
    assert slope.tolist() == [0.75, 0.25, 0.0, 1.0]
    with pytest.raises(lg.ShapeError, match="as many points as values"):
        lg.interp(0.5, POINTS, VALUES[1:])


def test_integrals_and_slopes(device: str) -> None:
    both("trapezoid", VALUES)
    both("trapezoid", VALUES, POINTS)
    rows = np.arange(12.0).reshape(3, 4) ** 2
    check(lg.trapezoid(rows, dx=0.5, axis=0), np.trapezoid(rows, dx=0.5, axis=0))
    both("gradient", SIGNAL)
    check(lg.gradient(SIGNAL, 0.25), np.gradient(SIGNAL, 0.25))
    check(lg.gradient(rows, axis=0), np.gradient(rows, axis=0))
    for got, expected in zip(lg.gradient(rows), np.gradient(rows), strict=True):
        check(got, expected)
    with pytest.raises(lg.ShapeError, match="one spacing"):
        lg.gradient(SIGNAL, 1.0, 2.0)
    with pytest.raises(lg.ShapeError, match="at least 2 elements"):
        lg.gradient([1.0])


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolutions(device: str, mode: str) -> None:
    for a, b in ((SIGNAL, KERNEL), (KERNEL, SIGNAL), (SIGNAL, KERNEL[:1]), (np.arange(5), np.arange(3))):
        both("convolve", a, b, mode=mode)
        both("correlate", a, b, mode=mode)


def test_convolutions_refuse() -> None:
    with pytest.raises(ValueError, match="mode"):
        lg.convolve(SIGNAL, KERNEL, "circular")
    with pytest.raises(lg.ShapeError, match="vector"):
        lg.convolve(np.ones((2, 2)), KERNEL)


def test_polynomials(device: str) -> None:
    both("polyval", np.array([1, 2, 3]), SIGNAL)
    both("vander", SIGNAL)
    both("vander", np.arange(4), increasing=True)
    check(lg.vander(SIGNAL, 3), np.vander(SIGNAL, 3))
    for columns in (-1, 2**31):
        with pytest.raises(lg.ShapeError, match="columns"):
            lg.vander(SIGNAL, columns)


def test_grids(device: str) -> None:
    check(lg.logspace(0.0, 3.0, 4), np.logspace(0.0, 3.0, 4))
    check(lg.geomspace(1.0, 1000.0, 4), np.geomspace(1.0, 1000.0, 4))
    check(lg.geomspace(-1.0, -64.0, 4, endpoint=False), np.geomspace(-1.0, -64.0, 4, endpoint=False))
    check(lg.indices((2, 3)), np.indices((2, 3)))
    check(lg.fromfunction(lambda i, j: i - j, (2, 3)), np.fromfunction(lambda i, j: i - j, (2, 3)))
    check(lg.tri(3, 4, 1), np.tri(3, 4, 1))
    both("diagflat", np.arange(4).reshape(2, 2), k=1)
    with pytest.raises(ValueError, match="one sign"):
        lg.geomspace(-1.0, 1.0)


def test_positions(device: str) -> None:
    x = np.array([[0, 3, 0], [5, 0, 7]])
    both("argwhere", x)
    both("flatnonzero", x)
    check(lg.where(lg.asarray(x) > 2)[1], np.where(x > 2)[1])
    check(lg.extract(x > 2, x), np.extract(x > 2, x))
    check(lg.compress([True, False, True], x, axis=1), np.compress([True, False, True], x, axis=1))
    check(lg.delete(x, 1, axis=1), np.delete(x, 1, axis=1))
    check(lg.delete(x, [0, -1]), np.delete(x, [0, -1]))
    check(lg.delete(x, lg.asarray([0, -1])), np.delete(x, [0, -1]))
    check(lg.insert(x, lg.asarray([0, 3]), [7, 8]), np.insert(x, [0, 3], [7, 8]))
    check(lg.delete(x, lg.asarray(x > 2).ravel()), np.delete(x, (x > 2).ravel()))
    for got, expected in zip(lg.unravel_index([4, 5], (2, 3)), np.unravel_index([4, 5], (2, 3)), strict=True):
        check(got, expected)
    with pytest.raises(TypeError, match="both x and y"):
        lg.where(x > 2, x)
    with pytest.raises(lg.IndexRangeError, match="positions from -6 to 5"):
        lg.delete(x, 6)
    with pytest.raises(lg.DTypeError, match="Python ints or a slice"):
        lg.compile(lambda i: lg.delete(x, i))(lg.asarray([1]))
