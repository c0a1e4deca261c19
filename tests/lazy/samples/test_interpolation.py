"""`lg.interpolate` beside SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import interpolate

import loopgrad as lg
from tests.lazy.oracle import check

RNG = np.random.default_rng(4)
ENDS = ["not-a-knot", "natural", "clamped", "periodic", ((1, np.full(2, 0.5)), (2, np.full(2, -0.3)))]


def samples(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = np.cumsum(RNG.uniform(0.2, 1.0, count))
    return x, RNG.normal(size=(count, 2)), RNG.uniform(x[0] - 1, x[-1] + 1, size=(2, 4))


@pytest.mark.in_turns
@pytest.mark.parametrize("ends", ENDS, ids=["not-a-knot", "natural", "clamped", "periodic", "values"])
@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_cubic_splines(count: int, ends: Any) -> None:
    """Values, derivatives, integrals, beyond the ends too."""
    x, y, at = samples(count)
    if ends == "periodic":
        y[-1] = y[0]
    ours = lg.interpolate.CubicSpline(lg.asarray(x), lg.asarray(y), bc_type=ends)
    theirs = interpolate.CubicSpline(x, y, bc_type=ends)
    for nu in (0, 1, 3):
        check(ours(at, nu), theirs(at, nu), 1e-8)
    check(ours.antiderivative(2)(at), theirs.antiderivative(2)(at), 1e-8)
    for way in (None, True, False, "periodic"):
        for a, b in ((x[0] - 0.5, x[-1]), (x[-1] + 3.0, x[0] - 20.0)):
            check(ours.integrate(a, b, way), theirs.integrate(a, b, way), 1e-7)


def test_integrals_over_many_periods() -> None:
    """Of several functions to several points at once, and their derivative: the function."""
    x, y, _ = samples(5)
    values, ends = np.stack([y, y * y]), x[0] + np.array([-7.0, 0.1, 30.0])
    ours = lg.interpolate.PchipInterpolator(x, values, axis=1, extrapolate=True)
    theirs = interpolate.PchipInterpolator(x, values, axis=1, extrapolate=True)
    found = lg.compile(lambda b: ours.integrate(x[0], b, "periodic"))(lg.asarray(ends))
    check(found, np.stack([theirs.integrate(x[0], b, "periodic") for b in ends], axis=1), 1e-9)
    slope = lg.grad(lambda b: lg.sum(ours.integrate(x[0], b, "periodic")))(lg.asarray(ends))
    check(slope, theirs(x[0] + np.remainder(ends - x[0], np.ptp(x))).sum(axis=(0, 2)), 1e-9)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_other_cubics(count: int) -> None:
    x, y, at = samples(count)
    y[count // 2] = y[count // 2 - 1]  # flat
    for name, options in (
        ("PchipInterpolator", {}), ("Akima1DInterpolator", {}), ("Akima1DInterpolator", {"method": "makima"}),
        ("Akima1DInterpolator", {"extrapolate": True}),
    ):  # fmt: skip
        for axis, values in ((0, y), (1, y.T)):
            expected = getattr(interpolate, name)(x, values, axis=axis, **options)(at)
            check(getattr(lg.interpolate, name)(x, values, axis=axis, **options)(at), expected, 1e-10)
    slopes = RNG.normal(size=y.shape)
    expected = interpolate.CubicHermiteSpline(x, y, slopes, extrapolate=False)(at)
    check(lg.interpolate.CubicHermiteSpline(x, y, slopes, extrapolate=False)(at), expected, 1e-10)


def test_splines_are_trees_that_are_differentiated(device: str) -> None:
    x, y, _ = samples(5)
    at = lg.asarray([x[0] + 0.3, x[3] + 0.1])

    def value(x, y, at):
        return lg.sum(lg.interpolate.CubicSpline(x, y)(at) ** 2)

    lg.testing.check_grads(value, (lg.asarray(x), lg.asarray(y), at), order=1)
    spline = lg.interpolate.PchipInterpolator(x, y)
    check(lg.compile(lambda s, at: s(at))(spline, at), np.asarray(spline(at)))


@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_grids(method: str) -> None:
    points = (np.array([-1.0, 0.1, 0.5]), np.array([0.0, 1.0]), np.array([-2.0, 0.0, 0.3, 2.0]))
    values, at = RNG.normal(size=(3, 2, 4, 2)), RNG.uniform(-1.5, 1.5, size=(2, 5, 3))
    for fill in (np.nan, None, 7.0):
        options = {"method": method, "bounds_error": False, "fill_value": fill}
        ours, theirs = (m.RegularGridInterpolator(points, values, **options) for m in (lg.interpolate, interpolate))
        check(ours(at), theirs(at))
        check(ours((0.2, 0.5, np.array([0.1, 0.2]))), theirs((0.2, 0.5, np.array([0.1, 0.2]))))
        check(lg.interpolate.interpn(points, values, at, **options), theirs(at))
    slope = lg.grad(lambda at: lg.sum(ours(at)))(lg.asarray([[0.2, 0.4, 0.1]]))
    step = 1e-6 * np.eye(3)
    here = np.array([0.2, 0.4, 0.1])
    check(slope, [[(theirs(here + e).sum() - theirs(here - e).sum()) / 2e-6 for e in step]], 1e-7)


def test_what_cannot_be_interpolated_is_refused() -> None:
    with pytest.raises(lg.ShapeError, match="one for each value"):
        lg.interpolate.CubicSpline([0.0, 1.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="'not-a-knot'"):
        lg.interpolate.CubicSpline([0.0, 1.0], [1.0, 2.0], bc_type="free")
    with pytest.raises(ValueError, match="fill_value"):
        lg.interpolate.RegularGridInterpolator(([0.0, 1.0],), [0.0, 1.0], bounds_error=True)
    with pytest.raises(lg.ShapeError, match="2 coordinates"):
        lg.interpolate.RegularGridInterpolator(([0.0, 1.0], [0.0, 1.0]), lg.ones((2, 2)))([[0.5, 0.5, 0.5]])
