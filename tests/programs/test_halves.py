"""float16 and bfloat16 programs: values and gradients near those in float32."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg

N = 70
GENERATOR = np.random.default_rng(0)
# away from the points where programs below have kinks, also once rounded
X = np.linspace(0.21, 1.19, N)[GENERATOR.permutation(N)] + 0.003
TRIPS = GENERATOR.integers(0, 12, N)
PERMUTATION = GENERATOR.integers(0, N, N)
BLOCK = (7, 10)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_constants_are_rounded_and_infinite_beyond_the_range(device: str, dtype: str) -> None:
    own = getattr(lg, dtype)
    numbers = [0.1, 0.7, 1 / 3, 1e-3, 65519.0, 65520.0, 70000.0, 1e39, -1e300, 2.0**-24, float("nan")]
    zero, none = lg.asarray(np.zeros(3), dtype=own), lg.asarray(np.zeros(3, bool))
    for number in numbers:
        with np.errstate(over="ignore"):
            rounded = float(np.asarray(number).astype(own.np))
        for got in (zero + number, lg.where(none, zero, number)):
            np.testing.assert_array_equal(np.asarray(got).astype(float), rounded, err_msg=str(number))


def test_numbers_are_rounded_once_to_bfloat16(device: str) -> None:
    """Not to float32 first, which would make a tie of what is just above the middle of two neighbours."""
    above, below = 1 + 2.0**-8 + 2.0**-30, 1 + 3 * 2.0**-8 - 2.0**-30
    expected = [1 + 2.0**-7, 1 + 2.0**-7]
    one = lg.ones(2, dtype=lg.bfloat16)
    for seen in (
        lambda v: one * v, lambda v: v * one, lambda v: lg.maximum(one, v), lambda v: one.at[:].set(v),
        lambda v: lg.full((2,), v, dtype=lg.bfloat16), lambda v: lg.asarray([v, v], dtype=lg.bfloat16),
    ):  # fmt: skip
        got = [np.asarray(seen(v))[0].astype(float) for v in (above, below)]
        assert got == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_quotients_are_rounded_once(device: str, dtype: str) -> None:
    """Of numbers of all sizes, subnormal and infinite ones too, down to quotients halfway between two numbers."""
    own = getattr(lg, dtype)
    bits = np.random.default_rng(5).integers(0, 1 << 16, (2, 3000)).astype(np.uint16)
    bits[1, ::3] = bits[0, ::3] ^ (bits[1, ::3] & 0x3F)  # and quotients near 1
    bits[:, :9] = [[0, 1 << 15, 1, 0x7C00, 0x7F80, 3, 3, 0x7FC0, 0xFF80], [1, 0, 0, 1, 0x7F80, 2, 0x7BFF, 1, 5]]
    x, y = bits.view(own.np)
    with np.errstate(all="ignore"):
        expected = (x.astype(np.float32) / y.astype(np.float32)).astype(own.np)
    got = np.asarray(lg.compile(lambda x, y: x / y)(lg.asarray(x), lg.asarray(y)))
    np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))
    there = ~np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(expected)[there])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_and_products_are_rounded_once(device: str, dtype: str) -> None:
    """Of numbers of all sizes, NaN of either sign and infinite ones too, ties and what becomes infinite; what is stored
    is what is computed with."""
    own = getattr(lg, dtype)
    bits = np.random.default_rng(6).integers(0, 1 << 16, (2, 4096)).astype(np.uint16)
    bits[1, ::2] = bits[0, ::2] ^ (bits[1, ::2] & 0x83FF)  # sums near 0, and ties
    x, y = bits.view(own.np)
    with np.errstate(all="ignore"):
        both = np.stack([x, y])
        both[np.abs(both.astype(np.float32)) < 2.0**-60] = 0  # products are no subnormal float32
        x, y = both
        sums = (x.astype(np.float32) + y.astype(np.float32)).astype(own.np)
        products = (x.astype(np.float32) * y.astype(np.float32)).astype(own.np)
        total = (sums.astype(np.float32) + products.astype(np.float32)).astype(own.np)
    got = lg.compile(lambda x, y: (x + y, x * y, (x + y) + x * y))(lg.asarray(x), lg.asarray(y))
    for found, expected in zip(got, (sums, products, total), strict=True):
        np.testing.assert_array_equal(np.asarray(found).astype(np.float32), expected.astype(np.float32))


def ragged(x: Any) -> Any:
    return lg.sum(lg.fori_loop(0, lg.asarray(TRIPS), lambda _, v: lg.sin(v) * 0.9 + 0.1, x))


def scattered(x: Any) -> Any:
    return lg.sum(lg.zeros(N, dtype=x.dtype).at[lg.asarray(PERMUTATION)].add(x) ** 2) / 10


def mapped(x: Any) -> Any:
    def one(v: Any, n: Any) -> Any:
        return lg.fori_loop(0, n, lambda _, c: c * 0.8 + v, v)

    return lg.sum(lg.vmap(one)(x, lg.asarray(TRIPS))) / 10


def scanned(x: Any) -> Any:
    return lg.scan(lambda c, v: (c * 0.9 + v, c), lg.zeros((), dtype=x.dtype), x)[0]


def softmax(x: Any) -> Any:
    weights = lg.exp(x - lg.max(x))
    return lg.sum(weights / lg.sum(weights) * x)


def product(x: Any) -> Any:
    tall = lg.tile(x, (20, 1))
    return lg.mean(lg.matmul(tall.reshape(70, 20), tall.reshape(20, 70))) / 10


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: lg.mean(lg.sin(x) * lg.exp(-x) + lg.sqrt(x) / (1 + x * x)),
    "special": lambda x: lg.mean(lg.atan2(x, 1 + x) + lg.log1p(x) + lg.erf(x) + x**2.5 + 2**x),
    "ragged": ragged,
    "while": lambda x: lg.mean(lg.while_loop(lambda v: v < 2.0, lambda v: v * 1.3 + 0.1, x)),
    "gather": lambda x: lg.mean(x[lg.asarray(PERMUTATION)] * x),
    "scatter": scattered,
    "matmul": product,
    "moments": lambda x: lg.mean(x) + lg.var(x) + lg.std(x),
    "extremes": lambda x: lg.max(x) * lg.min(x) + x[lg.argmax(x)],
    "product": lambda x: lg.prod(x[:8]),
    "cumsum": lambda x: lg.mean(lg.cumsum(x[:20]) * x[:20]),
    "cond": lambda x: lg.mean(lg.cond(x > 0.7, lambda v: v * v, lg.tanh, x)),
    "switch": lambda x: lg.cond(lg.sum(x[:3]) > 1, lambda v: lg.mean(v * 2), lg.mean, x),
    "scan": scanned,
    "sort": lambda x: lg.mean(lg.sort(x)[:10] * 2),
    "softmax": softmax,
    "where": lambda x: lg.mean(lg.where(x > 0.5, x * x, -x)),
    "vmap": mapped,
    "whole": lambda x: lg.mean(lg.fori_loop(0, 5, lambda _, v: lg.roll(v, 1) * 0.5 + v * 0.4, x)),
    "axes": lambda x: lg.mean(lg.sum(x.reshape(BLOCK), axis=0) * lg.max(x.reshape(BLOCK), axis=0)),
    "movement": lambda x: lg.sum(lg.concat([lg.pad(x[:5], 2), x.reshape(BLOCK).T[2]]) ** 2),
    "budget": lambda x: lg.mean(
        lg.fori_loop(0, 20, lambda _, v: lg.roll(lg.sin(v), 1) * 0.9 + 0.1, x, memory_budget=600)
    ),
    "casts": lambda x: lg.mean(lg.astype(lg.astype(x, lg.float64) * 2 + lg.astype(x * 10, lg.int8), x.dtype)),
}


def evaluated(program: Callable[[Any], Any], dtype: Any) -> tuple[float, np.ndarray]:
    value, slope = lg.value_and_grad(program)(lg.astype(lg.asarray(X), dtype))
    assert value.dtype is slope.dtype is dtype
    return float(value), np.asarray(lg.astype(slope, lg.float64))


@functools.cache
def in_float32(name: str) -> tuple[float, np.ndarray]:
    with lg.default_device("interpreter"):
        return evaluated(PROGRAMS[name], lg.float32)


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("half", [lg.float16, lg.bfloat16], ids=str)
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_halves_follow_float32(device: str, name: str, half: Any) -> None:
    if device.startswith("simulator") and half is lg.float16:
        pytest.skip("the host's conversions of float16 are in a library that the simulator doesn't link")
    tolerance = 0.01 if half is lg.float16 else 0.08  # ten units of the last place or so
    value, slope = evaluated(PROGRAMS[name], half)
    expected, expected_slope = in_float32(name)
    assert abs(value - expected) <= tolerance * max(1.0, abs(expected))
    assert np.abs(slope - expected_slope).max() <= tolerance * max(1.0, np.abs(expected_slope).max())
