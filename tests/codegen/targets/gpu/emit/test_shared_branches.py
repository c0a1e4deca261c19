"""Recipes for several lanes at once are those of one lane."""

import re

from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.nvptx.target import compile_program
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.types import TensorType, float32


def ptx_of_powers(lanes):
    type = TensorType((lanes,), float32)
    graph, _ = trace(lambda x, y: [ops.pow(x, y)], [type, type])
    return compile_program(schedule(graph, DEFAULT_OPTIONS), DEFAULT_OPTIONS).texts["ptx"]


def test_several_lanes_know_what_the_target_can():
    """A power of f32 is computed in f64 where a target rearranges sums, which NVIDIA's assembler doesn't."""
    one, several = ptx_of_powers(1 << 10), ptx_of_powers(1 << 24)
    assert several.count(".v4.b32") > one.count(".v4.b32") == 0
    for text in (one, several):
        assert not re.search(r"cvt\.rn\.f64\.s64", text)  # the exponent in a logarithm of f64
