"""Sums of two products of the same number: what Fma adds is hidden from drivers there, and nowhere else."""

import pytest

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KValue
from loopgrad.codegen.options import DEFAULT_OPTIONS, Options
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.gpu.emit.context import SIZE
from loopgrad.codegen.targets.spirv.features import CAPABILITIES, Features
from loopgrad.codegen.targets.spirv.listing import listing
from loopgrad.codegen.targets.spirv.probe import module
from loopgrad.codegen.targets.spirv.target import compile_program
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.types import TensorType, float32, int64
from tests.codegen.targets.spirv.vulkan_harness import validate

# what x * y is added to, of x, y and others
SUMS = {
    "product": (lambda b, v: b.exact("FMul", v[0].type, v[2], v[0]), True),
    "lost": (lambda b, v: b.exact("FNegate", v[0].type, b.exact("FMul", v[0].type, v[0], v[1])), True),
    "twice": (lambda b, v: b.exact("FMul", v[0].type, b.exact("FAdd", v[0].type, v[1], v[1]), v[2]), True),
    "sum": (lambda b, v: b.extended("Fma", v[0].type, *v[1:]), True),
    "factor": (lambda b, v: b.exact("FNegate", v[0].type, v[1]), True),
    "other": (lambda b, v: b.exact("FMul", v[0].type, *v[2:]), False),
    "shared term": (lambda b, v: b.exact("FAdd", v[0].type, v[0], v[2]), False),
}


@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("name", SUMS)
def test_what_is_added_is_hidden_where_it_has_a_factor_of_the_product(name, type):
    make, hidden = SUMS[name]

    def body(e):
        places = [e.offset(e.table.params[0], n * SIZE[type]) for n in range(4)]
        values = [e.b.load(place, type) for place in places]
        e.b.store(places[0], e.b.extended("Fma", type, *values[:2], make(e.b, values)))

    kernel = Kernel("factors", (1,), (BufferParam(int64, 8, "write"),), Block((KValue(int64),)))
    texts = [listing(module(kernel, Features(fused=fused), body)) for fused in (True, False)]
    assert [text.count("OpBitwiseXor") for text in texts] == [int(hidden), 0]


def test_whole_powers_are_computed_in_wider_floats():
    """What a product of small numbers lacks is a subnormal number, which drivers may take for 0."""
    graph, _ = trace(lambda x: [ops.pow(x, ops.full(8.0, x.type))], [TensorType((100,), float32)])
    artifact = compile_program(schedule(graph, DEFAULT_OPTIONS), Options(), Features())
    assert f"OpCapability %{CAPABILITIES['Float64'][0]}\n" in artifact.texts["spirv"]


@pytest.mark.parametrize("fused", [True, False])
def test_powers_need_no_wider_floats_where_fma_rounds_once(fused):
    graph, _ = trace(lambda x, y: [ops.pow(x, y)], [TensorType((100,), float32)] * 2)
    artifact = compile_program(schedule(graph, DEFAULT_OPTIONS), Options(), Features(fused=fused))
    validate(artifact)
    assert (f"OpCapability %{CAPABILITIES['Float64'][0]}\n" in artifact.texts["spirv"]) != fused
