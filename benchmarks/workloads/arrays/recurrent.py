"""A state handed on from row to row: gated cells by scan, and a linear recurrence by an associative scan."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import Program, named, normal, sizes

TIME, WIDE = 64, 256
CHANNELS = 64


def sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def sequences(gates: int, n: int) -> Arrays:
    x, weights, recurrent, bias = normal((TIME, n, WIDE), (WIDE, gates * WIDE), (WIDE, gates * WIDE), (gates * WIDE,))
    return named(weights=weights / np.float32(16), recurrent=recurrent / np.float32(16), bias=bias, x=x)


def lstm(xp: Any, scan: Any, logistic: Any, zeros: Any, weights: Any, recurrent: Any, bias: Any, x: Any) -> Any:
    """Hochreiter and Schmidhuber 1997, with forget gates; the loss is of the last state."""

    def step(state: Any, row: Any) -> Any:
        h, c = state
        z = row @ weights + h @ recurrent + bias
        enter, keep, leave = (logistic(z[:, k * WIDE : (k + 1) * WIDE]) for k in range(3))
        c = keep * c + enter * xp.tanh(z[:, 3 * WIDE :])
        return (leave * xp.tanh(c), c), None

    start = zeros((x.shape[1], WIDE), x)
    (h, _), _ = scan(step, (start, start), x)
    return xp.sum(h * h)


def lstm_by_hand(weights: Any, recurrent: Any, bias: Any, x: Any) -> Any:
    h = c = np.zeros((x.shape[1], WIDE), x.dtype)
    saved = []
    for row in x:
        z = row @ weights + h @ recurrent + bias
        gates = [sigmoid(z[:, k * WIDE : (k + 1) * WIDE]) for k in range(3)]
        entry, before, carried = np.tanh(z[:, 3 * WIDE :]), h, c
        c = gates[1] * c + gates[0] * entry
        h = gates[2] * np.tanh(c)
        saved.append((row, before, carried, gates, entry, np.tanh(c)))
    value, by_h, by_c = np.sum(h * h), 2.0 * h, np.zeros_like(c)
    by = [np.zeros_like(weights), np.zeros_like(recurrent), np.zeros_like(bias)]
    for row, before, carried, (enter, keep, leave), entry, squashed in reversed(saved):
        by_c = by_c + by_h * leave * (1.0 - squashed * squashed)
        by_z = np.concatenate([
            by_c * entry * enter * (1.0 - enter), by_c * carried * keep * (1.0 - keep),
            by_h * squashed * leave * (1.0 - leave), by_c * enter * (1.0 - entry * entry),
        ], axis=1)  # fmt: skip
        by[0] += row.T @ by_z
        by[1] += before.T @ by_z
        by[2] += np.sum(by_z, axis=0)
        by_h, by_c = by_z @ recurrent.T, by_c * keep
    return value, *by


def gru(xp: Any, scan: Any, logistic: Any, zeros: Any, weights: Any, recurrent: Any, bias: Any, x: Any) -> Any:
    """Cho et al. 2014, as libraries have it: the reset gate multiplies the product."""

    def step(h: Any, row: Any) -> Any:
        a, b = row @ weights + bias, h @ recurrent
        reset, keep = (logistic(a[:, k * WIDE : (k + 1) * WIDE] + b[:, k * WIDE : (k + 1) * WIDE]) for k in range(2))
        new = xp.tanh(a[:, 2 * WIDE :] + reset * b[:, 2 * WIDE :])
        return keep * h + (1.0 - keep) * new, None

    h, _ = scan(step, zeros((x.shape[1], WIDE), x), x)
    return xp.sum(h * h)


def gru_by_hand(weights: Any, recurrent: Any, bias: Any, x: Any) -> Any:
    h = np.zeros((x.shape[1], WIDE), x.dtype)
    saved = []
    for row in x:
        a, b = row @ weights + bias, h @ recurrent
        reset, keep = (sigmoid((a + b)[:, k * WIDE : (k + 1) * WIDE]) for k in range(2))
        new = np.tanh(a[:, 2 * WIDE :] + reset * b[:, 2 * WIDE :])
        saved.append((row, h, reset, keep, new, b[:, 2 * WIDE :]))
        h = keep * h + (1.0 - keep) * new
    value, by_h = np.sum(h * h), 2.0 * h
    by = [np.zeros_like(weights), np.zeros_like(recurrent), np.zeros_like(bias)]
    for row, before, reset, keep, new, product in reversed(saved):
        by_new = by_h * (1.0 - keep) * (1.0 - new * new)
        by_reset = by_new * product * reset * (1.0 - reset)
        by_keep = by_h * (before - new) * keep * (1.0 - keep)
        by_a = np.concatenate([by_reset, by_keep, by_new], axis=1)
        by_b = np.concatenate([by_reset, by_keep, by_new * reset], axis=1)
        by[0] += row.T @ by_a
        by[1] += before.T @ by_b
        by[2] += np.sum(by_a, axis=0)
        by_h = by_h * keep + by_b @ recurrent.T
    return value, *by


def rows_in_python(step: Any, state: Any, x: Any) -> Any:
    for row in x:
        state, _ = step(state, row)
    return state, None


def cell(function: Any) -> dict[str, Any]:
    return {
        "loopgrad": lambda lg: partial(
            function, lg, lg.scan, lg.sigmoid, lambda shape, like: lg.zeros(shape, dtype=like.dtype)
        ),
        "jax": lambda jax: partial(
            function, jax.numpy, jax.lax.scan, jax.nn.sigmoid, lambda shape, like: jax.numpy.zeros(shape, like.dtype)
        ),
        "torch": lambda torch: partial(
            function, torch, rows_in_python, torch.sigmoid, lambda shape, like: like.new_zeros(shape)
        ),
    }


def decays(n: int) -> Arrays:
    factors, terms = normal((n, CHANNELS), (n, CHANNELS))
    return named(factors=np.tanh(factors), terms=terms)


def joined(first: Any, second: Any) -> Any:
    return first[0] * second[0], first[1] * second[0] + second[1]


def recurrence_by_hand(factors: Any, terms: Any) -> Any:
    state, states = np.zeros(CHANNELS, terms.dtype), np.empty_like(terms)
    for k in range(len(terms)):
        states[k] = state = factors[k] * state + terms[k]
    return states


PROGRAMS = {
    "lstm": Program(
        "LSTM, 64 steps of 256, value and derivatives", sizes(128, 2, 128), partial(sequences, 4), lstm_by_hand,
        **cell(lstm), wrt=(0, 1, 2), tolerance=1e-3, flops=lambda n: TIME * n * 2 * 4 * WIDE * WIDE * 5,
    ),
    "gru": Program(
        "GRU, 64 steps of 256, value and derivatives", sizes(128, 2, 128), partial(sequences, 3), gru_by_hand,
        **cell(gru), wrt=(0, 1, 2), tolerance=1e-3, flops=lambda n: TIME * n * 2 * 3 * WIDE * WIDE * 5,
    ),
    "recurrence": Program(
        "h = a h + b of 64 channels by an associative scan", sizes(2**14, 100, 2**17), decays, recurrence_by_hand,
        loopgrad=lambda lg: lambda a, b: lg.associative_scan(joined, (a, b))[1],
        jax=lambda jax: lambda a, b: jax.lax.associative_scan(joined, (a, b))[1], needs="associative_scan",
        moved=lambda a: 3 * a["terms"].nbytes,
    ),
}  # fmt: skip
