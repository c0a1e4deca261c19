"""Losses that people differentiate: a mixture model, a perceptron, a field's energy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads import wave
from benchmarks.workloads.arrays.program import Program, named, normal, sizes

COMPONENTS, DIMENSIONS = 25, 10
WIDE, CLASSES, PIXELS = 512, 10, 784


def mixture(n: int) -> Arrays:
    x, means, scales = normal((n, DIMENSIONS), (COMPONENTS, DIMENSIONS), (COMPONENTS, DIMENSIONS, DIMENSIONS),
                              dtype=np.float64)  # fmt: skip
    weights = normal((COMPONENTS,), seed=1, dtype=np.float64)[0]
    return named(x=x, weights=weights, means=means, scales=scales)


def likelihood(xp: Any, logsumexp: Any, x: Any, weights: Any, means: Any, scales: Any) -> Any:
    """Minus the exponent's constant: each component has a matrix by which distances are multiplied."""
    y = xp.einsum("nkd,kde->nke", x[:, None, :] - means, scales)
    return xp.sum(logsumexp(weights - 0.5 * xp.sum(y * y, axis=2)))


def likelihood_by_hand(x: Any, weights: Any, means: Any, scales: Any) -> Any:
    away = x[:, None, :] - means
    y = np.einsum("nkd,kde->nke", away, scales, optimize=True)
    inner = weights - 0.5 * np.sum(y * y, axis=2)
    top = np.max(inner, axis=1, keepdims=True)
    e = np.exp(inner - top)
    total = np.sum(e, axis=1, keepdims=True)
    shares = e / total
    slope = -shares[:, :, None] * y
    return (
        np.sum(top + np.log(total)), np.sum(shares, axis=0), -np.einsum("nke,kde->kd", slope, scales, optimize=True),
        np.einsum("nkd,nke->kde", away, slope, optimize=True),
    )  # fmt: skip


def perceptron(n: int) -> Arrays:
    x, first, second, third = normal((n, PIXELS), (PIXELS, WIDE), (WIDE, WIDE), (WIDE, CLASSES))
    b1, b2, b3 = normal((WIDE,), (WIDE,), (CLASSES,), seed=1)
    labels = np.eye(CLASSES, dtype=np.float32)[np.random.default_rng(2).integers(0, CLASSES, n)]
    return named(
        w1=first / np.float32(28), b1=b1, w2=second / np.float32(23), b2=b2, w3=third / np.float32(23), b3=b3, x=x,
        labels=labels,
    )  # fmt: skip


def cross_entropy(
    xp: Any, logsumexp: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, x: Any, labels: Any
) -> Any:
    h = xp.maximum(x @ w1 + b1, 0.0)
    h = xp.maximum(h @ w2 + b2, 0.0)
    scores = h @ w3 + b3
    return (xp.sum(logsumexp(scores)) - xp.sum(scores * labels)) / len(x)


def cross_entropy_torch(torch: Any) -> Any:
    def loss(w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, x: Any, labels: Any) -> Any:
        h = torch.relu(torch.addmm(b2, torch.relu(torch.addmm(b1, x, w1)), w2))
        return torch.nn.functional.cross_entropy(torch.addmm(b3, h, w3), labels)

    return loss


def cross_entropy_by_hand(w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, x: Any, labels: Any) -> Any:
    h1 = np.maximum(x @ w1 + b1, 0.0)
    h2 = np.maximum(h1 @ w2 + b2, 0.0)
    scores = h2 @ w3 + b3
    top = np.max(scores, axis=1, keepdims=True)
    e = np.exp(scores - top)
    total = np.sum(e, axis=1, keepdims=True)
    value = (np.sum(top + np.log(total)) - np.sum(scores * labels)) / len(x)
    slope = (e / total - labels) / len(x)
    slope_2 = (slope @ w3.T) * (h2 > 0.0)
    slope_1 = (slope_2 @ w2.T) * (h1 > 0.0)
    return (
        value, x.T @ slope_1, np.sum(slope_1, axis=0), h1.T @ slope_2, np.sum(slope_2, axis=0), h2.T @ slope,
        np.sum(slope, axis=0),
    )  # fmt: skip


def energy(lg: Any) -> Any:
    def loss(field: Any) -> Any:
        u, _ = lg.fori_loop(0, wave.STEPS, lambda _, c: (wave.update(lg, c[0], c[1]), c[0]), (field, field))
        return lg.sum(u * u)

    return loss


def energy_jax(jax: Any) -> Any:
    def loss(field: Any) -> Any:
        step = lambda c, _: ((wave.update(jax.numpy, c[0], c[1]), c[0]), None)
        (u, _), _ = jax.lax.scan(step, (field, field), None, length=wave.STEPS)
        return jax.numpy.sum(u * u)

    return loss


def energy_by_hand(field: Any) -> Any:
    u = previous = field
    for _ in range(wave.STEPS):
        u, previous = wave.update(np, u, previous), u
    return np.sum(u * u), wave.oracle({"field": field})["gradient"]


def log_sum(lg: Any) -> Any:
    return lambda x: lg.logsumexp(x, axis=1)


PROGRAMS = {
    "mixture": Program(
        "mixture of 25 Gaussians in 10 dimensions, float64, value and derivatives", sizes(2000, 20, 10_000), mixture,
        likelihood_by_hand, loopgrad=lambda lg: partial(likelihood, lg, log_sum(lg)),
        jax=lambda jax: partial(likelihood, jax.numpy, lambda x: jax.nn.logsumexp(x, axis=1)),
        torch=lambda torch: partial(likelihood, torch, lambda x: torch.logsumexp(x, 1)), wrt=(1, 2, 3), compiled=True,
        tolerance=1e-9,
    ),
    "mlp": Program(
        "perceptron 784-512-512-10, cross entropy, value and derivatives", sizes(1024, 7, 1024), perceptron,
        cross_entropy_by_hand, loopgrad=lambda lg: partial(cross_entropy, lg, log_sum(lg)),
        jax=lambda jax: partial(cross_entropy, jax.numpy, lambda x: jax.nn.logsumexp(x, axis=1)),
        torch=cross_entropy_torch, wrt=(0, 1, 2, 3, 4, 5), compiled=True, tolerance=1e-3,
        flops=lambda n: n * 2 * (2 * PIXELS * WIDE + 3 * WIDE * WIDE + 3 * WIDE * CLASSES),
    ),
    "wave": Program(
        "100 steps of a wave, value and derivative", sizes(512, 32, 1024), lambda n: wave.inputs(n), energy_by_hand,
        loopgrad=energy, jax=energy_jax, wrt=(0,), tolerance=1e-2,
    ),
}  # fmt: skip
