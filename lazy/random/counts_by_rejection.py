"""Less usual distributions of integers, computed in float64 whatever the parameters are.

Hypergeometric (Stadlober: Ratio of uniforms as a convenient method for sampling from classical discrete distributions,
1989; searched where few are drawn), zeta and logarithmic (Devroye: Non-uniform random variate generation, 1986, X.6;
Kemp: Efficient generation of logarithmically distributed pseudo-random variables, 1981).
"""

from __future__ import annotations

from math import exp, sqrt
from typing import TYPE_CHECKING, Final

from loopgrad.graph.types import DType, int64
from loopgrad.lazy.numpy import elementwise as e
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.random.discrete import SEARCHED, rejected, searched, whole
from loopgrad.lazy.random.distribution import WHOLE_BLOCK, Distribution, Range

if TYPE_CHECKING:
    from loopgrad.lazy.random.source import WordSource
    from loopgrad.lazy.tensor.tensor import Tensor

WIDTH: Final = 2.0 * sqrt(2.0 / exp(1.0))
SHIFT: Final = 3.0 - 2.0 * sqrt(3.0 / exp(1.0))


def _log_factorial(k: Tensor) -> Tensor:
    return e.lgamma(e.add(k, 1.0))


def hypergeometric(source: WordSource, dtype: DType, ngood: Tensor, nbad: Tensor, nsample: Tensor) -> Tensor:
    """Of the rarer kind, among the smaller part of the population; then turned back."""
    everything = e.add(ngood, nbad)
    possible = e.logical_and(e.greater_equal(ngood, 0.0), e.greater_equal(nbad, 0.0))
    possible = e.logical_and(possible, e.logical_and(e.greater_equal(nsample, 0.0), e.less_equal(nsample, everything)))
    valid = e.logical_and(possible, e.less(everything, 2.0**53))
    good, bad, wanted = where(valid, ngood, 1.0), where(valid, nbad, 1.0), where(valid, nsample, 1.0)
    total = e.add(good, bad)
    rare, common = e.minimum(good, bad), e.maximum(good, bad)
    taken = e.minimum(wanted, e.subtract(total, wanted))
    mean = e.divide(e.multiply(taken, rare), e.maximum(total, 1.0))
    small = e.less(mean, SEARCHED)

    def density(k: Tensor) -> Tensor:
        """The logarithm of the probability, less what doesn't depend on k."""
        inside = e.add(_log_factorial(k), _log_factorial(e.subtract(rare, k)))
        outside = e.add(_log_factorial(e.subtract(taken, k)), _log_factorial(e.add(e.subtract(common, taken), k)))
        return e.negative(e.add(inside, outside))

    def ratio(k: Tensor) -> Tensor:
        top = e.multiply(e.subtract(e.add(rare, 1.0), k), e.subtract(e.add(taken, 1.0), k))
        return e.divide(top, e.multiply(k, e.add(e.subtract(common, taken), k)))

    weight = e.subtract(_log_factorial(common), _log_factorial(e.subtract(common, taken)))
    everybody = e.subtract(_log_factorial(total), _log_factorial(e.subtract(total, taken)))
    none = e.exp(e.subtract(weight, everybody))
    few = searched(source, e.logical_and(valid, small), none, e.minimum(rare, taken), ratio)
    share = e.divide(rare, e.maximum(total, 1.0))
    left = e.divide(e.subtract(total, taken), e.maximum(e.subtract(total, 1.0), 1.0))
    deviation = e.sqrt(e.add(e.multiply(e.multiply(mean, e.subtract(1.0, share)), left), 0.5))
    mode = e.floor(e.divide(e.multiply(e.add(taken, 1.0), e.add(rare, 1.0)), e.add(total, 2.0)))
    height, center = density(mode), e.add(mean, 0.5)
    width = e.add(e.multiply(WIDTH, deviation), SHIFT)
    end = e.minimum(e.add(e.minimum(taken, rare), 1.0), e.floor(e.add(center, e.multiply(16.0, deviation))))

    def propose(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        x = e.add(center, e.multiply(width, e.divide(e.subtract(v, 0.5), u)))
        inside = e.logical_and(e.greater_equal(x, 0.0), e.less(x, end))
        k = e.floor(where(inside, x, mode))
        likely = e.less_equal(e.multiply(2.0, e.log(u)), e.subtract(density(k), height))
        return e.logical_and(inside, likely), k

    many = rejected(source, e.logical_and(valid, e.logical_not(small)), propose, mean)
    number = where(small, few, many)
    number = where(e.greater(good, bad), e.subtract(taken, number), number)
    return whole(where(e.less(taken, wanted), e.subtract(good, number), number), valid)


def _zipf(source: WordSource, dtype: DType, a: Tensor) -> Tensor:
    valid = e.greater(a, 1.0)
    power = e.subtract(where(valid, a, 2.0), 1.0)
    base = e.exp2(power)

    def propose(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        x = e.floor(e.power(u, e.divide(-1.0, power)))
        inside = e.less(x, 2.0**63)
        safe = where(inside, x, 1.0)
        t = e.power(e.add(1.0, e.divide(1.0, safe)), power)
        rise = e.multiply(e.multiply(v, safe), e.divide(e.subtract(t, 1.0), e.subtract(base, 1.0)))
        return e.logical_and(inside, e.less_equal(rise, e.divide(t, base))), x

    return whole(rejected(source, valid, propose, power), valid)


def _logseries(source: WordSource, dtype: DType, p: Tensor) -> Tensor:
    valid = e.logical_and(e.greater_equal(p, 0.0), e.less(p, 1.0))
    chance = where(valid, p, 0.5)
    rate = e.log1p(e.negative(chance))

    def propose(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        q = e.negative(e.expm1(e.multiply(rate, u)))
        long = e.less_equal(v, e.multiply(q, q))
        k = e.floor(e.add(1.0, e.divide(e.log(v), e.log(where(long, q, 0.5)))))
        number = where(long, k, where(e.greater_equal(v, q), 1.0, 2.0))
        number = where(e.greater_equal(v, chance), 1.0, number)
        return e.greater_equal(number, 1.0), number

    return whole(rejected(source, valid, propose, chance), valid)


_COUNTS: Final = (("ngood", Range.COUNT), ("nbad", Range.COUNT), ("nsample", Range.COUNT))
HYPERGEOMETRIC: Final = Distribution("hypergeometric", _COUNTS, WHOLE_BLOCK, hypergeometric, int64)
MULTIVARIATE_HYPERGEOMETRIC: Final = Distribution(
    "multivariate_hypergeometric",
    (("colors", Range.COUNT), ("nsample", Range.COUNT)),
    WHOLE_BLOCK,
    hypergeometric,
    int64,
)
ZIPF: Final = Distribution("zipf", (("a", Range.ABOVE_1),), WHOLE_BLOCK, _zipf, int64)
LOGSERIES: Final = Distribution("logseries", (("p", Range.BELOW_1),), WHOLE_BLOCK, _logseries, int64)
