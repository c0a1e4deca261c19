"""sum(sin(x) * exp(-x * x) + a * y): one pass over two arrays. The bound is a copy of the same bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Case, Workload


def _case(size: int) -> Case:
    rng = np.random.default_rng(10)
    return {
        "x": rng.uniform(-2, 2, size).astype(np.float32),
        "y": rng.uniform(-1, 1, size).astype(np.float32),
        "a": np.float32(0.5),
    }


def _oracle(case: Case) -> dict[str, Any]:
    x, y = case["x"].astype(np.float64), case["y"].astype(np.float64)
    terms = np.sin(x) * np.exp(-x * x) + float(case["a"]) * y
    return {"sum": np.asarray(terms.sum() / np.abs(terms).sum())}


def _scaled(case: Case, value: Any) -> dict[str, Any]:
    x, y = case["x"].astype(np.float64), case["y"].astype(np.float64)
    terms = np.sin(x) * np.exp(-x * x) + float(case["a"]) * y
    return {"sum": np.asarray(float(value) / np.abs(terms).sum())}


def _loopgrad(case: Case) -> Any:
    import loopgrad as lg

    run = lg.compile(lambda x, y, a: lg.sum(lg.sin(x) * lg.exp(-x * x) + a * y))
    arguments = [lg.asarray(case[k]) for k in "xya"]

    def call() -> Any:
        value = run(*arguments)
        return lambda: _scaled(case, np.asarray(value))

    return call


def _numpy(case: Case) -> Any:
    x, y, a = (case[k] for k in "xya")

    def call() -> Any:
        value = np.sum(np.sin(x) * np.exp(-x * x) + a * y)
        return lambda: _scaled(case, value)

    return call


def _jax(case: Case) -> Any:
    import jax
    import jax.numpy as jnp

    run = jax.jit(lambda x, y, a: jnp.sum(jnp.sin(x) * jnp.exp(-x * x) + a * y))
    arguments = [jnp.asarray(case[k]) for k in "xya"]

    def call() -> Any:
        value = jax.block_until_ready(run(*arguments))
        return lambda: _scaled(case, value)

    return call


def _torch(case: Case) -> Any:
    import torch

    x, y = torch.from_numpy(case["x"]), torch.from_numpy(case["y"])
    a = float(case["a"])

    def call() -> Any:
        value = torch.sum(torch.sin(x) * torch.exp(-x * x) + a * y)
        return lambda: _scaled(case, value)

    return call


def _numba(case: Case) -> Any:
    import numba

    @numba.njit(parallel=True, fastmath=True)
    def run(x: Any, y: Any, a: Any) -> Any:
        total = np.float32(0)
        for i in numba.prange(x.shape[0]):
            total += np.sin(x[i]) * np.exp(-x[i] * x[i]) + a * y[i]
        return total

    def call() -> Any:
        value = run(case["x"], case["y"], case["a"])
        return lambda: _scaled(case, value)

    return call


def _copy(case: Case) -> Any:
    """Two threads copy as many bytes as the sum must read."""
    from concurrent.futures import ThreadPoolExecutor

    target = np.empty_like(case["x"])
    pool = ThreadPoolExecutor(2)
    half = len(target) // 2

    def part(section: slice) -> None:
        np.copyto(target[section], case["x"][section])

    def call() -> Any:
        list(pool.map(part, (slice(0, half), slice(half, None))))
        return lambda: _oracle(case)

    return call


STREAM = Workload(
    "stream", "sum(sin(x) * exp(-x * x) + a * y), f32; the limit copies x (reads and writes the same bytes)", 1 << 24,
    _case,
    {"loopgrad": _loopgrad, "numpy": _numpy, "jax": _jax, "torch": _torch, "numba": _numba, "copy": _copy},
    _oracle, 1e-4, "copy", {"copy": "numpy"},
)  # fmt: skip
