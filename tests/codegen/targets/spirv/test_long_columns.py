"""Columns that workgroups of 1,024 invocations hold."""

from dataclasses import replace

from loopgrad.codegen.options import DEFAULT_OPTIONS, LONG_COLUMNS, Options
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.codegen.targets.spirv.target import compile_program
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.types import TensorType, float32
from tests.codegen.targets.spirv.vulkan_harness import validate


def test_centred_columns_are_one_launch():
    def centred(x):
        return [ops.sub(x, ops.broadcast(ops.reduce_max(x, (0,)), x.shape, (1,)))]

    graph, _ = trace(centred, [TensorType((1 << 12, 1 << 10), float32)])
    features = Features(neighbours=32, tile_group=256)
    for largest, launches in ((1024, 1), (0, 3)):
        program = schedule(graph, DEFAULT_OPTIONS, frozenset([LONG_COLUMNS] * (largest > 0)))
        artifact = compile_program(program, Options(), replace(features, columns_group=largest))
        validate(artifact)
        groups = [artifact.program.modules[kernel.module].group for kernel in artifact.program.kernels]
        assert len(groups) == launches
        assert (max(groups) > features.tile_group) == (largest > 0)
