"""Elementwise compositions against NumPy, their corners and derivatives."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import both, check

FLOATS = np.array([-2.5, -0.5, 0.0, 0.25, 1.0, 3.75])
CORNERS = np.array([np.nan, -np.inf, -1.5, 0.0, 2.0, np.inf])
WHOLE = np.array([-7, -1, 0, 3, 12, 18])


@pytest.mark.parametrize("name", ["deg2rad", "rad2deg", "degrees", "radians", "rint", "sinc", "fabs"])
@pytest.mark.parametrize("x", [FLOATS, WHOLE, FLOATS.astype(np.float32)], ids=["float64", "int64", "float32"])
def test_functions_of_one_operand(device: str, name: str, x: np.ndarray) -> None:
    both(name, x)


@pytest.mark.parametrize("name", ["isposinf", "isneginf"])
def test_infinities(device: str, name: str) -> None:
    both(name, CORNERS)


@pytest.mark.parametrize("name", ["fmax", "fmin", "heaviside"])
def test_functions_of_two_operands_with_nan(device: str, name: str) -> None:
    both(name, CORNERS, CORNERS[::-1].copy())


def test_parts(device: str) -> None:
    for got, expected in zip(lg.modf(lg.asarray(CORNERS[1:])), np.modf(CORNERS[1:]), strict=True):
        check(got, expected)
    for got, expected in zip(lg.divmod(lg.asarray(WHOLE), -5), np.divmod(WHOLE, -5), strict=True):
        check(got, expected)
    both("ldexp", FLOATS, np.array([3, -2, 0, 1, 10, -5]))
    both("logaddexp2", FLOATS, FLOATS[::-1].copy())
    both("float_power", np.array([2, 3, 4]), np.array([-1, 2, -2]))
    with pytest.raises(lg.DTypeError, match="integer exponent"):
        lg.ldexp(1.0, 2.0)


def test_closeness(device: str) -> None:
    near = CORNERS + np.array([0, 0, 1e-9, 1e-9, 1.0, 0])
    both("isclose", CORNERS, near)
    both("isclose", CORNERS, near, equal_nan=True)
    assert bool(lg.allclose(lg.asarray(CORNERS), lg.asarray(CORNERS), equal_nan=True))
    assert not bool(lg.allclose(lg.asarray(CORNERS), lg.asarray(CORNERS)))
    assert bool(lg.array_equal([1, 2], [1, 2]))
    assert not bool(lg.array_equal([1, 2], [1, 2, 3]))
    assert bool(lg.array_equal(CORNERS, CORNERS, equal_nan=True))


def test_choices(device: str) -> None:
    x = lg.asarray(FLOATS)
    conditions, choices = [FLOATS < 0, FLOATS < 1], [-FLOATS, FLOATS * 10]
    check(lg.select([x < 0, x < 1], [-x, x * 10], default=7), np.select(conditions, choices, default=7))
    both("isin", WHOLE, np.array([3, 18, 5]))
    both("isin", WHOLE, np.array([3, 18, 5]), invert=True)
    with pytest.raises(lg.ShapeError, match="as many conditions as choices"):
        lg.select([x < 0], [])


def test_divisors_by_a_loop_per_element(device: str) -> None:
    both("gcd", WHOLE, np.array([14, 5, 6, 12, -18, 27]))
    both("lcm", WHOLE, np.array([14, 5, 6, 12, -18, 27]))
    both("gcd", np.int32([12, 18]), np.int32(8))
    with pytest.raises(lg.DTypeError, match="gcd"):
        lg.gcd(1.5, 2.0)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64"])
def test_bits_are_counted(device: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    both("bitwise_count", np.array([0, 1, 2, 7, info.max, info.min], dtype))


def test_derivatives(device: str) -> None:
    x = lg.asarray([0.3, -1.2])
    slope = lg.grad(lambda x: lg.sum(lg.sinc(x) + lg.logaddexp2(x, 0.5) + lg.fmax(x, 0.0) + lg.modf(x)[0]))(x)
    step = 1e-6
    v = np.array([0.3, -1.2])
    f = lambda v: np.sinc(v) + np.logaddexp2(v, 0.5) + np.fmax(v, 0.0) + np.modf(v)[0]  # noqa: E731
    np.testing.assert_allclose(np.asarray(slope), (f(v + step) - f(v - step)) / (2 * step), rtol=1e-8)
    assert lg.grad(lg.sinc)(lg.asarray(0.0)).item() == 0.0


def test_small_sums_of_powers_of_two_keep_their_digits(device: str) -> None:
    """With exp(x log 2) for 2**x they lost as many as x has before the point."""
    x = np.array([-104.0, -745.2, -33.25, -np.inf])
    np.testing.assert_allclose(np.asarray(lg.logaddexp2(lg.asarray(x), 0.0)), np.logaddexp2(x, 0.0), rtol=5e-16)
