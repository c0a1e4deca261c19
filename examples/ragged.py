"""Per-lane loops: a million elements, each with a trip count of its own, value and gradient.

python examples/ragged.py
"""

from __future__ import annotations

import time

import numpy as np

import loopgrad as lg

LANES = 1_000_000


def loss(x, trips):
    """Element i takes trips[i] turns of v = sin(v) + 0.1."""
    return lg.sum(lg.fori_loop(0, trips, lambda _, v: lg.sin(v) + 0.1, x))


def main() -> None:
    generator = np.random.default_rng(0)
    x = lg.asarray(generator.uniform(-1, 1, LANES), dtype=lg.float32)
    trips = lg.asarray(generator.integers(0, 64, LANES), dtype=lg.int32)

    step = lg.compile(lg.value_and_grad(loss))
    value, slope = step(x, trips)
    print(f"loss {float(value):.3f}, gradient of the first elements {np.asarray(slope)[:3]}")
    print(step.plan(x, trips))

    replay = step.capture(x, trips)
    began = time.perf_counter()
    value, slope = replay.replay(x, trips)
    print(f"replayed in {1e3 * (time.perf_counter() - began):.1f} ms")


if __name__ == "__main__":
    main()
