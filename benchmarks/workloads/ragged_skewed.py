"""As `ragged`, with trips from a Zipf law: most lanes take a few turns, a few take thousands.

Whoever masks or pads pays lanes x maximum; what has to be done is the sum of the trips.
"""

from __future__ import annotations

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads import ragged
from benchmarks.workloads.ragged import oracle

TITLE = "ragged-skewed: as ragged, trips from a Zipf law (exponent 1.3) cut at 4096"
SIZES = {"full": 100_000, "quick": 2_000, "gpu": 1_048_576}
TOLERANCE = ragged.TOLERANCE
DEEPEST = 4096

__all__ = ["CONTENDERS", "GPU_CONTENDERS", "SIZES", "TITLE", "TOLERANCE", "inputs", "oracle"]


def inputs(size: int) -> Arrays:
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, size).astype(np.float32)
    return {"x": x, "trips": np.minimum(generator.zipf(1.3, size), DEEPEST).astype(np.int32)}


NAMES = ("loopgrad", "limit", "drjit", "quadrants", "jax", "numba", "numpy")
CONTENDERS = {name: ragged.CONTENDERS[name] for name in NAMES}
GPU_CONTENDERS = {name: build for name, build in ragged.GPU_CONTENDERS.items() if name != "torch"}
