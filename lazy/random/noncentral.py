"""Noncentral chi-square numbers, and F numbers made of them.

Above one degree of freedom a number is a chi-square number of one degree less, and the square of a normal number whose
mean is the root of the noncentrality. Up to one it has df + 2 n degrees, where n is a Poisson number of half the
noncentrality as its mean (both are in Johnson, Kotz, Balakrishnan: Continuous univariate distributions, chapter 29).

The derivative by the degrees of freedom is the gamma number's. That by the noncentrality is implicit (see `gamma`): the
distribution function falls with it by the density of two more degrees, so

    dx / dnonc = f(x; df + 2) / f(x; df) = sqrt(x / nonc) I[df / 2](z) / I[df / 2 - 1](z),  z = sqrt(x nonc)

and the quotient of Bessel functions is Perron's continued fraction (Gautschi and Slavik: On the computation of modified
Bessel function ratios, 1978), whose 44 terms have an error below 1e-12 for all df and z.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loopgrad.graph.types import DType, float64
from loopgrad.lazy.loops.fori_loop import fori_loop
from loopgrad.lazy.numpy import elementwise as e
from loopgrad.lazy.numpy.creation import zeros_like
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.random.continuous import standard_normal
from loopgrad.lazy.random.discrete import poisson
from loopgrad.lazy.random.distribution import WHOLE_BLOCK, Distribution, Range
from loopgrad.lazy.random.gamma import standard_gamma
from loopgrad.lazy.tensor.core import cast
from loopgrad.lazy.transforms.own_rules import custom_jvp

if TYPE_CHECKING:
    from loopgrad.lazy.random.source import WordSource
    from loopgrad.lazy.tensor.tensor import Tensor

TERMS: Final = 44


@custom_jvp
def _with_noncentrality(df: Tensor, nonc: Tensor, sample: Tensor) -> Tensor:
    """A sample, as a function of its noncentrality."""
    return e.multiply(sample, 1.0)


def _slope(t: Tensor, x: Tensor, df: Tensor, nonc: Tensor, _: Tensor) -> Tensor:
    z = e.sqrt(e.multiply(x, nonc))

    def term(k: Tensor, rest: Tensor) -> Tensor:
        j = e.subtract(float(TERMS), cast(k, z._value.dtype))
        above = e.multiply(e.add(df, e.subtract(e.multiply(2.0, j), 1.0)), z)
        return e.divide(above, e.subtract(e.add(e.add(df, j), e.multiply(2.0, z)), rest))

    rest = fori_loop(0, TERMS, term, zeros_like(z))
    return e.multiply(t, e.divide(x, e.subtract(e.add(df, z), rest)))


_with_noncentrality.defjvps(None, _slope, lambda t, *_: t)


def _chisquare(source: WordSource, dtype: DType, df: Tensor, nonc: Tensor) -> Tensor:
    several = e.greater(df, 1.0)
    fixed = e.stop_gradient(nonc)
    shifted = e.add(standard_normal(source.apart(1), dtype), e.sqrt(fixed))
    count = poisson(source.apart(2), float64, cast(e.multiply(0.5, fixed), float64))
    degrees = where(several, e.subtract(df, 1.0), e.add(df, cast(e.multiply(2, count), dtype)))
    central = e.multiply(2.0, standard_gamma(source, dtype, e.multiply(0.5, degrees)))
    sample = e.add(central, where(several, e.multiply(shifted, shifted), 0.0))
    valid = e.logical_and(e.greater(df, 0.0), e.greater_equal(nonc, 0.0))
    made: Tensor = _with_noncentrality(e.stop_gradient(df), nonc, where(valid, sample, float("nan")))
    return made


def _f(source: WordSource, dtype: DType, dfnum: Tensor, dfden: Tensor, nonc: Tensor) -> Tensor:
    top = e.divide(_chisquare(source, dtype, dfnum, nonc), dfnum)
    half = e.multiply(0.5, dfden)
    return e.multiply(top, e.divide(half, standard_gamma(source.apart(3), dtype, half)))


NONC: Final = ("nonc", Range.NOT_NEGATIVE)
NONCENTRAL_CHISQUARE: Final = Distribution(
    "noncentral_chisquare", (("df", Range.POSITIVE), NONC), WHOLE_BLOCK, _chisquare
)
NONCENTRAL_F: Final = Distribution(
    "noncentral_f", (("dfnum", Range.POSITIVE), ("dfden", Range.POSITIVE), NONC), WHOLE_BLOCK, _f
)
