"""Programs as objects with descriptions, without files: every kind of target."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.objects.formats import FORMATS, compile_objects
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.pipeline import build_program
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph


def program():
    x = lg.asarray(np.arange(6.0, dtype=np.float32))
    return build_program(extract([(lg.sum(lg.sin(x)) * x)._value]), DEFAULT_OPTIONS)


@pytest.mark.parametrize("target", ["cpu", "spirv", "sm_80", "gfx1100"])
def test_each_kernel_has_code_and_what_a_launch_needs(target):
    objects = compile_objects(program(), DEFAULT_OPTIONS, target)
    assert objects.program["target"] == target
    assert objects.kernels
    for kernel in objects.kernels:
        assert kernel["target"] == target
        assert objects.images[kernel["code"]]
        assert {"kernel", "entry", "arguments", "params", "stacks", "control", "launch"} <= set(kernel)
        assert ("amd" in kernel) == target.startswith("gfx")


def test_a_program_without_kernels_has_objects_too():
    empty = build_program(Graph((), (), ()), DEFAULT_OPTIONS)
    assert compile_objects(empty, DEFAULT_OPTIONS, "gfx942").kernels == ()


def test_an_unknown_target_is_refused():
    assert "gfx000" not in FORMATS
    with pytest.raises(KeyError):
        compile_objects(program(), DEFAULT_OPTIONS, "gfx000")
