"""A value-dependent exit: Newton's cube root until each lane has converged; value and gradient.

Nobody knows the trip counts beforehand. Dr.Jit must be given a maximum for its reverse pass (here the
true one); JAX has no reverse pass for this loop and shows the value alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender
from benchmarks.cuda_native import BLOCK_SUM, loops
from benchmarks.native import build
from benchmarks.workloads.ragged import pair

TITLE = "newton: cube roots to 1e-5, float32, value-dependent exit, value and gradient"
SIZES = {"full": 1_000_000, "quick": 10_000, "gpu": 16_777_216}
TOLERANCE = {"value": 5e-3, "gradient": 2e-3}
CLOSE = np.float32(1e-5)
LONGEST = 32


def inputs(size: int) -> Arrays:
    a = np.random.default_rng(0).uniform(0.05, 20.0, size).astype(np.float32)
    # where the first guess, 1, is close enough already, the loop takes no trip and its slope is truly 0
    return {"a": np.where(np.abs(a - 1) < 1e-2, np.float32(1.5), a)}


def oracle(arrays: Arrays) -> Arrays:
    root = np.cbrt(arrays["a"].astype(np.float64))
    return {"value": root.sum(), "gradient": 1.0 / (3.0 * root * root)}


def loopgrad(*, replayed: bool = False, **options: Any) -> Callable[[Arrays], Contender]:
    def build_contender(arrays: Arrays) -> Contender:
        lg = peers.loopgrad(**options)

        def loss(a: Any) -> Any:
            unfinished = lambda v: lg.abs(v * v * v - a) > 1e-5 * a
            return lg.sum(lg.while_loop(unfinished, lambda v: v - (v * v * v - a) / (3.0 * v * v), lg.ones_like(a)))

        a = lg.asarray(arrays["a"])
        step = lg.compile(lg.value_and_grad(loss))
        if replayed:
            replay = step.capture(a)
            return peers.own(lambda: replay.replay(a), list, pair)
        notes = lambda: {"stack bytes": f"{step.plan(a).stack_bytes:,}"}
        return peers.own(lambda: step(a), list, pair, notes)

    return build_contender


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
        return total, gradient

    return peers.drjit_contender(dr, run, lambda result: {"value": result[0].numpy()[0], "gradient": result[1].numpy()})


def jax_value(arrays: Arrays) -> Contender:
    """The value alone: reverse mode through `while_loop` is refused."""
    module, jnp = peers.jax()
    a = jnp.asarray(arrays["a"])

    def root(a: Any) -> Any:
        unfinished = lambda v: jnp.abs(v * v * v - a) > CLOSE * a
        return module.lax.while_loop(unfinished, lambda v: v - (v * v * v - a) / (3.0 * v * v), jnp.ones_like(a))

    compiled = module.jit(lambda a: jnp.sum(module.vmap(root)(a)))
    return peers.jax_contender(module, lambda: compiled(a), lambda value: {"value": np.asarray(value)})


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


HAND_WRITTEN_CUDA = (
    BLOCK_SUM
    + r"""
typedef long long i64;
extern "C" __global__ void newton(const float *a, float *gradient, double *total, float *stack, i64 n) {
    i64 place = blockIdx.x * (i64)blockDim.x + threadIdx.x, width = gridDim.x * (i64)blockDim.x;
    double sum = 0.0;
    for (i64 i = place; i < n; i += width) {
        float x = a[i], v = 1.0f, *top = stack + place;
        while (fabsf(v * v * v - x) > 1e-5f * x) {
            *top = v;
            top += width;
            v = v - (v * v * v - x) / (3.0f * v * v);
        }
        sum += v;
        float cotangent = 1.0f, slope = 0.0f;
        while (top != stack + place) {
            top -= width;
            float u = *top, square = u * u;
            slope += cotangent / (3.0f * square);
            cotangent *= (2.0f / 3.0f) * (1.0f - x / (square * u));
        }
        gradient[i] = slope;
    }
    add_block(sum, total);
}
"""
)


def limit_cuda(*, fast_math: bool) -> Callable[[Arrays], Contender]:
    """Hand-written, a thread a lane; the stack is deep enough for these numbers, which a person has to know."""
    return loops(HAND_WRITTEN_CUDA, "newton", ("a",), "a", 64, blocks_per_multiprocessor=6, fast_math=fast_math)


CONTENDERS = {
    "loopgrad": loopgrad(),
    "limit": limit,
    "drjit": drjit,
    "jax:value only": jax_value,
    "numba": numba,
}

GPU_CONTENDERS = {
    "loopgrad": loopgrad(),
    "loopgrad:fast math": loopgrad(fast_math=True),
    "loopgrad:unsorted": loopgrad(sort_lanes=False),
    "loopgrad:replay": loopgrad(replayed=True),
    "limit": limit_cuda(fast_math=False),
    "limit:fast math": limit_cuda(fast_math=True),
    "drjit": drjit,
    "jax:value only": jax_value,
}
