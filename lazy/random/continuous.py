"""Distributions of which a number is a formula of uniform ones: derivatives by their parameters are those of the
formula.

Normal numbers are made by Box and Muller's formula (A note on the generation of random normal deviates, 1958) of two
uniform numbers. It rejects nothing, so all lanes do the same, and is exact but for rounding: the tails are right as far
as a word reaches (see `number_formats`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loopgrad.lazy.numpy.elementwise import add, cos, log, multiply, negative, sqrt, subtract
from loopgrad.lazy.random.distribution import Distribution, Range
from loopgrad.lazy.random.number_formats import open_interval, turn, unit_interval, words_of_float

if TYPE_CHECKING:
    from loopgrad.graph.types import DType
    from loopgrad.lazy.random.source import WordSource
    from loopgrad.lazy.tensor.tensor import Tensor

LOC: Final = ("loc", Range.ANY)
SCALE: Final = ("scale", Range.NOT_NEGATIVE)


def standard_uniform(source: WordSource, dtype: DType) -> Tensor:
    return unit_interval(source, dtype)


def standard_exponential(source: WordSource, dtype: DType) -> Tensor:
    return negative(log(open_interval(source, dtype)))


def standard_normal(source: WordSource, dtype: DType) -> Tensor:
    radius = sqrt(multiply(2.0, standard_exponential(source, dtype)))
    return multiply(radius, cos(turn(source.after(words_of_float(dtype)), dtype)))


def _uniform(source: WordSource, dtype: DType, low: Tensor, high: Tensor) -> Tensor:
    return add(low, multiply(subtract(high, low), unit_interval(source, dtype)))


def _normal(source: WordSource, dtype: DType, loc: Tensor, scale: Tensor) -> Tensor:
    return add(loc, multiply(scale, standard_normal(source, dtype)))


def _exponential(source: WordSource, dtype: DType, scale: Tensor) -> Tensor:
    return multiply(scale, standard_exponential(source, dtype))


RANDOM: Final = Distribution("random", (), (1, 2), standard_uniform)
UNIFORM: Final = Distribution("uniform", (("low", Range.FINITE), ("high", Range.FINITE)), (1, 2), _uniform)
STANDARD_NORMAL: Final = Distribution("standard_normal", (), (2, 4), standard_normal)
NORMAL: Final = Distribution("normal", (LOC, SCALE), (2, 4), _normal)
STANDARD_EXPONENTIAL: Final = Distribution("standard_exponential", (), (1, 2), standard_exponential)
EXPONENTIAL: Final = Distribution("exponential", (SCALE,), (1, 2), _exponential)
