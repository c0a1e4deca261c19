"""A value-dependent exit: Newton's cube root until each lane has converged; value and gradient.

Nobody knows the trip counts beforehand. Dr.Jit must be given a maximum for its reverse pass (here the
true one); JAX has no reverse pass for this loop and shows the value alone.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender
from benchmarks.native import build
from benchmarks.workloads.ragged import pair

TITLE = "newton: cube roots to 1e-5, float32, value-dependent exit, value and gradient"
SIZES = {"full": 1_000_000, "quick": 10_000}
TOLERANCE = {"value": 5e-3, "gradient": 2e-3}
CLOSE = np.float32(1e-5)
LONGEST = 32


def inputs(size: int) -> Arrays:
    return {"a": np.random.default_rng(0).uniform(0.05, 20.0, size).astype(np.float32)}


def oracle(arrays: Arrays) -> Arrays:
    root = np.cbrt(arrays["a"].astype(np.float64))
    return {"value": root.sum(), "gradient": 1.0 / (3.0 * root * root)}


def loopgrad(arrays: Arrays) -> Contender:
    import loopgrad as lg

    def loss(a: lg.Tensor) -> lg.Tensor:
        unfinished = lambda v: lg.abs(v * v * v - a) > 1e-5 * a
        return lg.sum(lg.while_loop(unfinished, lambda v: v - (v * v * v - a) / (3.0 * v * v), lg.ones_like(a)))

    a = lg.asarray(arrays["a"])
    step = lg.compile(lg.value_and_grad(loss))

    def run() -> Any:
        result = step(a)
        lg.eval(*result)
        return result

    return Contender(run, pair, lambda: {"stack bytes": f"{step.plan(a).stack_bytes:,}"})


def drjit(arrays: Arrays) -> Contender:
    dr, ad = peers.drjit()
    a = ad.Float(arrays["a"])

    def run() -> Any:
        leaf = ad.Float(a)
        dr.enable_grad(leaf)
        unfinished = lambda v, a: dr.abs(v * v * v - a) > 1e-5 * a
        step = lambda v, a: (v - (v * v * v - a) / (3.0 * v * v), a)
        v, _ = dr.while_loop((dr.ones(ad.Float, len(arrays["a"])), leaf), unfinished, step, max_iterations=LONGEST)
        total = dr.sum(v)
        dr.backward(total)
        gradient = dr.grad(leaf)
        dr.eval(total, gradient)
        dr.sync_thread()
        return total, gradient

    return Contender(run, lambda result: {"value": result[0].numpy()[0], "gradient": result[1].numpy()})


def jax_value(arrays: Arrays) -> Contender:
    """The value alone: reverse mode through `while_loop` is refused."""
    module, jnp = peers.jax()
    a = jnp.asarray(arrays["a"])

    def root(a: Any) -> Any:
        unfinished = lambda v: jnp.abs(v * v * v - a) > CLOSE * a
        return module.lax.while_loop(unfinished, lambda v: v - (v * v * v - a) / (3.0 * v * v), jnp.ones_like(a))

    compiled = module.jit(lambda a: jnp.sum(module.vmap(root)(a)))
    return Contender(lambda: compiled(a).block_until_ready(), lambda value: {"value": np.asarray(value)})


def numba(arrays: Arrays) -> Contender:
    """By hand: the saved values in a local array of the largest count seen."""
    import numba as nb

    @nb.njit(parallel=True, fastmath=True)
    def value_and_gradient(a, gradient):
        total = 0.0
        for i in nb.prange(a.size):
            saved = np.empty(LONGEST, dtype=np.float32)
            v, k = np.float32(1.0), 0
            while abs(v * v * v - a[i]) > CLOSE * a[i]:
                saved[k] = v
                v = v - (v * v * v - a[i]) / (np.float32(3.0) * v * v)
                k += 1
            total += v
            cotangent, slope = np.float32(1.0), np.float32(0.0)
            for j in range(k - 1, -1, -1):
                square = saved[j] * saved[j]
                slope += cotangent / (np.float32(3.0) * square)
                cotangent *= np.float32(2.0 / 3.0) - np.float32(2.0 / 3.0) * a[i] / (square * saved[j])
            gradient[i] = slope
        return total

    a = arrays["a"]
    gradient = np.empty_like(a)
    return Contender(lambda: (value_and_gradient(a, gradient), gradient), pair)


HAND_WRITTEN = r"""
#include <immintrin.h>
#include <stdint.h>
#define S(value) _mm512_set1_ps(value)
float newton(const float *a, float *gradient, int64_t n) {
    float total = 0.0f;
    #pragma omp parallel for reduction(+:total) schedule(dynamic, 64)
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 inside = n - i >= 16 ? 0xffff : (1 << (n - i)) - 1;
        __m512 saved[64], x = _mm512_mask_loadu_ps(S(1.0f), inside, a + i), v = S(1.0f);
        __mmask16 taken[64];
        int k = 0;
        for (;; k++) {
            __m512 residual = v * v * v - x;
            __mmask16 active = _mm512_cmp_ps_mask(_mm512_abs_ps(residual), S(1e-5f) * x, _CMP_GT_OQ);
            if (!active) break;
            saved[k] = v;
            taken[k] = active;
            v = _mm512_mask_sub_ps(v, active, v, residual / (S(3.0f) * v * v));
        }
        total += _mm512_mask_reduce_add_ps(inside, v);
        __m512 cotangent = S(1.0f), slope = S(0.0f);
        while (k-- > 0) {
            __m512 square = saved[k] * saved[k];
            slope = _mm512_mask_add_ps(slope, taken[k], slope, cotangent / (S(3.0f) * square));
            __m512 factor = S(2.0f / 3.0f) * (S(1.0f) - x / (square * saved[k]));
            cotangent = _mm512_mask_mul_ps(cotangent, taken[k], cotangent, factor);
        }
        _mm512_mask_storeu_ps(gradient + i, inside, slope);
    }
    return total;
}
"""


def limit(arrays: Arrays) -> Contender:
    """Hand-written AVX-512, forward and reverse in one pass."""
    function = build(HAND_WRITTEN).newton
    function.restype = ctypes.c_float
    a = arrays["a"]
    gradient = np.empty_like(a)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (a, gradient)]
    return Contender(lambda: (function(*pointers, ctypes.c_int64(a.size)), gradient), pair)


CONTENDERS = {
    "loopgrad": loopgrad,
    "limit": limit,
    "drjit": drjit,
    "jax:value only": jax_value,
    "numba": numba,
}
