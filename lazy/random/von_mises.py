"""Von Mises' distribution: angles around a direction, with density exp(kappa cos(x - mu)) / (2 pi I0(kappa)).

Angles are Best and Fisher's (Efficient simulation of the von Mises distribution, 1979): a wrapped Cauchy number, which
is accepted most of the time. With q = sqrt(1 + 4 kappa**2), a = 1 + 1 / (q + 2 kappa) and Z = cos(pi u), the number has
1 - cos(x) = a (1 - Z) / (1 + q + 2 kappa Z), which loses no digits, neither for kappa = 0 nor for large ones.

The derivative by kappa is implicit (see `gamma`), and odd in x; with A = I1 / I0 and both integrals the same number

    dx / dkappa = - integral of (cos t - A) exp(kappa (cos t - cos x)) dt over [-pi, x]    x <= 0
                  + integral of the same over [x, 0]

of which the first is taken where the density has fallen by a factor of e from its largest, the second where it hasn't.
"""

from __future__ import annotations

from functools import lru_cache
from math import pi
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.types import DType, bool_, uint32
from loopgrad.lazy.loops.fori_loop import fori_loop
from loopgrad.lazy.loops.while_loop import while_loop
from loopgrad.lazy.numpy import elementwise as e
from loopgrad.lazy.numpy.creation import zeros_like
from loopgrad.lazy.numpy.smooth_functions import hypot
from loopgrad.lazy.numpy.special_values import copysign, isfinite, where
from loopgrad.lazy.random.distribution import WHOLE_BLOCK, Distribution, Range
from loopgrad.lazy.random.number_formats import open_interval, turn
from loopgrad.lazy.special.bessel import i0e, i1e
from loopgrad.lazy.tensor.core import wrap
from loopgrad.lazy.transforms.own_rules import custom_jvp

if TYPE_CHECKING:
    from loopgrad.lazy.random.source import WordSource
    from loopgrad.lazy.tensor.tensor import Tensor


def _angles(source: WordSource, dtype: DType, kappa: Tensor) -> Tensor:
    """Angles around 0, for finite kappa of at least 0."""
    q, twice = hypot(1.0, e.multiply(2.0, kappa)), e.multiply(2.0, kappa)
    a = e.add(1.0, e.divide(1.0, e.add(q, twice)))

    def trip(state: Any) -> Any:
        attempt, _, angle = state
        around = turn(source.at(attempt), dtype)  # pi u, with a sign for the angle's
        z = e.cos(around)
        below = e.multiply(2.0, e.square(e.sin(e.multiply(0.5, around))))  # 1 - Z
        rise = e.divide(e.multiply(a, below), e.add(e.add(1.0, q), e.multiply(twice, z)))  # 1 - cos(angle)
        y = e.add(e.multiply(0.5, a), e.multiply(kappa, rise))
        v = open_interval(source.at(e.add(attempt, 1)), dtype)
        at_once = e.greater_equal(e.multiply(y, e.subtract(2.0, y)), v)
        later = e.greater_equal(e.add(e.log(e.divide(y, v)), e.subtract(1.0, y)), 0.0)
        size = e.multiply(2.0, e.asin(e.minimum(e.sqrt(e.multiply(0.5, rise)), 1.0)))
        accepted = e.logical_or(at_once, later)
        return e.add(attempt, 2), e.logical_not(accepted), where(accepted, copysign(size, around), angle)

    start = (source.numbers(0, uint32), source.numbers(True, bool_), source.numbers(0.0, dtype))
    angle: Tensor = while_loop(lambda state: state[1], trip, start)[2]
    return angle


@lru_cache(maxsize=2)
def _rule(double: bool) -> tuple[np.ndarray[Any, Any], float]:
    """Nodes and weights on [0, 1], and where the exponents end."""
    nodes, weights = np.polynomial.legendre.leggauss(40 if double else 20)
    rule = np.stack([(nodes + 1.0) / 2.0, weights / 2.0], axis=1)
    return rule.astype(np.float64 if double else np.float32), 36.0 if double else 18.0


@custom_jvp
def _with_concentration(kappa: Tensor, angle: Tensor) -> Tensor:
    """An angle, as a function of kappa."""
    return e.multiply(angle, 1.0)


def _slope(t: Tensor, angle: Tensor, kappa: Tensor, _: Tensor) -> Tensor:
    rule, deepest = _rule(kappa._value.dtype.bits == 64)
    table = wrap(ops.literal(rule, kappa._value.dtype))
    x = e.absolute(angle)
    rise = e.multiply(2.0, e.square(e.sin(e.multiply(0.5, x))))  # 1 - cos(x)
    near = e.less(e.multiply(kappa, rise), 1.0)
    largest = e.minimum(e.add(rise, e.divide(deepest, e.maximum(kappa, 1e-30))), 2.0)
    end = e.multiply(2.0, e.asin(e.sqrt(e.multiply(0.5, largest))))
    width = where(near, x, e.subtract(end, x))
    lack = e.divide(e.subtract(i0e(kappa), i1e(kappa)), i0e(kappa))  # 1 - A

    def term(k: Tensor, total: Tensor) -> Tensor:
        angle = e.add(where(near, 0.0, x), e.multiply(width, table[k, 0]))
        down = e.multiply(2.0, e.square(e.sin(e.multiply(0.5, angle))))
        weight = e.multiply(table[k, 1], e.multiply(width, e.exp(e.multiply(kappa, e.subtract(rise, down)))))
        return e.add(total, e.multiply(weight, e.subtract(lack, down)))

    integral = fori_loop(0, len(rule), term, zeros_like(e.add(kappa, x)))
    size = where(near, e.negative(integral), integral)
    return e.multiply(t, e.multiply(e.sign(angle), size))


_with_concentration.defjvps(_slope, lambda t, *_: t)


def _von_mises(source: WordSource, dtype: DType, mu: Tensor, kappa: Tensor) -> Tensor:
    valid = e.logical_and(e.greater_equal(kappa, 0.0), isfinite(kappa))
    usual = where(valid, kappa, 1.0)
    around = e.stop_gradient(_angles(source, dtype, e.stop_gradient(usual)))
    angle = e.add(mu, _with_concentration(usual, around))
    turns = e.stop_gradient(e.floor(e.multiply(e.add(angle, pi), 0.5 / pi)))
    return where(valid, e.subtract(angle, e.multiply(2.0 * pi, turns)), float("nan"))


VON_MISES: Final = Distribution(
    "vonmises", (("mu", Range.FINITE), ("kappa", Range.NOT_NEGATIVE)), WHOLE_BLOCK, _von_mises
)
