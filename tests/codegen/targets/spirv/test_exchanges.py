"""Drivers that get exchanges between lanes wrong are given kernels without any, and the plan says so."""

import numpy as np
import pytest

from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.codegen.targets.spirv.target import compile_program
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.types import TensorType, float32

LARGE = Features(tile_group=256, workgroup_memory=48 << 10)
PLAIN = Features(tile_group=256, workgroup_memory=48 << 10, exchanges=False)


def barriers(function, *shapes, features):
    """How many barriers there are in a program's code, and its notes."""
    graph, _ = trace(lambda *v: [function(*v)], [TensorType(s, float32) for s in shapes])
    artifact = compile_program(schedule(graph, DEFAULT_OPTIONS), DEFAULT_OPTIONS, features)
    return artifact.texts["spirv"].count("ControlBarrier"), artifact.program.notes


PROGRAMS = {
    "product": (ops.matmul, (80, 70), (70, 90)),
    "running total": (lambda x: ops.cumsum(x, 0), (4001, 20)),
    "transpose": (lambda x, y: ops.sub(x, ops.transpose(y, (1, 0))), (90, 91), (91, 90)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_lane_waits_for_another(name):
    function, *shapes = PROGRAMS[name]
    assert barriers(function, *shapes, features=LARGE)[0] > 0
    count, notes = barriers(function, *shapes, features=PLAIN)
    assert count == 0
    assert name == "transpose" or any("wrong numbers" in note for note in notes)
    assert np.prod(shapes[0]) > 4096
