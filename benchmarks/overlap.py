"""What it gains that large gradients travel while others are computed: value and gradient of a deep network.

    python -m loopgrad run -n 2 benchmarks/overlap.py [--width 512] [--network 0.3] [--fast]

Calls with results that start early take turns with calls in which all travel together at the end. Processes of one
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
from loopgrad.runtime.mesh.world import world

NEVER = 1 << 60  # bytes


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


def _seconds(step: Any, arguments: Sequence[Any]) -> float:
    start = time.perf_counter()
    lg.eval(step(*arguments))
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("width", 512), ("layers", 8), ("rows", 256), ("calls", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--network", type=float, default=0.0, metavar="GB/s")
    parser.add_argument("--fast", action="store_true")
    chosen = parser.parse_args()
    mesh, rng = lg.mesh(), np.random.default_rng(0)
    if chosen.network and mesh.size > 1:
        _slowed(chosen.network)
    shape = (chosen.width, chosen.width)
    weights = [lg.asarray((rng.standard_normal(shape) * chosen.width**-0.5).astype(np.float32))] * chosen.layers
    weights = [w * 1.0 for w in weights]
    x = lg.shard(rng.standard_normal((chosen.rows, chosen.width)).astype(np.float32), mesh)
    usual, steps = overlap.EARLY, {}
    with lg.options(fast_collectives=chosen.fast):
        for name, early in (("together", NEVER), ("early", usual)):
            overlap.EARLY = early  # type: ignore[misc]
            steps[name] = lg.compile(lambda w, x: lg.value_and_grad(_network)(w, x))
            _seconds(steps[name], (weights, x))
        times = [{name: _seconds(step, (weights, x)) for name, step in steps.items()} for _ in range(chosen.calls)]
        values = [np.asarray(v).tobytes() for step in steps.values() for v in lg.tree.leaves(step(weights, x))]
    assert values[: len(values) // 2] == values[len(values) // 2 :], "other bits"
    if mesh.rank == 0:
        for name in steps:
            each = [1e3 * found[name] for found in times]
            sys.stdout.write(f"{name}: median {np.median(each):.1f} ms, least {min(each):.1f} ms\n")


if __name__ == "__main__":
    main()
