"""Lanes with trip counts of their own, known beforehand: value and gradient.

Lane i runs `v = sin(v) + 0.1` trips[i] times from x[i]; the loss is the sum, the gradient is taken with
respect to x. Trips are uniform in 0..63.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender, asynchronous
from benchmarks.native import build
from benchmarks.oracles import in_pieces
from benchmarks.workloads import ragged_cuda

TITLE = "ragged: v = sin(v) + 0.1, trips uniform in 0..63, float32, value and gradient"
SIZES = {"full": 1_000_000, "quick": 10_000, "gpu": 16_777_216}
TOLERANCE = {"value": 5e-3, "gradient": 1e-3}  # float32 sums of a million terms, summed by each in its way


def inputs(size: int) -> Arrays:
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, size).astype(np.float32)
    return {"x": x, "trips": generator.integers(0, 64, size).astype(np.int32)}


def oracle(arrays: Arrays) -> Arrays:
    parts = in_pieces(lambda at: _piece(arrays["x"][at], arrays["trips"][at]), arrays["x"].size)
    return {"value": np.sum([value for value, _ in parts]), "gradient": np.concatenate([slope for _, slope in parts])}


def _piece(x: np.ndarray, given: np.ndarray) -> tuple[float, np.ndarray]:
    """float64, lanes in order of their trips so that the active ones stay a prefix."""
    order = np.argsort(-given, kind="stable")
    trips, v = given[order], x[order].astype(np.float64)
    slope = np.ones_like(v)
    for k in range(int(trips.max(initial=0))):
        active = int(np.searchsorted(-trips, -k, side="left"))
        slope[:active] *= np.cos(v[:active])
        v[:active] = np.sin(v[:active]) + 0.1
    gradient = np.empty_like(slope)
    gradient[order] = slope
    return float(v.sum()), gradient


def pair(result: Any) -> Arrays:
    return {"value": np.asarray(result[0]), "gradient": np.asarray(result[1])}


def loopgrad(*, replayed: bool = False, counted: bool = True, **options: Any) -> Callable[[Arrays], Contender]:
    """Ours with the given options; `replayed` captures once and replays. `counted`: the loop says how many trips it
    takes; otherwise it goes on while what it carries isn't used up."""

    def build_contender(arrays: Arrays) -> Contender:
        lg = peers.loopgrad(**options)

        def loss(x: Any, trips: Any) -> Any:
            if counted:
                return lg.sum(lg.fori_loop(0, trips, lambda _, v: lg.sin(v) + 0.1, x))
            step = lambda carried: (carried[0] - 1, lg.sin(carried[1]) + 0.1)
            return lg.sum(lg.while_loop(lambda carried: carried[0] > 0, step, (trips, x))[1])

        x, trips = lg.asarray(arrays["x"]), lg.asarray(arrays["trips"])
        step = lg.compile(lg.value_and_grad(loss))
        if replayed:
            replay = step.capture(x, trips)
            return peers.own(lambda: replay.replay(x, trips), list, pair)

        def notes() -> dict[str, Any]:
            depth = int(arrays["trips"].max(initial=0))
            all_lanes = 4 * depth * len(arrays["x"])
            heap = step.memory_stats().heap_peak_bytes
            return {"stack heap, bytes": f"{heap:,} (all lanes at full depth: {all_lanes:,})"}

        return peers.own(lambda: step(x, trips), list, pair, notes)

    return build_contender


def numpy(arrays: Arrays) -> Contender:
    """By hand: saved values of all active lanes, step by step, in float32."""
    x, trips = arrays["x"], arrays["trips"]

    def run() -> Any:
        lanes, v, saved = np.arange(x.size), x.copy(), []
        for k in range(int(trips.max(initial=0))):
            lanes = lanes[trips[lanes] > k]
            saved.append((lanes, v[lanes]))
            v[lanes] = np.sin(saved[-1][1]) + np.float32(0.1)
        gradient = np.ones_like(x)
        for lanes, values in reversed(saved):
            gradient[lanes] *= np.cos(values)
        return v.sum(), gradient

    return Contender(run, pair)


