"""Distributions of which a number is a formula of uniform ones: derivatives by their parameters are those of the
formula.

Normal numbers are made by Box and Muller's formula (A note on the generation of random normal deviates, 1958) of two
uniform numbers. It rejects nothing, so all lanes do the same, and is exact but for rounding: the tails are right as far
as a word reaches (see `number_formats`). Others are inverses of distribution functions, written so that both tails have
their digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from loopgrad.lazy.numpy.elementwise import (
    add,
    cos,
    divide,
    exp,
    expm1,
    less,
    log,
    log1p,
    logical_or,
    multiply,
    negative,
    power,
    sqrt,
    subtract,
    tan,
)
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.random.distribution import Distribution, Range
from loopgrad.lazy.random.number_formats import half_interval, open_interval, turn, unit_interval, words_of_float

if TYPE_CHECKING:
    from loopgrad.graph.types import DType
    from loopgrad.lazy.random.source import WordSource
    from loopgrad.lazy.tensor.tensor import Tensor

LOC: Final = ("loc", Range.ANY)
SCALE: Final = ("scale", Range.NOT_NEGATIVE)
FLOAT: Final = (1, 2)  # words
PAIR: Final = (2, 4)


# ---- without parameters


def standard_uniform(source: WordSource, dtype: DType) -> Tensor:
    return unit_interval(source, dtype)


def standard_exponential(source: WordSource, dtype: DType) -> Tensor:
    return negative(log(open_interval(source, dtype)))


def standard_normal(source: WordSource, dtype: DType) -> Tensor:
    radius = sqrt(multiply(2.0, standard_exponential(source, dtype)))
    return multiply(radius, cos(turn(source.after(words_of_float(dtype)), dtype)))


def exponential_from_0(source: WordSource, dtype: DType) -> Tensor:
    """Exponential numbers that have their digits near 0 as well, and are never 0: for what takes their logarithm."""
    small, upper = half_interval(source, dtype)
    return negative(where(upper, log1p(negative(small)), log(small)))


def standard_gumbel(source: WordSource, dtype: DType) -> Tensor:
    return negative(log(exponential_from_0(source, dtype)))


def standard_laplace(source: WordSource, dtype: DType) -> Tensor:
    small, upper = half_interval(source, dtype)
    size = negative(log(multiply(2.0, small)))
    return where(upper, size, negative(size))


def standard_logistic(source: WordSource, dtype: DType) -> Tensor:
    small, upper = half_interval(source, dtype)
    size = subtract(log1p(negative(small)), log(small))
    return where(upper, size, negative(size))


def standard_cauchy(source: WordSource, dtype: DType) -> Tensor:
    return tan(multiply(0.5, turn(source, dtype)))


# ---- with parameters


def _uniform(source: WordSource, dtype: DType, low: Tensor, high: Tensor) -> Tensor:
    return add(low, multiply(subtract(high, low), unit_interval(source, dtype)))


def _normal(source: WordSource, dtype: DType, loc: Tensor, scale: Tensor) -> Tensor:
    return add(loc, multiply(scale, standard_normal(source, dtype)))


def _lognormal(source: WordSource, dtype: DType, mean: Tensor, sigma: Tensor) -> Tensor:
    return exp(_normal(source, dtype, mean, sigma))


def _exponential(source: WordSource, dtype: DType, scale: Tensor) -> Tensor:
    return multiply(scale, standard_exponential(source, dtype))


def _gumbel(source: WordSource, dtype: DType, loc: Tensor, scale: Tensor) -> Tensor:
    return add(loc, multiply(scale, standard_gumbel(source, dtype)))


def _laplace(source: WordSource, dtype: DType, loc: Tensor, scale: Tensor) -> Tensor:
    return add(loc, multiply(scale, standard_laplace(source, dtype)))


def _logistic(source: WordSource, dtype: DType, loc: Tensor, scale: Tensor) -> Tensor:
    return add(loc, multiply(scale, standard_logistic(source, dtype)))


def _rayleigh(source: WordSource, dtype: DType, scale: Tensor) -> Tensor:
    return multiply(scale, sqrt(multiply(2.0, exponential_from_0(source, dtype))))


def _weibull(source: WordSource, dtype: DType, a: Tensor) -> Tensor:
    return power(exponential_from_0(source, dtype), divide(1.0, a))


def _pareto(source: WordSource, dtype: DType, a: Tensor) -> Tensor:
    return expm1(divide(exponential_from_0(source, dtype), a))


def _power(source: WordSource, dtype: DType, a: Tensor) -> Tensor:
    return exp(divide(negative(exponential_from_0(source, dtype)), a))


def _triangular(source: WordSource, dtype: DType, left: Tensor, mode: Tensor, right: Tensor) -> Tensor:
    unit, width = unit_interval(source, dtype), subtract(right, left)
    share = divide(subtract(mode, left), width)
    rising = add(left, sqrt(multiply(multiply(unit, width), subtract(mode, left))))
    falling = subtract(right, sqrt(multiply(multiply(subtract(1.0, unit), width), subtract(right, mode))))
    drawn = where(less(unit, share), rising, falling)
    return where(logical_or(less(mode, left), less(right, mode)), float("nan"), drawn)


RANDOM: Final = Distribution("random", (), FLOAT, standard_uniform)
UNIFORM: Final = Distribution(
    "uniform", (("low", Range.FINITE), ("high", Range.FINITE)), FLOAT, _uniform,
    relation=("low of at most high, and a finite high - low", lambda low, high: (low <= high) & (high - low < np.inf)),
)  # fmt: skip
STANDARD_NORMAL: Final = Distribution("standard_normal", (), PAIR, standard_normal)
NORMAL: Final = Distribution("normal", (LOC, SCALE), PAIR, _normal)
LOGNORMAL: Final = Distribution("lognormal", (("mean", Range.ANY), ("sigma", Range.NOT_NEGATIVE)), PAIR, _lognormal)
STANDARD_EXPONENTIAL: Final = Distribution("standard_exponential", (), FLOAT, standard_exponential)
EXPONENTIAL: Final = Distribution("exponential", (SCALE,), FLOAT, _exponential)
GUMBEL: Final = Distribution("gumbel", (LOC, SCALE), FLOAT, _gumbel)
LAPLACE: Final = Distribution("laplace", (LOC, SCALE), FLOAT, _laplace)
LOGISTIC: Final = Distribution("logistic", (LOC, SCALE), FLOAT, _logistic)
STANDARD_CAUCHY: Final = Distribution("standard_cauchy", (), FLOAT, standard_cauchy)
RAYLEIGH: Final = Distribution("rayleigh", (SCALE,), FLOAT, _rayleigh)
WEIBULL: Final = Distribution("weibull", (("a", Range.POSITIVE),), FLOAT, _weibull)
PARETO: Final = Distribution("pareto", (("a", Range.POSITIVE),), FLOAT, _pareto)
POWER: Final = Distribution("power", (("a", Range.POSITIVE),), FLOAT, _power)
_ENDS: Final = (("left", Range.FINITE), ("mode", Range.FINITE), ("right", Range.FINITE))
TRIANGULAR: Final = Distribution(
    "triangular", _ENDS, FLOAT, _triangular,
    relation=("left <= mode <= right and left < right", lambda a, b, c: (a <= b) & (b <= c) & (a < c)),
)  # fmt: skip
