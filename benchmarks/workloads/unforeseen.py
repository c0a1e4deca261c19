"""As `ragged_skewed`, as a loop that goes on while a number of the lane's own isn't used up.

Nobody is told how many trips a lane takes: the condition looks at what the loop carries.
"""

from __future__ import annotations

from benchmarks.workloads import ragged
from benchmarks.workloads.ragged_skewed import SIZES, TOLERANCE, inputs, oracle

TITLE = "unforeseen: as ragged-skewed, as a loop on values"

__all__ = ["CONTENDERS", "GPU_CONTENDERS", "SIZES", "TITLE", "TOLERANCE", "inputs", "oracle"]

PEERS = ("limit", "limit:plain", "drjit", "quadrants", "jax")
CONTENDERS = {
    "loopgrad": ragged.loopgrad(counted=False),
    **{name: build for name, build in ragged.CONTENDERS.items() if name in PEERS},
}
GPU_CONTENDERS = {
    "loopgrad": ragged.loopgrad(counted=False),
    "loopgrad:fast math": ragged.loopgrad(counted=False, fast_math=True),
    "loopgrad:unsorted": ragged.loopgrad(counted=False, sort_lanes=False),
    "loopgrad:replay": ragged.loopgrad(counted=False, replayed=True),
    **{name: build for name, build in ragged.GPU_CONTENDERS.items() if name in PEERS},
}
