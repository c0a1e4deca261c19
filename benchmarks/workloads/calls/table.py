"""Small calls, back to back: the time of one is the host's, from the first call until all results are there.

`compiled` calls one compiled function again, `eager` runs one line of a script again, `new_shape` the same line on an
array whose length wasn't met before, `new_shape_compiled` so calls a compiled function, `numbers` makes an array of
1,000 numbers that were computed one by one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from benchmarks import peers, place
from benchmarks.contender import Arrays, Contender
from benchmarks.workload import Builder, Workload

NUMBERS: Final = 1000


def line(xp: Any, x: Any) -> Any:
    return xp.sum(xp.sin(x) * 2.0) + 1.0


def back_to_back(start: Callable[[], Any], wait: Callable[[Any], Any], fetch: Callable[[Any], Arrays]) -> Contender:
    def run() -> Any:
        result = start()
        wait(result)
        return result

    def seconds_of(calls: int) -> float:
        began = time.perf_counter()
        for _ in range(calls):
            result = start()
        wait(result)
        return (time.perf_counter() - began) / calls

    return Contender(run, fetch, seconds_of=seconds_of, clock="back to back")


def growing(x: Any) -> Callable[[], Any]:
    """Ever longer parts of an array: those before the first are the same for all, so that sums can be compared."""
    lengths = itertools.chain((NUMBERS,), itertools.count(NUMBERS + 1))
    return lambda: x[: next(lengths)]


def _loopgrad(which: str) -> Builder:
    def build(arrays: Arrays) -> Contender:
        lg = peers.loopgrad()
        x = lg.asarray(arrays["x"])

        def evaluated(function: Callable[[], Any]) -> Callable[[], Any]:
            def start() -> Any:
                result = function()
                lg.eval(result)
                return result

            return start

        starts = _starts(lg, x, arrays["x"], lg.compile, lg.asarray, lg.asarray)
        wait = lambda _: lg.synchronize(place.device())
        return back_to_back(evaluated(starts[which]), wait, lambda result: {which: np.asarray(result)})

    return build


def _jax(which: str) -> Builder:
    def build(arrays: Arrays) -> Contender:
        module, jnp = peers.jax()
        starts = _starts(jnp, jnp.asarray(arrays["x"]), arrays["x"], module.jit, jnp.asarray, jnp.stack)
        return back_to_back(starts[which], module.block_until_ready, lambda result: {which: np.asarray(result)})

    return build


def _torch(which: str) -> Builder:
    def build(arrays: Arrays) -> Contender:
        module = peers.torch()
        put = lambda array: peers.torch_tensor(module, array)
        starts = _starts(module, put(arrays["x"]), arrays["x"], module.compile, put, module.stack)
        wait = (lambda _: module.cuda.synchronize()) if place.on_gpu() else (lambda _: None)
        return back_to_back(starts[which], wait, lambda result: {which: peers.numpy_of(result)})

    return build


def _numpy(which: str) -> Builder:
    def build(arrays: Arrays) -> Contender:
        starts = _starts(np, arrays["x"], arrays["x"], lambda function: function, np.asarray, np.asarray)
        return back_to_back(starts[which], lambda _: None, lambda result: {which: np.asarray(result)})

    return build


def _starts(
    xp: Any, x: Any, elements: np.ndarray, compiled: Any, put: Callable[[Any], Any], stacked: Callable[[Any], Any]
) -> Mapping[str, Callable[[], Any]]:
    """What a system is asked to do; new shapes are put on the device by its own function."""
    small, longer = x[:10], growing(elements)
    known = compiled(lambda x: line(xp, x))
    return {
        "compiled": lambda: known(small),
        "eager": lambda: line(xp, small),
        "new_shape": lambda: line(xp, put(longer())),
        "new_shape_compiled": lambda: known(put(longer())),
        "numbers": lambda: stacked([x[k] * 2.0 for k in range(NUMBERS)]),
    }


def inputs(size: int) -> Arrays:
    """As many elements as there may be calls of new shapes; those after the first 1,000 add nothing."""
    x = np.zeros(NUMBERS + size, np.float32)
    x[:NUMBERS] = np.linspace(0.5, 1.5, NUMBERS)
    return {"x": x}


def oracle(arrays: Arrays) -> Arrays:
    x = arrays["x"].astype(np.float64)
    short, known = line(np, x[:10]), line(np, x[:NUMBERS])
    return {
        "compiled": short, "eager": short, "new_shape": known, "new_shape_compiled": known,
        "numbers": 2.0 * x[:NUMBERS],
    }  # fmt: skip


TITLES: Final = {
    "compiled": "a compiled function of ten elements",
    "eager": "a line of a script on ten elements, again",
    "new_shape": "the same line, each time with another shape",
    "new_shape_compiled": "a compiled function, each time with another shape",
    "numbers": "an array of 1,000 numbers computed one by one",
}
SIZES: Final = {"full": 1 << 20, "quick": 1 << 16}


def _workload(which: str) -> Workload:
    systems = {"loopgrad": _loopgrad, "jax": _jax, "torch": _torch, "numpy": _numpy}
    builders = {name: system(which) for name, system in systems.items()}
    on_gpu = {name: build for name, build in builders.items() if name != "numpy"}
    return Workload(
        f"calls.{which}", TITLES[which], SIZES, inputs, oracle, {which: 1e-4}, builders, on_gpu, family="calls"
    )  # fmt: skip


WORKLOADS: Final = {which: _workload(which) for which in TITLES}
