"""What networks apply to each element, or to what lies along an axis: the names of `jax.nn`.

At a kink the derivative is JAX's: of `relu` at 0 it is 0.
"""

from __future__ import annotations

from math import inf, pi, sqrt
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.types import bool_
from loopgrad.lazy.networks.attention import attention
from loopgrad.lazy.numpy.creation import arange
from loopgrad.lazy.numpy.elementwise import (
    absolute,
    divide,
    equal,
    erf,
    exp,
    expm1,
    less_equal,
    log,
    log1p,
    rsqrt,
    tanh,
)
from loopgrad.lazy.numpy.movement import broadcast_to, expand_dims, split, swapaxes
from loopgrad.lazy.numpy.reduction import logsumexp, mean, var
from loopgrad.lazy.numpy.repetition import repeat
from loopgrad.lazy.numpy.smooth_functions import sigmoid
from loopgrad.lazy.numpy.special_values import clip, where
from loopgrad.lazy.special import entropies
from loopgrad.lazy.special.entropies import log_expit, softplus
from loopgrad.lazy.special.operands import of_floats
from loopgrad.lazy.tensor.config import default_dtype
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast, requested_dtype
from loopgrad.lazy.tensor.operands import as_bool, as_float, dtype_refused, normal_axis
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_NN: Final = (
    "celu dot_product_attention elu gelu glu hard_sigmoid hard_silu hard_swish=hard_silu hard_tanh leaky_relu log1mexp "
    "log_sigmoid=log_expit log_softmax logsumexp mish one_hot relu relu6 selu sigmoid silu soft_sign softmax softplus "
    "sparse_plus sparse_sigmoid squareplus standardize swish=silu tanh"
)
__all__ = ["log_expit", "logsumexp", "sigmoid", "softplus", "tanh"]
_SELU_SCALE: Final = 1.0507009873554804934193349852946  # Klambauer et al., Self-normalizing neural networks, 2017
_SELU_ALPHA: Final = 1.6732632423543772848170429916717


@repeated
def softmax(x: ArrayLike, /, axis: Any = -1, where: ArrayLike | None = None) -> Tensor:
    """exp(x) over its sum along `axis` (an int, several, or None for all), of the elements where `where` holds; 0 for
    the others. The shape stays, integers give the default float. (`lg.special.softmax`, as SciPy's, is over all axes
    where none is given.) Raises ShapeError for a mask that doesn't broadcast with x.

    >>> lg.nn.softmax([[0.0, 0.0], [1.0, 1.0]])
    Tensor([[0.5, 0.5],
            [0.5, 0.5]], dtype=float64)
    """
    return entropies.softmax(x, axis) if where is None else exp(log_softmax(x, axis, where))


@repeated
def log_softmax(x: ArrayLike, /, axis: Any = -1, where: ArrayLike | None = None) -> Tensor:
    """The logarithm of `softmax`, without rounding to 0; minus infinity for what `where` leaves out.

    Of x's shape, in a float dtype. `where` is an array of bools that broadcasts to x; raises as `softmax` does.

    >>> lg.nn.log_softmax([0.0, 1000.0, 2000.0], where=[True, True, False])
    Tensor([-1000.,     0.,   -inf], dtype=float64)
    """
    return entropies.log_softmax(x, axis) if where is None else _log_softmax_of(x, as_bool(where), axis)


def _log_softmax_of(x: ArrayLike, chosen: Tensor, axis: Any) -> Tensor:
    """That of the chosen elements. What the others hold, and rows without any, reach no derivative."""
    t = as_tensor(x)
    t = where(chosen, as_float(t), 0)
    total = logsumexp(t, axis, keepdims=True, where=broadcast_to(chosen, t._value.shape))
    return where(chosen, t - where(equal(total, -inf), 0, total), -inf)


