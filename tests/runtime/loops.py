"""A gradient whose stacks grow with the data, and one of a loop over whole tensors, each with its reference."""

from __future__ import annotations

import numpy as np

import loopgrad as lg


def gradient_of_ragged_loops():
    def loss(x, n):
        def lane(v, trips):
            return lg.fori_loop(0, trips, lambda _, s: lg.sin(s) * v, v)

        return lg.sum(lg.vmap(lane)(x, n))

    return lg.grad(loss)


def ragged_reference(x, n):
    out = np.zeros_like(x)
    for i, (v, trips) in enumerate(zip(x, n, strict=True)):
        value, derivative = v, 1.0
        for _ in range(trips):
            value, derivative = np.sin(value) * v, np.cos(value) * derivative * v + np.sin(value)
        out[i] = derivative
    return out


def sum_of_mixing_loop(x, n):
    """Every trip takes the mean, so the loop runs over whole tensors."""
    return lg.sum(lg.fori_loop(0, n, lambda _, v: lg.sin(v) + 0.3 * lg.mean(v), x))


def mixing_reference(x, trips):
    for _ in range(trips):
        x = np.sin(x) + 0.3 * x.mean()
    return x.sum()
