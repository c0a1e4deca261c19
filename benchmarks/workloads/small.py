"""Overhead: a chain of 100 tiny elementwise kernels that can't fuse, each ends in a scalar.

Every step multiplies 16 elements by what the step before reduced. The work is nothing; what is measured
is what a call and a launch cost. `call` is one compiled function of one such step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender

TITLE = "small: a chain of 100 reductions of 16 elements; 'call' is one of them, called alone"
SIZES = {"full": 16, "quick": 16}
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
        import loopgrad as lg

        compiled = lg.compile(lambda x: FUNCTIONS[which](lg, x))
        x = lg.asarray(arrays["x"])
        if replayed:
            replay = compiled.capture(x)
            return Contender(lambda: replay.replay(x), lambda result: {which: np.asarray(result)})

        def run() -> Any:
            result = compiled(x)
            lg.eval(result)
            return result

        return Contender(run, lambda result: {which: np.asarray(result)})

    return build


def jax(which: str) -> Callable[[Arrays], Contender]:
    def build(arrays: Arrays) -> Contender:
        module, jnp = peers.jax()
        compiled, x = module.jit(lambda x: FUNCTIONS[which](jnp, x)), jnp.asarray(arrays["x"])
        return Contender(lambda: compiled(x).block_until_ready(), lambda result: {which: np.asarray(result)})

    return build


def torch(which: str) -> Callable[[Arrays], Contender]:
    def build(arrays: Arrays) -> Contender:
        module = peers.torch()
        x = module.from_numpy(arrays["x"])
        return Contender(lambda: FUNCTIONS[which](module, x), lambda result: {which: np.asarray(result)})

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
