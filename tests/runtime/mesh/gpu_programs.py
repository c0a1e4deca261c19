"""What each process of a mesh of real GPUs runs: `tests/run_gpu mesh` starts it, on each number of processes and way.

Writes DIR/RANK.json: of every program the digest of its results, which may depend on neither.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import loopgrad as lg
from loopgrad.graph.placement import overlap, partition
from loopgrad.lazy.mesh.meshes import mesh_device
from tests.graph.placement.test_partition import CASES
from tests.runtime.mesh.programs import digest, replayed_on_gpus, results_of_cases

WAYS = ("library", "host")


def skewed(mesh: lg.Mesh) -> dict[str, str]:
    """Lanes of which few take thousands of trips, as many for each process as there may be: stacks grow."""
    found = {}
    for lanes in (1_000, 100_003):
        rng = np.random.default_rng(lanes)
        trips = np.minimum(rng.zipf(1.3, lanes), 4096).astype(np.int32)
        x, k = lg.shard(rng.uniform(-1.0, 1.0, lanes).astype(np.float32), mesh), lg.shard(trips, mesh)

        def loss(p: Any, x: Any, k: Any) -> Any:
            return lg.sum(lg.fori_loop(0, k, lambda _, v: lg.sin(v) * p + 0.1, x))

        value, (by_p, by_x) = lg.compile(lg.value_and_grad(loss, argnums=(0, 1)))(lg.asarray(0.9, lg.float32), x, k)
        found[f"skewed, {lanes} lanes"] = digest([value, by_p, lg.gather_all(by_x)])
    return found


def trips_that_meet(mesh: lg.Mesh) -> dict[str, str]:
    """Loops with a collective in each trip, in the first call, in others of more trips, and when it is replayed."""
    x, found = lg.shard(np.linspace(0.1, 2.0, 1_001), mesh), {}

    def fit(w: Any, x: Any, n: Any) -> Any:
        slope = lg.grad(lambda w: lg.mean(lg.sin(x * w) ** 2))
        return lg.fori_loop(0, n, lambda k, s: (s[1] - 0.1 * slope(s[1]) / (k + 1.0), s[0] + 0.01 * lg.pmax(x * k)), w)

    def until(x: Any) -> Any:
        step = lambda s: (lg.sin(s[0]) + 1e-3 * lg.pmean(s[0]), s[1] + 1)  # noqa: E731
        return lg.gather_all(lg.while_loop(lambda s: (lg.psum(s[0]) > 30.0) & (s[1] < 50), step, (x, 0))[0])

    fitted, walked, start = lg.compile(fit), lg.compile(until), (lg.asarray(1.5), lg.asarray(0.5))
    for call, n in enumerate((7, 7, 30, 1, 30)):
        found[f"fit {call}"] = digest(fitted(start, x, n))
        found[f"until {call}"] = digest(walked(x))
    replay = fitted.capture(start, x, 30)
    found["fit, replayed"] = digest(replay.replay(start, x, 30))
    assert found["fit 0"] == found["fit 1"]
    assert found["fit 2"] == found["fit 4"] == found["fit, replayed"]
    assert len({found[f"until {call}"] for call in range(5)}) == 1
    walk = lambda p: lg.sum(lg.fori_loop(0, 9, lambda k, v: v * p - lg.pmean(v) / (k + 2), x))  # noqa: E731
    slopes = lg.compile(lg.value_and_grad(walk))
    for call in range(3):
        found[f"slope {call}"] = digest(slopes(lg.asarray(0.9)))
    assert found["slope 0"] == found["slope 1"] == found["slope 2"]
    return found


def beside_other_work(mesh: lg.Mesh) -> dict[str, str]:
    """Gradients so large that they travel while others are computed, again and again, and when the call is replayed."""
    rng = np.random.default_rng(2)
    drawn = [(rng.standard_normal((1024, 1024)) / 32.0).astype(np.float32) for _ in range(4)]
    weights = [lg.asarray(w, device=mesh.device) for w in drawn]
    x = lg.shard(rng.standard_normal((2048, 1024)).astype(np.float32), mesh)

    def deep(weights: Any, x: Any) -> Any:
        for w in weights:
            x = lg.tanh(x @ w)
        return lg.mean(lg.sum(x * x, axis=1))

    usual, overlap.EARLY = overlap.EARLY, 1 << 17  # type: ignore[misc]
    step = lg.compile(lg.value_and_grad(deep))
    replay = step.capture(weights, x)
    found = {digest(step(weights, x)) for _ in range(8)} | {digest(replay.replay(weights, x)) for _ in range(4)}
    assert len(found) == 1, found
    if mesh.size > 1:
        assert "start on their way" in str(step.plan(weights, x))
    overlap.EARLY = usual  # type: ignore[misc]
    return {"large gradients": found.pop()}


def sums_of_the_engine(mesh: lg.Mesh) -> None:
    """In its own order: right, not bit by bit."""
    whole = np.linspace(0.0, 1.0, 77_001)
    x = lg.shard(whole, mesh)
    with lg.options(fast_collectives=True):
        np.testing.assert_allclose(float(lg.sum(lg.sin(x))), np.sin(whole).sum())


def raised_by_all(mesh: lg.Mesh) -> dict[str, str]:
    """An endless lane of the last process, and the call after it."""
    step = lambda v: v * 1.0  # noqa: E731
    program = lg.compile(lambda x: lg.sum(lg.while_loop(lambda v: v > 1.0, step, x, max_steps=50)))
    found = {}
    for i, last in enumerate((0.5, 2.0, 0.5)):
        x = lg.shard(np.where(np.arange(40) == 39, last, 0.5), mesh)
        try:
            found[f"limits {i}"] = digest(program(x))
        except lg.LoopLimitError as error:
            found[f"limits {i}"] = type(error).__name__
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--way", choices=WAYS, default=WAYS[0])
    parser.add_argument("--device", default="cuda")
    chosen = parser.parse_args()
    mesh = lg.mesh(chosen.device)
    device: Any = mesh_device(mesh)
    if chosen.way == "host":
        device.memory = None
    elif mesh.size > 1 and chosen.device == "cuda":
        assert device.memory is not None, device.way
    found: dict[str, Any] = {}
    for count in (5, 130):
        found.update(results_of_cases(mesh, CASES, count))
    usual = partition.LARGE, overlap.EARLY, overlap.OPERATIONS
    partition.LARGE, overlap.EARLY, overlap.OPERATIONS = 1, 0, 0  # type: ignore[misc]
    found.update({f"{name}, large": bits for name, bits in results_of_cases(mesh, CASES, 33).items()})
    partition.LARGE, overlap.EARLY, overlap.OPERATIONS = usual  # type: ignore[misc]
    found.update(beside_other_work(mesh))
    found.update(replayed_on_gpus(mesh))
    found.update(skewed(mesh))
    found.update(trips_that_meet(mesh))
    found.update(raised_by_all(mesh))
    sums_of_the_engine(mesh)
    found = {name.replace(mesh.device, "the mesh"): bits for name, bits in found.items()}
    (chosen.folder / f"{mesh.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
