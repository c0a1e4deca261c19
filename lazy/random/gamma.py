"""Gamma numbers, and what is made of them: beta, chi-square, F, Student's t, Dirichlet.

Samples are Marsaglia and Tsang's (A simple method for generating gamma variables, 2000): a cube of a normal number,
rejected now and then, in a loop with a trip count of each lane's own. Below shape 1 they are samples of shape + 1 times
a power of a uniform number, held as logarithms where that would underflow.

The derivative of a sample by its shape is implicit (Figurnov, Mohamed, Mnih: Implicit reparameterization gradients,
2018): the sample moves so that its distribution function keeps its value, dz/da = -(dF/da) / pdf. Written as an
integral over t = z exp(w) it loses no digits: with psi the digamma function,

    d log z / da = integral of (psi(a) - log z + v) exp(-a v + z (1 - exp(-v))) dv,  v = -w > 0    where z <= a
                   integral of (log z - psi(a) + v) exp( a v - z (exp(v) - 1)) dv,   v =  w > 0    where z > a

Both exponents fall from 0, so that Gauss and Legendre's rule on the range where they are above -36 (in float32 -20) has
an error of 1e-11 (5e-7) with 32 (16) nodes, for shapes from 1e-4 to 1e7 and all quantiles from 1e-12 up. Below a = 1
the part exp(z - a v) of the first integrand, which is long, is integrated exactly: exp(z) (psi(a + 1) - log z) / a.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.passes.fold import known_scalar
from loopgrad.graph.types import bool_, uint32
from loopgrad.lazy.loops.fori_loop import fori_loop
from loopgrad.lazy.loops.while_loop import while_loop
from loopgrad.lazy.numpy.creation import zeros_like
from loopgrad.lazy.numpy.elementwise import (
    add,
    digamma,
    divide,
    exp,
    expm1,
    greater,
    less,
    less_equal,
    log,
    log1p,
    logical_and,
    logical_not,
    multiply,
    negative,
    sqrt,
    stop_gradient,
    subtract,
)
from loopgrad.lazy.numpy.smooth_functions import sigmoid
from loopgrad.lazy.numpy.special_values import isfinite, where
from loopgrad.lazy.random.continuous import LOC, SCALE, standard_normal
from loopgrad.lazy.random.distribution import WHOLE_BLOCK, Distribution, Range
from loopgrad.lazy.random.number_formats import open_interval
from loopgrad.lazy.special.incomplete_gamma import where_it_ends
from loopgrad.lazy.tensor.core import wrap
from loopgrad.lazy.transforms.own_rules import custom_jvp

if TYPE_CHECKING:
    from loopgrad.graph.types import DType
    from loopgrad.lazy.random.source import WordSource
    from loopgrad.lazy.tensor.tensor import Tensor

__all__ = ["LOC", "SCALE"]
SHAPE: Final = ("shape", Range.NOT_NEGATIVE)


# ---- samples


def _cubes(source: WordSource, dtype: DType, shape: Tensor) -> Tensor:
    """Gamma numbers over shape - 1/3, of shapes of at least 1."""
    mean = subtract(shape, 1.0 / 3.0)
    width = divide(1.0, sqrt(multiply(9.0, mean)))

    def trip(state: Any) -> Any:
        attempt, _, cube = state
        normal = standard_normal(source.at(attempt), dtype)
        uniform = open_interval(source.at(add(attempt, 1)), dtype)
        root = multiply(width, normal)
        inside = greater(root, -1.0)
        safe = where(inside, root, 0.0)
        tried = add(1.0, multiply(safe, add(3.0, multiply(safe, add(3.0, safe)))))
        likely = add(multiply(0.5, multiply(normal, normal)), multiply(mean, _log_excess(safe)))
        accepted = logical_and(inside, less(log(uniform), likely))
        return add(attempt, 2), logical_not(accepted), where(accepted, tried, cube)

    start = (source.numbers(1, uint32), source.numbers(True, bool_), source.numbers(1.0, dtype))
    cube: Tensor = while_loop(lambda state: state[1], trip, start)[2]
    return cube


def _log_excess(root: Tensor) -> Tensor:
    """1 - v + log(v) for v = (1 + root)**3."""
    return subtract(multiply(3.0, log1p(root)), multiply(root, add(3.0, multiply(root, add(3.0, root)))))


def _sampled(source: WordSource, dtype: DType, shape: Tensor) -> tuple[Tensor, Tensor]:
    """A gamma number of a shape, or of one more where that is below 1; and the logarithm of the factor that is left.
    Where the shape is 0 that is -inf; where it is negative, infinite or NaN both are NaN."""
    positive = logical_and(greater(shape, 0.0), isfinite(shape))
    usual = where(positive, shape, 1.0)
    small = less(usual, 1.0)
    raised = where(small, add(usual, 1.0), usual)
    number = multiply(subtract(raised, 1.0 / 3.0), _cubes(source, dtype, raised))
    rest = where(small, divide(log(open_interval(source, dtype)), usual), 0.0)
    none = where(less_equal(shape, 0.0), where(less(shape, 0.0), np.nan, -np.inf), np.nan)
    return number, where(positive, rest, none)


# ---- derivatives by the shape


@custom_jvp
def _with_slope(shape: Tensor, sample: Tensor) -> Tensor:
    """A sample, as a function of its shape."""
    return multiply(sample, 1.0)


@custom_jvp
def _log_with_slope(shape: Tensor, log_sample: Tensor) -> Tensor:
    """A sample's logarithm, as a function of its shape."""
    return multiply(log_sample, 1.0)


