"""One element at a time: what memory bounds, and what the mathematics does."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import Program, named, normal, sizes, uniform

SINES = 200
STREAM = sizes(2**22, 1000, 2**24)


def one(n: int) -> Arrays:
    return named(x=normal((n,))[0])


def positive(n: int) -> Arrays:
    return named(x=uniform((n,), low=0.1, high=4.0)[0])


def options(n: int) -> Arrays:
    spot, strike = uniform((n,), (n,), low=80.0, high=120.0)
    rate, volatility, years = uniform((n,), (n,), (n,), low=0.1, high=0.5, seed=1)
    return named(spot=spot, strike=strike, rate=rate, volatility=volatility, years=years)


def prices(xp: Any, erf: Any, spot: Any, strike: Any, rate: Any, volatility: Any, years: Any) -> Any:
    """The sum of call prices (Black and Scholes 1973)."""
    spread = volatility * xp.sqrt(years)
    upper = (xp.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / spread
    below = lambda d: 0.5 + 0.5 * erf(d * 0.7071067811865476)
    return xp.sum(spot * below(upper) - strike * xp.exp(-rate * years) * below(upper - spread))


def greeks(spot: Any, strike: Any, rate: Any, volatility: Any, years: Any) -> Any:
    from scipy.special import ndtr

    root = np.sqrt(years)
    upper = (np.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / (volatility * root)
    first, second = ndtr(upper), ndtr(upper - volatility * root)
    paid = strike * np.exp(-rate * years)
    density = np.exp(-0.5 * upper * upper) * 0.3989422804014327
    return (
        np.sum(spot * first - paid * second), first, -paid / strike * second, years * paid * second,
        spot * density * root, spot * density * volatility / (2.0 * root) + rate * paid * second,
    )  # fmt: skip


def sines(xp: Any, x: Any) -> Any:
    for _ in range(SINES):
        x = xp.sin(x) * 1.01
    return xp.sum(x)


def sines_by_hand(x: Any) -> Any:
    slope = np.ones_like(x)
    for _ in range(SINES):
        slope = slope * np.cos(x) * 1.01
        x = np.sin(x) * 1.01
    return np.sum(x), slope


def erf(x: Any) -> Any:
    from scipy.special import erf as function

    return function(x)


def two(n: int) -> Arrays:
    x, y = uniform((n,), (n,), low=0.1, high=3.0)
    return named(x=x, y=y)


PROGRAMS = {
    "copy": Program(
        "-x: one read and one write, the bandwidth the others are seen beside", sizes(2**24, 1000, 2**26), one,
        lambda x: -x, lambda xp: lambda x: -x,
    ),
    "black_scholes": Program(
        "Black-Scholes prices, value and five derivatives", sizes(2**20, 1000, 2**22), options, greeks,
        lambda xp: partial(prices, xp, getattr(xp, "erf", None)),
        jax=lambda jax: partial(prices, jax.numpy, jax.lax.erf), wrt=(0, 1, 2, 3, 4), compiled=True, tolerance=1e-3,
    ),
    "sines": Program(
        "200 dependent sines, value and derivative", sizes(1000, 100, 1000), one, sines_by_hand,
        lambda xp: partial(sines, xp), wrt=(0,), tolerance=1e-3,
    ),
    "small": Program(
        "sin(x) + 1 of ten elements: a call", sizes(10, 10, 10), one, lambda x: np.sin(x) + 1.0,
        lambda xp: lambda x: xp.sin(x) + 1.0,
    ),
    "erf": Program(
        "erf(x)", STREAM, one, erf, lambda xp: lambda x: xp.erf(x), jax=lambda jax: jax.lax.erf,
    ),
    "power": Program(
        "x ** y", STREAM, two, lambda x, y: x**y, lambda xp: lambda x, y: x**y, moved=lambda a: 3 * a["x"].nbytes,
    ),
    "log": Program("log(x)", STREAM, positive, np.log, lambda xp: xp.log),
    "atan2": Program(
        "atan2(y, x)", STREAM, two, np.arctan2, lambda xp: lambda y, x: xp.arctan2(y, x),
        moved=lambda a: 3 * a["x"].nbytes,
    ),
}  # fmt: skip