def numba(arrays: Arrays) -> Contender:
    """By hand: a parallel loop over lanes with a local array for the saved values."""
    import numba as nb

    @nb.njit(parallel=True, fastmath=True)
    def value_and_gradient(x, trips, deepest, gradient):
        total = 0.0
        for i in nb.prange(x.size):
            saved = np.empty(deepest, dtype=np.float32)
            v = x[i]
            for k in range(trips[i]):
                saved[k] = v
                v = np.sin(v) + np.float32(0.1)
            total += v
            slope = np.float32(1.0)
            for k in range(trips[i] - 1, -1, -1):
                slope *= np.cos(saved[k])
            gradient[i] = slope
        return total

    x, trips = arrays["x"], arrays["trips"]
    gradient, deepest = np.empty_like(x), int(trips.max(initial=0))
    return Contender(lambda: (value_and_gradient(x, trips, deepest, gradient), gradient), pair)


def jax(arrays: Arrays) -> Contender:
    """A masked scan of the largest trip count: the form that JAX can differentiate."""
    module, jnp = peers.jax()
    x, trips = jnp.asarray(arrays["x"]), jnp.asarray(arrays["trips"])
    deepest = int(arrays["trips"].max(initial=0))

    def loss(x: Any) -> Any:
        step = lambda v, k: (jnp.where(k < trips, jnp.sin(v) + jnp.float32(0.1), v), None)
        return jnp.sum(module.lax.scan(step, x, jnp.arange(deepest))[0])

    compiled = module.jit(module.value_and_grad(loss))
    return peers.jax_contender(module, lambda: compiled(x), pair)


def torch(arrays: Arrays) -> Contender:
    module = peers.torch()
    x, trips = (peers.torch_tensor(module, arrays[k]) for k in ("x", "trips"))
    deepest = int(arrays["trips"].max(initial=0))

    def run() -> Any:
        leaf = x.clone().requires_grad_()
        v = leaf
        for k in range(deepest):
            v = module.where(trips > k, module.sin(v) + 0.1, v)
        total = v.sum()
        total.backward()
        return total, leaf.grad

    return peers.torch_contender(module, run, lambda result: pair([peers.numpy_of(r) for r in result]))


def drjit(arrays: Arrays) -> Contender:
    """`max_iterations` has to be given for the reverse pass; here it is the true maximum."""
    dr, ad = peers.drjit()
    x, trips = ad.Float(arrays["x"]), ad.Int32(arrays["trips"])
    deepest = int(arrays["trips"].max(initial=0)) + 1

    def run() -> Any:
        leaf = ad.Float(x)
        dr.enable_grad(leaf)
        v, _ = dr.while_loop(
            (leaf, ad.Int32(0)), lambda v, k: k < trips, lambda v, k: (dr.sin(v) + 0.1, k + 1), max_iterations=deepest
        )
        total = dr.sum(v)
        dr.backward(total)
        gradient = dr.grad(leaf)
        dr.eval(total, gradient)
        return total, gradient

    return peers.drjit_contender(dr, run, lambda result: {"value": result[0].numpy()[0], "gradient": result[1].numpy()})


def quadrants(arrays: Arrays) -> Contender:
    qd = peers.quadrants()
    size = arrays["x"].size
    x, trips = qd.field(qd.f32, shape=size, needs_grad=True), qd.field(qd.i32, shape=size)
    total = qd.field(qd.f32, shape=(), needs_grad=True)
    x.from_numpy(arrays["x"])
    trips.from_numpy(arrays["trips"])

    def loss():
        for i in range(size):
            v = x[i]
            for _ in range(trips[i]):
                v = qd.sin(v) + 0.1
            total[None] += v

    kernel = qd.kernel(loss)

    def launch() -> None:
        total[None] = 0
        x.grad.fill(0)
        total.grad[None] = 1
        kernel()
        kernel.grad()

    fetch = lambda _: {"value": np.asarray(total[None]), "gradient": x.grad.to_numpy()}
    return asynchronous(launch, lambda _: qd.sync(), fetch)


