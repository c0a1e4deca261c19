"""What distributions of numbers have in common: parameters by SciPy's rules, their support, methods by formulas.

A formula is of the standard form: of y = (x - loc) / scale and the shape parameters. Where y is outside of the support
it is given a point inside in its place; where parameters aren't allowed, or x is NaN, all results are NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

from loopgrad.graph.errors import explained
from loopgrad.lazy.numpy.elementwise import (
    exp,
    floor,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
)
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.special.operands import of_domain
from loopgrad.lazy.tensor.core import ArrayLike
from loopgrad.lazy.tensor.repeated_calls import repeated_method

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

Formula = Callable[..., "Tensor"]
TINY: Final = 1e-30  # of probabilities, which underflow further out
NAN: Final = float("nan")
INF: Final = float("inf")


def positive(*parameters: Tensor) -> Tensor | bool:
    """Whether all of them are."""
    allowed: Tensor | bool = True
    for parameter in parameters:
        allowed = logical_and(parameter > 0.0, allowed)
    return allowed


def _log_of(probability: Formula, rest: Formula | None, far: Formula | None, y: Tensor, *shapes: Tensor) -> Tensor:
    """The logarithm of a probability, by what it leaves to 1 where that is small, by `far` where it is tiny itself."""
    one, other = probability(y, *shapes), (rest or probability)(y, *shapes)
    small = one < 0.5 if rest is not None else one == one
    tiny = one < TINY if far is not None else one != one
    found = where(small, log(where(logical_or(tiny, logical_not(small)), 1.0, one)), log1p(-where(small, 0.5, other)))
    return found if far is None else where(tiny, far(y, *shapes), found)


@dataclass(frozen=True, eq=False)
class Univariate:
    """The formulas of a distribution, each of y and the shape parameters; a method without one is refused with advice.

    `support` has its ends, numbers or shape parameters; `allowed` says whether these are.
    """

    name: str
    log_density: Formula
    shapes: tuple[str, ...] = ()
    support: tuple[float | str, float | str] = (-INF, INF)
    allowed: Callable[..., Tensor | bool] = positive
    below: Formula | None = None  # the probability of values up to y
    above: Formula | None = None
    log_below: Formula | None = None  # where these have formulas of their own; else by the smaller one of both
    log_above: Formula | None = None
    far_below: Formula | None = None  # the same where the probability underflows
    far_above: Formula | None = None

    @repeated_method
    def cdf(self, *args: ArrayLike, **named: ArrayLike) -> Tensor:
        """The probability of values up to x; the arguments are x, the shape parameters, loc=0, and of continuous
        distributions scale=1. They broadcast; integers give the default float.

        >>> lg.stats.norm.cdf([0.0, 2.0], scale=2.0)
        Tensor([0.5       , 0.84134475], dtype=float64)
        """
        return self._within("cdf", self.below, 0.0, 1.0, args, named)

    @repeated_method
    def sf(self, *args: ArrayLike, **named: ArrayLike) -> Tensor:
        """The probability of values above x, accurate where it is small; the arguments of `cdf`.

        >>> lg.stats.norm.sf([0.0, 10.0])
        Tensor([5.00000000e-01, 7.61985302e-24], dtype=float64)
        """
        return self._within("sf", self.above, 1.0, 0.0, args, named)

    @repeated_method
    def logcdf(self, *args: ArrayLike, **named: ArrayLike) -> Tensor:
        """The logarithm of `cdf`, with its arguments.

        >>> lg.stats.norm.logcdf(-100.0)
        Tensor(-5005.52420869, dtype=float64)
        """
        formula = self.log_below or partial(_log_of, self.below or self._refused("logcdf"), self.above, self.far_below)
        return self._within("logcdf", formula, -INF, 0.0, args, named)

    @repeated_method
    def logsf(self, *args: ArrayLike, **named: ArrayLike) -> Tensor:
        """The logarithm of `sf`, with the arguments of `cdf`.

        >>> lg.stats.expon.logsf(2.0)
        Tensor(-2., dtype=float64)
        """
        formula = self.log_above or partial(_log_of, self.above or self._refused("logsf"), self.below, self.far_above)
        return self._within("logsf", formula, 0.0, -INF, args, named)

    @property
    def _defaults(self) -> dict[str, float]:
        return {"loc": 0.0, "scale": 1.0}

    def _call(self, method: str, function: Formula, args: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        """`function` of the first argument, loc, scale and the shape parameters, in one float dtype and shape."""
        op, names = f"stats.{self.name}.{method}", (self._first(method), *self.shapes, *self._defaults)
        placed = dict(zip(names, args, strict=False))
        given = {**self._defaults, **placed, **named}
        if len(args) > len(names) or set(given) != set(names) or placed.keys() & named:
            expected = ", ".join([names[0], *self.shapes, *[f"{n}={d:g}" for n, d in self._defaults.items()]])
            got = ", ".join([f"{len(args)} by position", *named])
            raise TypeError(explained(op, expected, got, "pass each of these once"))
        shapes = [given[n] for n in self.shapes]
        return of_domain(op, function, given[names[0]], given["loc"], given.get("scale", 1.0), *shapes)

    def _first(self, method: str) -> str:
        """SciPy's name of the first argument."""
        return "q" if method in ("ppf", "isf") else "x"

    def _within(
        self, method: str, formula: Formula | None, low: float, high: float, args: tuple[Any, ...], named: Any
    ) -> Tensor:
        """The formula within the support, `low` and `high` below and above it."""
        return self._call(method, partial(self._pieces, formula or self._refused(method), low, high), args, named)

    def _pieces(
        self, formula: Formula, low: float, high: float, x: Tensor, loc: Tensor, scale: Tensor, *shapes: Tensor
    ) -> Tensor:
        y, (first, last) = self._standard(x, loc, scale), self._ends(shapes)
        before, beyond = logical_or(y < first, y == -INF), logical_or(y > last, y == INF)
        inside = minimum(maximum(first, 0.5), last)
        found = formula(where(logical_or(before, beyond), inside, y), *shapes)
        return self._if_allowed(where(before, low, where(beyond, high, found)), y, scale, *shapes)

    def _ends(self, shapes: tuple[Tensor, ...]) -> list[Any]:
        return [shapes[self.shapes.index(end)] if isinstance(end, str) else end for end in self.support]

    def _standard(self, x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
        return (x - loc) / scale

    def _if_allowed(self, found: Tensor, y: Tensor, scale: Tensor, *shapes: Tensor) -> Tensor:
        allowed = logical_and(logical_and(scale > 0.0, y == y), self.allowed(*shapes))
        return where(allowed, found, NAN)

    def __reduce__(self) -> tuple[Callable[[str, str], Univariate], tuple[str, str]]:
        return _distribution, (self.log_density.__module__, self.name)

    def _refused(self, method: str) -> NoReturn:
        instead = f"lg.while_loop that solves for it, or scipy.stats.{self.name}.{method} of np.asarray(x)"
        raise AttributeError(f"loopgrad.stats.{self.name} has no {method!r}; instead: {instead}")


def _distribution(module: str, name: str) -> Univariate:
    """The one of that name: what a distribution is pickled as, since its formulas can't be."""
    found: Univariate = getattr(import_module(module), name)
    return found


@dataclass(frozen=True, eq=False)
class Continuous(Univariate):
    """A distribution with a density, and quantiles by the probability below or above."""

    quantile: Formula | None = None
    upper_quantile: Formula | None = None

    @repeated_method
    def logpdf(self, *args: ArrayLike, **named: ArrayLike) -> Tensor:
        """The logarithm of the density, -inf outside of the support; the arguments of `cdf`.

        >>> lg.stats.expon.logpdf([-1.0, 2.0])
        Tensor([-inf,  -2.], dtype=float64)
        """

        def scaled(x: Tensor, loc: Tensor, scale: Tensor, *shapes: Tensor) -> Tensor:
            return self._pieces(self.log_density, -INF, -INF, x, loc, scale, *shapes) - log(scale)

        return self._call("logpdf", scaled, args, named)

    @repeated_method
    def pdf(self, *args: ArrayLike, **named: ArrayLike) -> Tensor:
        """The density, 0 outside of the support; the arguments of `cdf`.

        >>> lg.stats.uniform.pdf([1.0, 3.0], scale=2.0)
        Tensor([0.5, 0. ], dtype=float64)
        """
        return exp(self.logpdf(*args, **named))

    @repeated_method
    def ppf(self, *args: ArrayLike, **named: ArrayLike) -> Tensor:
        """The x for which `cdf` is the first argument, NaN for what isn't from 0 to 1; the others are those of `cdf`.

        >>> lg.stats.logistic.ppf([0.5, 1.0])
        Tensor([ 0., inf], dtype=float64)
        """
        formula = self.quantile or self._refused("ppf")
        return self._call("ppf", partial(self._inverse, formula, False), args, named)

    @repeated_method
    def isf(self, *args: ArrayLike, **named: ArrayLike) -> Tensor:
        """The x for which `sf` is the first argument; otherwise as `ppf`.

        >>> lg.stats.expon.isf(1.0)
        Tensor(0., dtype=float64)
        """
        formula = self.upper_quantile or self._refused("isf")
        return self._call("isf", partial(self._inverse, formula, True), args, named)

    def _inverse(
        self, formula: Formula, downwards: bool, q: Tensor, loc: Tensor, scale: Tensor, *shapes: Tensor
    ) -> Tensor:
        first, last = self._ends(shapes)[:: -1 if downwards else 1]
        within = logical_and(q > 0.0, q < 1.0)
        y = where(within, formula(where(within, q, 0.5), *shapes), where(q == 0.0, first, last))
        known = where(logical_and(q >= 0.0, q <= 1.0), loc + scale * y, NAN)
        return self._if_allowed(known, q, scale, *shapes)


@dataclass(frozen=True, eq=False)
class Discrete(Univariate):
    """A distribution of whole numbers: its density is the probability of each."""

    @repeated_method
    def logpmf(self, *args: ArrayLike, **named: ArrayLike) -> Tensor:
        """The logarithm of the probability of k, -inf for what isn't a whole number of the support; the arguments are
        k, the shape parameters and loc=0.

        >>> lg.stats.bernoulli.logpmf([0, 1, 2], 0.5)
        Tensor([-0.69314718, -0.69314718,        -inf], dtype=float64)
        """

        def of_whole(k: Tensor, loc: Tensor, scale: Tensor, *shapes: Tensor) -> Tensor:
            found = self._pieces(self.log_density, -INF, -INF, k, loc, scale, *shapes)
            broken = logical_and(self._standard(k, loc, scale) != k - loc, k == k)
            return where(logical_and(broken, found == found), -INF, found)

        return self._call("logpmf", of_whole, args, named)

    @repeated_method
    def pmf(self, *args: ArrayLike, **named: ArrayLike) -> Tensor:
        """The probability of k, with the arguments of `logpmf`.

        >>> lg.stats.geom.pmf([1, 2, 2.5], 0.5)
        Tensor([0.5 , 0.25, 0.  ], dtype=float64)
        """
        return exp(self.logpmf(*args, **named))

    @property
    def _defaults(self) -> dict[str, float]:
        return {"loc": 0.0}

    def _first(self, method: str) -> str:
        return "k"

    def _standard(self, x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
        return floor(x - loc)
