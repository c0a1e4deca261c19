"""Statistics and probability: mixtures, kernels, regressions, filters of hidden states, samplers, ranks."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import Program, integers, named, normal, sizes, uniform
from benchmarks.workloads.arrays.script import Loss, loss, script

SAMPLES = sizes(2**18, 100, 2**22)
ROWS = sizes(2**14, 50, 2**18)
SQUARE = sizes(1024, 20, 4096)
STEPS: Final = 32


def clusters(n: int) -> Arrays:
    x, mean, logvar, logits = normal((n, 4), (8, 4), (8, 4), (8,))
    return named(x=x, mean=mean, logvar=logvar / 4, logits=logits)


def densities(xp: Any, x: Any, mean: Any, logvar: Any, logits: Any) -> Any:
    """Of each component of a mixture, times its share, in logarithms."""
    square = xp.sum((x[:, None] - mean) ** 2 * xp.exp(-logvar) + logvar, -1)
    return logits - xp.logsumexp(logits) - 0.5 * square - 2 * math.log(2 * math.pi)


def mixture(xp: Any, *arrays: Any) -> Any:
    return -xp.mean(xp.logsumexp(densities(xp, *arrays), -1))


def mixture_step(xp: Any, x: Any, mean: Any, logvar: Any, logits: Any) -> Any:
    """A step of expectation and maximisation."""
    logp = densities(xp, x, mean, logvar, logits)
    share = xp.exp(logp - xp.logsumexp(logp, -1, keepdims=True))
    weight = xp.sum(share, 0)
    mean = share.T @ x / weight[:, None]
    var = share.T @ (x * x) / weight[:, None] - mean**2
    return mean, var, weight / x.shape[0]


def squares(xp: Any, a: Any, b: Any) -> Any:
    """Of distances, by products."""
    return xp.maximum(xp.sum(a * a, 1)[:, None] + xp.sum(b * b, 1) - 2 * a @ b.T, 0)


def points(n: int) -> Arrays:
    return named(x=normal((n, 8))[0])


def gaussian_kernel(xp: Any, x: Any) -> Any:
    """Centred, as principal components of a kernel need it."""
    k = xp.exp(-squares(xp, x, x) / 8)
    return k - xp.mean(k, 0) - xp.mean(k, 1)[:, None] + xp.mean(k)


def matern(xp: Any, x: Any, scale: Any, w: Any) -> Any:
    """A weighted sum of a kernel of smoothness 3/2, by its scale and places."""
    d = xp.sqrt(squares(xp, x, x) + 1e-4) * (3**0.5 / scale)
    return w @ ((1 + d) * xp.exp(-d)) @ w


def smoothed_density(xp: Any, x: Any, at: Any) -> Any:
    u = (at[:, None] - x) / 0.2
    return xp.mean(xp.where(xp.abs(u) < 1, 0.75 * (1 - u * u), 0), 1) / 0.2


def two_samples(n: int) -> Arrays:
    x, y = normal((n, 8), (n, 8))
    return named(x=x, y=y * 1.2)


def discrepancy(xp: Any, x: Any, y: Any) -> Any:
    """Between two samples, by a kernel's means (Gretton et al. 2012)."""
    xx, yy, xy = (xp.mean(1 / (1 + squares(xp, a, b))) for a, b in ((x, x), (y, y), (x, y)))
    return xx + yy - 2 * xy


def regressors(n: int) -> Arrays:
    x, w, e = normal((n, 24), (24,), (n,))
    return named(x=x, y=x @ w / 5 + e, w=w / 10)


def counted(n: int) -> Arrays:
    arrays = regressors(n)
    return arrays | named(y=integers((n,), 6).astype(np.float32))


def labelled(n: int) -> Arrays:
    arrays = regressors(n)
    return arrays | named(y=(arrays["y"] > 0).astype(np.float32))


def ridge(xp: Any, x: Any, y: Any, w: Any) -> Any:
    """With the errors of leaving one out, by the hat matrix's diagonal."""
    inverse = xp.linalg.inv(x.T @ x + xp.eye(x.shape[1], dtype=x.dtype))
    w = inverse @ (x.T @ y)
    return w, (y - x @ w) / (1 - xp.sum((x @ inverse) * x, 1))


def reweighted(xp: Any, x: Any, y: Any, w: Any) -> Any:
    """Four steps of a logistic regression by Newton's method."""
    for _ in range(4):
        p = 1 / (1 + xp.exp(-(x @ w)))
        h = (x * (p * (1 - p))[:, None]).T @ x + 0.1 * xp.eye(x.shape[1], dtype=x.dtype)
        w = w + xp.linalg.solve(h, x.T @ (y - p) - 0.1 * w)
    return w


