"""`lg.integrate` beside SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate

import loopgrad as lg
from tests.lazy.oracle import check

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("name", ["trapezoid", "simpson", "cumulative_trapezoid", "cumulative_simpson"])
def test_rules(name: str, count: int) -> None:
    """With points that are equally far from each other and others, along any axis, running from 0 or not."""
    if (name, count) == ("cumulative_simpson", 1):
        pytest.skip("SciPy refuses it")
    y = RNG.normal(size=(2, count, 3))
    points = np.sort(RNG.normal(size=y.shape), axis=1)
    for options in ({"dx": 0.3}, {"x": points[0, :, 0]}, {"x": points}):
        for more in ({}, {"initial": 0}) if "cumulative" in name else ({},):
            expected = getattr(integrate, name)(y, axis=1, **options, **more)
            check(getattr(lg.integrate, name)(lg.asarray(y), axis=1, **options, **more), expected)


def test_slopes_by_samples_and_points(device: str) -> None:
    x, y = lg.asarray([0.0, 0.4, 1.1, 1.3]), lg.asarray([1.0, -2.0, 0.5, 3.0])
    lg.testing.check_grads(lambda y, x: lg.integrate.simpson(y, x), (y, x), order=1)
    whole, _ = lg.integrate.fixed_quad(lambda t, a: t**a, 0.0, lg.asarray(2.0), (3.0,))
    check(whole, 4.0)
    check(lg.grad(lambda b: lg.integrate.fixed_quad(lambda t: t**3, 0.0, b)[0])(2.0), 8.0)


def test_samples_without_points_are_refused() -> None:
    with pytest.raises(lg.ShapeError, match="3 points"):
        lg.integrate.simpson(lg.ones(3), lg.ones(4))
    with pytest.raises(lg.ShapeError, match="at least one"):
        lg.integrate.cumulative_trapezoid(lg.ones((2, 0)))
