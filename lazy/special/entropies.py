"""Logistic functions, products with logarithms, entropies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from loopgrad.lazy.numpy.elementwise import (
    absolute,
    atanh,
    exp,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    sqrt,
    stop_gradient,
)
from loopgrad.lazy.numpy.reduction import logsumexp
from loopgrad.lazy.numpy.reduction import max as largest
from loopgrad.lazy.numpy.reduction import sum as total
from loopgrad.lazy.numpy.smooth_functions import logaddexp, sigmoid
from loopgrad.lazy.numpy.special_values import isinf, isnan, where
from loopgrad.lazy.special.operands import is_double, of_domain, polynomial
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor
from loopgrad.lazy.tensor.operands import as_float, normal_axes
from loopgrad.lazy.tensor.repeated_calls import repeated_formula

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_SPECIAL: Final = (
    "entr kl_div log_expit log_softmax logit logsumexp rel_entr expit=sigmoid softmax softplus xlog1py xlogy"
)
__all__ = ["logsumexp", "sigmoid"]


def log1p_minus(e: Tensor, whole: Tensor | None = None) -> Tensor:
    """log(1 + e) - e for e from -1, without losing digits at 0: with r = e / (2 + e) it is twice the series of atanh
    less r, less r * e. `whole` is 1 + e where that is known better than by adding."""
    small = logical_and(e > -0.4, e < 0.6)
    near = where(small, e, 0.0)
    r = near / (2.0 + near)
    square = r * r
    terms = tuple([1.0 / (2 * k + 3) for k in range(14 if is_double(e) else 7)])
    inner = 2.0 * (r * square) * polynomial(terms, square) - r * near
    far = where(small, 1.0, e)
    logarithm = log1p(far) if whole is None else log(where(small, 2.0, whole))
    return where(small, inner, logarithm - far)


@repeated_formula
def softplus(x: ArrayLike, /) -> Tensor:
    """log(1 + exp(x)) without overflow; the shape stays, integers give the default float.

    >>> lg.special.softplus([0.0, 1000.0])
    Tensor([6.93147181e-01, 1.00000000e+03], dtype=float64)
    """
    return logaddexp(x, 0.0)


@repeated_formula
def log_expit(x: ArrayLike, /) -> Tensor:
    """log(1 / (1 + exp(-x))), accurate on both sides; the shape stays, integers give the default float.

    >>> lg.special.log_expit([0.0, -1000.0])
    Tensor([-6.93147181e-01, -1.00000000e+03], dtype=float64)
    """
    return -logaddexp(-as_tensor(x), 0.0)


@repeated_formula
def logit(x: ArrayLike, /) -> Tensor:
    """log(x / (1 - x)), the inverse of `expit`; infinite at 0 and 1, NaN beyond. The shape stays, integers give the
    default float.

    >>> lg.special.logit([0.5, 0.75])
    Tensor([0.        , 1.09861229], dtype=float64)
    """
    return of_domain("logit", _logit, x)


def _logit(x: Tensor) -> Tensor:
    middle = logical_and(x > 0.3, x < 0.7)
    inner = 2.0 * atanh(2.0 * where(middle, x, 0.5) - 1.0)
    outer = where(middle, 0.25, x)
    return where(middle, inner, log(outer) - log1p(-outer))


@repeated_formula
def xlogy(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """x * log(y), and 0 where x is 0 (NaN where y is NaN). Operands broadcast; integers give the default float. At x
    = 0
    the derivative by x is log(y), where y is positive, else 0.

    >>> lg.special.xlogy([0.0, 2.0], [0.0, 1.0])
    Tensor([0., 0.], dtype=float64)
    """

    def product(x: Tensor, y: Tensor) -> Tensor:
        nothing = logical_and(x == 0.0, logical_or(y <= 0.0, isinf(y)))
        return x * log(where(nothing, 1.0, y))

    return of_domain("xlogy", product, x, y)


@repeated_formula
def xlog1py(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """x * log(1 + y), and 0 where x is 0 (NaN where y is NaN). Operands broadcast; integers give the default float.

    >>> lg.special.xlog1py([0.0, 2.0], [-1.0, 1e-20])
    Tensor([0.e+00, 2.e-20], dtype=float64)
    """

    def product(x: Tensor, y: Tensor) -> Tensor:
        nothing = logical_and(x == 0.0, logical_or(y <= -1.0, isinf(y)))
        return x * log1p(where(nothing, 0.0, y))

    return of_domain("xlog1py", product, x, y)


@repeated_formula
def entr(x: ArrayLike, /) -> Tensor:
    """-x * log(x), 0 at 0, -inf below; the shape stays, integers give the default float.

    >>> lg.special.entr([0.0, 0.5])
    Tensor([0.        , 0.34657359], dtype=float64)
    """

    def entropy(x: Tensor) -> Tensor:
        inside = logical_or(x > 0.0, isnan(x))
        known = where(inside, x, 1.0)
        endless = isinf(known)
        finite = where(endless, 1.0, known)
        found = where(endless, -known * known, -finite * log(finite))
        return where(inside, found, where(x < 0.0, -float("inf"), sqrt(where(x == 0.0, x, 1.0))))  # infinitely steep

    return of_domain("entr", entropy, x)


def _divergence(x: Tensor, y: Tensor, linear: bool) -> Tensor:
    """x log(x / y), with `linear` less x and plus y; 0 (or y) where x is 0, infinite where they aren't positive."""
    unknown = logical_or(isnan(x), isnan(y))
    inside = logical_or(logical_and(x > 0.0, y > 0.0), unknown)
    p, q = where(inside, x, 1.0), where(inside, y, 1.0)
    change = (q - p) / p
    close = absolute(change) < 0.5
    near = -p * log1p_minus(where(close, change, 0.0))
    if not linear:
        near = near + where(close, p - q, 0.0)
    far = p * (log(p) - log(q))
    result = where(close, near, far + (q - p) if linear else far)
    endless = logical_and(isinf(p), logical_not(isinf(q)))
    result = where(endless, where(endless, p * p, 0.0) / q, result)
    nothing = logical_and(x == 0.0, y >= 0.0)
    return where(inside, result, where(nothing, y if linear else 0.0, float("inf")))