@repeated
def relu(x: ArrayLike, /) -> Tensor:
    """x where it is positive, else 0, with derivative 0 at 0; shape and dtype stay.

    >>> lg.nn.relu([-1.0, 2.0])
    Tensor([0., 2.], dtype=float64)
    """
    t = as_tensor(x)
    return where(less_equal(t, 0), 0, t)


@repeated
def relu6(x: ArrayLike, /) -> Tensor:
    """x between 0 and 6, with derivative 0 at both; shape and dtype stay.

    >>> lg.nn.relu6([-1.0, 2.0, 7.0])
    Tensor([0., 2., 6.], dtype=float64)
    """
    return _between(as_tensor(x), 0, 6)


def _between(t: Tensor, low: float, high: float) -> Tensor:
    """Clipped, with derivative 0 at the limits."""
    return where(t <= low, low, where(t >= high, high, t))


@repeated
def hard_tanh(x: ArrayLike, /) -> Tensor:
    """x between -1 and 1, with derivative 0 at both; shape and dtype stay.

    >>> lg.nn.hard_tanh([-3.0, 0.5])
    Tensor([-1. ,  0.5], dtype=float64)
    """
    return _between(as_tensor(x), -1, 1)


@repeated
def hard_sigmoid(x: ArrayLike, /) -> Tensor:
    """relu6(x + 3) / 6; the shape stays, integers give the default float.

    >>> lg.nn.hard_sigmoid([-4.0, 0.0, 1.5])
    Tensor([0.  , 0.5 , 0.75], dtype=float64)
    """
    return of_floats("hard_sigmoid", lambda t: _between(t + 3.0, 0.0, 6.0) / 6.0, x)


@repeated
def hard_silu(x: ArrayLike, /) -> Tensor:
    """x * hard_sigmoid(x); the shape stays, integers give the default float.

    >>> lg.nn.hard_silu([-4.0, 1.0])
    Tensor([-0.        ,  0.66666667], dtype=float64)
    """
    return of_floats("hard_silu", lambda t: t * (_between(t + 3.0, 0.0, 6.0) / 6.0), x)


@repeated
def leaky_relu(x: ArrayLike, /, negative_slope: ArrayLike = 0.01) -> Tensor:
    """x where it is at least 0, else x * negative_slope; the shape stays, integers give the default float.

    >>> lg.nn.leaky_relu([-1.0, 2.0])
    Tensor([-0.01,  2.  ], dtype=float64)
    """
    return of_floats("leaky_relu", lambda t, slope: where(t >= 0.0, t, t * slope), x, negative_slope)


@repeated
def elu(x: ArrayLike, /, alpha: ArrayLike = 1.0) -> Tensor:
    """x where it is positive, else alpha * (exp(x) - 1); the shape stays, integers give the default float.

    >>> lg.nn.elu([-1.0, 2.0])
    Tensor([-0.63212056,  2.        ], dtype=float64)
    """
    return of_floats("elu", lambda t, a: where(t > 0.0, t, a * expm1(where(t > 0.0, 0.0, t))), x, alpha)


@repeated
def celu(x: ArrayLike, /, alpha: ArrayLike = 1.0) -> Tensor:
    """x where it is positive, else alpha * (exp(x / alpha) - 1), smooth at 0; the shape stays, integers give the
    default float.

    >>> lg.nn.celu([-1.0, 2.0], 0.5)
    Tensor([-0.43233236,  2.        ], dtype=float64)
    """
    return of_floats("celu", lambda t, a: where(t > 0.0, t, a * expm1(where(t > 0.0, 0.0, t) / a)), x, alpha)


@repeated
def selu(x: ArrayLike, /) -> Tensor:
    """`elu` with alpha 1.673, times 1.051 (G. Klambauer et al., Self-normalizing neural networks, 2017); the shape
    stays, integers give the default float.

    >>> lg.nn.selu([-1.0, 2.0])
    Tensor([-1.11133074,  2.10140197], dtype=float64)
    """
    return of_floats("selu", lambda t: _SELU_SCALE * elu(t, _SELU_ALPHA), x)


