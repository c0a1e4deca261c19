"""Fused elementwise work that ends in a sum, over 2^24 float32 (2^28 on a GPU).

`sum(sin(x)*exp(-x*x) + a*y)`, its value alone, then with the gradient with respect to x and y; and
`sum(a*x + y)`, which memory bounds. The limit copies one array: it moves as many bytes as the values read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender, asynchronous
from benchmarks.cuda_native import Cuda
from benchmarks.native import build
from benchmarks.oracles import in_pieces

TITLE = "stream: sum(sin(x)*exp(-x*x) + a*y), float32; 'axpy' is sum(a*x + y)"
SIZES = {"full": 2**24, "quick": 2**16, "gpu": 2**28}
TOLERANCE = {"value": 1e-3, "axpy": 1e-3, "dx": 1e-4, "dy": 1e-4}
A = 0.75


def inputs(size: int) -> Arrays:
    generator = np.random.default_rng(0)
    return {k: generator.random(size, dtype=np.float32) * np.float32(2.0) for k in ("x", "y")}


def oracle(arrays: Arrays) -> Arrays:
    def piece(at: slice) -> tuple[float, float, np.ndarray]:
        x, y = (arrays[k][at].astype(np.float64) for k in ("x", "y"))
        bell, sine = np.exp(-x * x), np.sin(x)
        slope = (np.cos(x) - 2.0 * x * sine) * bell
        return float(np.sum(sine * bell + A * y)), float(np.sum(A * x + y)), slope.astype(np.float32)

    values, sums, slopes = zip(*in_pieces(piece, arrays["x"].size), strict=True)
    dy = np.full(arrays["x"].shape, A, np.float32)
    return {"value": np.sum(values), "axpy": np.sum(sums), "dx": np.concatenate(slopes), "dy": dy}


def moved(which: str, arrays: Arrays) -> int:
    """Bytes read and written: the gradient pass writes as many as it reads."""
    return arrays["x"].nbytes * (4 if which == "gradient" else 2)


def fetching(which: str, elements: Callable[[Any], np.ndarray] = np.asarray) -> Callable[[Any], Arrays]:
    """`which` is value, axpy or gradient; the results become arrays by those names."""

    def fetch(result: Any) -> Arrays:
        if which == "gradient":
            value, (dx, dy) = result
            return {"value": elements(value), "dx": elements(dx), "dy": elements(dy)}
        return {which: elements(result)}

    return fetch


def loopgrad(which: str, **options: Any) -> Callable[[Arrays], Contender]:
    def build_contender(arrays: Arrays) -> Contender:
        lg = peers.loopgrad(**options)
        value = lambda x, y: lg.sum(lg.sin(x) * lg.exp(-x * x) + A * y)
        functions = {
            "value": value,
            "axpy": lambda x, y: lg.sum(A * x + y),
            "gradient": lg.value_and_grad(value, argnums=(0, 1)),
        }
        x, y = lg.asarray(arrays["x"]), lg.asarray(arrays["y"])
        compiled = lg.compile(functions[which])
        results = lambda result: [result[0], *result[1]] if which == "gradient" else [result]
        return peers.own(lambda: compiled(x, y), results, fetching(which), moved=moved(which, arrays))

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
        compiled = module.jit(functions[which])
        return peers.jax_contender(module, lambda: compiled(x, y), fetching(which), moved(which, arrays))

    return build_contender


def torch(which: str) -> Callable[[Arrays], Contender]:
    def build_contender(arrays: Arrays) -> Contender:
        module = peers.torch()
        x, y = (peers.torch_tensor(module, arrays[k]) for k in ("x", "y"))
        value = lambda x, y: (module.sin(x) * module.exp(-x * x) + A * y).sum()

        def gradient() -> Any:
            leaves = [t.clone().requires_grad_() for t in (x, y)]
            total = value(*leaves)
            total.backward()
            return total.detach(), tuple(t.grad for t in leaves)

        runs = {"value": lambda: value(x, y), "axpy": lambda: (A * x + y).sum(), "gradient": gradient}
        fetch = fetching(which, peers.numpy_of)
        return peers.torch_contender(module, runs[which], fetch, moved(which, arrays))

    return build_contender


def drjit(which: str) -> Callable[[Arrays], Contender]:
    def build_contender(arrays: Arrays) -> Contender:
        dr, ad = peers.drjit()
        x, y = ad.Float(arrays["x"]), ad.Float(arrays["y"])
        value = lambda x, y: dr.sum(dr.sin(x) * dr.exp(-x * x) + A * y)

        def gradient() -> Any:
            leaves = [ad.Float(x), ad.Float(y)]
            dr.enable_grad(*leaves)
            total = value(*leaves)
            dr.backward(total)
            slopes = tuple(dr.grad(leaf) for leaf in leaves)
            dr.eval(total, *slopes)
            return total, slopes

        def evaluated(total: Any) -> Any:
            dr.eval(total)
            return total

        runs = {
            "value": lambda: evaluated(value(x, y)),
            "axpy": lambda: evaluated(dr.sum(A * x + y)),
            "gradient": gradient,
        }
        elements = lambda v: v.numpy()[0] if len(v) == 1 else v.numpy()
        return asynchronous(
            runs[which], lambda _: dr.sync_thread(), fetching(which, elements), moved=moved(which, arrays)
        )

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
        return Contender(runs[which], fetching(which), moved=moved(which, arrays))

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
        return Contender(runs[which], fetching(which), moved=moved(which, arrays))

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

    def run() -> None:
        function(*pointers, ctypes.c_int64(size))

    return Contender(run, lambda _: {}, moved=8 * size)


COPY_CUDA = r"""
extern "C" __global__ void copy(const float4 *from, float4 *to, long long n) {
    long long width = gridDim.x * (long long)blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += width) to[i] = from[i];
}
"""


def limit_cuda(by: str) -> Callable[[Arrays], Contender]:
    """The bandwidth of the device: one array copied, by a kernel or by the driver."""

    def build_contender(arrays: Arrays) -> Contender:
        cuda = Cuda()
        nbytes = arrays["x"].nbytes
        source, target = cuda.put(arrays["x"]), cuda.empty(nbytes)
        (copy,) = cuda.kernels(COPY_CUDA, "copy")
        start = cuda.launcher(copy, cuda.multiprocessors * 8, 256, source, target, np.int64(nbytes // 16))
        ways = {
            "kernel": start,
            "memcpy": lambda: cuda.call("cuMemcpyDtoDAsync", target, source, nbytes, cuda.stream.handle),
        }
        return cuda.contender(ways[by], lambda _: {}, moved=2 * nbytes)

    return build_contender


SYSTEMS = {"loopgrad": loopgrad, "jax": jax, "torch": torch, "numba": numba, "numpy": numpy}
GPU_SYSTEMS = {"loopgrad": loopgrad, "jax": jax, "torch": torch, "drjit": drjit}


def of_all(systems: dict[str, Any]) -> dict[str, Callable[[Arrays], Contender]]:
    return {
        name if which == "value" else f"{name}:{which}": system(which)
        for which in ("value", "axpy", "gradient")
        for name, system in systems.items()
    }


CONTENDERS = {"limit": limit, **of_all(SYSTEMS)}
GPU_CONTENDERS = {
    "limit:copy kernel": limit_cuda("kernel"),
    "limit:cuMemcpyDtoD": limit_cuda("memcpy"),
    **of_all(GPU_SYSTEMS),
    "loopgrad:value, fast math": loopgrad("value", fast_math=True),
    "loopgrad:gradient, fast math": loopgrad("gradient", fast_math=True),
}
