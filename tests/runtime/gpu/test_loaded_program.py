"""The constants of a program in a device's memory."""

from __future__ import annotations

import numpy as np

import loopgrad as lg
from loopgrad.codegen.program import ArraySlot
from loopgrad.graph.types import TensorType, float64, int64
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.gpu.driver import read
from loopgrad.runtime.gpu.loaded_program import LoadedProgram
from tests.runtime.gpu.test_context import contexts


def test_an_empty_constant_lies_where_the_next_one_begins():
    """Both are there: a loop's count was what the device's memory had held before."""
    device = get_device("simulator:1")
    with lg.default_device(device.name):
        context, _, _ = contexts(device, lambda x: x + 1.0, np.ones(3))
    loaded = LoadedProgram(device.driver, context.program, b"", np.asarray(3).tobytes())
    empty, count = ArraySlot(TensorType((0,), float64), "constant", 0), ArraySlot(TensorType((), int64), "constant", 0)
    for _ in range(2):
        assert read(device.driver, loaded.constant(empty), empty.type).shape == (0,)
        assert read(device.driver, loaded.constant(count), count.type) == 3
