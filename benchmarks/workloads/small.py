"""Overhead: a chain of 100 tiny elementwise kernels that can't fuse, each ends in a scalar.

Every step multiplies 1,024 elements by what the step before reduced. The work is nothing; what is measured
is what a call and a launch cost. `call` is one compiled function of one such step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender
from benchmarks.cuda_native import Cuda

TITLE = "small: a chain of 100 reductions of 1,024 elements; 'call' is one of them, called alone"
SIZES = {"full": 1024, "quick": 64}
TOLERANCE = {"chain": 1e-4, "call": 1e-4}
REPEATS = 20
STEPS = 100


def inputs(size: int) -> Arrays:
    return {"x": np.linspace(0.5, 1.5, size).astype(np.float32)}


def oracle(arrays: Arrays) -> Arrays:
    x = arrays["x"].astype(np.float64)
    total = one = np.mean(np.sin(x))
    for _ in range(STEPS - 1):
        total = np.mean(np.sin(x * (1.0 + total)))
    return {"chain": total, "call": one}


def chain(xp: Any, x: Any) -> Any:
    total = xp.mean(xp.sin(x))
    for _ in range(STEPS - 1):
        total = xp.mean(xp.sin(x * (1.0 + total)))
    return total


def call(xp: Any, x: Any) -> Any:
    return xp.mean(xp.sin(x))


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {"chain": chain, "call": call}


def loopgrad(which: str, replayed: bool = False) -> Callable[[Arrays], Contender]:
    def build(arrays: Arrays) -> Contender:
        lg = peers.loopgrad()
        compiled = lg.compile(lambda x: FUNCTIONS[which](lg, x))
        x = lg.asarray(arrays["x"])
        results, fetch = lambda result: [result], lambda result: {which: np.asarray(result)}
        notes = lambda: {"kernels": len(compiled.plan(x).kernels)}
        if replayed:
            replay = compiled.capture(x)
            return peers.own(lambda: replay.replay(x), results, fetch, notes)
        return peers.own(lambda: compiled(x), results, fetch, notes)

    return build


def jax(which: str) -> Callable[[Arrays], Contender]:
    def build(arrays: Arrays) -> Contender:
        module, jnp = peers.jax()
        compiled, x = module.jit(lambda x: FUNCTIONS[which](jnp, x)), jnp.asarray(arrays["x"])
        return peers.jax_contender(module, lambda: compiled(x), lambda result: {which: np.asarray(result)})

    return build


def torch(which: str, graphed: bool = False) -> Callable[[Arrays], Contender]:
    """`graphed`: captured as a CUDA graph and replayed."""

    def build(arrays: Arrays) -> Contender:
        module = peers.torch()
        x = peers.torch_tensor(module, arrays["x"])
        run = lambda: FUNCTIONS[which](module, x)
        fetch = lambda result: {which: peers.numpy_of(result)}
        if graphed:
            run = _replaying(module, run)
        return peers.torch_contender(module, run, fetch)

    return build


def _replaying(module: Any, run: Callable[[], Any]) -> Callable[[], Any]:
    side = module.cuda.Stream()
    with module.cuda.stream(side):
        for _ in range(3):
            run()
    module.cuda.synchronize()
    graph = module.cuda.CUDAGraph()
    with module.cuda.graph(graph):
        result = run()

    def replay() -> Any:
        graph.replay()
        return result

    return replay


STEP_CUDA = r"""
extern "C" __global__ void step(const float *x, const float *before, float *after, int first, int n) {
    float value = 0.0f, factor = first ? 1.0f : 1.0f + *before;
    __shared__ float partial[8];
    for (int i = threadIdx.x; i < n; i += blockDim.x) value += sinf(x[i] * factor);
    for (int step = 16; step; step >>= 1) value += __shfl_down_sync(0xffffffffu, value, step);
    if ((threadIdx.x & 31) == 0) partial[threadIdx.x >> 5] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 1; k < 8; k++) value += partial[k];
        *after = value / n;
    }
}
"""


def limit_cuda(which: str, graphed: bool) -> Callable[[Arrays], Contender]:
    """One block a kernel, a hundred of them: launched, or once as an explicit CUDA graph."""

    def build(arrays: Arrays) -> Contender:
        cuda = Cuda()
        from cuda.core import LaunchConfig, launch
        from cuda.core.graph import GraphDefinition

        (kernel,) = cuda.kernels(STEP_CUDA, "step")
        size, steps = arrays["x"].size, STEPS if which == "chain" else 1
        x, totals = cuda.put(arrays["x"]), cuda.empty(4 * (steps + 1))
        config = LaunchConfig(grid=1, block=256)
        arguments = [
            (x, totals + 4 * k, totals + 4 * (k + 1), np.int32(k == 0), np.int32(size)) for k in range(steps)
        ]  # fmt: skip

        def launches() -> None:
            for given in arguments:
                launch(cuda.stream, config, kernel, *given)

        node = definition = GraphDefinition()
        for given in arguments:
            node = node.launch(config, kernel, *given)
        graph = definition.instantiate()
        fetch = lambda _: {which: cuda.get(totals + 4 * steps, (), np.float32)}
        run = (lambda: graph.launch(cuda.stream)) if graphed else launches
        return cuda.contender(run, fetch, lambda: {"kernels": steps})

    return build


def numpy(which: str) -> Callable[[Arrays], Contender]:
    return lambda arrays: Contender(
        lambda: FUNCTIONS[which](np, arrays["x"]), lambda result: {which: np.asarray(result)}
    )


CONTENDERS = {
    "loopgrad": loopgrad("chain"),
    "loopgrad:replay": loopgrad("chain", replayed=True),
    "loopgrad:call": loopgrad("call"),
    "loopgrad:call, replay": loopgrad("call", replayed=True),
    **{
        name if which == "chain" else f"{name}:{which}": system(which)
        for which in ("chain", "call")
        for name, system in {"jax": jax, "torch": torch, "numpy": numpy}.items()
    },
}

GPU_CONTENDERS = {
    "limit:graph": limit_cuda("chain", graphed=True),
    "limit:launches": limit_cuda("chain", graphed=False),
    "loopgrad": loopgrad("chain"),
    "loopgrad:replay": loopgrad("chain", replayed=True),
    "jax": jax("chain"),
    "torch": torch("chain"),
    "torch:graph": torch("chain", graphed=True),
    "limit:call": limit_cuda("call", graphed=False),
    "limit:call, graph": limit_cuda("call", graphed=True),
    "loopgrad:call": loopgrad("call"),
    "loopgrad:call, replay": loopgrad("call", replayed=True),
    "jax:call": jax("call"),
    "torch:call": torch("call"),
}
