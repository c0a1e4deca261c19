"""Continuous distributions: formulas of their standard forms, as in N. Johnson, S. Kotz and N. Balakrishnan,
Continuous Univariate Distributions (1994)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from loopgrad.lazy.numpy.creation import ones_like
from loopgrad.lazy.numpy.elementwise import (
    absolute,
    atan2,
    cos,
    erf,
    erfc,
    exp,
    expm1,
    lgamma,
    log,
    log1p,
    logical_and,
    logical_or,
    power,
    sign,
    sqrt,
    square,
    tan,
)
from loopgrad.lazy.numpy.smooth_functions import sigmoid
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.special.bessel import i0e
from loopgrad.lazy.special.entropies import log_expit, logit, xlog1py, xlogy
from loopgrad.lazy.special.gamma_functions import betaln
from loopgrad.lazy.special.incomplete_beta import betainc, betaincc, log_betainc, log_betaincc
from loopgrad.lazy.special.incomplete_gamma import gammainc, gammaincc, log_gammainc, log_gammaincc
from loopgrad.lazy.special.normal import ROOT_2, erfcinv, erfinv, log_ndtr, ndtr, ndtri
from loopgrad.lazy.stats.univariate import INF, Continuous

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_STATS: Final = (
    "beta cauchy chi2 expon f gamma gennorm gumbel_l gumbel_r halfnorm invgamma laplace logistic lognorm norm pareto "
    "powerlaw rayleigh t truncnorm uniform vonmises weibull_min wrapcauchy"
)
LOG_2: Final = math.log(2.0)
LOG_2_PI: Final = math.log(2.0 * math.pi)


FAR: Final = 1e8  # beyond it 1 + y * y is y * y


def _log1p_square(y: Tensor) -> Tensor:
    """log(1 + y * y), where the square overflows, too."""
    far = absolute(y) > FAR
    return where(far, 2.0 * log(absolute(where(far, y, 1.0))), log1p(square(where(far, 1.0, y))))


def _log1m_exp(t: Tensor, log_t: Tensor) -> Tensor:
    """log(1 - exp(-t)) for positive numbers, where t underflows, too."""
    tiny, large = t < 1.0 / FAR, t > LOG_2
    middle = where(logical_or(tiny, large), 0.5, t)
    far = log1p(-exp(-where(large, t, 1.0)))
    return where(tiny, log_t - 0.5 * t, where(large, far, log(-expm1(-middle))))


def _normal(y: Tensor) -> Tensor:
    return -0.5 * square(y) - 0.5 * LOG_2_PI


norm: Final = Continuous(
    "norm", _normal, below=ndtr, above=lambda y: ndtr(-y), log_below=log_ndtr, log_above=lambda y: log_ndtr(-y),
    quantile=ndtri, upper_quantile=lambda q: -ndtri(q),
)  # fmt: skip


def _log_half_normal_above(y: Tensor) -> Tensor:
    near = y < 1.0
    return where(near, log1p(-erf(where(near, y, 0.0) / ROOT_2)), log_ndtr(-where(near, 1.0, y)) + LOG_2)


halfnorm: Final = Continuous(
    "halfnorm", lambda y: _normal(y) + LOG_2, support=(0.0, INF), below=lambda y: erf(y / ROOT_2),
    above=lambda y: erfc(y / ROOT_2), log_above=_log_half_normal_above,
    quantile=lambda q: ROOT_2 * erfinv(q), upper_quantile=lambda q: ROOT_2 * erfcinv(q),
)  # fmt: skip

rayleigh: Final = Continuous(
    "rayleigh", lambda y: log(y) - 0.5 * square(y), support=(0.0, INF), below=lambda y: -expm1(-0.5 * square(y)),
    above=lambda y: exp(-0.5 * square(y)), log_below=lambda y: _log1m_exp(0.5 * square(y), 2.0 * log(y) - LOG_2),
    log_above=lambda y: -0.5 * square(y),
    quantile=lambda q: sqrt(-2.0 * log1p(-q)), upper_quantile=lambda q: sqrt(-2.0 * log(q)),
)  # fmt: skip

powerlaw: Final = Continuous(
    "powerlaw", lambda y, a: log(a) + xlogy(a - 1.0, y), ("a",), (0.0, 1.0), below=lambda y, a: power(y, a),
    above=lambda y, a: -expm1(xlogy(a, y)), log_below=lambda y, a: xlogy(a, y),
    quantile=lambda q, a: power(q, 1.0 / a), upper_quantile=lambda q, a: exp(log1p(-q) / a),
)  # fmt: skip

uniform: Final = Continuous(
    "uniform", lambda y: 0.0 * y, support=(0.0, 1.0), below=lambda y: y, above=lambda y: 1.0 - y,
    quantile=lambda q: q, upper_quantile=lambda q: 1.0 - q,
)  # fmt: skip

expon: Final = Continuous(
    "expon", lambda y: -y, support=(0.0, INF), below=lambda y: -expm1(-y), above=lambda y: exp(-y),
    log_below=lambda y: _log1m_exp(y, log(y)), log_above=lambda y: -y, quantile=lambda q: -log1p(-q),
    upper_quantile=lambda q: -log(q),
)  # fmt: skip


def _log_betainc_near_0(a: Tensor, b: Tensor, log_x: Tensor) -> Tensor:
    """log(betainc(a, b, x)), where x underflows, too: by the first term of its series."""
    near = log_x < -40.0 - log1p(b)
    first = a * log_x - log(a) - betaln(a, b)
    return where(near, first, log_betainc(a, b, exp(where(near, -1.0, log_x))))


def _gamma_density(y: Tensor, a: Tensor) -> Tensor:
    return xlogy(a - 1.0, y) - y - lgamma(a)


gamma: Final = Continuous(
    "gamma", _gamma_density, ("a",), (0.0, INF), below=lambda y, a: gammainc(a, y),
    above=lambda y, a: gammaincc(a, y), far_below=lambda y, a: log_gammainc(a, y),
    far_above=lambda y, a: log_gammaincc(a, y),
)  # fmt: skip

chi2: Final = Continuous(
    "chi2", lambda y, df: _gamma_density(0.5 * y, 0.5 * df) - LOG_2, ("df",), (0.0, INF),
    below=lambda y, df: gammainc(0.5 * df, 0.5 * y), above=lambda y, df: gammaincc(0.5 * df, 0.5 * y),
    far_below=lambda y, df: log_gammainc(0.5 * df, 0.5 * y), far_above=lambda y, df: log_gammaincc(0.5 * df, 0.5 * y),
)  # fmt: skip

beta: Final = Continuous(
    "beta", lambda y, a, b: xlogy(a - 1.0, y) + xlog1py(b - 1.0, -y) - betaln(a, b), ("a", "b"), (0.0, 1.0),
    below=lambda y, a, b: betainc(a, b, y), above=lambda y, a, b: betaincc(a, b, y),
    far_below=lambda y, a, b: log_betainc(a, b, y), far_above=lambda y, a, b: log_betaincc(a, b, y),
)  # fmt: skip

f: Final = Continuous(
    "f",
    lambda y, dfn, dfd: (
        xlogy(0.5 * dfn - 1.0, y) + 0.5 * dfn * (log(dfn) - log(dfd)) - 0.5 * (dfn + dfd) * log1p(dfn * y / dfd)
        - betaln(0.5 * dfn, 0.5 * dfd)
    ),
    ("dfn", "dfd"), (0.0, INF), below=lambda y, dfn, dfd: betainc(0.5 * dfn, 0.5 * dfd, dfn * y / (dfn * y + dfd)),
    above=lambda y, dfn, dfd: betainc(0.5 * dfd, 0.5 * dfn, dfd / (dfn * y + dfd)),
    far_below=lambda y, dfn, dfd: _log_betainc_near_0(
        0.5 * dfn, 0.5 * dfd, log(dfn) + log(y) - log(dfn * y + dfd)
    ),
    far_above=lambda y, dfn, dfd: _log_betainc_near_0(0.5 * dfd, 0.5 * dfn, log(dfd) - log(dfn * y + dfd)),
)  # fmt: skip


def _inverse_gamma(y: Tensor, a: Tensor) -> Tensor:
    known = where(y == 0.0, 1.0, y)
    return where(y == 0.0, -INF, -(a + 1.0) * log(known) - 1.0 / known - lgamma(a))


invgamma: Final = Continuous(
    "invgamma", _inverse_gamma, ("a",), (0.0, INF), below=lambda y, a: gammaincc(a, 1.0 / y),
    above=lambda y, a: gammainc(a, 1.0 / y), far_below=lambda y, a: log_gammaincc(a, 1.0 / y),
    far_above=lambda y, a: log_gammainc(a, 1.0 / y),
)  # fmt: skip


def _student(y: Tensor, df: Tensor) -> Tensor:
    return -betaln(0.5 * df, 0.5) - 0.5 * log(df) - 0.5 * (df + 1.0) * _log1p_square(y / sqrt(df))


def _student_below(y: Tensor, df: Tensor) -> Tensor:
    """By the tail where that is small, else by what lies between 0 and y: neither cancels."""
    known = where(y == 0.0, 1.0, y)
    squared = square(known)
    tail = 0.5 * betainc(0.5 * df, 0.5, df / (df + squared))
    middle = 0.5 + 0.5 * sign(known) * betainc(0.5, 0.5 * df, squared / (df + squared))
    found = where(squared < df, middle, where(known < 0.0, tail, 1.0 - tail))
    return where(y == 0.0, 0.5 + y * exp(_student(0.0 * y, df)), found)


def _student_far_below(y: Tensor, df: Tensor) -> Tensor:
    tail = _log_betainc_near_0(0.5 * df, 0.5 * ones_like(df), -_log1p_square(y / sqrt(df)))
    return tail - LOG_2


t: Final = Continuous(
    "t", _student, ("df",), below=_student_below, above=lambda y, df: _student_below(-y, df),
    far_below=_student_far_below, far_above=lambda y, df: _student_far_below(-y, df),
)  # fmt: skip


def _cauchy_below(y: Tensor) -> Tensor:
    return atan2(1.0, -y) / math.pi


def _cauchy_quantile(q: Tensor) -> Tensor:
    """By the cotangent near the ends, where the tangent of an angle near its pole would lose digits."""
    low, high = q < 0.25, q > 0.75
    outer = where(low, q, where(high, 1.0 - q, 0.25))
    far = 1.0 / tan(math.pi * outer)
    return where(low, -far, where(high, far, tan(math.pi * (where(logical_or(low, high), 0.5, q) - 0.5))))


def _cauchy_far_below(y: Tensor) -> Tensor:
    return -log(-math.pi * where(y < -FAR, y, -FAR))


cauchy: Final = Continuous(
    "cauchy", lambda y: -math.log(math.pi) - _log1p_square(y), below=_cauchy_below, above=lambda y: _cauchy_below(-y),
    far_below=_cauchy_far_below, far_above=lambda y: _cauchy_far_below(-y), quantile=_cauchy_quantile,
    upper_quantile=lambda q: -_cauchy_quantile(q),
)  # fmt: skip


def _laplace_below(y: Tensor) -> Tensor:
    half = 0.5 * exp(-absolute(y))
    return where(y < 0.0, half, 1.0 - half)


def _laplace_log_below(y: Tensor) -> Tensor:
    return where(y < 0.0, -absolute(y) - LOG_2, log1p(-0.5 * exp(-absolute(y))))


def _laplace_quantile(q: Tensor) -> Tensor:
    return where(q < 0.5, log(2.0 * where(q < 0.5, q, 0.5)), -log(2.0 * (1.0 - where(q < 0.5, 0.5, q))))


laplace: Final = Continuous(
    "laplace", lambda y: -absolute(y) - LOG_2, below=_laplace_below, above=lambda y: _laplace_below(-y),
    log_below=_laplace_log_below, log_above=lambda y: _laplace_log_below(-y), quantile=_laplace_quantile,
    upper_quantile=lambda q: -_laplace_quantile(q),
)  # fmt: skip

logistic: Final = Continuous(
    "logistic", lambda y: log_expit(y) + log_expit(-y), below=sigmoid, above=lambda y: sigmoid(-y), log_below=log_expit,
    log_above=lambda y: log_expit(-y), quantile=logit, upper_quantile=lambda q: -logit(q),
)  # fmt: skip

gumbel_r: Final = Continuous(
    "gumbel_r", lambda y: -y - exp(-y), below=lambda y: exp(-exp(-y)), above=lambda y: -expm1(-exp(-y)),
    log_below=lambda y: -exp(-y), log_above=lambda y: _log1m_exp(exp(-y), -y), quantile=lambda q: -log(-log(q)),
    upper_quantile=lambda q: -log(-log1p(-q)),
)  # fmt: skip

gumbel_l: Final = Continuous(
    "gumbel_l", lambda y: y - exp(y), below=lambda y: -expm1(-exp(y)), above=lambda y: exp(-exp(y)),
    log_below=lambda y: _log1m_exp(exp(y), y), log_above=lambda y: -exp(y), quantile=lambda q: log(-log1p(-q)),
    upper_quantile=lambda q: log(-log(q)),
)  # fmt: skip

pareto: Final = Continuous(
    "pareto", lambda y, b: log(b) - (b + 1.0) * log(y), ("b",), (1.0, INF),
    below=lambda y, b: -expm1(-b * log(y)), above=lambda y, b: exp(-b * log(y)),
    log_above=lambda y, b: -b * log(y), quantile=lambda q, b: exp(-log1p(-q) / b),
    upper_quantile=lambda q, b: exp(-log(q) / b),
)  # fmt: skip


def _lognormal(y: Tensor, s: Tensor) -> Tensor:
    known = where(y == 0.0, 1.0, y)
    return where(y == 0.0, -INF, _normal(log(known) / s) - log(s) - log(known))


lognorm: Final = Continuous(
    "lognorm", _lognormal, ("s",), (0.0, INF), below=lambda y, s: ndtr(log(y) / s),
    above=lambda y, s: ndtr(-log(y) / s), log_below=lambda y, s: log_ndtr(log(y) / s),
    log_above=lambda y, s: log_ndtr(-log(y) / s),
    quantile=lambda q, s: exp(s * ndtri(q)), upper_quantile=lambda q, s: exp(-s * ndtri(q)),
)  # fmt: skip

weibull_min: Final = Continuous(
    "weibull_min", lambda y, c: log(c) + xlogy(c - 1.0, y) - power(y, c), ("c",), (0.0, INF),
    below=lambda y, c: -expm1(-power(y, c)), above=lambda y, c: exp(-power(y, c)),
    log_below=lambda y, c: _log1m_exp(power(y, c), c * log(y)), log_above=lambda y, c: -power(y, c),
    quantile=lambda q, c: power(-log1p(-q), 1.0 / c), upper_quantile=lambda q, c: power(-log(q), 1.0 / c),
)  # fmt: skip


def _general_normal_below(y: Tensor, beta: Tensor) -> Tensor:
    known = where(y == 0.0, 1.0, y)
    found = 0.5 + 0.5 * sign(known) * gammainc(1.0 / beta, power(absolute(known), beta))
    tail = 0.5 * gammaincc(1.0 / beta, power(absolute(known), beta))
    return where(y == 0.0, 0.5 + y * exp(_general_normal(0.0 * y, beta)), where(known < 0.0, tail, found))


def _general_normal(y: Tensor, beta: Tensor) -> Tensor:
    size = absolute(where(y == 0.0, 1.0, y))
    return log(0.5 * beta) - lgamma(1.0 / beta) - where(y == 0.0, 0.0, power(size, beta))


def _general_normal_far_below(y: Tensor, beta: Tensor) -> Tensor:
    return log_gammaincc(1.0 / beta, power(where(y < 0.0, -y, 1.0), beta)) - LOG_2


gennorm: Final = Continuous(
    "gennorm", _general_normal, ("beta",), below=_general_normal_below,
    above=lambda y, beta: _general_normal_below(-y, beta), far_below=_general_normal_far_below,
    far_above=lambda y, beta: _general_normal_far_below(-y, beta),
)  # fmt: skip


def _log_between(a: Tensor, b: Tensor) -> Tensor:
    """The logarithm of the standard normal distribution's probability from a to b, from the side where it is small."""
    right = a > 0.0
    low, high = where(right, -b, a), where(right, -a, b)  # now they aren't both positive
    crossing = high > 0.0
    upper = log_ndtr(where(crossing, 0.0, high))
    one_side = upper + log1p(-exp(log_ndtr(where(crossing, -1.0, low)) - upper))
    return where(crossing, log1p(-(ndtr(low) + ndtr(-high))), one_side)


truncnorm: Final = Continuous(
    "truncnorm", lambda y, a, b: _normal(y) - _log_between(a, b), ("a", "b"), ("a", "b"), lambda a, b: a < b,
    below=lambda y, a, b: exp(_log_between(a, y) - _log_between(a, b)),
    above=lambda y, a, b: exp(_log_between(y, b) - _log_between(a, b)),
    log_below=lambda y, a, b: _log_between(a, y) - _log_between(a, b),
    log_above=lambda y, a, b: _log_between(y, b) - _log_between(a, b),
)  # fmt: skip

vonmises: Final = Continuous(
    "vonmises", lambda y, kappa: kappa * (cos(y) - 1.0) - log(i0e(kappa)) - LOG_2_PI, ("kappa",),
    allowed=lambda kappa: kappa >= 0.0,
)  # fmt: skip

wrapcauchy: Final = Continuous(
    "wrapcauchy", lambda y, c: log1p(-square(c)) - LOG_2_PI - log1p(square(c) - 2.0 * c * cos(y)), ("c",),
    (0.0, 2.0 * math.pi), allowed=lambda c: logical_and(c > 0.0, c < 1.0),
)  # fmt: skip
