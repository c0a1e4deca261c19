"""Discrete distributions, of whole numbers, as in N. Johnson, A. Kemp and S. Kotz, Univariate Discrete Distributions
(2005). Binomial coefficients are beta functions, which lose no digits where they are large."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from loopgrad.lazy.numpy.elementwise import exp, expm1, floor, lgamma, log, log1p, logical_and
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.special.entropies import xlog1py, xlogy
from loopgrad.lazy.special.gamma_functions import betaln
from loopgrad.lazy.special.incomplete_beta import betainc, betaincc, log_betainc, log_betaincc
from loopgrad.lazy.special.incomplete_gamma import gammainc, gammaincc, log_gammainc, log_gammaincc
from loopgrad.lazy.stats.univariate import INF, Discrete, Formula, positive

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_STATS: Final = "bernoulli betabinom binom geom nbinom poisson"


def _share(p: Tensor) -> Tensor:
    return logical_and(p >= 0.0, p <= 1.0)


def _count(n: Tensor) -> Tensor:
    return logical_and(n >= 0.0, n == floor(n))


bernoulli: Final = Discrete(
    "bernoulli", lambda k, p: xlogy(k, p) + xlog1py(1.0 - k, -p), ("p",), (0.0, 1.0), _share,
    below=lambda k, p: where(k < 1.0, 1.0 - p, 1.0), above=lambda k, p: where(k < 1.0, p, 0.0),
)  # fmt: skip


def _log_choices(n: Tensor, k: Tensor) -> Tensor:
    return -log1p(n) - betaln(n - k + 1.0, k + 1.0)


def _binomial_tail(function: Formula, above: float, below: float, k: Tensor, n: Tensor, p: Tensor) -> Tensor:
    """A function of a beta distribution, and what it is where the number surely is above k, or not."""
    inner = logical_and(k < n, logical_and(p > 0.0, p < 1.0))
    found = function(where(inner, k, 0.0) + 1.0, where(inner, n - k, 1.0), where(inner, p, 0.5))
    return where(inner, found, where(logical_and(p == 1.0, k < n), above, below))


binom: Final = Discrete(
    "binom", lambda k, n, p: _log_choices(n, k) + xlogy(k, p) + xlog1py(n - k, -p), ("n", "p"), (0.0, "n"),
    lambda n, p: logical_and(_count(n), _share(p)),
    below=partial(_binomial_tail, betaincc, 0.0, 1.0), above=partial(_binomial_tail, betainc, 1.0, 0.0),
    far_below=partial(_binomial_tail, log_betaincc, -INF, 0.0),
    far_above=partial(_binomial_tail, log_betainc, 0.0, -INF),
)  # fmt: skip

poisson: Final = Discrete(
    "poisson", lambda k, mu: xlogy(k, mu) - lgamma(k + 1.0) - mu, ("mu",), (0.0, INF),
    lambda mu: mu >= 0.0, below=lambda k, mu: gammaincc(k + 1.0, mu), above=lambda k, mu: gammainc(k + 1.0, mu),
    far_below=lambda k, mu: log_gammaincc(k + 1.0, mu), far_above=lambda k, mu: log_gammainc(k + 1.0, mu),
)  # fmt: skip

geom: Final = Discrete(
    "geom", lambda k, p: log(p) + xlog1py(k - 1.0, -p), ("p",), (1.0, INF),
    lambda p: logical_and(p > 0.0, p <= 1.0),
    below=lambda k, p: -expm1(xlog1py(k, -p)), above=lambda k, p: exp(xlog1py(k, -p)),
    log_above=lambda k, p: xlog1py(k, -p),
)  # fmt: skip

nbinom: Final = Discrete(
    "nbinom", lambda k, n, p: -log(n + k) - betaln(n, k + 1.0) + xlogy(n, p) + xlog1py(k, -p), ("n", "p"),
    (0.0, INF), lambda n, p: logical_and(n > 0.0, logical_and(p > 0.0, p <= 1.0)),
    below=lambda k, n, p: betainc(n, k + 1.0, p), above=lambda k, n, p: betaincc(n, k + 1.0, p),
    far_below=lambda k, n, p: log_betainc(n, k + 1.0, p), far_above=lambda k, n, p: log_betaincc(n, k + 1.0, p),
)  # fmt: skip

betabinom: Final = Discrete(
    "betabinom", lambda k, n, a, b: _log_choices(n, k) + betaln(k + a, n - k + b) - betaln(a, b), ("n", "a", "b"),
    (0.0, "n"), lambda n, a, b: logical_and(_count(n), positive(a, b)),
)  # fmt: skip
