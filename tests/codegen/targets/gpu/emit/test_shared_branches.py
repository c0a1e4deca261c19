"""Recipes for several lanes at once are those of one lane."""

import re

import pytest

from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.gpu.emit.shared_branches import MADE
from loopgrad.codegen.targets.nvptx.target import compile_program
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.graph.primitives.elementwise import BINARY, UNARY
from loopgrad.graph.types import TensorType, float32

ONE_BY_ONE = 200  # weight of what lanes do one after the other


def ptx(function, lanes, count, dtype=float32):
    graph, _ = trace(lambda *given: [function(*given)], [TensorType((lanes,), dtype)] * count)
    return compile_program(schedule(graph, DEFAULT_OPTIONS), DEFAULT_OPTIONS).texts["ptx"]


def test_several_lanes_know_what_the_target_can():
    """A power of f32 is computed in f64 where a target rearranges sums, which NVIDIA's assembler doesn't."""
    one, several = ptx(ops.pow, 1 << 10, 2), ptx(ops.pow, 1 << 24, 2)
    assert several.count(".v4.b32") > one.count(".v4.b32") == 0
    for text in (one, several):
        assert not re.search(r"cvt\.rn\.f64\.s64", text)  # the exponent in a logarithm of f64


@pytest.mark.parametrize("name", MADE)
def test_every_recipe_is_made_for_several_lanes(name):
    family = next(row for row in (UNARY, BINARY) if name in row)
    text = ptx(getattr(ops, name), 1 << 24, 1 if family is UNARY else 2)
    assert re.search(r"\.v[24]\.b32", text) or PRIMITIVES[name].weight >= ONE_BY_ONE


def test_what_is_rare_stays_behind_its_branch():
    """Of two powers, whose rare ways have something in common."""
    text = ptx(lambda x: ops.add(*[ops.pow(x, ops.full(y, x.type)) for y in (0.7, 2.5)]), 1 << 24, 1)
    subnormal = text.index("0f4B800000")  # 2**24, which makes such numbers normal
    assert "bra" in text[text.index("ld.global.nc.v4.b32") : subnormal]