def huber(xp: Any, x: Any, y: Any, w: Any) -> Any:
    e = xp.abs(y - x @ w)
    return xp.mean(xp.where(e < 1, 0.5 * e * e, e - 0.5)) + 0.01 * xp.sum(w * w)


def pinball(xp: Any, x: Any, y: Any, w: Any) -> Any:
    """Losses of three quantiles, summed."""
    e = y - x @ w
    return sum(xp.mean(xp.maximum(q * (e - q), (q - 1) * (e - q))) for q in (0.1, 0.5, 0.9))


def poisson(xp: Any, x: Any, y: Any, w: Any) -> Any:
    rate = x @ w
    return xp.mean(xp.exp(rate) - y * rate)


def t_residuals(xp: Any, x: Any, y: Any, w: Any) -> Any:
    """Of a regression whose errors have long tails, of four degrees of freedom."""
    return xp.mean(2.5 * xp.log1p((y - x @ w) ** 2 / 4))


def elastic(xp: Any, x: Any, y: Any, w: Any) -> Any:
    """Ten steps of iterative shrinkage."""
    for _ in range(10):
        w = w - 0.2 * (x.T @ (x @ w - y) / x.shape[0])
        w = xp.sign(w) * xp.maximum(xp.abs(w) - 0.01, 0)
    return w


def series(n: int) -> Arrays:
    return named(y=normal((STEPS, n))[0], q=uniform((n,), low=0.05, high=0.3)[0])


def local_level(xp: Any, y: Any, q: Any) -> Any:
    """Kalman's filter of many series, each a walk seen with noise: their likelihood."""
    mean, var, total = xp.zeros_like(q), xp.ones_like(q), 0.0
    for seen in y:
        var = var + q
        error, spread = seen - mean, var + 1
        total = total + xp.log(spread) + error * error / spread
        gain = var / spread
        mean, var = mean + gain * error, var * (1 - gain)
    return 0.5 * xp.mean(total)


def chains(n: int) -> Arrays:
    seen, moves = normal((STEPS, n, 16), (16, 16))
    return named(seen=seen, moves=moves)


def hidden_forward(xp: Any, seen: Any, moves: Any) -> Any:
    """The likelihood of a hidden Markov chain of 16 states, scaled at each step."""
    chances = xp.exp(moves - xp.logsumexp(moves, -1, keepdims=True))
    state, total = xp.full((seen.shape[1], 16), 1 / 16, dtype=seen.dtype), 0.0
    for row in xp.exp(seen - xp.logsumexp(seen, -1, keepdims=True)):
        state = state @ chances * row
        mass = xp.sum(state, -1, keepdims=True)
        state, total = state / mass, total + xp.log(mass)
    return -xp.mean(total)


def walkers(n: int) -> Arrays:
    x, steps = normal((n, 2), (16, n, 2))
    return named(x=x, steps=steps / 2, u=uniform((16, n), low=1e-6)[0])


def banana(xp: Any, x: Any) -> Any:
    """The logarithm of Rosenbrock's density."""
    return -((1 - x[:, 0]) ** 2) / 2 - 2 * (x[:, 1] - x[:, 0] ** 2) ** 2


def accepted(xp: Any, x: Any, steps: Any, u: Any) -> Any:
    """Sixteen steps of Metropolis' walk, for many walkers."""
    count = xp.zeros(x.shape[0], dtype=x.dtype)
    for step, limit in zip(steps, u, strict=True):
        taken = xp.log(limit) < banana(xp, x + step) - banana(xp, x)
        x, count = xp.where(taken[:, None], x + step, x), count + taken
    return x, count / 16


def leapfrog(xp: Any, x: Any, p: Any, precision: Any) -> Any:
    """Eight steps of Hamiltonian dynamics in a normal density, and what energy changes."""
    energy = lambda x, p: 0.5 * (xp.sum(x @ precision * x, 1) + xp.sum(p * p, 1))
    start = energy(x, p)
    p = p - 0.05 * x @ precision
    for _ in range(8):
        x = x + 0.1 * p
        p = p - 0.1 * x @ precision
    p = p + 0.05 * x @ precision
    return x, p, energy(x, p) - start


def phases(n: int) -> Arrays:
    x, p, a = normal((n, 32), (n, 32), (32, 32))
    return named(x=x, p=p, precision=a @ a.T / 32)


def resampled(xp: Any, x: Any, picks: Any) -> Any:
    """Means and deviations of 200 samples with replacement, and where 95 % of the means are."""
    rows = x[picks]
    means = xp.mean(rows, 1)
    return means, xp.std(rows, 1), xp.percentile(means, xp.asarray([2.5, 97.5]))


def columns(n: int) -> Arrays:
    return named(x=normal((n, 16))[0])


def robust_scale(xp: Any, x: Any) -> Any:
    """Columns less their median, over their median deviation."""
    apart = x - xp.median(x, 0)
    return apart / (1.4826 * xp.median(xp.abs(apart), 0))