def _slope(t: Tensor, z: Tensor, shape: Tensor, _: Tensor) -> Tensor:
    there = greater(z, 0.0)  # what underflowed doesn't move
    return where(there, multiply(t, multiply(z, log_slope(shape, log(where(there, z, 1.0))))), 0.0)


_with_slope.defjvps(_slope, None)
_log_with_slope.defjvps(lambda t, log_z, shape, _: multiply(t, log_slope(shape, log_z)), None)


@lru_cache(maxsize=2)
def _rule(double: bool) -> tuple[np.ndarray[Any, Any], float]:
    """Nodes and weights on [0, 1], and where the exponents end."""
    nodes, weights = np.polynomial.legendre.leggauss(32 if double else 16)
    rule = np.stack([(nodes + 1.0) / 2.0, weights / 2.0], axis=1)
    return rule.astype(np.float64 if double else np.float32), 36.0 if double else 20.0


def log_slope(shape: Tensor, log_z: Tensor) -> Tensor:
    """How fast the logarithm of a gamma number grows with its shape, at the same quantile."""
    double = shape._value.dtype.bits == 64
    rule, deepest = _rule(double)
    table = wrap(ops.literal(rule, shape._value.dtype))
    z, center = exp(log_z), subtract(digamma(shape), log_z)
    lower = less_equal(z, shape)
    brief = logical_and(lower, less(shape, 1.0))
    side = where(lower, -1.0, 1.0)
    end = where(brief, deepest, where_it_ends(shape, z, lower, deepest))

    def term(k: Tensor, total: Tensor) -> Tensor:
        v = multiply(end, table[k, 0])
        w = multiply(side, v)
        exponent = where(
            brief, multiply(shape, w), subtract(multiply(shape, w), where(brief, 0.0, multiply(z, expm1(w))))
        )
        factor = where(brief, expm1(negative(multiply(z, exp(negative(v))))), 1.0)
        slope = multiply(subtract(v, multiply(side, center)), factor)
        return add(total, multiply(multiply(table[k, 1], end), multiply(slope, exp(exponent))))

    integral: Tensor = fori_loop(0, len(rule), term, zeros_like(add(shape, log_z)))
    exact = divide(subtract(digamma(add(shape, 1.0)), log_z), shape)
    return where(brief, multiply(where(brief, exp(where(brief, z, 0.0)), 1.0), add(integral, exact)), integral)


# ---- distributions


def standard_gamma(source: WordSource, dtype: DType, shape: Tensor) -> Tensor:
    number, rest = _sampled(source, dtype, stop_gradient(shape))
    sample = stop_gradient(multiply(number, exp(rest)))
    made: Tensor = sample if _is_constant(shape) else _with_slope(shape, sample)
    return made


def log_gamma(source: WordSource, dtype: DType, shape: Tensor) -> Tensor:
    """Logarithms of gamma numbers."""
    number, rest = _sampled(source, dtype, stop_gradient(shape))
    sample = stop_gradient(add(log(number), rest))
    made: Tensor = sample if _is_constant(shape) else _log_with_slope(shape, sample)
    return made


def _is_constant(x: Tensor) -> bool:
    """Whether no derivative is taken by x, which spares the rule."""
    return known_scalar(x._value) is not None


def _gamma(source: WordSource, dtype: DType, shape: Tensor, scale: Tensor) -> Tensor:
    return multiply(scale, standard_gamma(source, dtype, shape))


def _chisquare(source: WordSource, dtype: DType, df: Tensor) -> Tensor:
    return multiply(2.0, standard_gamma(source, dtype, multiply(0.5, df)))


def _beta(source: WordSource, dtype: DType, a: Tensor, b: Tensor) -> Tensor:
    return sigmoid(subtract(log_gamma(source, dtype, a), log_gamma(source.apart(1), dtype, b)))


def _f(source: WordSource, dtype: DType, dfnum: Tensor, dfden: Tensor) -> Tensor:
    top, bottom = [divide(_chisquare(source.apart(i), dtype, df), df) for i, df in enumerate((dfnum, dfden))]
    return divide(top, bottom)


def _standard_t(source: WordSource, dtype: DType, df: Tensor) -> Tensor:
    half = multiply(0.5, df)
    return multiply(standard_normal(source.apart(1), dtype), sqrt(divide(half, standard_gamma(source, dtype, half))))


STANDARD_GAMMA: Final = Distribution("standard_gamma", (SHAPE,), WHOLE_BLOCK, standard_gamma)
GAMMA: Final = Distribution("gamma", (SHAPE, SCALE), WHOLE_BLOCK, _gamma)
LOG_GAMMA: Final = Distribution("dirichlet", (("alpha", Range.POSITIVE),), WHOLE_BLOCK, log_gamma)
CHISQUARE: Final = Distribution("chisquare", (("df", Range.POSITIVE),), WHOLE_BLOCK, _chisquare)
BETA: Final = Distribution("beta", (("a", Range.POSITIVE), ("b", Range.POSITIVE)), WHOLE_BLOCK, _beta)
F: Final = Distribution("f", (("dfnum", Range.POSITIVE), ("dfden", Range.POSITIVE)), WHOLE_BLOCK, _f)
STANDARD_T: Final = Distribution("standard_t", (("df", Range.POSITIVE),), WHOLE_BLOCK, _standard_t)
