"""What happens before the first number: import, tracing, compiling, and a second process.

The plain names build a graph of 10,000 elementwise nodes. `import`, `cold` (the `ragged` program, value
and gradient, in a fresh process with an empty cache) and `warm` (the same in a second process) are timed
inside that process, without the start of Python; cold and warm exclude the import.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender, Unavailable

TITLE = "trace: build 10,000 elementwise nodes; import; ragged cold and warm in fresh processes"
SIZES = {"full": 10_000, "quick": 1_000}
TOLERANCE: dict[str, float] = {}


def inputs(size: int) -> Arrays:
    return {"size": np.asarray(size)}


def oracle(arrays: Arrays) -> Arrays:
    return {}


def nothing(_: Any) -> Arrays:
    return {}


def chain(x: Any, sin: Callable[[Any], Any], nodes: int) -> Any:
    for _ in range(nodes // 2):
        x = sin(x) + 0.1
    return x


def loopgrad(arrays: Arrays) -> Contender:
    import loopgrad as lg

    x = lg.asarray(np.zeros(8))
    return Contender(lambda: chain(x, lg.sin, int(arrays["size"])), nothing)


def jax(arrays: Arrays) -> Contender:
    module, jnp = peers.jax()
    x = jnp.zeros(8)
    return Contender(lambda: module.make_jaxpr(lambda x: chain(x, jnp.sin, int(arrays["size"])))(x), nothing)


def drjit(arrays: Arrays) -> Contender:
    dr, ad = peers.drjit()
    x = dr.zeros(ad.Float, 8)
    return Contender(lambda: chain(x, dr.sin, int(arrays["size"])), nothing)


def torch(arrays: Arrays) -> Contender:
    module = peers.torch()
    from torch import fx  # the tracer; eager execution has none

    def run() -> Any:
        graph = fx.Graph()
        x = graph.placeholder("x")
        for _ in range(int(arrays["size"]) // 2):
            x = graph.call_function(module.add, (graph.call_function(module.sin, (x,)), 0.1))
        graph.output(x)
        return graph

    return Contender(run, nothing)


TIMED = "import time; began = time.perf_counter(); {work}; print(time.perf_counter() - began)"

RAGGED = {
    "loopgrad": """
import numpy as np, loopgrad as lg
x, n = lg.asarray(np.linspace(-1, 1, 1000).astype(np.float32)), lg.asarray(np.arange(1000, dtype=np.int32) % 64)
began = __import__("time").perf_counter()
f = lambda x, n: lg.sum(lg.fori_loop(0, n, lambda _, v: lg.sin(v) + 0.1, x))
value, slope = lg.compile(lg.value_and_grad(f))(x, n)
np.asarray(value), np.asarray(slope)
print(__import__("time").perf_counter() - began)
""",
    "jax": """
import jax, jax.numpy as jnp
x, n = jnp.linspace(-1, 1, 1000), jnp.arange(1000) % 64
began = __import__("time").perf_counter()
step = lambda v, k: (jnp.where(k < n, jnp.sin(v) + 0.1, v), None)
f = lambda x: jnp.sum(jax.lax.scan(step, x, jnp.arange(64))[0])
jax.block_until_ready(jax.jit(jax.value_and_grad(f))(x))
print(__import__("time").perf_counter() - began)
""",
}


def in_process(code: str, environment: dict[str, str] | None = None) -> float:
    """The seconds that a fresh process prints."""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **(environment or {})}
    )
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["failed"])[-1]
        raise Unavailable("not installed" if last.startswith("ModuleNotFoundError") else last)
    return float(run.stdout.split()[-1])


def reported(measure: Callable[[], float]) -> Contender:
    """The harness times the whole process; what counts is the number from inside, given as a note."""
    inside: list[float] = []

    def run() -> None:
        inside.append(measure())

    return Contender(run, nothing, lambda: {"inside the process": f"{1e3 * float(np.median(inside)):.0f} ms"})


def importing(package: str) -> Callable[[Arrays], Contender]:
    return lambda _: reported(lambda: in_process(TIMED.format(work=f"import {package}")))


def cold(name: str) -> Callable[[Arrays], Contender]:
    def measure() -> float:
        with tempfile.TemporaryDirectory() as folder:
            return in_process(RAGGED[name], {"LOOPGRAD_CACHE_DIR": folder})

    return lambda _: reported(measure)


def warm(_: Arrays) -> Contender:
    folder = tempfile.mkdtemp(prefix="loopgrad-warm-")
    in_process(RAGGED["loopgrad"], {"LOOPGRAD_CACHE_DIR": folder})
    return reported(lambda: in_process(RAGGED["loopgrad"], {"LOOPGRAD_CACHE_DIR": folder}))


CONTENDERS = {
    "loopgrad": loopgrad,
    "jax": jax,
    "drjit": drjit,
    "torch": torch,
    **{f"{name}:import": importing(name) for name in ("loopgrad", "numpy", "jax", "torch", "drjit", "quadrants")},
    "loopgrad:cold": cold("loopgrad"),
    "jax:cold": cold("jax"),
    "loopgrad:warm": warm,
}

GPU_CONTENDERS: dict[str, Callable[[Arrays], Contender]] = {}  # nothing here happens on a GPU
