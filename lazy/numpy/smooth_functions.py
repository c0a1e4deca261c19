"""Smooth functions that are computed in pieces, lest they overflow or lose digits.

Each piece is the function on both sides of its border, so that derivatives of every order are right there too; those of
`absolute`, `maximum` and `minimum` have kinks.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import TYPE_CHECKING, Final

from loopgrad.graph import ops
from loopgrad.lazy.numpy.elementwise import (
    absolute,
    add,
    divide,
    equal,
    exp,
    greater_equal,
    less,
    log1p,
    logical_and,
    logical_or,
    maximum,
    multiply,
    negative,
    round,
    sqrt,
    stop_gradient,
    subtract,
)
from loopgrad.lazy.numpy.special_values import isinf, where
from loopgrad.lazy.tensor.core import (
    ArrayLike,
    as_tensor,
    cast_value,
    wrap,
)
from loopgrad.lazy.tensor.operands import meet
from loopgrad.lazy.tensor.outputs import binary
from loopgrad.lazy.tensor.promotion import float_dtype
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "hypot logaddexp sigmoid"


def root_of_squares(total: Tensor) -> Tensor:
    """The square root of a sum of squares: a norm, whose derivatives at 0 are 0, as those of `absolute` are."""
    zero = equal(total, 0.0)
    return where(zero, 0.0, sqrt(where(zero, 1.0, total)))


@binary
def hypot(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """sqrt(x*x + y*y) without overflow; operands broadcast, and integers give the default float.

    >>> lg.hypot([3.0, 3e200], [4.0, 4e200])
    Tensor([5.e+000, 5.e+200], dtype=float64)
    """
    (a, b), weak = meet("hypot", (x, y), floating=True, kinds="f")
    s, t = wrap(a, weak), wrap(b, weak)
    first = logical_or(greater_equal(absolute(s), absolute(t)), isinf(s))
    large, small = where(first, s, t), where(first, t, s)
    plain = logical_or(logical_and(equal(large, 0), equal(small, 0)), isinf(large))  # the small one may be NaN
    ratio = divide(small, where(plain, 1.0, large))
    size = absolute(large)
    return where(plain, size, multiply(size, sqrt(add(1.0, multiply(ratio, ratio)))))


@binary
def logaddexp(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """log(exp(x) + exp(y)) without overflow; operands broadcast, and integers give the default float. Of complex
    numbers it is the principal logarithm, with an imaginary part from -pi to pi.

    >>> lg.logaddexp(1000.0, 1000.0)
    Tensor(1000.69314718, dtype=float64)
    """
    (a, b), weak = meet("logaddexp", (x, y), floating=True)
    result = log_of_sum(wrap(a, weak), wrap(b, weak), lambda gap: log1p(exp(gap)))
    return result if a.dtype.kind == "f" else _principal(result)


def log_of_sum(p: Tensor, q: Tensor, beyond: Callable[[Tensor], Tensor]) -> Tensor:
    """The logarithm to any base of the sum of its powers p and q; `beyond` of how far the smaller one lies below the
    larger one is what the result lies above that."""
    largest = maximum(p, q)
    alone = isinf(largest)  # infinities of one sign: their difference is NaN, and so were its derivative
    p, q = where(alone, 0.0, p), where(alone, 0.0, q)
    first = greater_equal(p, q)
    top, low = where(first, p, q), where(first, q, p)
    return where(alone, largest, add(top, beyond(subtract(low, top))))


def _principal(logarithm: Tensor) -> Tensor:
    """The same logarithm with an imaginary part from -pi to pi."""
    turns = round(divide(stop_gradient(wrap(ops.imag(logarithm._value))), 2.0 * pi))
    known = where(equal(turns, turns), turns, 0.0)  # of an infinite angle it stays what it is
    return subtract(logarithm, multiply(known, 2j * pi))


@repeated
def sigmoid(x: ArrayLike, /) -> Tensor:
    """1 / (1 + exp(-x)), computed from exp(-|x|), which can't overflow; the shape stays, integers give the default
    float.

    >>> lg.sigmoid([0.0, -1000.0])
    Tensor([0.5, 0. ], dtype=float64)
    """
    t = as_tensor(x)
    f = wrap(cast_value(t._value, float_dtype(t._value.dtype)), t._weak)
    below = less(f, 0.0)
    small = exp(where(below, f, negative(f)))  # abs would have no slope at 0
    return divide(where(below, small, 1.0), add(1.0, small))
