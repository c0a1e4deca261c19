"""Small programs, each of what no workload spends its time on: only `benchmarks.tuning` runs them.

A piece is a workload without an oracle: nobody checks its results here; tests of the library do that for programs of
their kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender
from benchmarks.workload import Workload
from benchmarks.workloads import small, stream

BINS: Final = 1000
SIDE: Final = 512


@dataclass(frozen=True, slots=True)
class Piece:
    """`run(lg, *arrays)` is compiled; `inputs` makes the arrays."""

    size: int
    inputs: Callable[[int], Arrays]
    run: Callable[..., Any]

    def workload(self, name: str) -> Workload:
        own = {"loopgrad": self.contender}
        return Workload(name, name, {"full": self.size}, self.inputs, lambda _: {}, {}, own, own)

    def contender(self, arrays: Arrays) -> Contender:
        lg = peers.loopgrad()
        own = [lg.asarray(array) for array in arrays.values()]
        compiled = lg.compile(lambda *given: self.run(lg, *given))
        fetch = lambda result: {"result": np.asarray(result)}
        return peers.own(lambda: compiled(*own), lambda result: [result], fetch)


def floats(*shape: int) -> np.ndarray:
    found: np.ndarray = np.random.default_rng(len(shape)).uniform(0.5, 1.5, shape).astype(np.float32)
    return found


def bins(size: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, BINS, size, dtype=np.int32)


def matrices(size: int) -> Arrays:
    return {"v": floats(size, size), "w": floats(size, size) / np.float32(size)}


def tallied(lg: Any, bin: Any, trips: Any, weights: Any) -> Any:
    add = lambda _, totals: totals.at[bin].add(weights)
    return lg.fori_loop(0, trips, add, lg.zeros((BINS,), dtype=lg.float32))


def planes(lg: Any, x: Any, y: Any) -> Any:
    return x[:, None, :] * y[None, :, :]


def indices(lg: Any, x: Any) -> Any:
    k = lg.arange(x.shape[0])
    return x[(k * 5 // 3 + 7) % x.shape[0]] * (k % 13)


def hashes(lg: Any, k: Any) -> Any:
    """Counters, quotients and remainders, and no memory to wait for."""
    step = lambda trip, v: (v * 31 + trip % 7) // 3 % 1_000_003 + k % 97
    return lg.fori_loop(0, lg.full(k.shape, 64), step, k)


def halves(lg: Any, x: Any) -> Any:
    """The gradient of a loop over whole tensors, which saves them."""
    step = lambda _, v: lg.sin(v) * (1.0 + 1e-3 * lg.sum(v[:8]))
    return lg.grad(lambda x: lg.sum(lg.fori_loop(0, 50, step, x)))(x)


def two(size: int) -> Arrays:
    return {"x": floats(size), "y": floats(size)}


def standardised(lg: Any, x: Any) -> Any:
    centred = x - lg.mean(x, axis=1, keepdims=True)
    return centred / lg.sqrt(lg.mean(centred * centred, axis=1, keepdims=True) + 1e-5)


PIECES: Final[Mapping[str, Piece]] = {
    "rows_of_400": Piece(1 << 17, lambda n: {"x": floats(n, 400)}, lambda lg, x: lg.sum(x * x, axis=1)),
    "rows_of_100": Piece(1 << 18, lambda n: {"x": floats(n, 100)}, lambda lg, x: lg.sum(x * x, axis=1)),
    "standardised": Piece(1 << 13, lambda n: {"x": floats(n, 1024)}, standardised),
    "value": Piece(1 << 24, two, lambda lg, x, y: lg.sum(lg.sin(x) * lg.exp(-x * x) + stream.A * y)),
    "axpy": Piece(1 << 26, two, lambda lg, x, y: stream.A * x + y),
    "ratios": Piece(1 << 24, two, lambda lg, x, y: x / y),
    "transposed": Piece(1 << 12, lambda n: {"x": floats(n, n), "y": floats(n, n)}, lambda lg, x, y: x.T + y),
    "joined": Piece(
        1 << 12, lambda n: {"x": floats(n, n), "y": floats(n, n)}, lambda lg, x, y: lg.concat([x, y], axis=1) + 1.0
    ),
    "clipped": Piece(1 << 26, two, lambda lg, x, y: lg.minimum(lg.maximum(x, 1.0), y)),
    "planes": Piece(300, lambda n: {"x": floats(n, 301), "y": floats(n, 301)}, planes),
    "small_planes": Piece(
        60,
        lambda n: {"x": floats(n, 61, n, 1).astype(np.float16), "y": floats(61, 1, n).astype(np.float16)},
        lambda lg, x, y: x * y,
    ),
    "hashes": Piece(1 << 21, lambda n: {"k": np.arange(n)}, hashes),
    "halves": Piece(1 << 22, lambda n: {"x": floats(n).astype(np.float16)}, halves),
    "few_bins": Piece(
        1 << 22,
        lambda n: {"i": bins(n) % 4, "w": floats(n)},
        lambda lg, i, w: lg.zeros((4,), dtype=lg.float32).at[i].add(w),
    ),
    "indices": Piece(1 << 24, lambda n: {"x": floats(n)}, indices),
    "scattered": Piece(
        1 << 22,
        lambda n: {"i": bins(n), "w": floats(n)},
        lambda lg, i, w: lg.zeros((BINS,), dtype=lg.float32).at[i].add(w),
    ),
    "tallied": Piece(1 << 18, lambda n: {"bin": bins(n), "trips": bins(n) % 16, "w": floats(n)}, tallied),
    "multiplied": Piece(
        1 << 20,
        lambda n: {"i": bins(n), "w": floats(n)},
        lambda lg, i, w: lg.ones((BINS,), dtype=lg.float32).at[i].multiply(w),
    ),
    "products": Piece(
        SIDE, matrices, lambda lg, v, w: lg.fori_loop(0, 10, lambda _, u: lg.tanh(u @ w), v)
    ),
    "call": Piece(1024, lambda n: {"x": floats(n)}, lambda lg, x: small.call(lg, x)),
}  # fmt: skip
