"""What drivers don't say is tried: whether fma rounds once, and whether long loops reach their end,
and whether a widened integer compares rightly.

Kernels of one lane. fma(x, x, -(x*x)) is not zero where it is fused; a loop with more trips than the
known limits counts them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.codegen.targets.spirv.probe import TRIPS, fused_probe, loop_probe, widening_probe
from loopgrad.runtime.vulkan.recorder import Recorder
from loopgrad.runtime.vulkan.resources import Memory

X: Final[dict[str, np.floating[Any]]] = {"f32": np.float32(1 + 2**-12), "f64": np.float64(1 + 2**-30)}


def probed(memory: Memory, features: Features) -> Features:
    """The features with what the probes found."""
    trips = run(memory, loop_probe(features), np.zeros(1, np.int64))
    fused = all(
        run(memory, fused_probe(features, name), np.array([x, 0], x.dtype))[1] != 0
        for name, x in X.items()
        if name == "f32" or features.float64
    )
    compared = run(memory, widening_probe(features), np.array([-5], np.int32))
    return replace(features, fused=fused, endless_loops=bool(trips[0] == TRIPS), widening=bool(compared[0] == 2))


def run(memory: Memory, code: bytes, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array after one lane of the module, which sees it as its only parameter."""
    gpu = memory.gpu
    data, control = memory.put(array), memory.host.take(256)
    control.host(256)[:] = 0
    symbols = np.array([data.address, control.address + 64, control.address, 0, 0, 0], np.uint64)
    recorder = Recorder(gpu, memory.host, symbols)
    pipeline = gpu.pipeline(code)
    recorder.plain(pipeline, 1, recorder.table(range(6)))
    recorder.end()
    recorder.run()
    gpu.destroy_pipeline(pipeline)
    return memory.bytes(data, array.nbytes).view(array.dtype)
