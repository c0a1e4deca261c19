"""Sorting and searching, counting, and sums of all that came before."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import Program, integers, named, normal, sizes, uniform

K = 16
SCAN = sizes(2**22, 1000, 2**23)


def vector(n: int) -> Arrays:
    return named(x=normal((n,))[0])


def fractions(n: int) -> Arrays:
    return named(x=uniform((n,))[0])


def balanced(n: int) -> Arrays:
    """Factors over earlier ones: products neither grow nor vanish. (Factors near 1, or pairs of reciprocals, lie on so
    coarse a grid that rounding of their products in float32 is biased, in whatever order.)"""
    factors = uniform((n,), low=0.5, high=2.0)[0].astype(np.float64)
    return named(x=(factors / np.roll(factors, 37)).astype(np.float32))


def rows(n: int) -> Arrays:
    return named(x=normal((n, 8192))[0])


def queries(n: int) -> Arrays:
    table, x = normal((2**16,), (n,))
    return named(table=np.sort(table), x=x)


def codes(n: int) -> Arrays:
    return named(x=integers((n,), 4096))


def distinct(xp: Any, ordered: Any, x: Any) -> Any:
    s = ordered(x)
    return xp.sum(s[1:] != s[:-1]) + 1


def largest(x: Any) -> Any:
    order = np.argsort(-x, axis=1, kind="stable")[:, :K]
    return np.take_along_axis(x, order, axis=1), order


def logcumsumexp_by_hand(x: Any) -> Any:
    return np.logaddexp.accumulate(x)


PROGRAMS = {
    "cumsum": Program("cumsum", SCAN, vector, np.cumsum, lambda xp: lambda x: xp.cumsum(x, axis=0)),
    "sort": Program(
        "sort", sizes(2**20, 1000, 2**21), vector, np.sort, lambda xp: xp.sort,
        torch=lambda torch: lambda x: torch.sort(x).values,
    ),
    "argsort": Program(
        "argsort, equal elements in their order", sizes(2**19, 1000, 2**20), vector,
        partial(np.argsort, kind="stable"), lambda xp: xp.argsort,
        torch=lambda torch: lambda x: torch.argsort(x, stable=True), tolerance=0.0,
    ),
    "cumprod": Program("cumprod", SCAN, balanced, np.cumprod, lambda xp: lambda x: xp.cumprod(x, axis=0),
                       tolerance=1e-3),
    "cummax": Program(
        "cummax", SCAN, vector, np.maximum.accumulate, loopgrad=lambda lg: lambda x: lg.cummax(x, axis=0),
        jax=lambda jax: jax.lax.cummax, torch=lambda torch: lambda x: torch.cummax(x, 0).values,
    ),
    "logcumsumexp": Program(
        "logcumsumexp", sizes(2**21, 1000, 2**23), vector, logcumsumexp_by_hand,
        loopgrad=lambda lg: lambda x: lg.logcumsumexp(x), jax=lambda jax: jax.lax.cumlogsumexp,
        torch=lambda torch: lambda x: torch.logcumsumexp(x, 0), needs="logcumsumexp",
    ),
    "top_k": Program(
        "the 16 largest of 8,192 columns, and where they are", sizes(128, 4, 1024), rows, largest,
        loopgrad=lambda lg: lambda x: lg.top_k(x, K), jax=lambda jax: lambda x: jax.lax.top_k(x, K),
        torch=lambda torch: lambda x: tuple(torch.topk(x, K)), needs="top_k", tolerance=0.0,
        moved=lambda a: a["x"].nbytes,
    ),
    "median": Program("median", sizes(2**20 - 1, 999, 2**22 - 1), vector, np.median, lambda xp: xp.median,
                      moved=lambda a: a["x"].nbytes),
    "searchsorted": Program(
        "searchsorted in 65,536 elements", sizes(2**20, 1000, 2**22), queries, np.searchsorted,
        lambda xp: xp.searchsorted, moved=lambda a: a["x"].nbytes * 3, tolerance=0.0,
    ),
    "distinct": Program(
        "how many different integers", sizes(2**20, 1000, 2**21), codes, lambda x: np.asarray(np.unique(x).size),
        lambda xp: partial(distinct, xp, xp.sort),
        torch=lambda torch: partial(distinct, torch, lambda x: torch.sort(x).values), tolerance=0.0,
        moved=lambda a: a["x"].nbytes,
    ),
    "histogram": Program(
        "histogram of 64 bins", sizes(2**22, 1000, 2**24), fractions,
        lambda x: np.histogram(x, bins=64, range=(0.0, 1.0))[0],
        lambda xp: lambda x: xp.histogram(x, bins=64, range=(0.0, 1.0))[0],
        torch=lambda torch: lambda x: torch.histc(x, 64, 0.0, 1.0), tolerance=0.0, moved=lambda a: a["x"].nbytes,
    ),
    "bincount": Program(
        "bincount of 4,096 codes", sizes(2**22, 1000, 2**24), codes, lambda x: np.bincount(x, minlength=4096),
        loopgrad=lambda lg: lambda x: lg.bincount(x, length=4096),
        jax=lambda jax: lambda x: jax.numpy.bincount(x, length=4096),
        torch=lambda torch: lambda x: torch.bincount(x, minlength=4096), tolerance=0.0,
        moved=lambda a: a["x"].nbytes,
    ),
}  # fmt: skip