@repeated
def gelu(x: ArrayLike, /, approximate: bool = True) -> Tensor:
    """x times the normal distribution function of x (D. Hendrycks and K. Gimpel, 2016), unless `approximate` is False
    by tanh, as JAX does it; the shape stays, integers give the default float.

    >>> lg.nn.gelu([-1.0, 2.0]), lg.nn.gelu(2.0, approximate=False)
    (Tensor([-0.15880801,  1.95459769], dtype=float64), Tensor(1.95449974, dtype=float64))
    """

    def by_tanh(t: Tensor) -> Tensor:
        return 0.5 * t * (1.0 + tanh(sqrt(2.0 / pi) * (t + 0.044715 * (t * t * t))))

    return of_floats("gelu", by_tanh if approximate else lambda t: 0.5 * t * (1.0 + erf(t * sqrt(0.5))), x)


@repeated
def silu(x: ArrayLike, /) -> Tensor:
    """x * sigmoid(x); the shape stays, integers give the default float.

    >>> lg.nn.silu([-1.0, 2.0])
    Tensor([-0.26894142,  1.76159416], dtype=float64)
    """
    return of_floats("silu", lambda t: t * sigmoid(t), x)


@repeated
def mish(x: ArrayLike, /) -> Tensor:
    """x * tanh(softplus(x)) (D. Misra, 2019); the shape stays, integers give the default float.

    >>> lg.nn.mish([-1.0, 2.0])
    Tensor([-0.30340146,  1.94395896], dtype=float64)
    """
    return of_floats("mish", lambda t: t * tanh(softplus(t)), x)


@repeated
def soft_sign(x: ArrayLike, /) -> Tensor:
    """x / (|x| + 1); the shape stays, integers give the default float.

    >>> lg.nn.soft_sign([-1.0, 3.0])
    Tensor([-0.5 ,  0.75], dtype=float64)
    """
    return of_floats("soft_sign", lambda t: t / (absolute(t) + 1.0), x)


@repeated
def squareplus(x: ArrayLike, /, b: ArrayLike = 4.0) -> Tensor:
    """(x + sqrt(x * x + b)) / 2 (J. Barron, 2021); the shape stays, integers give the default float.

    >>> lg.nn.squareplus([0.0, 1.5])
    Tensor([1., 2.], dtype=float64)
    """
    return of_floats("squareplus", lambda t, b: 0.5 * (t + (t * t + b) ** 0.5), x, b)


@repeated
def sparse_plus(x: ArrayLike, /) -> Tensor:
    """0 below -1, x above 1, (x + 1)**2 / 4 between; the shape stays, integers give the default float.

    >>> lg.nn.sparse_plus([-2.0, 0.0, 3.0])
    Tensor([0.  , 0.25, 3.  ], dtype=float64)
    """
    return of_floats("sparse_plus", lambda t: where(t <= -1.0, 0.0, where(t >= 1.0, t, (t + 1.0) ** 2 / 4.0)), x)


@repeated
def sparse_sigmoid(x: ArrayLike, /) -> Tensor:
    """(x + 1) / 2 between 0 and 1, the derivative of `sparse_plus`; the shape stays, integers give the default float.

    >>> lg.nn.sparse_sigmoid([-2.0, 0.5])
    Tensor([0.  , 0.75], dtype=float64)
    """
    return of_floats("sparse_sigmoid", lambda t: 0.5 * clip(t + 1.0, 0.0, 2.0), x)


@repeated
def log1mexp(x: ArrayLike, /) -> Tensor:
    """log(1 - exp(-x)) for positive x without losing digits; the shape stays, integers give the default float.

    >>> lg.nn.log1mexp([1e-10, 1.0])
    Tensor([-23.02585093,  -0.45867515], dtype=float64)
    """

    def function(t: Tensor) -> Tensor:
        near = t < 0.6931471805599453
        return where(near, log(-expm1(-where(near, t, 1.0))), log1p(-exp(-where(near, 1.0, t))))

    return of_floats("log1mexp", function, x)


