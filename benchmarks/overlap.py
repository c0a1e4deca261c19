"""What it gains that large gradients travel while others are computed: value and gradient of a deep network.

    python -m loopgrad run -n 2 benchmarks/overlap.py [--width 512] [--network 0.3] [--fast] [--device cuda]

Calls with results that start early take turns with calls in which all travel together at the end, and with calls that
only add up as many numbers as the gradients have. Processes of one
machine copy through its memory, which takes cores that would compute: `--network` lets each collective of large results
take as long besides as that many GB/s would, without a core, as a network card's work does. `--fast` leaves the order
of sums to the engine, which makes fewer additions and sends less.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import loopgrad as lg
from loopgrad.graph.placement import overlap
from loopgrad.lazy.mesh.meshes import mesh_device
from loopgrad.runtime.mesh.world import world

NEVER = 1 << 60  # bytes
WARM = 3  # calls of each kind: what is recorded is made by then


def _slowed(gigabytes: float) -> None:
    """Let what moves large results take longer."""
    engine: Any = type(world())
    for name in ("gather_ragged", "exchange", "total"):
        setattr(engine, name, _slower(getattr(engine, name), gigabytes))


def _slower(moved: Callable[..., Any], gigabytes: float) -> Callable[..., Any]:
    def slow(self: Any, own: Any, *more: Any) -> Any:
        found = moved(self, own, *more)
        time.sleep(own.nbytes / (gigabytes * 1e9))
        return found

    return slow


def _network(weights: Sequence[Any], x: Any) -> Any:
    for w in weights:
        x = lg.tanh(x @ w)
    return lg.mean(lg.sum(x * x, axis=1))


def _seconds(step: Any, arguments: Sequence[Any], mesh: lg.Mesh) -> tuple[float, float]:
    """Of a call, once all processes are ready for it: until its work is done, and until all of it is started."""
    inner = mesh_device(mesh).inner.name  # type: ignore[attr-defined]
    lg.synchronize(inner)
    mesh_device(mesh).communicator.gather(b"")  # type: ignore[attr-defined]
    start = time.perf_counter()
    lg.eval(step(*arguments))
    started = time.perf_counter()
    lg.synchronize(inner)
    return time.perf_counter() - start, started - start


def _timed(chosen: argparse.Namespace, mesh: lg.Mesh) -> dict[str, Any]:
    """Milliseconds of each kind of call, in the order in which they took turns: until done, until started."""
    rng, shape, dtype = np.random.default_rng(0), (chosen.width, chosen.width), getattr(lg, chosen.dtype)
    drawn = [(rng.standard_normal(shape) * chosen.width**-0.5).astype(np.float32) for _ in range(chosen.layers)]
    weights = [lg.astype(lg.asarray(w, device=mesh.device), dtype) for w in drawn]
    x = lg.astype(lg.shard(rng.standard_normal((chosen.rows, chosen.width)).astype(np.float32), mesh), dtype)
    lane = lg.astype(lg.shard(np.ones((mesh.size, *shape), np.float32), mesh), dtype)
    lanes = [lane * float(k) for k in range(chosen.layers)]
    usual, steps = overlap.EARLY, dict[str, tuple[Any, Any]]()
    with lg.options(fast_collectives=chosen.fast):
        for name, early in (("together", NEVER), ("early", usual)):
            overlap.EARLY = early  # type: ignore[misc]
            steps[name] = lg.compile(lambda w, x: lg.value_and_grad(_network)(w, x)), (weights, x)
            _seconds(*steps[name], mesh)
        steps["sums alone"] = lg.compile(lambda lanes: [lg.psum(v) for v in lanes]), (lanes,)
        for _ in range(WARM):
            for step, arguments in steps.values():
                _seconds(step, arguments, mesh)
        times = [{name: _seconds(*given, mesh) for name, given in steps.items()} for _ in range(chosen.calls)]
        both = [lg.tree.leaves(step(*given)) for step, given in (steps["together"], steps["early"])]
        assert chosen.fast or [np.asarray(v).tobytes() for v in both[0]] == [np.asarray(v).tobytes() for v in both[1]]
    return {name: 1e3 * np.array([found[name] for found in times]).T for name in steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("width", 512), ("layers", 8), ("rows", 256), ("calls", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--network", type=float, default=0.0, metavar="GB/s")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--device", default=None)
    parser.add_argument("--dtype", default="float32")
    chosen = parser.parse_args()
    mesh = lg.mesh(chosen.device) if chosen.device else lg.mesh()
    if chosen.network and mesh.size > 1:
        _slowed(chosen.network)
    found = _timed(chosen, mesh)
    if mesh.rank == 0:
        for name, (done, started) in found.items():
            text = f"{name}: median {np.median(done):.2f} ms, least {min(done):.2f} ms"
            sys.stdout.write(f"{text}; all of it started after {np.median(started):.2f} ms\n")


if __name__ == "__main__":
    main()
