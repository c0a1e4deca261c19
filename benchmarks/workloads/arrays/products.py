"""Products of matrices, and what is made of many small ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import Program, named, normal, sizes

TAPS = 5
HEADS, TOKENS, WIDTH = 8, 256, 64


def squares(n: int) -> Arrays:
    x, y = normal((n, n), (n, n))
    return named(x=x, y=y)


def many(n: int) -> Arrays:
    x, y = normal((n, 32, 32), (n, 32, 32))
    return named(x=x, y=y)


def tiny(n: int) -> Arrays:
    x, y = normal((n, 12, 12), (n, 12, 12))
    return named(x=x, y=y)


def points(n: int) -> Arrays:
    x, turn = normal((n, 3), (3, 3))
    return named(x=x, turn=turn)


def halves(n: int) -> Arrays:
    x, y = normal((n, n), (n, n))
    return named(x=x.astype(np.float16), y=y.astype(np.float16))


def bilinear(n: int) -> Arrays:
    x, y, form = normal((n, 64), (n, 64), (64, 64, 64))
    return named(x=x, y=y, form=form)


def bilinear_by_hand(x: Any, y: Any, form: Any) -> Any:
    return np.einsum("bjk,bj->bk", (x @ form.reshape(64, -1)).reshape(len(x), 64, 64), y)


def heads(n: int) -> Arrays:
    shape = (n, HEADS, TOKENS, WIDTH)
    queries, keys, values, weights = normal(shape, shape, shape, shape)
    return named(queries=queries, keys=keys, values=values, weights=weights)


def attention(xp: Any, swapped: Any, queries: Any, keys: Any, values: Any, weights: Any) -> Any:
    scores = queries @ swapped(keys) * (1.0 / 8.0)
    e = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    shares = e / xp.sum(e, axis=-1, keepdims=True)
    return xp.sum(shares @ values * weights)


def attention_torch(torch: Any) -> Any:
    fused = torch.nn.functional.scaled_dot_product_attention
    return lambda q, k, v, weights: (fused(q, k, v) * weights).sum()


def attention_by_hand(queries: Any, keys: Any, values: Any, weights: Any) -> Any:
    scores = queries @ np.swapaxes(keys, -1, -2) / 8.0
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    shares = e / np.sum(e, axis=-1, keepdims=True)
    slope = weights @ np.swapaxes(values, -1, -2)
    slope = shares * (slope - np.sum(slope * shares, axis=-1, keepdims=True)) / 8.0
    value = np.sum(shares @ values * weights)
    return value, slope @ keys, np.swapaxes(slope, -1, -2) @ queries, np.swapaxes(shares, -1, -2) @ weights


def images(n: int) -> Arrays:
    image, taps = normal((n, 256, 256), (TAPS, TAPS))
    return named(image=image, taps=taps)


def convolved(image: Any, taps: Any) -> Any:
    high, wide = image.shape[1] - TAPS + 1, image.shape[2] - TAPS + 1
    out = 0.0
    for i in range(TAPS):
        for j in range(TAPS):
            out = out + taps[i, j] * image[:, i : i + high, j : j + wide]
    return out


def convolution(xp: Any, image: Any, taps: Any) -> Any:
    out = convolved(image, taps)
    return xp.sum(out * out) * 0.5


def convolution_by_hand(image: Any, taps: Any) -> Any:
    out, slope, by_taps = convolved(image, taps), np.zeros_like(image), np.zeros_like(taps)
    high, wide = out.shape[1:]
    for i in range(TAPS):
        for j in range(TAPS):
            at = (slice(None), slice(i, i + high), slice(j, j + wide))
            by_taps[i, j] = np.sum(out * image[at])
            slope[at] += taps[i, j] * out
    return np.sum(out * out) * 0.5, slope, by_taps


PROGRAMS = {
    "matmul": Program(
        "matrix product", sizes(1024, 33, 2048), squares, np.matmul, lambda xp: xp.matmul, flops=lambda n: 2 * n**3,
        moved=lambda a: 3 * a["x"].nbytes,
    ),
    "attention": Program(
        "attention, 8 heads, 256 tokens of 64, value and derivatives", sizes(2, 1, 8), heads, attention_by_hand,
        loopgrad=lambda lg: partial(attention, lg, lg.matrix_transpose),
        jax=lambda jax: partial(attention, jax.numpy, lambda k: jax.numpy.swapaxes(k, -1, -2)), torch=attention_torch,
        wrt=(0, 1, 2), compiled=True, flops=lambda n: n * HEADS * TOKENS * TOKENS * WIDTH * 2 * 6,
    ),
    "convolution": Program(
        "5x5 convolution by slices, value and derivatives", sizes(16, 1, 64), images, convolution_by_hand,
        lambda xp: partial(convolution, xp), wrt=(0, 1), compiled=True, tolerance=1e-3,
        flops=lambda n: n * 252 * 252 * 25 * 2 * 3,
    ),
    "batched_matmul": Program(
        "many products of 32x32", sizes(2048, 3, 16384), many, np.matmul, lambda xp: xp.matmul,
        flops=lambda n: 2 * n * 32**3, moved=lambda a: 3 * a["x"].nbytes,
    ),
    "tiny_matmul": Program(
        "many products of 12x12", sizes(8192, 3, 65536), tiny, np.matmul, lambda xp: xp.matmul,
        flops=lambda n: 2 * n * 12**3, moved=lambda a: 3 * a["x"].nbytes,
    ),
    "points": Program(
        "many points turned by one 3x3 matrix", sizes(500_000, 33, 2**22), points, np.matmul, lambda xp: xp.matmul,
        flops=lambda n: 18 * n, moved=lambda a: 2 * a["x"].nbytes,
    ),
    "half_matmul": Program(
        "matrix product in float16", sizes(256, 33, 2048), halves, np.matmul, lambda xp: xp.matmul,
        flops=lambda n: 2 * n**3, moved=lambda a: 3 * a["x"].nbytes, tolerance=2e-2,
    ),
    "einsum": Program(
        "einsum of three: bi,bj,ijk->bk", sizes(512, 5, 4096), bilinear, bilinear_by_hand,
        lambda xp: partial(xp.einsum, "bi,bj,ijk->bk"), flops=lambda n: 2 * n * 64**3 + 2 * n * 64**2,
    ),
}  # fmt: skip