@repeated
def glu(x: ArrayLike, /, axis: int = -1) -> Tensor:
    """The first half of x along an axis times the sigmoid of the second half; integers give the default float.

    Raises ShapeError where the axis' extent is odd.

    >>> lg.nn.glu([1.0, 2.0, 0.0, 0.0])
    Tensor([0.5, 1. ], dtype=float64)
    """
    first, second = split(x, 2, axis)
    return of_floats("glu", lambda a, b: a * sigmoid(b), first, second)


@repeated
def standardize(
    x: ArrayLike, /, axis: Any = -1, mean: ArrayLike | None = None, variance: ArrayLike | None = None,
    epsilon: ArrayLike = 1e-5, where: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """(x - mean) / sqrt(variance + epsilon) along axes, with x's own mean and variance (of the elements where `where`
    holds) unless given; the shape stays, integers give the default float.

    >>> lg.nn.standardize([1.0, 3.0], epsilon=0.0)
    Tensor([-1.,  1.], dtype=float64)
    """
    t = divide(as_tensor(x), 1)
    middle = _mean(t, axis, keepdims=True, where=where) if mean is None else mean
    spread = var(t, axis, keepdims=True, where=where) if variance is None else variance
    return (t - middle) * rsqrt(as_tensor(spread) + epsilon)


_mean: Final = mean


@repeated
def one_hot(x: ArrayLike, num_classes: int, /, *, dtype: Any = None, axis: int = -1) -> Tensor:
    """1 in the place that an integer of x names, 0 in the others: x's shape with a new axis of `num_classes`, of the
    default float unless `dtype` says. What is out of range has no 1.

    Raises DTypeError for an x that isn't of integers.

    >>> lg.nn.one_hot([0, 2], 3)
    Tensor([[1., 0., 0.],
            [0., 0., 1.]], dtype=float64)
    """
    t = as_tensor(x)
    d = normal_axis("one_hot", axis, len(t._value.shape) + 1)
    along = arange(num_classes).reshape((num_classes, *(1,) * (len(t._value.shape) - d)))
    if t._value.dtype is bool_ or not t._value.dtype.is_integer:
        raise dtype_refused("one_hot", "iu", t._value.dtype)
    return cast(equal(expand_dims(t, d), along), requested_dtype(dtype) or default_dtype())


def dot_product_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, bias: ArrayLike | None = None, mask: ArrayLike | None = None,
    *, scale: ArrayLike | None = None, is_causal: bool = False,
) -> Tensor:  # fmt: skip
    """`lg.attention` of arrays with their heads behind the positions, as JAX has them: (..., t, heads, d) for the
    queries, (..., s, heads, d) for keys and values, (..., t, heads, d) out; `bias` and `mask` are (..., heads, t, s).

    Several heads of queries may share one of keys and values. Raises ShapeError and DTypeError as `lg.attention`.

    >>> q = lg.ones((2, 5, 4, 8))
    >>> lg.nn.dot_product_attention(q, q[:, :, :2], q[:, :, :2], is_causal=True).shape
    (2, 5, 4, 8)
    """
    q, k, v = (as_tensor(x) for x in (query, key, value))
    ranks = [len(t._value.shape) for t in (q, k, v)]
    if min(ranks) < 3:
        got = ", ".join(str(t._value.shape) for t in (q, k, v))
        raise ShapeError(explained("dot_product_attention", "shapes (..., t, heads, d)", got, "or use lg.attention"))
    heads, shared = q._value.shape[-2], k._value.shape[-2]
    if shared and heads != shared and heads % shared == 0:
        k, v = repeat(k, heads // shared, -2), repeat(v, heads // shared, -2)
    q, k, v = (swapaxes(t, -3, -2) for t in (q, k, v))
    return swapaxes(attention(q, k, v, bias, mask, scale=scale, is_causal=is_causal), -3, -2)
