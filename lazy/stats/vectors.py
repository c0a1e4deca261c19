"""Distributions of vectors: the normal, Dirichlet's and the multinomial, with the arguments that SciPy's have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.creation import eye
from loopgrad.lazy.numpy.elementwise import absolute, exp, floor, lgamma, log, logical_and, subtract
from loopgrad.lazy.numpy.linalg.decompositions import cholesky
from loopgrad.lazy.numpy.linalg.triangular import solve_triangular
from loopgrad.lazy.numpy.matrix_products import diagonal
from loopgrad.lazy.numpy.movement import expand_dims, reshape
from loopgrad.lazy.numpy.reduction import all as every
from loopgrad.lazy.numpy.reduction import sum as total
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.special.entropies import xlogy
from loopgrad.lazy.special.operands import of_floats
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor
from loopgrad.lazy.tensor.repeated_calls import repeated_method

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_STATS: Final = "dirichlet multinomial multivariate_normal"
LOG_2_PI: Final = math.log(2.0 * math.pi)
INF: Final = float("inf")


def _axis_missing(op: str, expected: str, got: Tensor) -> ShapeError:
    return ShapeError(explained(op, expected, got._value.type, "add the axis of the vectors"))


class MultivariateNormal:
    """The normal distribution of vectors."""

    @repeated_method
    def logpdf(self, x: ArrayLike, mean: ArrayLike = 0.0, cov: ArrayLike = 1.0) -> Tensor:
        """The logarithm of the density of vectors of n numbers: x of shape (..., n), or a number where n is 1; mean of
        shape (n,) or a number; cov (n, n), or a number for that multiple of the identity. By Cholesky's factor of cov,
        of which the lower triangle is read; LinAlgError where it isn't positive definite.

        >>> lg.stats.multivariate_normal.logpdf([1.0, 0.0], [1.0, 1.0], lg.asarray([[2.0, 0.0], [0.0, 0.5]]))
        Tensor(-2.83787707, dtype=float64)
        """
        from_mean = of_floats("stats.multivariate_normal.logpdf", subtract, x, mean)
        rows = from_mean if from_mean.shape else reshape(from_mean, (1,))
        n = rows.shape[-1]
        given = as_tensor(cov)
        matrix = given if given.ndim == 2 else given * eye(n, dtype=rows.dtype)
        if matrix.shape != (n, n):
            expected = f"cov of shape ({n}, {n}) or ()"
            raise ShapeError(explained("stats.multivariate_normal.logpdf", expected, given.shape, "pass a matrix"))
        factor = cholesky(matrix)
        columns = reshape(rows, (-1, n)).T
        scaled = reshape(solve_triangular(factor, columns, lower=True).T, rows.shape)
        size = total(log(diagonal(factor)))
        return -0.5 * total(scaled * scaled, axis=-1) - size - 0.5 * n * LOG_2_PI

    @repeated_method
    def pdf(self, x: ArrayLike, mean: ArrayLike = 0.0, cov: ArrayLike = 1.0) -> Tensor:
        """The density, with the arguments of `logpdf`.

        >>> lg.stats.multivariate_normal.pdf([[0.0, 0.0], [1.0, 0.0]])
        Tensor([0.15915494, 0.09653235], dtype=float64)
        """
        return exp(self.logpdf(x, mean, cov))


class Dirichlet:
    """Dirichlet's distribution of shares, which add up to 1."""

    @repeated_method
    def logpdf(self, x: ArrayLike, alpha: ArrayLike) -> Tensor:
        """The logarithm of the density of shares along the first axis of x, of shape (n,) or (n, points); alpha has
        shape (n,); where it isn't positive the result is NaN. Of x all n shares are given; -inf where one is negative,
        or where they don't add up to 1 within 1e-5.

        >>> lg.stats.dirichlet.logpdf([0.25, 0.75], [2.0, 1.0])
        Tensor(-0.69314718, dtype=float64)
        """
        op, shares, weights = "stats.dirichlet.logpdf", as_tensor(x), as_tensor(alpha)
        if weights.ndim != 1 or not 1 <= shares.ndim <= 2 or shares.shape[0] != weights.shape[0]:
            raise _axis_missing(op, f"x of shape {weights.shape} or with an axis of points behind", shares)
        column = weights if shares.ndim == 1 else expand_dims(weights, axis=1)
        whole = absolute(total(shares, axis=0) - 1.0) < 1e-5
        inside = logical_and(every(shares >= 0.0, axis=0), whole)
        terms = of_floats(op, lambda s, w: xlogy(w - 1.0, where(s >= 0.0, s, 1.0)) - lgamma(w), shares, column)
        density = where(inside, total(terms, axis=0) + lgamma(total(weights)), -INF)
        return where(every(weights > 0.0), density, float("nan"))

    @repeated_method
    def pdf(self, x: ArrayLike, alpha: ArrayLike) -> Tensor:
        """The density, with the arguments of `logpdf`.

        >>> lg.stats.dirichlet.pdf([0.25, 0.75], [2.0, 1.0])
        Tensor(0.5, dtype=float64)
        """
        return exp(self.logpdf(x, alpha))


class Multinomial:
    """The multinomial distribution: how often each of some outcomes came in n trials."""

    @repeated_method
    def logpmf(self, x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Tensor:
        """The logarithm of the probability of the counts along the last axis of x, in n trials with probabilities p,
        which broadcast; -inf for counts that aren't whole, are negative, or don't add up to n.

        >>> lg.stats.multinomial.logpmf([1, 1], 2, [0.5, 0.5])
        Tensor(-0.69314718, dtype=float64)
        """
        op, counts, trials = "stats.multinomial.logpmf", as_tensor(x), as_tensor(n)
        if not counts.ndim:
            raise _axis_missing(op, "x of shape (..., outcomes)", counts)
        inside = logical_and(every(logical_and(counts >= 0, counts == floor(counts)), axis=-1), total(counts, -1) == n)
        terms = of_floats(op, lambda x, p: xlogy(x, p) - lgamma(where(x >= 0.0, x, 0.0) + 1.0), counts, p)
        return where(inside, total(terms, axis=-1) + lgamma(trials + 1.0), -INF)

    @repeated_method
    def pmf(self, x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Tensor:
        """The probability, with the arguments of `logpmf`.

        >>> lg.stats.multinomial.pmf([1, 1], 2, [0.5, 0.5])
        Tensor(0.5, dtype=float64)
        """
        return exp(self.logpmf(x, n, p))


multivariate_normal: Final = MultivariateNormal()
dirichlet: Final = Dirichlet()
multinomial: Final = Multinomial()
