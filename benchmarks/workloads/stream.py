"""Fused elementwise work that ends in a sum, over 2^24 float32.

`sum(sin(x)*exp(-x*x) + a*y)`, its value alone, then with the gradient with respect to x and y; and
`sum(a*x + y)`, which memory bounds. The limit copies one array: it moves as many bytes as the values read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender
from benchmarks.native import build

TITLE = "stream: sum(sin(x)*exp(-x*x) + a*y) over 2^24 float32; 'axpy' is sum(a*x + y)"
SIZES = {"full": 2**24, "quick": 2**16}
TOLERANCE = {"value": 1e-3, "axpy": 1e-3, "dx": 1e-4, "dy": 1e-4}
A = 0.75


def inputs(size: int) -> Arrays:
    generator = np.random.default_rng(0)
    return {k: generator.uniform(0, 2, size).astype(np.float32) for k in ("x", "y")}


def oracle(arrays: Arrays) -> Arrays:
    x, y = (arrays[k].astype(np.float64) for k in ("x", "y"))
    bell = np.exp(-x * x)
    return {
        "value": np.sum(np.sin(x) * bell + A * y),
        "axpy": np.sum(A * x + y),
        "dx": (np.cos(x) - 2.0 * x * np.sin(x)) * bell,
        "dy": np.full(x.shape, A),
    }


def variants(names: Any, run_of: Callable[[str], Callable[[], Any]]) -> Contender:
    """`names` is value, axpy or gradient; the results become arrays by those names."""

    def fetch(result: Any) -> Arrays:
        if names == "gradient":
            value, (dx, dy) = result
            return {"value": np.asarray(value), "dx": np.asarray(dx), "dy": np.asarray(dy)}
        return {names: np.asarray(result)}

    return Contender(run_of(names), fetch)


def loopgrad(which: str) -> Callable[[Arrays], Contender]:
    def build_contender(arrays: Arrays) -> Contender:
        import loopgrad as lg

        value = lambda x, y: lg.sum(lg.sin(x) * lg.exp(-x * x) + A * y)
        functions = {
            "value": value,
            "axpy": lambda x, y: lg.sum(A * x + y),
            "gradient": lg.value_and_grad(value, argnums=(0, 1)),
        }
        x, y = lg.asarray(arrays["x"]), lg.asarray(arrays["y"])

        def run_of(name: str) -> Callable[[], Any]:
            compiled = lg.compile(functions[name])

            def run() -> Any:
                result = compiled(x, y)
                lg.eval(*([result] if name != "gradient" else [result[0], *result[1]]))
                return result

            return run

        return variants(which, run_of)

    return build_contender


def jax(which: str) -> Callable[[Arrays], Contender]:
    def build_contender(arrays: Arrays) -> Contender:
        module, jnp = peers.jax()
        value = lambda x, y: jnp.sum(jnp.sin(x) * jnp.exp(-x * x) + jnp.float32(A) * y)
        functions = {
            "value": value,
            "axpy": lambda x, y: jnp.sum(jnp.float32(A) * x + y),
            "gradient": module.value_and_grad(value, argnums=(0, 1)),
        }
        x, y = jnp.asarray(arrays["x"]), jnp.asarray(arrays["y"])

        def run_of(name: str) -> Callable[[], Any]:
            compiled = module.jit(functions[name])
            return lambda: module.block_until_ready(compiled(x, y))

        return variants(which, run_of)

    return build_contender


def torch(which: str) -> Callable[[Arrays], Contender]:
    def build_contender(arrays: Arrays) -> Contender:
        module = peers.torch()
        x, y = (module.from_numpy(arrays[k]) for k in ("x", "y"))
        value = lambda x, y: (module.sin(x) * module.exp(-x * x) + A * y).sum()

        def gradient() -> Any:
            leaves = [t.clone().requires_grad_() for t in (x, y)]
            total = value(*leaves)
            total.backward()
            return total.detach(), tuple(t.grad for t in leaves)

        runs = {"value": lambda: value(x, y), "axpy": lambda: (A * x + y).sum(), "gradient": gradient}
        return variants(which, runs.__getitem__)

    return build_contender


def numpy(which: str) -> Callable[[Arrays], Contender]:
    def build_contender(arrays: Arrays) -> Contender:
        x, y, a = arrays["x"], arrays["y"], np.float32(A)

        def gradient() -> Any:
            bell, sine = np.exp(-x * x), np.sin(x)
            return np.sum(sine * bell + a * y), ((np.cos(x) - 2 * x * sine) * bell, np.full_like(y, a))

        runs = {
            "value": lambda: np.sum(np.sin(x) * np.exp(-x * x) + a * y),
            "axpy": lambda: np.sum(a * x + y),
            "gradient": gradient,
        }
        return variants(which, runs.__getitem__)

    return build_contender


def numba(which: str) -> Callable[[Arrays], Contender]:
    def build_contender(arrays: Arrays) -> Contender:
        import numba as nb

        a = np.float32(A)

        @nb.njit(parallel=True, fastmath=True)
        def value(x, y):
            total = 0.0
            for i in nb.prange(x.size):
                total += np.sin(x[i]) * np.exp(-x[i] * x[i]) + a * y[i]
            return total

        @nb.njit(parallel=True, fastmath=True)
        def axpy(x, y):
            total = 0.0
            for i in nb.prange(x.size):
                total += a * x[i] + y[i]
            return total

        @nb.njit(parallel=True, fastmath=True)
        def gradient(x, y, dx, dy):
            total = 0.0
            for i in nb.prange(x.size):
                bell, sine = np.exp(-x[i] * x[i]), np.sin(x[i])
                total += sine * bell + a * y[i]
                dx[i] = (np.cos(x[i]) - np.float32(2.0) * x[i] * sine) * bell
                dy[i] = a
            return total

        x, y = arrays["x"], arrays["y"]
        slopes = (np.empty_like(x), np.empty_like(y))
        runs = {
            "value": lambda: value(x, y),
            "axpy": lambda: axpy(x, y),
            "gradient": lambda: (gradient(x, y, *slopes), slopes),
        }
        return variants(which, runs.__getitem__)

    return build_contender


COPY = r"""
#include <immintrin.h>
#include <stdint.h>
void copy(const float *from, float *to, int64_t n) {
    #pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i += 16) _mm512_stream_ps(to + i, _mm512_load_ps(from + i));
}
"""


def limit(arrays: Arrays) -> Contender:
    """The bandwidth of the machine: one array copied by all cores with streaming stores."""
    function = build(COPY).copy
    size = arrays["x"].size
    room = np.empty(2 * size + 32, dtype=np.float32)
    skip = (-room.ctypes.data % 64) // 4
    source, target = room[skip : skip + size], room[skip + size : skip + 2 * size]
    source[:] = arrays["x"]
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (source, target)]
    gigabytes = 8 * size / 1e9

    def run() -> None:
        function(*pointers, ctypes.c_int64(size))

    return Contender(run, lambda _: {}, lambda: {"bytes moved": f"{gigabytes:.3f} GB"})


SYSTEMS = {"loopgrad": loopgrad, "jax": jax, "torch": torch, "numba": numba, "numpy": numpy}
CONTENDERS = {
    "limit": limit,
    **{
        name if which == "value" else f"{name}:{which}": system(which)
        for which in ("value", "axpy", "gradient")
        for name, system in SYSTEMS.items()
    },
}