def shrunk(xp: Any, x: Any) -> Any:
    """A covariance drawn to a multiple of the identity (Ledoit and Wolf 2004)."""
    n, p = x.shape
    x = x - xp.mean(x, 0)
    s = x.T @ x / n
    level = xp.trace(s) / p
    apart = s - level * xp.eye(p, dtype=x.dtype)
    spread = xp.sum(apart * apart)
    noise = (xp.sum(xp.sum(x * x, 1) ** 2) / n - xp.sum(s * s)) / n
    share = xp.minimum(noise / spread, 1)
    return s - share * apart


def wide(n: int) -> Arrays:
    return named(x=normal((n, 128))[0])


def mahalanobis(xp: Any, x: Any) -> Any:
    """Distances from the mean, by Cholesky's factor of the covariance."""
    x = x - xp.mean(x, 0)
    factor = xp.linalg.cholesky(x.T @ x / x.shape[0])
    return xp.sqrt(xp.sum(xp.linalg.solve(factor, x.T) ** 2, 0))


def rank_correlation(xp: Any, x: Any, y: Any) -> Any:
    """Spearman's."""
    a, b = (xp.argsort(xp.argsort(v)).astype(xp.float32) for v in (x, y))
    return xp.mean((a - xp.mean(a)) * (b - xp.mean(b))) / (xp.std(a) * xp.std(b))


def pairs(n: int) -> Arrays:
    x, y = normal((n,), (n,))
    return named(x=x, y=y + x)


def nearest_means(xp: Any, x: Any, means: Any) -> Any:
    """A step of k-means."""
    mine = xp.argmin(squares(xp, x, means), 1)
    member = (mine[:, None] == xp.arange(means.shape[0])).astype(x.dtype)
    return member.T @ x / xp.maximum(xp.sum(member, 0), 1)[:, None]


def centres(n: int) -> Arrays:
    x, means = normal((n, 16), (32, 16))
    return named(x=x, means=means)


def area_under_curve(xp: Any, scores: Any, labels: Any) -> Any:
    """By the ranks of those that are positive (Mann and Whitney 1947)."""
    ranks = xp.argsort(xp.argsort(scores)).astype(scores.dtype) + 1
    n = xp.sum(labels)
    return (xp.sum(xp.where(labels > 0, ranks, 0)) / n - (n + 1) / 2) / (labels.shape[0] - n)


def kolmogorov(xp: Any, x: Any, y: Any) -> Any:
    """The greatest distance of two samples' distributions."""
    x, y = xp.sort(x), xp.sort(y)
    both = xp.concatenate([x, y])
    a, b = (xp.searchsorted(v, both, side="right") / v.shape[0] for v in (x, y))
    return xp.max(xp.abs(a - b)).astype(xp.float32)


def posterior(xp: Any, x: Any, y: Any, at: Any) -> Any:
    """Means and variances of a Gaussian process."""
    kernel = lambda a, b: xp.exp(-0.5 * squares(xp, a, b))
    k = kernel(x, x) + 0.1 * xp.eye(x.shape[0], dtype=x.dtype)
    across = kernel(at, x)
    solved = xp.linalg.solve(k, xp.concatenate([y[:, None], across.T], 1))
    return across @ solved[:, 0], 1 - xp.sum(across * solved[:, 1:].T, 1)


def observed(n: int) -> Arrays:
    x, at = uniform((n, 2), (n, 2), high=6.0)
    return named(x=x, y=np.sin(x[:, 0]), at=at)


def dominant(xp: Any, a: Any, v: Any) -> Any:
    """The largest eigenvalue of a covariance, by 20 products."""
    for _ in range(20):
        v = a @ (a.T @ v)
        v = v / xp.sqrt(xp.sum(v * v))
    return xp.sum((a.T @ v) ** 2), v


def factors(n: int) -> Arrays:
    a, v = normal((n, n), (n,))
    return named(a=a, v=v)


def gumbel_choice(xp: Any, logits: Any, u: Any) -> Any:
    """Choices by noise, and how sure each was."""
    best = xp.argmax(logits - xp.log(-xp.log(u)), -1)
    logp = logits - xp.logsumexp(logits, -1, keepdims=True)
    return best.astype(xp.int32), xp.take_along_axis(logp, best[:, None], 1)[:, 0], -xp.sum(xp.exp(logp) * logp, -1)


def choices(n: int) -> Arrays:
    return named(logits=normal((n, 64))[0], u=uniform((n, 64), low=1e-6, high=1 - 1e-6)[0])


def normal_tail(xp: Any, x: Any) -> Any:
    """The normal distribution's tail by a continued fraction of 20 terms."""
    f = x
    for k in range(20, 0, -1):
        f = x + k / f
    return xp.exp(-0.5 * x * x) / (f * math.sqrt(2 * math.pi))


