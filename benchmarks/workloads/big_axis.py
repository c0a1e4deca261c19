"""Trip counts of very many lanes: how long finding the deepest one takes, against one read of an array.

A reverse loop's stack is as deep as its largest trip count, which is found before the launch. Lane i here runs
a[i // 2] times, so the size evaluation is a maximum over gathered counts: `loopgrad` computes that maximum of
as many lanes, `plain max` the maximum of an int32 array as long as the lanes. `loop` is the whole program with
its gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender
from benchmarks.cuda_native import Cuda

TITLE = "big-axis: the largest of the trip counts a[i // 2], int32, and a plain maximum over as many lanes"
SIZES = {"full": 2**24 + 1, "quick": 10_001, "gpu": 2**29}
TOLERANCE = {"deepest": 0.0, "plain": 0.0, "value": 1e-3, "gradient": 1e-5}
DEEPEST = 7


def inputs(size: int) -> Arrays:
    counts = np.random.default_rng(0).integers(0, DEEPEST - 1, size // 2 + 1, dtype=np.int32)
    counts[-1] = DEEPEST  # only the last lanes: a cap would miss them
    return {"counts": counts, "size": np.asarray(size)}


def oracle(arrays: Arrays) -> Arrays:
    size = int(arrays["size"])
    trips = np.repeat(arrays["counts"], 2)[:size]
    powers = np.float32(0.5) ** np.arange(DEEPEST + 1, dtype=np.float32)
    found = {"deepest": np.asarray(trips.max()), "plain": np.asarray(trips.max())}
    tally = np.bincount(arrays["counts"], minlength=DEEPEST + 1).astype(np.float64) * 2
    tally[arrays["counts"][size // 2]] -= 2 - size % 2
    return {**found, "value": np.sum(tally * powers), "gradient": powers[trips]}


def maximum(arrays: Arrays) -> Contender:
    """Ours: the size evaluation."""
    lg = peers.loopgrad()
    size = int(arrays["size"])
    compiled = lg.compile(lambda counts: lg.max(counts[lg.arange(size) // 2]))
    counts = lg.asarray(arrays["counts"])
    fetch = lambda result: {"deepest": np.asarray(result)}
    return peers.own(lambda: compiled(counts), lambda r: [r], fetch, moved=counts.nbytes)


def plain(arrays: Arrays) -> np.ndarray:
    return np.repeat(arrays["counts"], 2)[: int(arrays["size"])]


def own_plain(arrays: Arrays) -> Contender:
    lg = peers.loopgrad()
    compiled, counts = lg.compile(lg.max), lg.asarray(plain(arrays))
    fetch = lambda result: {"plain": np.asarray(result)}
    return peers.own(lambda: compiled(counts), lambda r: [r], fetch, moved=counts.nbytes)


def loop(arrays: Arrays) -> Contender:
    """The whole program: `v = v / 2` a[i // 2] times and its gradient."""
    lg = peers.loopgrad()
    size = int(arrays["size"])

    def loss(x: Any, counts: Any) -> Any:
        return lg.sum(lg.fori_loop(0, counts[lg.arange(size) // 2], lambda _, v: 0.5 * v, x))

    step = lg.compile(lg.value_and_grad(loss))
    x, counts = lg.asarray(np.ones(size, np.float32)), lg.asarray(arrays["counts"])
    fetch = lambda result: {"value": np.asarray(result[0]), "gradient": np.asarray(result[1])}
    return peers.own(lambda: step(x, counts), list, fetch)


def jax(arrays: Arrays) -> Contender:
    module, jnp = peers.jax()
    compiled, counts = module.jit(jnp.max), jnp.asarray(plain(arrays))
    fetch = lambda result: {"plain": np.asarray(result)}
    return peers.jax_contender(module, lambda: compiled(counts), fetch, counts.nbytes)


def torch(arrays: Arrays) -> Contender:
    module = peers.torch()
    counts = peers.torch_tensor(module, plain(arrays))
    fetch = lambda result: {"plain": peers.numpy_of(result)}
    return peers.torch_contender(module, counts.max, fetch, 4 * counts.numel())


def numpy(arrays: Arrays) -> Contender:
    counts = plain(arrays)
    return Contender(counts.max, lambda result: {"plain": np.asarray(result)}, moved=counts.nbytes)


MAXIMUM_CUDA = r"""
extern "C" __global__ void maximum(const int4 *values, int *largest, long long n) {
    long long width = gridDim.x * (long long)blockDim.x;
    int found = 0;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += width) {
        int4 four = values[i];
        found = max(max(found, max(four.x, four.y)), max(four.z, four.w));
    }
    for (int step = 16; step; step >>= 1) found = max(found, __shfl_down_sync(0xffffffffu, found, step));
    if ((threadIdx.x & 31) == 0) atomicMax(largest, found);
}
"""


def limit(arrays: Arrays) -> Contender:
    """A plain maximum by hand; the lanes beyond a multiple of four are left out of the read."""
    cuda = Cuda()
    (kernel,) = cuda.kernels(MAXIMUM_CUDA, "maximum")
    counts = np.flip(plain(arrays))  # the deepest comes first, where no remainder is cut off
    values, largest = cuda.put(counts), cuda.empty(4)
    start = cuda.launcher(kernel, cuda.multiprocessors * 8, 256, values, largest, np.int64(counts.size // 4))

    def launch() -> None:
        cuda.zero(largest, 4)
        start()

    fetch = lambda _: {"plain": cuda.get(largest, (), np.int32)}
    return cuda.contender(launch, fetch, moved=counts.nbytes)


Builders = dict[str, Callable[[Arrays], Contender]]
OWN: Builders = {"loopgrad": maximum, "loopgrad:plain max": own_plain, "loopgrad:loop": loop}
CONTENDERS: Builders = {**OWN, "numpy": numpy, "jax": jax, "torch": torch}
GPU_CONTENDERS: Builders = {**OWN, "limit": limit, "jax": jax, "torch": torch}
