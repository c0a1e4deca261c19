"""Numbers of several at once: normal vectors, shares that sum to 1, counts of categories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.types import DType, float64, int64
from loopgrad.lazy.loops.fori_loop import fori_loop
from loopgrad.lazy.numpy.creation import zeros
from loopgrad.lazy.numpy.elementwise import add, divide, exp, less_equal, maximum, minimum, multiply, sqrt, subtract
from loopgrad.lazy.numpy.linalg.decompositions import cholesky, eigh
from loopgrad.lazy.numpy.movement import broadcast_to, expand_dims, matrix_transpose, squeeze
from loopgrad.lazy.numpy.reduction import max as largest
from loopgrad.lazy.numpy.reduction import sum as total
from loopgrad.lazy.numpy.running_totals import cumsum
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.random.continuous import STANDARD_NORMAL
from loopgrad.lazy.random.counts_by_rejection import hypergeometric
from loopgrad.lazy.random.discrete import binomial
from loopgrad.lazy.random.gamma import LOG_GAMMA
from loopgrad.lazy.tensor.core import as_tensor, broadcast_value, cast, wrap

if TYPE_CHECKING:
    from loopgrad.lazy.random.source import WordSource
    from loopgrad.lazy.tensor.core import ArrayLike
    from loopgrad.lazy.tensor.tensor import Tensor


def last_extent(what: str, name: str, x: Any) -> int:
    """How long the vectors of an operand are."""
    shape = as_tensor(x)._value.shape
    if not shape or not shape[-1]:
        got, fix = as_tensor(x)._value.type, "pass a vector, or an array of them"
        raise ShapeError(explained(what, f"{name} to be vectors of at least one element", got, fix))
    return shape[-1]


def shares(log_weights: Tensor) -> Tensor:
    """exp(x) over its sum, along the last axis."""
    from_0 = exp(subtract(log_weights, largest(log_weights, axis=-1, keepdims=True)))
    return divide(from_0, total(from_0, axis=-1, keepdims=True))


def dirichlet_shares(source: WordSource, alpha: Tensor, dtype: DType) -> Tensor:
    """Shares with Dirichlet's distribution, along the last axis of the source's shape."""
    return shares(LOG_GAMMA.numbers(source, dtype, [alpha]))


def normal_vectors(source: WordSource, mean: Tensor, covariance: Tensor, method: str, dtype: DType) -> Tensor:
    """Normal vectors along the last axis of the source's shape, by one of FACTORS."""
    return vectors(mean, FACTORS[method](covariance), STANDARD_NORMAL.numbers(source, dtype, []))


def counts(source: WordSource, n: ArrayLike, pvals: Tensor) -> Tensor:
    """How many of n trials fall in each category: binomial numbers of what is left, one category after the other. The
    last axis of the source's shape is the categories'."""
    probabilities = cast(broadcast_to(pvals, source.shape), float64)
    after = _from_here(probabilities)

    def drawn(own: WordSource, j: Tensor, left: Tensor) -> Tensor:
        share = divide(probabilities[..., j], maximum(after[..., j], 1e-300))
        return binomial(own, float64, cast(left, float64), minimum(maximum(share, 0.0), 1.0))

    return _in_turn(source, as_tensor(n), drawn)


def colors_drawn(source: WordSource, colors: Tensor, nsample: ArrayLike) -> Tensor:
    """How many of each color are among `nsample` drawn without replacement: hypergeometric numbers of what is left, one
    color after the other; -1 where there are fewer."""
    there = cast(broadcast_to(colors, source.shape), float64)
    after = _from_here(there)

    def drawn(own: WordSource, j: Tensor, left: Tensor) -> Tensor:
        good = there[..., j]
        return hypergeometric(own, float64, good, subtract(after[..., j], good), cast(left, float64))

    wanted = as_tensor(nsample)
    found = _in_turn(source, wanted, drawn)
    enough = less_equal(broadcast_to(expand_dims(wanted, axis=-1), source.shape), total(there, axis=-1, keepdims=True))
    return where(enough, found, -1)


def _from_here(x: Tensor) -> Tensor:
    """The sums of each element and those behind it, along the last axis."""
    return subtract(total(x, axis=-1, keepdims=True), subtract(cumsum(x, axis=-1), x))


def _in_turn(source: WordSource, n: Tensor, drawn: Callable[[WordSource, Tensor, Tensor], Tensor]) -> Tensor:
    """n shared among categories: `drawn` says how many of what is left the j-th has, the last has the rest."""
    *batch, k = source.shape
    rest = broadcast_to(cast(n, int64), tuple(batch))
    lanes, steps, *key = [wrap(broadcast_value(v, source.shape)) for v in (source.lane, source.step, *source.key)]

    def category(j: Tensor, state: Any) -> Any:
        left, found = state
        lane, step, *words = [x[..., j]._value for x in (lanes, steps, *key)]
        own = replace(source, shape=tuple(batch), key=tuple(words), lane=lane, step=step)
        taken = drawn(own, j, left)
        return subtract(left, taken), found.at[..., j].set(taken)

    left, found = fori_loop(0, k - 1, category, (rest, zeros(source.shape, dtype=int64)))
    made: Tensor = found.at[..., k - 1].set(left)
    return made


def vectors(mean: Tensor, factor: Tensor, normal: Tensor) -> Tensor:
    """mean + factor @ normal, for vectors along the last axis."""
    turned = squeeze(factor @ expand_dims(normal, axis=-1), axis=-1)
    return add(mean, turned)


def symmetric_root(covariance: Tensor) -> Tensor:
    """The factor that doesn't depend on the signs of eigenvectors, which each device chooses by itself."""
    values, columns = eigh(covariance)
    roots = expand_dims(sqrt(maximum(values, 0.0)), axis=-2)
    made: Tensor = multiply(columns, roots) @ matrix_transpose(columns)
    return made


FACTORS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "cholesky": cholesky,
    "eigh": symmetric_root,
    "svd": symmetric_root,
}
