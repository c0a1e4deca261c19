"""Wald's distribution: when Brownian motion with a drift first gets somewhere.

A number is a root of a quadratic equation in a normal number, or its mirror image (Michael, Schucany, Haas: Generating
random variates using transformations with multiple roots, 1976). Which root is a decision, so derivatives are implicit
(see `gamma`): with R Mills' ratio (1 - Phi(t)) / phi(t) at t = sqrt(scale / x) (x / mean + 1),

    dx / dmean = 2 scale / mean**2 * x sqrt(x / scale) R        dx / dscale = x / scale - 2 / mean * x sqrt(x / scale) R
"""

from __future__ import annotations

from math import pi, prod, sqrt
from typing import TYPE_CHECKING, Final

from loopgrad.graph.types import DType
from loopgrad.lazy.numpy import elementwise as e
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.random.continuous import standard_normal
from loopgrad.lazy.random.distribution import WHOLE_BLOCK, Distribution, Range
from loopgrad.lazy.random.number_formats import unit_interval
from loopgrad.lazy.transforms.own_rules import custom_jvp

if TYPE_CHECKING:
    from loopgrad.lazy.random.source import WordSource
    from loopgrad.lazy.tensor.tensor import Tensor

TERMS: Final = 8  # of the asymptotic series


def mills_ratio(t: Tensor) -> Tensor:
    """(1 - Phi(t)) / phi(t) for t > 0: by erfc, or far out by the asymptotic series (Abramowitz and Stegun 26.2.13)."""
    far = e.greater(t, 14.0 if t._value.dtype.bits == 64 else 8.0)
    near = where(far, 1.0, t)
    usual = e.multiply(
        sqrt(pi / 2), e.multiply(e.exp(e.multiply(0.5, e.multiply(near, near))), e.erfc(e.divide(near, sqrt(2.0))))
    )
    inverse = e.divide(1.0, where(far, t, 14.0))
    square = e.multiply(inverse, inverse)
    total: Tensor = e.multiply(square, 0.0)
    for k in range(TERMS, -1, -1):
        total = e.add(e.multiply(total, square), float((-1) ** k * prod(range(1, 2 * k, 2))))
    return where(far, e.multiply(inverse, total), usual)


@custom_jvp
def _with_slopes(mean: Tensor, scale: Tensor, sample: Tensor) -> Tensor:
    """A sample, as a function of its parameters."""
    return e.multiply(sample, 1.0)


def _drift(mean: Tensor, scale: Tensor, x: Tensor) -> Tensor:
    """2 / mean * x sqrt(x / scale) R."""
    t = e.multiply(e.sqrt(e.divide(scale, x)), e.add(e.divide(x, mean), 1.0))
    return e.multiply(e.divide(e.multiply(2.0, x), mean), e.multiply(e.sqrt(e.divide(x, scale)), mills_ratio(t)))


def _by_mean(t: Tensor, x: Tensor, mean: Tensor, scale: Tensor, _: Tensor) -> Tensor:
    return e.multiply(t, e.multiply(e.divide(scale, mean), _drift(mean, scale, x)))


def _by_scale(t: Tensor, x: Tensor, mean: Tensor, scale: Tensor, _: Tensor) -> Tensor:
    return e.multiply(t, e.subtract(e.divide(x, scale), _drift(mean, scale, x)))


_with_slopes.defjvps(_by_mean, _by_scale, None)


def _wald(source: WordSource, dtype: DType, mean: Tensor, scale: Tensor) -> Tensor:
    middle, strength = e.stop_gradient(mean), e.stop_gradient(scale)
    normal = standard_normal(source, dtype)
    spread = e.divide(e.multiply(4.0, strength), e.multiply(middle, e.multiply(normal, normal)))
    share = e.divide(2.0, e.add(1.0, e.sqrt(e.add(1.0, spread))))  # of the smaller root, 1 less it is over the mean
    small = e.multiply(middle, e.subtract(1.0, share))
    odds = e.divide(middle, e.add(middle, small))
    first = e.less(unit_interval(source.apart(1), dtype), odds)
    mirrored = e.divide(e.multiply(middle, middle), where(first, middle, small))
    made: Tensor = _with_slopes(mean, scale, e.stop_gradient(where(first, small, mirrored)))
    return made


WALD: Final = Distribution("wald", (("mean", Range.POSITIVE), ("scale", Range.POSITIVE)), WHOLE_BLOCK, _wald)