HAND_WRITTEN = r"""
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
__m512 _ZGVeN16v_sinf(__m512);
__m512 _ZGVeN16v_cosf(__m512);
// Forward and reverse in one pass over 16 lanes; lanes sorted by trip count within tiles of 1,024.
#define TILE 1024
float ragged(const float *x, const int32_t *trips, float *gradient, int64_t n, int deepest) {
    float total = 0.0f;
    #pragma omp parallel reduction(+:total)
    {
        __m512 *saved = aligned_alloc(64, sizeof(__m512) * (deepest + 1));
        int32_t *order = aligned_alloc(64, sizeof(int32_t) * TILE);
        int32_t *start = malloc(sizeof(int32_t) * (deepest + 2));
        #pragma omp for schedule(dynamic, 1)
        for (int64_t base = 0; base < n; base += TILE) {
            int count = n - base < TILE ? n - base : TILE;
            for (int t = 0; t <= deepest + 1; t++) start[t] = 0;
            for (int i = 0; i < count; i++) start[trips[base + i] + 1]++;
            for (int t = 0; t <= deepest; t++) start[t + 1] += start[t];
            for (int i = 0; i < count; i++) order[start[trips[base + i]]++] = i;
            for (int i = 0; i < count; i += 16) {
                __mmask16 inside = count - i >= 16 ? 0xffff : (1 << (count - i)) - 1;
                __m512i lane = _mm512_maskz_loadu_epi32(inside, order + i);
                __m512i bound = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), inside, lane, trips + base, 4);
                __m512 v = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), inside, lane, x + base, 4);
                int longest = _mm512_reduce_max_epi32(bound);
                for (int k = 0; k < longest; k++) {
                    __mmask16 active = _mm512_cmpgt_epi32_mask(bound, _mm512_set1_epi32(k));
                    saved[k] = v;
                    v = _mm512_mask_add_ps(v, active, _ZGVeN16v_sinf(v), _mm512_set1_ps(0.1f));
                }
                total += _mm512_mask_reduce_add_ps(inside, v);
                __m512 slope = _mm512_set1_ps(1.0f);
                for (int k = longest - 1; k >= 0; k--) {
                    __mmask16 active = _mm512_cmpgt_epi32_mask(bound, _mm512_set1_epi32(k));
                    slope = _mm512_mask_mul_ps(slope, active, slope, _ZGVeN16v_cosf(saved[k]));
                }
                _mm512_mask_i32scatter_ps(gradient + base, inside, lane, slope, 4);
            }
        }
        free(saved); free(order); free(start);
    }
    return total;
}
"""


def limit(arrays: Arrays) -> Contender:
    """Hand-written AVX-512 with libmvec, lanes sorted by trip count inside tiles."""
    function = build(HAND_WRITTEN).ragged
    function.restype = ctypes.c_float
    x, trips = arrays["x"], arrays["trips"]
    gradient, deepest = np.empty_like(x), int(trips.max(initial=0))
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (x, trips, gradient)]

    def run() -> Any:
        return function(*pointers, ctypes.c_int64(x.size), ctypes.c_int(deepest)), gradient

    return Contender(run, pair)


CONTENDERS = {
    "loopgrad": loopgrad(),
    "loopgrad:replay": loopgrad(replayed=True),
    "limit": limit,
    "drjit": drjit,
    "quadrants": quadrants,
    "jax": jax,
    "torch": torch,
    "numba": numba,
    "numpy": numpy,
}

GPU_CONTENDERS = {
    "loopgrad": loopgrad(),
    "loopgrad:fast math": loopgrad(fast_math=True),
    "loopgrad:unsorted": loopgrad(sort_lanes=False),
    "loopgrad:fast math, unsorted": loopgrad(fast_math=True, sort_lanes=False),
    "loopgrad:replay": loopgrad(replayed=True),
    "loopgrad:fast math, replay": loopgrad(replayed=True, fast_math=True),
    **ragged_cuda.CONTENDERS,
    "drjit": drjit,
    "jax": jax,
    "torch": torch,
    "quadrants": quadrants,
}
