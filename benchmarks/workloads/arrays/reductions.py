"""Sums and their like over rows, columns and everything, with what is made of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import Program, named, normal, sizes

COLUMNS = 2048
TABLE = sizes(2048, 16, 8192)


def table(n: int) -> Arrays:
    return named(x=normal((n, COLUMNS))[0])


def short_rows(n: int) -> Arrays:
    return named(x=normal((n, 30))[0])


def blocks(n: int) -> Arrays:
    return named(x=normal((n, 64, 64, 64))[0])


def unit_rows(xp: Any, x: Any) -> Any:
    return x / xp.sqrt(xp.sum(x * x, axis=1)[:, None])


def vector(n: int) -> Arrays:
    return named(x=normal((n,))[0])


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=1, keepdims=True))
    return e / xp.sum(e, axis=1, keepdims=True)


def logsumexp(x: Any) -> Any:
    top = np.max(x, axis=1)
    return top + np.log(np.sum(np.exp(x - top[:, None]), axis=1))


def layers(n: int) -> Arrays:
    x, weights, gain, bias = normal((n, 1024), (n, 1024), (1024,), (1024,))
    return named(x=x, gain=gain, bias=bias, weights=weights)


def layer_norm(xp: Any, x: Any, gain: Any, bias: Any, weights: Any) -> Any:
    centred = x - xp.mean(x, axis=1, keepdims=True)
    variance = xp.mean(centred * centred, axis=1, keepdims=True)
    return xp.sum((centred / xp.sqrt(variance + 1e-5) * gain + bias) * weights)


def layer_norm_torch(torch: Any) -> Any:
    normed = torch.nn.functional.layer_norm
    return lambda x, gain, bias, weights: (normed(x, (1024,), gain, bias, 1e-5) * weights).sum()


def layer_norm_by_hand(x: Any, gain: Any, bias: Any, weights: Any) -> Any:
    centred = x - np.mean(x, axis=1, keepdims=True)
    scale = 1.0 / np.sqrt(np.mean(centred * centred, axis=1, keepdims=True) + 1e-5)
    normed = centred * scale
    slope = weights * gain
    mean, along = (np.mean(s, axis=1, keepdims=True) for s in (slope, slope * normed))
    value = np.sum((normed * gain + bias) * weights)
    return value, scale * (slope - mean - normed * along), np.sum(weights * normed, axis=0), np.sum(weights, axis=0)


def masked_mean(xp: Any, x: Any) -> Any:
    return xp.sum(xp.where(x > 0.0, x * x, 0.0)) / xp.sum(x > 0.0)


def pair(n: int) -> Arrays:
    x, y = normal((n,), (n,))
    return named(x=x, y=y)


def distances(xp: Any, x: Any, y: Any) -> Any:
    return xp.sum(abs(x[:, None] - y[None, :]), axis=1)


def distances_by_hand(x: Any, y: Any) -> Any:
    return np.concatenate([np.sum(np.abs(part[:, None] - y), axis=1) for part in np.array_split(x, 1 + x.size // 256)])


def rows_only(a: Arrays) -> int:
    return a["x"].nbytes + 4 * len(a["x"])


PROGRAMS = {
    "layer_norm": Program(
        "layer norm of 1,024 columns, value and derivatives by its three arguments", sizes(2048, 8, 8192), layers,
        layer_norm_by_hand, lambda xp: partial(layer_norm, xp), torch=layer_norm_torch, wrt=(0, 1, 2), compiled=True,
    ),
    "softmax": Program(
        "softmax over 2,048 columns", TABLE, table, partial(softmax, np), lambda xp: partial(softmax, xp),
        jax=lambda jax: jax.nn.softmax, torch=lambda torch: lambda x: torch.softmax(x, 1),
    ),
    "sum_axis_0": Program(
        "sum over rows", TABLE, table, lambda x: np.sum(x, axis=0), lambda xp: lambda x: xp.sum(x, axis=0),
        moved=lambda a: a["x"].nbytes,
    ),
    "sum_axis_1": Program(
        "sum over 2,048 columns", TABLE, table, lambda x: np.sum(x, axis=1), lambda xp: lambda x: xp.sum(x, axis=1),
        moved=rows_only,
    ),
    "logsumexp": Program(
        "logsumexp over 2,048 columns", TABLE, table, logsumexp, loopgrad=lambda lg: lambda x: lg.logsumexp(x, axis=1),
        jax=lambda jax: lambda x: jax.nn.logsumexp(x, axis=1), torch=lambda torch: lambda x: torch.logsumexp(x, 1),
        moved=rows_only, compiled=True,
    ),
    "log_softmax": Program(
        "log_softmax over 2,048 columns", TABLE, table, lambda x: x - logsumexp(x)[:, None],
        loopgrad=lambda lg: lambda x: x - lg.logsumexp(x, axis=1, keepdims=True),
        jax=lambda jax: jax.nn.log_softmax, torch=lambda torch: lambda x: torch.log_softmax(x, 1),
    ),
    "variance": Program(
        "variance over 2,048 columns", TABLE, table, partial(np.var, axis=1), lambda xp: lambda x: xp.var(x, axis=1),
        torch=lambda torch: lambda x: torch.var(x, 1, correction=0), moved=rows_only, compiled=True,
    ),
    "masked_mean": Program(
        "mean of the squares of the positive elements", sizes(2**23, 1000, 2**26), vector, partial(masked_mean, np),
        lambda xp: partial(masked_mean, xp), moved=lambda a: a["x"].nbytes, compiled=True,
    ),
    "argmax_rows": Program(
        "argmax over 2,048 columns", TABLE, table, lambda x: np.argmax(x, axis=1),
        lambda xp: lambda x: xp.argmax(x, axis=1), moved=rows_only, tolerance=0.0,
    ),
    "unit_rows": Program(
        "rows of 30 over their norms", sizes(100_000, 33, 2**21), short_rows, partial(unit_rows, np),
        lambda xp: partial(unit_rows, xp), compiled=True,
    ),
    "max_between": Program(
        "largest over the second and the last of four axes", sizes(32, 2, 512), blocks,
        lambda x: np.max(x, axis=(1, 3)), lambda xp: lambda x: xp.max(x, axis=(1, 3)),
        torch=lambda torch: lambda x: torch.amax(x, (1, 3)), moved=rows_only, compiled=True,
    ),
    "outer_sum": Program(
        "sums of |x_i - y_j| over j", sizes(4096, 100, 16384), pair, distances_by_hand,
        lambda xp: partial(distances, xp), compiled=True, flops=lambda n: 3 * n * n,
    ),
}  # fmt: skip
