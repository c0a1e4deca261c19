"""Distributions of integers: by inversion where the mean is small, by transformed rejection where it is large, each
lane as long as it takes (Hoermann: The transformed rejection method for generating Poisson random variables, 1993; The
generation of binomial random variates, 1993). Computed in float64, whatever the parameters are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.types import bool_, float64, int64, uint32
from loopgrad.lazy.loops.while_loop import while_loop
from loopgrad.lazy.numpy.elementwise import (
    absolute,
    add,
    ceil,
    divide,
    exp,
    floor,
    greater,
    greater_equal,
    less,
    less_equal,
    lgamma,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    multiply,
    negative,
    sqrt,
    stop_gradient,
    subtract,
)
from loopgrad.lazy.numpy.movement import broadcast_to
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.random.continuous import exponential_from_0
from loopgrad.lazy.random.distribution import LARGEST_MEAN, WHOLE_BLOCK, Distribution, Range
from loopgrad.lazy.random.gamma import standard_gamma
from loopgrad.lazy.random.number_formats import open_interval, unit_interval
from loopgrad.lazy.tensor.core import cast

if TYPE_CHECKING:
    from loopgrad.graph.types import DType
    from loopgrad.lazy.random.source import WordSource
    from loopgrad.lazy.tensor.tensor import Tensor

SEARCHED: Final = 10.0  # the mean up to which numbers are searched for one by one
INVALID: Final = -1  # where a tensor's element is no parameter


def rejected(
    source: WordSource, wanted: Tensor, propose: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], start: Tensor
) -> Tensor:
    """Where `wanted`, the first number that `propose` accepts of two uniform ones, in (0, 1]; else `start`."""

    def trip(state: Any) -> Any:
        attempt, _, number = state
        there = source.at(attempt)
        accepted, tried = propose(open_interval(there, float64), open_interval(there.after(2), float64))
        return add(attempt, 1), logical_not(accepted), where(accepted, tried, number)

    inits = (source.numbers(1, uint32), broadcast_to(wanted, source.shape), broadcast_to(start, source.shape))
    found: Tensor = while_loop(lambda state: state[1], trip, inits)[2]
    return found


def searched(
    source: WordSource, wanted: Tensor, first: Tensor, most: Tensor | float, ratio: Callable[[Tensor], Tensor]
) -> Tensor:
    """Where `wanted`, how many of the probabilities `first`, `first * ratio(1)`, ... fit below a uniform number."""

    def trip(state: Any) -> Any:
        rest, probability, number = state
        after = add(number, 1.0)
        return subtract(rest, probability), multiply(probability, ratio(after)), after

    def going(state: Any) -> Tensor:
        rest, probability, number = state
        return logical_and(logical_and(wanted, greater_equal(rest, probability)), less(number, most))

    inits = (unit_interval(source, float64), broadcast_to(first, source.shape), source.numbers(0.0, float64))
    number: Tensor = while_loop(going, trip, inits)[2]
    return number


def whole(number: Tensor, valid: Tensor) -> Tensor:
    return where(valid, cast(number, int64), INVALID)


# ---- poisson


def poisson(source: WordSource, dtype: DType, lam: Tensor) -> Tensor:
    valid = logical_and(greater_equal(lam, 0.0), less(lam, 2.0**63))
    small = less(lam, SEARCHED)
    mean = where(logical_and(valid, small), lam, 1.0)
    few = searched(source, logical_and(valid, small), exp(negative(mean)), 1000.0, lambda k: divide(mean, k))
    many = _many_poisson(source, logical_and(valid, logical_not(small)), where(small, SEARCHED, lam))
    return whole(where(small, few, many), valid)


def _many_poisson(source: WordSource, wanted: Tensor, lam: Tensor) -> Tensor:
    """Algorithm PTRS."""
    root, log_lam = sqrt(lam), log(lam)
    b = add(0.931, multiply(2.53, root))
    a = add(-0.059, multiply(0.02483, b))
    log_inverse = log(add(1.1239, divide(1.1328, subtract(b, 3.4))))
    quick = subtract(0.9277, divide(3.6624, subtract(b, 2.0)))

    def propose(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        u = subtract(first, 0.5)
        us = subtract(0.5, absolute(u))
        k = floor(add(multiply(add(divide(multiply(2.0, a), us), b), u), add(lam, 0.43)))
        at_once = logical_and(greater_equal(us, 0.07), less_equal(second, quick))
        refused = logical_or(less(k, 0.0), logical_and(less(us, 0.013), greater(second, us)))
        hat = subtract(add(log(second), log_inverse), log(add(divide(a, multiply(us, us)), b)))
        density = subtract(subtract(multiply(k, log_lam), lam), lgamma(add(maximum(k, 0.0), 1.0)))
        return logical_or(at_once, logical_and(logical_not(refused), less_equal(hat, density))), k

    return rejected(source, wanted, propose, lam)


# ---- binomial


def binomial(source: WordSource, dtype: DType, n: Tensor, p: Tensor) -> Tensor:
    possible = logical_and(greater_equal(p, 0.0), less_equal(p, 1.0))
    valid = logical_and(possible, logical_and(greater_equal(n, 0.0), less(n, 2.0**63)))
    count, turned = where(valid, floor(n), 1.0), greater(p, 0.5)
    rare = where(valid, where(turned, subtract(1.0, p), p), 0.5)
    small = less(multiply(count, rare), SEARCHED)
    odds = divide(rare, subtract(1.0, rare))
    none = exp(multiply(count, log1p(negative(rare))))
    ratio = lambda k: multiply(odds, divide(add(subtract(count, k), 1.0), k))  # noqa: E731 - a formula
    few = searched(source, logical_and(valid, small), none, count, ratio)
    most = where(small, 100.0, count)
    many = _many_binomial(source, logical_and(valid, logical_not(small)), most, where(small, 0.5, rare))
    number = where(small, few, many)
    return whole(where(turned, subtract(count, number), number), valid)


def _many_binomial(source: WordSource, wanted: Tensor, n: Tensor, p: Tensor) -> Tensor:
    """Algorithm BTRS."""
    root = sqrt(multiply(multiply(n, p), subtract(1.0, p)))
    b = add(1.15, multiply(2.53, root))
    a = add(-0.0873, add(multiply(0.0248, b), multiply(0.01, p)))
    center, quick = add(multiply(n, p), 0.5), subtract(0.92, divide(4.2, b))
    alpha = multiply(add(2.83, divide(5.1, b)), root)
    log_odds = log(divide(p, subtract(1.0, p)))
    mode = floor(multiply(add(n, 1.0), p))
    height = add(lgamma(add(mode, 1.0)), lgamma(add(subtract(n, mode), 1.0)))

    def propose(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        u = subtract(first, 0.5)
        us = subtract(0.5, absolute(u))
        k = floor(add(multiply(add(divide(multiply(2.0, a), us), b), u), center))
        at_once = logical_and(greater_equal(us, 0.07), less_equal(second, quick))
        inside = logical_and(greater_equal(k, 0.0), less_equal(k, n))
        near = where(inside, k, mode)
        hat = log(divide(multiply(second, alpha), add(divide(a, multiply(us, us)), b)))
        others = add(lgamma(add(near, 1.0)), lgamma(add(subtract(n, near), 1.0)))
        density = add(subtract(height, others), multiply(subtract(near, mode), log_odds))
        return logical_or(at_once, logical_and(inside, less_equal(hat, density))), k

    return rejected(source, wanted, propose, n)


# ---- others


def _geometric(source: WordSource, dtype: DType, p: Tensor) -> Tensor:
    valid = logical_and(greater(p, 0.0), less_equal(p, 1.0))
    trials = ceil(divide(exponential_from_0(source, float64), negative(log1p(negative(where(valid, p, 0.5))))))
    return whole(maximum(trials, 1.0), valid)


def _negative_binomial(source: WordSource, dtype: DType, n: Tensor, p: Tensor) -> Tensor:
    """Poisson numbers whose mean is a gamma number, which of a small n may be of any size: here as large as int64 has
    numbers for."""
    mean = multiply(standard_gamma(source.apart(1), float64, n), divide(subtract(1.0, p), p))
    valid = logical_and(greater(n, 0.0), logical_and(greater(p, 0.0), less_equal(p, 1.0)))
    return poisson(source, dtype, stop_gradient(where(valid, minimum(mean, LARGEST_MEAN), float("nan"))))


def _bernoulli(source: WordSource, dtype: DType, p: Tensor) -> Tensor:
    return less(unit_interval(source, dtype), p)


def _few_failures(n: Any, p: Any) -> Any:
    """Whether the means of Poisson numbers are small enough, up to ten standard deviations above theirs."""
    return (1.0 - p) * (n + 10.0 * np.sqrt(n)) <= LARGEST_MEAN * p


COUNT: Final = ("n", Range.COUNT)
CHANCE: Final = ("p", Range.PROBABILITY)
POSSIBLE: Final = ("p", Range.CHANCE)
POISSON: Final = Distribution("poisson", (("lam", Range.MEAN),), WHOLE_BLOCK, poisson, int64)
BINOMIAL: Final = Distribution("binomial", (COUNT, CHANCE), WHOLE_BLOCK, binomial, int64)
GEOMETRIC: Final = Distribution("geometric", (POSSIBLE,), WHOLE_BLOCK, _geometric, int64)
NEGATIVE_BINOMIAL: Final = Distribution(
    "negative_binomial", (("n", Range.POSITIVE), POSSIBLE), WHOLE_BLOCK, _negative_binomial, int64,
    (f"n * (1 - p) / p of at most {LARGEST_MEAN:.4g}", _few_failures),
)  # fmt: skip
BERNOULLI: Final = Distribution("bernoulli", (CHANCE,), (1, 2), _bernoulli, bool_)
MULTINOMIAL: Final = Distribution("multinomial", (COUNT, ("pvals", Range.PROBABILITY)), WHOLE_BLOCK, binomial, int64)
