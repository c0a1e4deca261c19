"""Derivatives of order 1 and 2 at points where a function is special: kinks, borders of the domain, infinities.

A row holds the function, the point, the slopes by each argument, and the second derivatives (the rows of the matrix).
Where a function has a derivative, or a limit, that is what stands here; where it has none, the convention of
docs/gradients.md.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log, nan, pi, sqrt
from typing import Any, NamedTuple

import loopgrad as lg


class Point(NamedTuple):
    """A row; `bends` None: no second derivatives are promised."""

    name: str
    function: Callable[..., Any]
    at: tuple[float, ...]
    slopes: tuple[float, ...]
    bends: tuple[tuple[float, ...], ...] | None


def _one(name: str, x: float, slope: float, bend: float | None, function: Callable[..., Any] | None = None) -> Point:
    return Point(name, function or getattr(lg, name), (x,), (slope,), None if bend is None else ((bend,),))


FLAT = ((0.0, 0.0), (0.0, 0.0))


def _two(
    name: str, at: tuple[float, float], slopes: tuple[float, float], bends: Any = FLAT,
    function: Callable[..., Any] | None = None,
) -> Point:  # fmt: skip
    return Point(name, function or getattr(lg, name), at, slopes, bends)


def _of_pair(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: function(lg.stack([x, y]))


KINKS = [
    *[_one(name, 0.0, 0.0, 0.0) for name in ("absolute", "fabs", "sign")],
    *[_one(name, x, 0.0, 0.0) for name in ("floor", "ceil", "trunc", "rint", "round") for x in (0.0, 2.0, -0.5)],
    *[_two(name, (1.5, 1.5), (0.5, 0.5)) for name in ("maximum", "minimum", "fmax", "fmin")],
    *[_one(f"clip at {x}", x, 0.5, 0.0, lambda v: lg.clip(v, -1.0, 2.0)) for x in (-1.0, 2.0)],
    *[_two(f"{name} of equals", (2.0, 2.0), (0.5, 0.5), FLAT, _of_pair(getattr(lg, name)))
      for name in ("max", "min", "median", "nanmax", "nanmin")],
    _two("cummax of equals", (2.0, 2.0), (0.0, 1.0), FLAT, _of_pair(lambda v: lg.cummax(v)[1])),
    _two("cummin of equals", (2.0, 2.0), (0.0, 1.0), FLAT, _of_pair(lambda v: lg.cummin(v)[1])),
    _two("sort of equals", (2.0, 2.0), (1.0, 0.0), FLAT, _of_pair(lambda v: lg.sort(v)[0])),
    _two("at max of equals", (2.0, 2.0), (0.5, 0.5), FLAT, lambda x, y: lg.stack([x]).at[0].max(y)[0]),
    _two("floor_divide", (4.0, 2.0), (0.0, 0.0)),
    _two("remainder", (4.0, 2.0), (1.0, -2.0)),
    _two("remainder", (-5.0, 3.0), (1.0, 2.0)),
    _two("remainder", (1.0, 0.1), (1.0, -9.0)),  # 1 / 0.1 is rounded to 10
    _two("fmod", (-1.0, 0.1), (1.0, 9.0)),
    _two("fmod", (-5.0, 3.0), (1.0, 1.0)),
    *[_one(f"modf at {x}", x, 1.0, 0.0, lambda v: lg.modf(v)[0]) for x in (0.0, 2.0, -3.0)],
    *[_two("copysign", (x, -1.0), (slope, 0.0)) for x, slope in ((0.0, 0.0), (2.0, -1.0), (-2.0, 1.0))],
    *[_two("heaviside", (x, 0.3), (0.0, float(x == 0))) for x in (0.0, 1.0, -1.0)],
    _one("stop_gradient", 1.5, 0.0, 0.0),
    _two("hypot", (0.0, 0.0), (0.0, 0.0)),
    _two("atan2", (0.0, 0.0), (0.0, 0.0)),
    *[_two(f"vector_norm {p} at 0", (0.0, 0.0), (0.0, 0.0), None if p == 1.5 else FLAT,
           _of_pair(lambda v, p=p: lg.vector_norm(v, ord=p))) for p in (1, 2, 3, 4, 1.5)],
    _two("std of equals", (0.7, 0.7), (0.0, 0.0), FLAT, _of_pair(lg.std)),
    _two("nanstd of equals", (0.7, 0.7), (0.0, 0.0), FLAT, _of_pair(lg.nanstd)),
    _two("vector_norm 3 at an axis", (0.0, 2.0), (0.0, 1.0), FLAT, _of_pair(lambda v: lg.vector_norm(v, ord=3))),
    _one("vector_norm 1.5 at an axis", 0.0, 0.0, inf, lambda x: lg.vector_norm(lg.stack([x, 2.0]), ord=1.5)),
    *[_one(f"interp at {x}", x, slope, 0.0, lambda v: lg.interp(v, [0.0, 1.0, 3.0], [1.0, 2.0, -2.0]))
      for x, slope in ((-1.0, 0.0), (0.0, 1.0), (1.0, -2.0), (3.0, 0.0))],
    *[_one("nan_to_num", x, 0.0, 0.0) for x in (nan, inf, -inf)],
    _one("where", 0.0, 3.0, 0.0, lambda x: lg.where(x > 0, lg.sqrt(x), 3.0 * x)),
]  # fmt: skip

BORDERS = [
    _one("sqrt", 0.0, inf, -inf),
    _one("rsqrt", 0.0, -inf, inf),
    _one("cbrt", 0.0, inf, -inf),
    _one("reciprocal", 0.0, -inf, inf),
    _one("log", 0.0, inf, -inf),
    _one("log2", 0.0, inf, -inf),
    _one("log10", 0.0, inf, -inf),
    _one("log1p", -1.0, inf, -inf),
    _one("asin", 1.0, inf, None),
    _one("asin", -1.0, inf, None),
    _one("acos", 1.0, -inf, None),
    _one("acosh", 1.0, inf, None),
    _one("atanh", 1.0, inf, None),
    _one("atanh", -1.0, inf, None),
    _one("power 0.5", 0.0, inf, -inf, lambda x: x**0.5),
    _one("power 1.5", 0.0, 0.0, inf, lambda x: x**1.5),
    _one("power 2.5", 0.0, 0.0, 0.0, lambda x: x**2.5),
    _one("lgamma", -1e-8, 99999999.422784, None),
    _one("lgamma", 0.5, -1.9635100260214235, pi**2 / 2),
    _one("digamma", -1.0 - 1e-3, 1000002.64534465, None),
]

SMOOTH = [
    _one("sinc", 0.0, 0.0, -(pi**2) / 3),
    *[_one("sinc", x, -(pi**2) / 3 * x + pi**4 / 30 * x**3, -(pi**2) / 3 + pi**4 / 10 * x**2)
      for x in (1e-300, 1e-8, -1e-8, 1e-6, 1e-4)],
    *[_one("sinc", float(n), (-1.0) ** n / n, -2 * (-1.0) ** n / n**2) for n in (1, 2, -3)],
    _two("power", (4.0, 0.0), (0.0, log(4.0)), ((0.0, 0.25), (0.25, log(4.0) ** 2))),
    _two("power", (1.0, 0.0), (0.0, 0.0), ((0.0, 1.0), (1.0, 0.0))),
    _two("power", (5e-324, 0.0), (0.0, log(5e-324)), None),
    _two("power", (0.0, 2.0), (0.0, 0.0), ((2.0, 0.0), (0.0, 0.0))),
    _two("power", (0.0, 3.0), (0.0, 0.0)),
    _two("power", (0.0, 1.5), (0.0, 0.0), None),
    _two("power", (0.0, 0.0), (0.0, 0.0)),
    _two("power", (0.0, 1.0), (1.0, 0.0), None),
    _two("power", (0.0, -1.0), (-inf, -inf), None),
    *[_one(f"(-2) ** {n}", -2.0, slope, bend, lambda x, n=n: x ** lg.asarray(n))
      for n, slope, bend in (
          (-1.0, -0.25, -0.25), (0.0, 0.0, 0.0), (1.0, 1.0, 0.0), (2.0, -4.0, 2.0), (3.0, 12.0, -12.0),
      )],
    _two("hypot", (0.0, 2.0), (0.0, 1.0), ((0.5, 0.0), (0.0, 0.0))),
    _two("hypot", (2.0, 0.0), (1.0, 0.0), ((0.0, 0.0), (0.0, 0.5))),
    _two("hypot", (-3.0, 3.0), (-sqrt(0.5), sqrt(0.5)), ((sqrt(0.5) / 6,) * 2,) * 2),
    _two("hypot", (3e200, 4e200), (0.6, 0.8), None),
    _two("hypot", (3e-200, 4e-200), (0.6, 0.8), None),
    _two("logaddexp", (1.0, 1.0), (0.5, 0.5), ((0.25, -0.25), (-0.25, 0.25))),
    _two("logaddexp2", (3.0, 3.0), (0.5, 0.5), ((log(2) / 4, -log(2) / 4), (-log(2) / 4, log(2) / 4))),
    _two("atan2", (0.0, 2.0), (0.5, 0.0), ((0.0, -0.25), (-0.25, 0.0))),
    _two("atan2", (-2.0, 0.0), (0.0, 0.5), ((0.0, 0.25), (0.25, 0.0))),
    _two("atan2", (3e-200, 4e-200), (1.6e199, -1.2e199), None),
    _two("atan2", (3e200, 4e200), (1.6e-201, -1.2e-201), None),
    _one("sigmoid", 0.0, 0.25, 0.0),
    _two("logsumexp", (1.0, 1.0), (0.5, 0.5), ((0.25, -0.25), (-0.25, 0.25)), _of_pair(lg.logsumexp)),
]  # fmt: skip

INFINITIES = [
    *[_one(name, -inf, 0.0, 0.0) for name in ("exp", "exp2", "expm1")],
    *[_one(name, x, 0.0, 0.0) for name in ("tanh", "sigmoid") for x in (inf, -inf)],
    *[_one(name, inf, 0.0, 0.0) for name in ("log", "log2", "log10", "log1p", "sqrt", "cbrt")],
    *[_one(name, x, slope, None) for name, slope in (("atan", 0.0), ("asinh", 0.0), ("erf", 0.0)) for x in (inf, -inf)],
    *[_two("logaddexp", at, slopes) for at, slopes in (
        ((inf, 1.0), (1.0, 0.0)), ((1.0, inf), (0.0, 1.0)), ((-inf, 1.0), (0.0, 1.0)), ((1.0, -inf), (1.0, 0.0)),
        ((inf, -inf), (1.0, 0.0)), ((inf, inf), (0.5, 0.5)), ((-inf, -inf), (0.5, 0.5)),
    )],
    *[_two("hypot", at, slopes) for at, slopes in (((inf, 1.0), (1.0, 0.0)), ((1.0, -inf), (0.0, -1.0)))],
    *[_two("atan2", at, (0.0, 0.0)) for at in ((inf, 1.0), (1.0, inf), (-inf, inf))],
    _two("logsumexp", (-inf, 1.0), (0.0, 1.0), FLAT, _of_pair(lg.logsumexp)),
    _two("remainder", (3.0, inf), (1.0, 0.0)),
]  # fmt: skip

POINTS = [*KINKS, *BORDERS, *SMOOTH, *INFINITIES]