def volatility(xp: Any, y: Any, w: Any) -> Any:
    """The likelihood of many series by a GARCH(1, 1)."""
    var, total = xp.ones_like(y[0]), 0.0
    for row in y:
        total = total + xp.log(var) + row * row / var
        var = w[0] + w[1] * row * row + w[2] * var
    return xp.mean(total)


PROGRAMS: dict[str, Program | Loss] = {
    "mixture": loss("the likelihood of a mixture of 8 normals", ROWS, clusters, mixture, wrt=(1, 2, 3)),
    "mixture_step": script("a step of expectation and maximisation", ROWS, clusters, mixture_step),
    "gaussian_kernel": script("a centred matrix of a Gaussian kernel", SQUARE, points, gaussian_kernel),
    "matern": loss(
        "a form of a Matérn kernel, by places and scale", SQUARE,
        lambda n: points(n) | named(scale=np.float32([1.5]), w=normal((n,), seed=3)[0] / 30),
        lambda xp, x, scale, w: matern(xp, x, scale[0], w), wrt=(0, 1, 2),
    ),
    "smoothed_density": script(
        "a density by Epanechnikov's kernel at 64 places", ROWS,
        lambda n: named(x=normal((n,))[0], at=np.linspace(-2, 2, 64, dtype=np.float32)), smoothed_density,
    ),
    "discrepancy": loss("of two samples, by a kernel's means", SQUARE, two_samples, discrepancy, wrt=(0,)),
    "ridge": script("a ridge regression, leaving one out", ROWS, regressors, ridge),
    "reweighted": script("four steps of a logistic regression", ROWS, labelled, reweighted),
    "huber": loss("Huber's loss of a regression", ROWS, regressors, huber, wrt=(2,)),
    "pinball": loss("losses of three quantiles", ROWS, regressors, pinball, wrt=(2,)),
    "poisson": loss("a regression of counts", ROWS, counted, poisson, wrt=(2,)),
    "t_residuals": loss("a regression with long tails", ROWS, regressors, t_residuals, wrt=(2,)),
    "elastic": script("ten steps of iterative shrinkage", ROWS, regressors, elastic),
    "local_level": loss("Kalman's filter of many walks, by their noise", ROWS, series, local_level, wrt=(1,)),
    "hidden_forward": loss(
        "hidden Markov chains of 16 states over 32 steps", sizes(1024, 6, 16384), chains, hidden_forward, wrt=(0, 1),
    ),
    "accepted": script("16 steps of Metropolis' walk", ROWS, walkers, accepted),
    "leapfrog": script("eight steps of Hamiltonian dynamics", ROWS, phases, leapfrog, tolerance=1e-3),
    "resampled": script(
        "200 bootstrap samples", sizes(4096, 40, 65536),
        lambda n: named(x=normal((n,))[0], picks=integers((200, n), n)), resampled,
    ),
    "robust_scale": script("columns by medians", ROWS, columns, robust_scale),
    "quantiles": script(
        "five quantiles of each column", ROWS, columns,
        lambda xp, x: xp.quantile(x, xp.asarray([0.05, 0.25, 0.5, 0.75, 0.95], dtype=x.dtype), axis=0),
    ),
    "shrunk": script("a shrunk covariance of 128 variables", ROWS, wide, shrunk),
    "mahalanobis": script("distances by a covariance's factor", ROWS, columns, mahalanobis),
    "rank_correlation": script("Spearman's correlation", SAMPLES, pairs, rank_correlation),
    "nearest_means": script("a step of k-means", ROWS, centres, nearest_means),
    "area_under_curve": script(
        "the area under a classifier's curve", SAMPLES,
        lambda n: named(scores=normal((n,))[0], labels=integers((n,), 2).astype(np.float32)), area_under_curve,
    ),
    "kolmogorov": script("the distance of two distributions", SAMPLES, pairs, kolmogorov),
    "posterior": script("a Gaussian process", sizes(256, 12, 1024), observed, posterior, tolerance=1e-2),
    "dominant": script("a covariance's largest eigenvalue", sizes(512, 12, 4096), factors, dominant, tolerance=1e-2),
    "gumbel_choice": script("choices among 64 by noise", ROWS, choices, gumbel_choice),
    "normal_tail": script(
        "normal tails by a continued fraction", SAMPLES,
        lambda n: named(x=uniform((n,), low=2.0, high=6.0)[0]), normal_tail,
    ),
    "volatility": loss(
        "likelihoods of GARCH, by its weights", ROWS,
        lambda n: named(y=normal((STEPS, n))[0], w=np.float32([0.1, 0.1, 0.8])), volatility, wrt=(1,),
    ),
}  # fmt: skip
