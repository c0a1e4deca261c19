"""Lambert's function: a guess, and Halley's method (R. Corless and others, On the Lambert W function, 1996)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from loopgrad.graph.errors import explained
from loopgrad.lazy.numpy.elementwise import absolute, log, log1p, sqrt, stop_gradient
from loopgrad.lazy.numpy.special_values import isinf, where
from loopgrad.lazy.special.operands import is_double, of_domain, polynomial
from loopgrad.lazy.tensor.core import ArrayLike
from loopgrad.lazy.tensor.repeated_calls import repeated_formula
from loopgrad.lazy.transforms.own_rules import custom_jvp

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_SPECIAL: Final = "lambertw"
BRANCH: Final = 0.36787944117144233  # 1 / e, and what float64 and float32 lack of it
REST, NARROW_REST = -1.2428753672788363e-17, -9.149755188170102e-09
AT_BRANCH: Final = (
    -1.0, 1.0, -1 / 3, 11 / 72, -43 / 540, 769 / 17280, -221 / 8505, 680863 / 43545600, -1963 / 204120,
    226287557 / 37623398400,
)  # fmt: skip
CLOSE: Final = 0.03  # to the branch point, in its series' variable
AT_ZERO: Final = (1.0, -1.0, 3 / 2, -8 / 3, 125 / 24, -54 / 5, 16807 / 720)  # of w / x
SMALL: Final = 3e-3


@repeated_formula
def lambertw(x: ArrayLike, /, k: int = 0) -> Tensor:
    """The real w with w * exp(w) = x: the branch above -1, or with k = -1 the one below, which ends at 0 in -inf.

    The shape stays, integers give the default float. Below -1/e, and for the branch below above 0, where SciPy's is
    complex, it is NaN. Raises ValueError for another branch. The derivative at -1/e is infinite or NaN.

    >>> lg.special.lambertw([0.0, 1.0])
    Tensor([0.        , 0.56714329], dtype=float64)
    """
    if k not in (0, -1):
        raise ValueError(explained("lambertw", "branch 0 or -1", k, "no other one has real values"))
    return of_domain("lambertw", lambda x: _lower(x) if k else _upper(x), x)


def _from_branch(x: Tensor) -> Tensor:
    """The variable of the series at -1/e."""
    double = is_double(x)
    rest = (x + BRANCH) + (REST if double else NARROW_REST)
    inside = rest > 0.0
    root = sqrt(where(inside, (2.0 * math.e) * rest, 1.0))
    return where(inside, root, where(rest >= (-1e-16 if double else -5e-8), 0.0, float("nan")))


def _halley(w: Tensor, quotient: Tensor) -> Tensor:
    """For the zero of w + log(w / x), in which nothing overflows; `quotient` is the logarithm."""
    residue = w + quotient
    one = w + 1.0
    better: Tensor = w - residue * (w / (one + residue / (2.0 * one)))
    return better


def _found(guess: Tensor, x: Tensor, quotient: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The last two steps have the derivatives, the first ones find the value."""
    w, at = stop_gradient(guess), stop_gradient(x)
    for _ in range(3):
        w = _halley(w, quotient(w, at))
    found: Tensor = stop_gradient(w)
    for _ in range(2):
        found = _halley(found, quotient(found, x))
    return found


def _upper(x: Tensor) -> Tensor:
    p = _from_branch(x)
    close, small = absolute(p) < CLOSE, absolute(x) < SMALL
    safe = where(close | small | isinf(x), 1.0, x)
    first = log1p(where(safe < -0.3, 1.0, safe))
    wide = first * (1.0 - log1p(first) / (2.0 + first))
    guess = where(safe < -0.3, polynomial(AT_BRANCH[:4], p), wide)
    found = _found(guess, safe, _log_quotient)
    found = where(small, x * polynomial(AT_ZERO, where(small, x, 0.0)), found)
    beyond = where(x > 0.0, x, float("nan"))
    return where(close, polynomial(AT_BRANCH, where(close, p, 0.0)), where(isinf(x), beyond, found))


def _log_quotient(w: Tensor, x: Tensor) -> Tensor:
    """By the logarithms of both where slopes of the quotient would underflow."""
    large = x > 1.0
    result: Tensor = log(w / where(large, 1.0, x)) - log(where(large, x, 1.0))
    return result


@custom_jvp
def _lower(x: Tensor) -> Tensor:
    """With a rule, for slopes of logarithms overflow where x underflows."""
    p = _from_branch(x)
    close = absolute(p) < CLOSE
    outside = x >= 0.0
    safe = where(close | outside, -0.1, x)
    logarithm = log(-safe)
    second = log(-logarithm)
    wide = logarithm - second + second / logarithm
    guess = where(safe < -0.25, polynomial(AT_BRANCH[:4], -p), wide)
    found = _found(guess, safe, lambda w, x: log(-w) - log(-x))
    inside = where(close, polynomial(AT_BRANCH, where(close, -p, 0.0)), found)
    return where(outside, where(x == 0.0, -float("inf"), float("nan")), inside)


@_lower.defjvp
def _lower_slope(primals: tuple[Tensor], tangents: tuple[Tensor]) -> tuple[Tensor, Tensor]:
    (x,) = primals
    w, border = _lower(x), x == 0.0
    known = where(border, -2.0, w)
    return w, where(border, -float("inf") * (1.0 + x), known / (1.0 + known) / where(border, 1.0, x)) * tangents[0]
