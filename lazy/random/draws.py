"""The methods that generators and streams share: NumPy's names and arguments, and what they draw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.random import (
    continuous,
    counts_by_rejection,
    discrete,
    gamma,
    inverse_gaussian,
    noncentral,
    von_mises,
)
from loopgrad.lazy.random.distribution import promoted
from loopgrad.lazy.random.integers import IntegerRange, integers_between
from loopgrad.lazy.random.multivariate import (
    FACTORS,
    colors_drawn,
    counts,
    dirichlet_shares,
    last_extent,
    normal_vectors,
)
from loopgrad.lazy.tensor.core import TensorCore, as_tensor, cast, is_scalar, requested_dtype

if TYPE_CHECKING:
    from loopgrad.lazy.random.distribution import Distribution
    from loopgrad.lazy.tensor.core import ArrayLike
    from loopgrad.lazy.tensor.operands import Shape
    from loopgrad.lazy.tensor.tensor import Tensor

Drawn = TypeVar("Drawn")


class Draws(ABC, Generic[Drawn]):
    """Each method draws numbers of `size` (None: the shape that the parameters have). Parameters broadcast to that;
    floats have the dtype of `dtype`, else the one that the parameters promote to.

    Raises ValueError for a parameter of Python's or NumPy's that is out of range (tensors aren't looked at), DTypeError
    for a dtype that isn't one of floats, ShapeError where the parameters don't broadcast to the size.
    """

    @abstractmethod
    def _made(
        self,
        what: str,
        shapes: Sequence[Shape],
        size: Any,
        words: int,
        make: Callable[..., Tensor],
        given: Sequence[Any],
        event: Shape = (),
    ) -> Drawn:
        """What `make`, a function of a module, makes of a source and of what is given: for numbers of `size` and
        parameters of these shapes, each of the axes `event` and of as many words of 32 bits."""

    def _draw(self, what: Distribution, parameters: tuple[Any, ...], size: Any, dtype: Any = None) -> Drawn:
        what.check(parameters)
        kind = what.float_type(parameters, dtype)
        given = [as_tensor(p) for p in parameters]
        shapes = [t._value.shape for t in given]
        return self._made(what.name, shapes, size, what.words_of(kind), what.numbers, (kind, given))

    # ---- uniform

    def random(self, size: Any = None, dtype: Any = None) -> Drawn:
        """Uniform floats in [0, 1), of shape `size`: multiples of 2**-53, of float32 2**-24.

        >>> lg.random.default_rng(7).random(3)
        Tensor([0.86044399, 0.75734053, 0.86979218], dtype=float64)
        """
        return self._draw(continuous.RANDOM, (), size, dtype)

    def uniform(self, low: ArrayLike = 0.0, high: ArrayLike = 1.0, size: Any = None, dtype: Any = None) -> Drawn:
        """Uniform floats in [low, high), of tensors in (high, low] where that is the order. Differentiable by both.

        >>> lg.random.default_rng(7).uniform(-1.0, 1.0, size=2).shape
        (2,)
        """
        return self._draw(continuous.UNIFORM, (low, high), size, dtype)

    def integers(
        self, low: ArrayLike, high: ArrayLike | None = None, size: Any = None, dtype: Any = None, endpoint: bool = False
    ) -> Drawn:
        """Integers from `low` to `high - 1` (`endpoint`: to `high`), or from 0 to `low - 1`; int64 unless `dtype` says
        another dtype of integers, or bool. Where `low` and `high` are tensors, an empty range gives `low`.

        >>> lg.random.default_rng(7).integers(1, 7, size=5)
        Tensor([2, 6, 6, 1, 1], dtype=int64)
        """
        among = IntegerRange(low, high, dtype, endpoint)
        given = (*((0, low) if high is None else (low, high)), among.dtype, endpoint)
        return self._made("integers", among.shapes, size, 4, integers_between, given)

    def bernoulli(self, p: ArrayLike = 0.5, size: Any = None) -> Drawn:
        """Bools that are true with probability p.

        >>> lg.random.default_rng(7).bernoulli([0.0, 1.0])
        Tensor([False,  True], dtype=bool)
        """
        return self._draw(discrete.BERNOULLI, (p,), size)

    # ---- formulas

    def standard_normal(self, size: Any = None, dtype: Any = None) -> Drawn:
        """Normal floats with mean 0 and standard deviation 1.

        >>> lg.random.default_rng(7).standard_normal((2, 2), dtype=lg.float32).dtype
        float32
        """
        return self._draw(continuous.STANDARD_NORMAL, (), size, dtype)

    def normal(self, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0, size: Any = None, dtype: Any = None) -> Drawn:
        """Normal floats with that mean and standard deviation. Differentiable by both.

        >>> lg.random.default_rng(7).normal([0.0, 100.0], 0.1).round()
        Tensor([  0., 100.], dtype=float64)
        """
        return self._draw(continuous.NORMAL, (loc, scale), size, dtype)

    def lognormal(self, mean: ArrayLike = 0.0, sigma: ArrayLike = 1.0, size: Any = None, dtype: Any = None) -> Drawn:
        """Floats whose logarithms are normal with that mean and standard deviation. Differentiable by both.

        >>> lg.random.default_rng(7).lognormal(2.0, 0.0)
        Tensor(7.3890561, dtype=float64)
        """
        return self._draw(continuous.LOGNORMAL, (mean, sigma), size, dtype)

    def standard_exponential(self, size: Any = None, dtype: Any = None) -> Drawn:
        """Exponential floats with mean 1.

        >>> lg.random.default_rng(7).standard_exponential(3).shape
        (3,)
        """
        return self._draw(continuous.STANDARD_EXPONENTIAL, (), size, dtype)

    def exponential(self, scale: ArrayLike = 1.0, size: Any = None, dtype: Any = None) -> Drawn:
        """Exponential floats with mean `scale`. Differentiable by it.

        >>> lg.random.default_rng(7).exponential(2.0, size=3).shape
        (3,)
        """
        return self._draw(continuous.EXPONENTIAL, (scale,), size, dtype)

    def gumbel(self, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0, size: Any = None, dtype: Any = None) -> Drawn:
        """Floats with Gumbel's distribution of largest values. Differentiable by both parameters.

        >>> lg.random.default_rng(7).gumbel(size=(2, 1)).shape
        (2, 1)
        """
        return self._draw(continuous.GUMBEL, (loc, scale), size, dtype)

    def laplace(self, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0, size: Any = None, dtype: Any = None) -> Drawn:
        """Floats with Laplace's distribution, exponential to both sides of `loc`. Differentiable by both parameters.

        >>> lg.random.default_rng(7).laplace(scale=[1.0, 2.0]).shape
        (2,)
        """
        return self._draw(continuous.LAPLACE, (loc, scale), size, dtype)

    def logistic(self, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0, size: Any = None, dtype: Any = None) -> Drawn:
        """Floats with the logistic distribution. Differentiable by both parameters.

        >>> lg.random.default_rng(7).logistic(5.0).shape
        ()
        """
        return self._draw(continuous.LOGISTIC, (loc, scale), size, dtype)

    def standard_cauchy(self, size: Any = None, dtype: Any = None) -> Drawn:
        """Floats with Cauchy's distribution, which has no mean.

        >>> lg.random.default_rng(7).standard_cauchy(2).shape
        (2,)
        """
        return self._draw(continuous.STANDARD_CAUCHY, (), size, dtype)

    def rayleigh(self, scale: ArrayLike = 1.0, size: Any = None, dtype: Any = None) -> Drawn:
        """Floats with Rayleigh's distribution: lengths of vectors of two normal numbers. Differentiable by `scale`.

        >>> lg.random.default_rng(7).rayleigh(2.0, size=3).shape
        (3,)
        """
        return self._draw(continuous.RAYLEIGH, (scale,), size, dtype)

    def weibull(self, a: ArrayLike, size: Any = None, dtype: Any = None) -> Drawn:
        """Floats with Weibull's distribution of shape `a` and scale 1. Differentiable by `a`.

        >>> lg.random.default_rng(7).weibull(1.5, size=3).shape
        (3,)
        """
        return self._draw(continuous.WEIBULL, (a,), size, dtype)

    def pareto(self, a: ArrayLike, size: Any = None, dtype: Any = None) -> Drawn:
        """Floats with Lomax's distribution of shape `a`: Pareto's less 1, as in NumPy. Differentiable by `a`.

        >>> lg.random.default_rng(7).pareto(3.0, size=3).shape
        (3,)
        """
        return self._draw(continuous.PARETO, (a,), size, dtype)

    def power(self, a: ArrayLike, size: Any = None, dtype: Any = None) -> Drawn:
        """Floats in [0, 1] with density a x**(a - 1). Differentiable by `a`.

        >>> lg.random.default_rng(7).power(3.0, size=3).shape
        (3,)
        """
        return self._draw(continuous.POWER, (a,), size, dtype)

    def triangular(
        self, left: ArrayLike, mode: ArrayLike, right: ArrayLike, size: Any = None, dtype: Any = None
    ) -> Drawn:
        """Floats whose density rises from `left` to `mode` and falls to `right`; NaN where an element of a tensor
        `mode` isn't between the others. Differentiable by all three.

        >>> lg.random.default_rng(7).triangular(0.0, 1.0, 4.0, size=3).shape
        (3,)
        """
        return self._draw(continuous.TRIANGULAR, (left, mode, right), size, dtype)

    def wald(self, mean: ArrayLike, scale: ArrayLike, size: Any = None, dtype: Any = None) -> Drawn:
        """Floats with Wald's distribution, the inverse Gaussian one. Differentiable by both parameters, implicitly.

        >>> lg.random.default_rng(7).wald(1.0, 2.0, size=3).shape
        (3,)
        """
        return self._draw(inverse_gaussian.WALD, (mean, scale), size, dtype)

    # ---- gamma and its relatives

    def standard_gamma(self, shape: ArrayLike, size: Any = None, dtype: Any = None) -> Drawn:
        """Gamma floats of that shape and scale 1. Differentiable by the shape, implicitly (Figurnov et al., 2018).

        >>> lg.random.default_rng(7).standard_gamma([0.5, 20.0]).shape
        (2,)
        """
        return self._draw(gamma.STANDARD_GAMMA, (shape,), size, dtype)

    def gamma(self, shape: ArrayLike, scale: ArrayLike = 1.0, size: Any = None, dtype: Any = None) -> Drawn:
        """Gamma floats of that shape and scale. Differentiable by both.

        >>> lg.random.default_rng(7).gamma(2.0, 3.0, size=4).shape
        (4,)
        """
        return self._draw(gamma.GAMMA, (shape, scale), size, dtype)

    def chisquare(self, df: ArrayLike, size: Any = None, dtype: Any = None) -> Drawn:
        """Chi-square floats with that many degrees of freedom. Differentiable by these.

        >>> lg.random.default_rng(7).chisquare(3.0, size=4).shape
        (4,)
        """
        return self._draw(gamma.CHISQUARE, (df,), size, dtype)

    def beta(self, a: ArrayLike, b: ArrayLike, size: Any = None, dtype: Any = None) -> Drawn:
        """Beta floats, in [0, 1]. Differentiable by both parameters.

        >>> lg.random.default_rng(7).beta(2.0, 3.0, size=4).shape
        (4,)
        """
        return self._draw(gamma.BETA, (a, b), size, dtype)

    def f(self, dfnum: ArrayLike, dfden: ArrayLike, size: Any = None, dtype: Any = None) -> Drawn:
        """Floats with Fisher's F distribution. Differentiable by both degrees of freedom.

        >>> lg.random.default_rng(7).f(2.0, 30.0, size=4).shape
        (4,)
        """
        return self._draw(gamma.F, (dfnum, dfden), size, dtype)

    def standard_t(self, df: ArrayLike, size: Any = None, dtype: Any = None) -> Drawn:
        """Floats with Student's t distribution. Differentiable by the degrees of freedom.

        >>> lg.random.default_rng(7).standard_t(5.0, size=4).shape
        (4,)
        """
        return self._draw(gamma.STANDARD_T, (df,), size, dtype)

    def noncentral_chisquare(self, df: ArrayLike, nonc: ArrayLike, size: Any = None, dtype: Any = None) -> Drawn:
        """Chi-square floats with that many degrees of freedom and that noncentrality. Differentiable by both.

        >>> lg.random.default_rng(7).noncentral_chisquare(3.0, 20.0, size=4).shape
        (4,)
        """
        return self._draw(noncentral.NONCENTRAL_CHISQUARE, (df, nonc), size, dtype)

    def noncentral_f(
        self, dfnum: ArrayLike, dfden: ArrayLike, nonc: ArrayLike, size: Any = None, dtype: Any = None
    ) -> Drawn:
        """Floats with the noncentral F distribution. Differentiable by both degrees of freedom and the noncentrality.

        >>> lg.random.default_rng(7).noncentral_f(3.0, 20.0, 3.0, size=4).shape
        (4,)
        """
        return self._draw(noncentral.NONCENTRAL_F, (dfnum, dfden, nonc), size, dtype)

    def vonmises(self, mu: ArrayLike, kappa: ArrayLike, size: Any = None, dtype: Any = None) -> Drawn:
        """Angles (floats in [-pi, pi]) with von Mises' distribution around mu; large kappa: close. Differentiable by
        both.

        >>> lg.random.default_rng(7).vonmises(0.0, 4.0, size=3).shape
        (3,)
        """
        return self._draw(von_mises.VON_MISES, (mu, kappa), size, dtype)

    # ---- integers

    def poisson(self, lam: ArrayLike = 1.0, size: Any = None) -> Drawn:
        """Poisson integers (int64) with mean `lam`; -1 where an element of a tensor is no mean.

        >>> lg.random.default_rng(7).poisson([0.0, 4.0]).shape
        (2,)
        """
        return self._draw(discrete.POISSON, (lam,), size)

    def binomial(self, n: ArrayLike, p: ArrayLike, size: Any = None) -> Drawn:
        """How many of n trials succeed, each with probability p: integers (int64); -1 where
        tensors have no such numbers.

        >>> lg.random.default_rng(7).binomial(10, [0.0, 1.0])
        Tensor([ 0, 10], dtype=int64)
        """
        return self._draw(discrete.BINOMIAL, (n, p), size)

    def negative_binomial(self, n: ArrayLike, p: ArrayLike, size: Any = None) -> Drawn:
        """How many trials fail before n succeed, each with probability p: integers (int64).

        >>> lg.random.default_rng(7).negative_binomial(3, 0.5, size=2).shape
        (2,)
        """
        return self._draw(discrete.NEGATIVE_BINOMIAL, (n, p), size)

    def geometric(self, p: ArrayLike, size: Any = None) -> Drawn:
        """How many trials it takes until one succeeds: integers (int64), at least 1.

        >>> lg.random.default_rng(7).geometric([1.0, 0.5]).shape
        (2,)
        """
        return self._draw(discrete.GEOMETRIC, (p,), size)

    def hypergeometric(self, ngood: ArrayLike, nbad: ArrayLike, nsample: ArrayLike, size: Any = None) -> Drawn:
        """How many are good of `nsample` drawn without replacement: integers (int64).

        >>> lg.random.default_rng(7).hypergeometric(5, 0, 3)
        Tensor(3, dtype=int64)
        """
        if not any(isinstance(x, TensorCore) for x in (ngood, nbad, nsample)) and np.any(
            np.asarray(nsample) > np.add(ngood, nbad, dtype=np.float64)
        ):
            fix = "draw no more than there are"
            raise ValueError(explained("hypergeometric", "nsample of at most ngood + nbad", nsample, fix))
        return self._draw(counts_by_rejection.HYPERGEOMETRIC, (ngood, nbad, nsample), size)

    def zipf(self, a: ArrayLike, size: Any = None) -> Drawn:
        """Integers (int64) of at least 1 whose probabilities are proportional to k**-a; a > 1.

        >>> lg.random.default_rng(7).zipf(2.0, size=4).shape
        (4,)
        """
        return self._draw(counts_by_rejection.ZIPF, (a,), size)

    def logseries(self, p: ArrayLike, size: Any = None) -> Drawn:
        """Integers (int64) of at least 1 whose probabilities are proportional to p**k / k.

        >>> lg.random.default_rng(7).logseries(0.7, size=4).shape
        (4,)
        """
        return self._draw(counts_by_rejection.LOGSERIES, (p,), size)

    # ---- several at once

    def multivariate_normal(
        self, mean: ArrayLike, cov: ArrayLike, size: Any = None, *, method: str = "cholesky", dtype: Any = None
    ) -> Drawn:
        """Normal vectors with that mean (n elements) and covariance (n, n): the mean plus a factor of the covariance
        times normal numbers. Differentiable by both.

        `method`: "cholesky", for positive definite covariances; "eigh" and "svd" take the symmetric square root, of
        semidefinite ones too, which costs more, and whose derivative is NaN where eigenvalues are equal.

        >>> lg.random.default_rng(7).multivariate_normal([0.0, 5.0], [[1.0, 0.5], [0.5, 2.0]], size=4).shape
        (4, 2)
        """
        if method not in FACTORS:
            expected = f"one of the methods {', '.join(FACTORS)}"
            raise ValueError(explained("multivariate_normal", expected, repr(method), "pass one of them"))
        n = last_extent("multivariate_normal", "mean", mean)
        kind = requested_dtype(dtype) or promoted([mean, cov])
        center, spread = cast(as_tensor(mean), kind), cast(as_tensor(cov), kind)
        if spread._value.shape[-2:] != (n, n):
            got, fix = spread._value.type, "pass one row and one column for each element of the mean"
            raise ShapeError(explained("multivariate_normal", f"a covariance of {n} rows and columns", got, fix))
        shapes = [center._value.shape[:-1], spread._value.shape[:-2]]
        words, given = continuous.STANDARD_NORMAL.words_of(kind), (center, spread, method, kind)
        return self._made("multivariate_normal", shapes, size, words, normal_vectors, given, (n,))

    def dirichlet(self, alpha: ArrayLike, size: Any = None, dtype: Any = None) -> Drawn:
        """Vectors of floats that sum to 1, with Dirichlet's distribution. Differentiable by `alpha` (n elements).

        >>> shares = lg.random.default_rng(7).dirichlet([1.0, 2.0, 3.0], size=4)
        >>> shares.shape, lg.allclose(lg.sum(shares, axis=-1), 1.0)
        ((4, 3), Tensor(True, dtype=bool))
        """
        what = gamma.LOG_GAMMA
        what.check((alpha,))
        n, kind, weights = last_extent("dirichlet", "alpha", alpha), what.float_type((alpha,), dtype), as_tensor(alpha)
        shapes, words = [weights._value.shape[:-1]], what.words_of(kind)
        return self._made("dirichlet", shapes, size, words, dirichlet_shares, (weights, kind), (n,))

    def multinomial(self, n: ArrayLike, pvals: ArrayLike, size: Any = None) -> Drawn:
        """How many of n trials fall in each category: int64 vectors that sum to n. `pvals` are the probabilities (k
        elements); what they lack to 1 is added to the last.

        >>> lg.random.default_rng(7).multinomial(100, [0.0, 1.0, 0.0])
        Tensor([  0, 100,   0], dtype=int64)
        """
        discrete.MULTINOMIAL.check((n, pvals))
        k, trials, chances = last_extent("multinomial", "pvals", pvals), as_tensor(n), as_tensor(pvals)
        shapes = [trials._value.shape, chances._value.shape[:-1]]
        return self._made("multinomial", shapes, size, 4, counts, (n if is_scalar(n) else trials, chances), (k,))

    def multivariate_hypergeometric(
        self, colors: ArrayLike, nsample: ArrayLike, size: Any = None, method: str = "marginals"
    ) -> Drawn:
        """How many of each color are among `nsample` drawn without replacement: int64 vectors that sum to that, as long
        as `colors`, which says how many there are of each.

        `method`, which names NumPy's ways to the same numbers, changes nothing. Raises ValueError for more than there
        are.

        >>> lg.random.default_rng(7).multivariate_hypergeometric([0, 5, 0], 3)
        Tensor([0, 3, 0], dtype=int64)
        """
        if method not in ("marginals", "count"):
            expected = "method 'marginals' or 'count'"
            raise ValueError(explained("multivariate_hypergeometric", expected, repr(method), "leave it out"))
        counts_by_rejection.MULTIVARIATE_HYPERGEOMETRIC.check((colors, nsample))
        if not any(isinstance(x, TensorCore) for x in (colors, nsample)) and np.any(
            np.asarray(nsample) > np.sum(colors, axis=-1)
        ):
            expected, fix = "nsample of at most the sum of colors", "draw no more than there are"
            raise ValueError(explained("multivariate_hypergeometric", expected, nsample, fix))
        k, there = last_extent("multivariate_hypergeometric", "colors", colors), as_tensor(colors)
        taken = as_tensor(nsample)
        shapes = [taken._value.shape, there._value.shape[:-1]]
        given = there, nsample if is_scalar(nsample) else taken
        return self._made("multivariate_hypergeometric", shapes, size, 4, colors_drawn, given, (k,))
