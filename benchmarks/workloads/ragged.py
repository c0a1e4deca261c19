"""Lanes with uneven, data-given trip counts: v = x[i]; n[i] times v = sin(v) + 0.1; loss = sum(v).

Value and gradient with respect to x. `ragged` draws trips uniformly from 0..63, `ragged-skewed`
from a Zipf law cut at 4096.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workload import Case, Workload


def _uniform(size: int) -> Case:
    rng = np.random.default_rng(7)
    return {
        "x": rng.uniform(-1, 1, size).astype(np.float32),
        "n": rng.integers(0, 64, size).astype(np.int32),
        "longest": 63,
    }


def _skewed(size: int) -> Case:
    rng = np.random.default_rng(8)
    trips = np.minimum(rng.zipf(1.5, size), 4096).astype(np.int32)
    return {"x": rng.uniform(-1, 1, size).astype(np.float32), "n": trips, "longest": 4096}


def _oracle(case: Case) -> dict[str, Any]:
    v = case["x"].astype(np.float64)
    derivative = np.ones_like(v)
    order = np.argsort(-case["n"], kind="stable")
    v, trips = v[order], case["n"][order]
    for k in range(int(trips.max(initial=0))):
        live = int(np.searchsorted(-trips, -k, side="left"))
        derivative[:live] *= np.cos(v[:live])
        v[:live] = np.sin(v[:live]) + 0.1
    gradient = np.empty_like(derivative)
    gradient[order] = derivative
    return {"loss": v.sum(), "gradient": gradient}


def _loopgrad(case: Case) -> Any:
    import loopgrad as lg

    def loss(x: Any, n: Any) -> Any:
        return lg.sum(lg.fori_loop(0, n, lambda _i, v: lg.sin(v) + 0.1, x))

    step = lg.compile(lg.value_and_grad(loss))
    x, n = lg.asarray(case["x"]), lg.asarray(case["n"])

    def call() -> Any:
        value, gradient = step(x, n)
        return lambda: {"loss": np.asarray(value), "gradient": np.asarray(gradient)}

    return call


def _drjit(case: Case) -> Any:
    import drjit as dr
    from drjit.llvm.ad import Float, Int

    longest = case["longest"]

    def loop(v: Any, n: Any) -> Any:
        def condition(i: Any, v: Any, n: Any) -> Any:
            return i < n

        def body(i: Any, v: Any, n: Any) -> Any:
            return i + 1, dr.sin(v) + 0.1, n

        state = (Int(0), v, n)
        return dr.while_loop(state, condition, body, max_iterations=longest, labels=("i", "v", "n"))[1]

    values, trips = Float(case["x"]), Int(case["n"])

    def call() -> Any:
        x = Float(values)
        dr.enable_grad(x)
        loss = dr.sum(loop(x, trips))
        dr.backward(loss)
        gradient = dr.grad(x)
        dr.eval(loss, gradient)
        dr.sync_thread()
        return lambda: {"loss": loss.numpy()[0], "gradient": gradient.numpy()}

    return call


def _jax(case: Case) -> Any:
    import jax
    import jax.numpy as jnp

    longest = case["longest"]

    def loss(x: Any, n: Any) -> Any:
        def body(v: Any, k: Any) -> Any:
            return jnp.where(k < n, jnp.sin(v) + 0.1, v), None

        return jax.lax.scan(body, x, jnp.arange(longest))[0].sum()

    step = jax.jit(jax.value_and_grad(loss))
    x, n = jnp.asarray(case["x"]), jnp.asarray(case["n"])

    def call() -> Any:
        value, gradient = jax.block_until_ready(step(x, n))
        return lambda: {"loss": np.asarray(value), "gradient": np.asarray(gradient)}

    return call


def _torch(case: Case) -> Any:
    import torch

    n, longest = torch.from_numpy(case["n"]), case["longest"]

    def call() -> Any:
        x = torch.from_numpy(case["x"]).requires_grad_()
        v = x
        for k in range(longest):
            v = torch.where(k < n, torch.sin(v) + 0.1, v)
        value = v.sum()
        value.backward()
        return lambda: {"loss": value.detach().numpy(), "gradient": x.grad.numpy()}

    return call


def _numba(case: Case) -> Any:
    import numba

    longest = max(case["longest"], 1)

    @numba.njit(parallel=True, fastmath=False)
    def run(x: Any, n: Any, gradient: Any) -> Any:
        total = 0.0
        for i in numba.prange(x.shape[0]):
            saved = np.empty(longest, np.float32)
            v = x[i]
            for k in range(n[i]):
                saved[k] = v
                v = np.sin(v) + np.float32(0.1)
            total += v
            g = np.float32(1)
            for k in range(n[i] - 1, -1, -1):
                g *= np.cos(saved[k])
            gradient[i] = g
        return total

    def call() -> Any:
        gradient = np.empty_like(case["x"])
        value = run(case["x"], case["n"], gradient)
        return lambda: {"loss": value, "gradient": gradient}

    return call


def _quadrants(case: Case) -> Any:
    import quadrants as qd

    qd.init(arch=qd.cpu, ad_stack_experimental_enabled=True, offline_cache=False)
    size = len(case["x"])
    x = qd.field(qd.f32, shape=size, needs_grad=True)
    n = qd.field(qd.i32, shape=size)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    x.from_numpy(case["x"])
    n.from_numpy(case["n"])

    @qd.kernel
    def run() -> None:
        for i in x:
            v = x[i]
            for _ in range(n[i]):
                v = qd.sin(v) + 0.1
            loss[None] += v

    def call() -> Any:
        loss[None] = 0.0
        loss.grad[None] = 1.0
        x.grad.fill(0.0)
        run()
        run.grad()
        qd.sync()
        return lambda: {"loss": loss.to_numpy(), "gradient": x.grad.to_numpy()}

    return call


_C_SOURCE = """
#include <immintrin.h>
#include <stdlib.h>
__m512 _ZGVeN16v_sinf(__m512); __m512 _ZGVeN16v_cosf(__m512);
/* Tiles of 1024 lanes sorted by trip count, stack of 16 lanes in L1, forward and reverse fused. */
double run(const float *x, const int *n, float *g, long size, int longest) {
  double total = 0;
  #pragma omp parallel reduction(+:total)
  {
    float *stack = aligned_alloc(64, 64L * (longest + 1));
    int *begin = calloc(longest + 2, sizeof(int)), order[1024];
    #pragma omp for schedule(dynamic, 8)
    for (long t = 0; t < (size + 1023) / 1024; t++) {
      long base = t * 1024; int m = size - base < 1024 ? size - base : 1024;
      for (int k = 0; k <= longest + 1; k++) begin[k] = 0;
      for (int i = 0; i < m; i++) begin[longest - n[base + i] + 1]++;
      for (int k = 1; k <= longest + 1; k++) begin[k] += begin[k - 1];
      for (int i = 0; i < m; i++) order[begin[longest - n[base + i]]++] = i;
      for (int i = 0; i < m; i += 16) {
        __mmask16 lanes = m - i >= 16 ? 0xffff : (1 << (m - i)) - 1;
        __m512i at = _mm512_maskz_loadu_epi32(lanes, order + i);
        __m512 v = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), lanes, at, x + base, 4);
        __m512i trips = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), lanes, at, n + base, 4);
        int deepest = _mm512_reduce_max_epi32(trips);
        for (int k = 0; k < deepest; k++) {
          _mm512_store_ps(stack + 16 * k, v);
          __mmask16 on = _mm512_cmpgt_epi32_mask(trips, _mm512_set1_epi32(k));
          v = _mm512_mask_add_ps(v, on, _ZGVeN16v_sinf(v), _mm512_set1_ps(0.1f));
        }
        total += _mm512_mask_reduce_add_ps(lanes, v);
        __m512 d = _mm512_set1_ps(1);
        for (int k = deepest - 1; k >= 0; k--) {
          __mmask16 on = _mm512_cmpgt_epi32_mask(trips, _mm512_set1_epi32(k));
          d = _mm512_mask_mul_ps(d, on, d, _ZGVeN16v_cosf(_mm512_load_ps(stack + 16 * k)));
        }
        _mm512_mask_i32scatter_ps(g + base, lanes, at, d, 4);
      }
    }
    free(stack); free(begin);
  }
  return total;
}
"""


def _handwritten(case: Case) -> Any:
    folder = Path(tempfile.mkdtemp())
    (folder / "ragged.c").write_text(_C_SOURCE)
    library = folder / "ragged.so"
    flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, str(folder / "ragged.c"), "-o", str(library), "-lmvec", "-lm"], check=True)
    run = ctypes.CDLL(str(library)).run
    run.restype = ctypes.c_double
    x, n, longest = case["x"], case["n"], case["longest"]

    def pointer(array: Any) -> Any:
        return ctypes.c_void_p(array.ctypes.data)

    def call() -> Any:
        gradient = np.empty_like(x)
        value = run(pointer(x), pointer(n), pointer(gradient), ctypes.c_long(len(x)), ctypes.c_int(longest))
        return lambda: {"loss": value, "gradient": gradient}

    return call


_CONTENDERS = {
    "loopgrad": _loopgrad,
    "drjit": _drjit,
    "quadrants": _quadrants,
    "jax": _jax,
    "torch": _torch,
    "numba": _numba,
    "handwritten": _handwritten,
}
_REQUIRES = {"handwritten": "gcc"}

UNIFORM = Workload(
    "ragged", "value and gradient of sin(v) + 0.1, n[i] times, trips uniform 0..63, f32", 1_000_000,
    _uniform, _CONTENDERS, _oracle, 2e-4, "handwritten", _REQUIRES,
)  # fmt: skip
SKEWED = Workload(
    "ragged-skewed", "the same with trips from a Zipf law, at most 4096", 100_000,
    _skewed, {k: v for k, v in _CONTENDERS.items() if k != "torch"}, _oracle, 2e-4, "handwritten", _REQUIRES,
)  # fmt: skip
