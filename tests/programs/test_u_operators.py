"""Group U: operators inside loops and alone, with their derivatives in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check, check_gradient, tolerance

import loopgrad as lg

POINTS = np.array([0.001, 0.15, 0.26, 0.399])

# name -> (step, offset) keep the argument in the domain; derivative in NumPy
LOOP_OPERATORS = {
    "sin": (0.1, 0.2, np.cos),
    "cos": (0.1, 0.2, lambda x: -np.sin(x)),
    "abs": (0.1, -0.27, np.sign),
    "tanh": (0.1, 0.2, lambda x: 1 - np.tanh(x) ** 2),
    "exp": (0.1, 0.2, np.exp),
    "tan": (0.05, 0.1, lambda x: 1 / np.cos(x) ** 2),
    "log": (0.1, 0.5, lambda x: 1 / x),
    "sqrt": (0.1, 0.5, lambda x: 0.5 / np.sqrt(x)),
    "rsqrt": (0.1, 0.5, lambda x: -0.5 * x**-1.5),
    "asin": (0.03, 0.1, lambda x: 1 / np.sqrt(1 - x * x)),
    "acos": (0.03, 0.1, lambda x: -1 / np.sqrt(1 - x * x)),
}


@pytest.mark.parametrize("name", list(LOOP_OPERATORS))
def test_u1_loop_carried(device, dtype, mode, name):
    """4 points x trip counts 1, 3, 10: twelve lanes of `acc += op(x + j*step + offset)`."""
    step, offset, slope = LOOP_OPERATORS[name]
    x, trips = np.repeat(POINTS, 3), np.tile([1, 3, 10], 4)
    operator = getattr(lg, name)

    def loss(x):
        def body(j, acc):
            return acc + operator(x + lg.astype(j, dtype) * step + offset)

        return lg.sum(lg.fori_loop(0, lg.asarray(trips), body, lg.zeros_like(x)))

    want = np.array([slope(v + np.arange(n) * step + offset).sum() for v, n in zip(x, trips, strict=True)])
    rtol = tolerance(dtype, 1e-3 if name in ("asin", "acos") else 1e-4, 1e-12)
    check_gradient(loss, (lg.asarray(x, dtype=dtype),), want, mode=mode, rtol=rtol)


@pytest.mark.costly
@pytest.mark.parametrize("n", [4, 32])
def test_u2_static_unroll(device, mode, n):
    def loss(x):
        acc = lg.zeros_like(x)
        for j in range(n):
            acc = acc + lg.sin(x + 0.1 * j)
        return lg.sum(acc)

    want = np.cos(POINTS[:, None] + 0.1 * np.arange(n)).sum(axis=1)
    check_gradient(loss, (lg.asarray(POINTS),), want, mode=mode, rtol=1e-12)


@pytest.mark.parametrize("n", [4, 32])
def test_u3_outer_value_reused(device, mode, n):
    def loss(x):
        a = lg.sin(x)
        body = lambda j, acc: acc + lg.cos(a) * (1.0 + 0.01 * lg.astype(j, lg.float64))
        return lg.sum(lg.fori_loop(0, n, body, lg.zeros_like(x)))

    want = -np.sin(np.sin(POINTS)) * np.cos(POINTS) * (1 + 0.01 * np.arange(n)).sum()
    check_gradient(loss, (lg.asarray(POINTS),), want, mode=mode, rtol=1e-12)


@pytest.mark.parametrize("pushes", [4, 16, 64])
@pytest.mark.parametrize("carries", [1, 3])
def test_u4_saved_values(device, mode, carries, pushes):
    def loss(x):
        start = tuple(x * (k + 1.0) for k in range(carries))
        return lg.sum(sum(lg.fori_loop(0, pushes, lambda _, c: tuple(lg.sin(v) + 0.1 for v in c), start)))

    want = np.zeros(4)
    for k in range(carries):
        v, slope = POINTS * (k + 1), np.full(4, k + 1.0)
        for _ in range(pushes):
            slope, v = slope * np.cos(v), np.sin(v) + 0.1
        want += slope
    check_gradient(loss, (lg.asarray(POINTS),), want, mode=mode, rtol=1e-11)


@pytest.mark.parametrize("n", [4, 32])
def test_u5_minimum_whose_winner_flips(device, mode, n):
    x = np.array([0.31, 0.05, 0.9])

    def loss(x):
        body = lambda j, acc: lg.minimum(0.5 * acc + 0.05, x + 0.05 * lg.astype(j, lg.float64))
        return lg.sum(lg.fori_loop(0, n, body, lg.ones_like(x)))

    def slope(x):
        acc, result = 1.0, 0.0
        for j in range(n):
            left, right = 0.5 * acc + 0.05, x + 0.05 * j
            acc, result = (left, 0.5 * result) if left < right else (right, 1.0)
        return result

    if n == 4:
        assert slope(0.31) == 0.125
    check_gradient(loss, (lg.asarray(x),), [slope(v) for v in x], mode=mode, rtol=1e-14)


SINGLE = {
    "x": (lambda x: x, lambda x: 1.0),
    "-x": (lambda x: -x, lambda x: -1.0),
    "x*x": (lambda x: x * x, lambda x: 2 * x),
    "x**2": (lambda x: x**2, lambda x: 2 * x),
    "x*x*x": (lambda x: x * x * x, lambda x: 3 * x * x),
    "x*x*x*x": (lambda x: x * x * x * x, lambda x: 4 * x**3),
    "0.4x^2-3": (lambda x: 0.4 * x * x - 3.0, lambda x: 0.8 * x),
    "(x-3)(x-1)": (lambda x: (x - 3.0) * (x - 1.0), lambda x: 2 * x - 4),
    "(x-3)(x-1)+x^2": (lambda x: (x - 3.0) * (x - 1.0) + x * x, lambda x: 4 * x - 4),
    "x**2.7": (lambda x: x**2.7, lambda x: 2.7 * x**1.7),
    "tanh": (lambda x: lg.tanh(x), lambda x: 1 - np.tanh(x) ** 2),
    "sin": (lambda x: lg.sin(x), np.cos),
    "cos": (lambda x: lg.cos(x), lambda x: -np.sin(x)),
    "asin": (lambda x: lg.asin(x), lambda x: 1 / np.sqrt(1 - x * x)),
    "acos": (lambda x: lg.acos(x), lambda x: -1 / np.sqrt(1 - x * x)),
    "atan": (lambda x: lg.atan(x), lambda x: 1 / (1 + x * x)),
    "1/x": (lambda x: 1.0 / x, lambda x: -1 / x**2),
    "(x+1)/(x-1)": (lambda x: (x + 1.0) / (x - 1.0), lambda x: -2 / (x - 1) ** 2),
    "(x+1)(x+2)/((x-1)(x+3))": (
        lambda x: (x + 1.0) * (x + 2.0) / ((x - 1.0) * (x + 3.0)),
        lambda x: -(x**2 + 10 * x + 13) / ((x - 1) ** 2 * (x + 3) ** 2),
    ),
    "sqrt": (lambda x: lg.sqrt(x), lambda x: 0.5 / np.sqrt(x)),
    "rsqrt": (lambda x: lg.rsqrt(x), lambda x: -0.5 * x**-1.5),
    "exp": (lambda x: lg.exp(x), np.exp),
    "log": (lambda x: lg.log(x), lambda x: 1 / x),
    "expm1": (lambda x: lg.expm1(x), np.exp),
    "log1p": (lambda x: lg.log1p(x), lambda x: 1 / (1 + x)),
    "sinh": (lambda x: lg.sinh(x), np.cosh),
    "cosh": (lambda x: lg.cosh(x), np.sinh),
    "erf": (lambda x: lg.erf(x), lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x)),
    "atan2(x, .4)": (lambda x: lg.atan2(x, 0.4), lambda x: 0.4 / (x * x + 0.16)),
    "atan2(.4, x)": (lambda x: lg.atan2(0.4, x), lambda x: -0.4 / (x * x + 0.16)),
    "pow(x, .4)": (lambda x: lg.pow(x, 0.4), lambda x: 0.4 * x**-0.6),
    "pow(.4, x)": (lambda x: lg.pow(0.4, x), lambda x: 0.4**x * np.log(0.4)),
}


@pytest.mark.parametrize("name", list(SINGLE))
def test_u6_single_operators(device, dtype, mode, name):
    function, slope = SINGLE[name]
    x = lg.asarray(0.234, dtype=dtype)
    check_gradient(function, (x,), slope(0.234), mode=mode, rtol=tolerance(dtype, 2e-5, 1e-12))


@pytest.mark.parametrize("size", [16, 128])
def test_u7_reduction(device, mode, size):
    x = np.linspace(-1, 1, size)
    check_gradient(lambda x: lg.sum(x * x), (lg.asarray(x),), 2 * x, mode=mode, rtol=1e-13)


def test_u8_derivatives_follow_the_formula_where_the_value_is_nan(device):
    """log(-.3) is NaN; its derivative is the formula 1/x at that point, as documented."""
    x = lg.asarray(-0.3)
    assert np.isnan(float(lg.log(x)))
    check(lg.grad(lg.log)(x), -1 / 0.3, 1e-14)