@repeated_formula
def rel_entr(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """x * log(x / y) for positive x and y, 0 where x is 0 and y isn't negative, else infinite. Operands broadcast;
    integers give the default float.

    >>> lg.special.rel_entr([0.0, 1.0, 1.0], [1.0, 1.0, 0.5])
    Tensor([0.        , 0.        , 0.69314718], dtype=float64)
    """
    return of_domain("rel_entr", lambda x, y: _divergence(x, y, linear=False), x, y)


@repeated_formula
def kl_div(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """x * log(x / y) - x + y for positive x and y, without losing digits where they are close; y where x is 0 and y
    isn't
    negative, else infinite. Operands broadcast; integers give the default float.

    >>> lg.special.kl_div([0.0, 1.0], [1.0, 0.5])
    Tensor([1.        , 0.19314718], dtype=float64)
    """
    return of_domain("kl_div", lambda x, y: _divergence(x, y, linear=True), x, y)


def _as_floats(op: str, x: ArrayLike, axis: Any) -> Tensor:
    t = as_tensor(x)
    normal_axes(op, axis, len(t._value.shape))
    return as_float(t)


@repeated_formula
def log_softmax(x: ArrayLike, /, axis: Any = None) -> Tensor:
    """x - logsumexp(x) along `axis` (an int, several, or None for all); the shape stays, integers give the default
    float.

    >>> lg.special.log_softmax([0.0, 1000.0])
    Tensor([-1000.,     0.], dtype=float64)
    """
    t = _as_floats("log_softmax", x, axis)
    result: Tensor = t - logsumexp(t, axis=axis, keepdims=True)
    return result


@repeated_formula
def softmax(x: ArrayLike, /, axis: Any = None) -> Tensor:
    """exp(x) over its sum along `axis` (an int, several, or None for all); the shape stays, integers give the default
    float.

    >>> lg.special.softmax([0.0, 0.0])
    Tensor([0.5, 0.5], dtype=float64)
    """
    t = _as_floats("softmax", x, axis)
    if 0 in t._value.shape:
        return t
    # what is taken off cancels, whatever it is, and so do its derivatives
    raised = exp(t - stop_gradient(largest(t, axis=axis, keepdims=True)))
    result: Tensor = raised / total(raised, axis=axis, keepdims=True)
    return result
